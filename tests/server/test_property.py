"""A stream, a whole reply and the token ids have the same text, for any request."""

from __future__ import annotations

from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from tests.server.rig import Reply, Running

PROMPTS = st.text("abc é🔥\n", min_size=1, max_size=12)
REQUESTS = st.fixed_dictionaries(
    {"seed": st.integers(-5, 5), "temperature": st.sampled_from([0, 1, 2]), "max_tokens": st.integers(1, 40)},
    optional={
        "stop": st.lists(st.text("abcdefghijklmno", min_size=1, max_size=2), min_size=1, max_size=4),
        "n": st.integers(1, 3), "echo": st.booleans(), "logprobs": st.integers(0, 2), "ignore_eos": st.booleans(),
        "include_stop_str_in_output": st.booleans(), "skip_special_tokens": st.booleans(),
        "stop_token_ids": st.lists(st.integers(97, 122), max_size=2), "min_tokens": st.just(1),
        "frequency_penalty": st.sampled_from([0, 1.5]),
        # bytes that are parts of characters, in any order
        "logit_bias": st.dictionaries(st.sampled_from(["195", "169", "240", "159", "257"]), st.just(5), max_size=5),
    })


def merged(reply: Reply) -> dict[int, dict[str, Any]]:
    """The choices of a stream, put together as a client would."""
    *chunks, done = reply.events
    assert done == "[DONE]"
    whole: dict[int, dict[str, Any]] = {}
    for chunk in chunks:
        (choice,) = chunk["choices"]
        empty = {"text": "", "token_ids": [], "logprobs": None, "finish_reason": None}
        known = whole.setdefault(choice["index"], choice | empty)
        assert known["finish_reason"] is None
        known["text"] += choice["text"]
        known["token_ids"] += choice["token_ids"]
        known["finish_reason"], known["stop_reason"] = choice["finish_reason"], choice["stop_reason"]
        if choice["logprobs"] is not None:
            scores = known["logprobs"] = known["logprobs"] or {name: [] for name in choice["logprobs"]}
            for name, values in choice["logprobs"].items():
                scores[name] += values
    return whole


@settings(max_examples=60, deadline=None)
@given(PROMPTS, REQUESTS)
def test_stream_is_whole_is_ids(server: Running, prompt: str, fields: dict[str, Any]) -> None:
    fields = {"return_token_ids": True} | fields
    reply = server.complete(prompt, **fields)
    assert reply.status == 200, reply.raw
    whole = {c["index"]: {name: value for name, value in c.items() if name != "prompt_logprobs"}
             for c in reply.json["choices"]}
    assert merged(server.complete(prompt, stream=True, **fields)) == whole
    for choice in whole.values():
        check_text(server, prompt, fields, choice)
        check_logprobs(fields, choice)


def check_text(server: Running, prompt: str, fields: dict[str, Any], choice: dict[str, Any]) -> None:
    ids, ended = choice["token_ids"], choice["finish_reason"] == "stop" and not isinstance(choice["stop_reason"], str)
    kept = ids[:-1] if ended and not fields.get("include_stop_str_in_output") else ids
    if fields.get("skip_special_tokens") is not False:
        kept = [i for i in kept if i < 256]
    text = naive_text(kept)
    said = choice["text"].removeprefix(prompt) if fields.get("echo") else choice["text"]
    ends = [(text.index(s) + len(s), i, s) for i, s in enumerate(fields.get("stop", ())) if s in text]
    if ends:
        end, _, stop = min(ends)
        assert (choice["finish_reason"], choice["stop_reason"]) == ("stop", stop)
        assert said == (text[:end] if fields.get("include_stop_str_in_output") else text[: end - len(stop)])
    else:
        assert said == text
        assert not isinstance(choice["stop_reason"], str)


def naive_text(ids: list[int]) -> str:
    """Bytes joined and decoded at once."""
    special = {256: b"<bos>", 257: b"<eos>"}
    return b"".join(special.get(i, bytes([i % 256])) for i in ids).decode(errors="replace")


def check_logprobs(fields: dict[str, Any], choice: dict[str, Any]) -> None:
    scores = choice["logprobs"]
    if fields.get("logprobs") is None:
        assert scores is None
        return
    assert len({len(values) for values in scores.values()}) == 1
    assert scores["text_offset"] == sorted(scores["text_offset"])
    assert all(0 <= offset <= len(choice["text"]) for offset in scores["text_offset"])
    if not isinstance(choice["stop_reason"], str) and not fields.get("echo"):
        assert len(scores["tokens"]) == len(choice["token_ids"])
