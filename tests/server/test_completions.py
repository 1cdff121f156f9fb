"""`/v1/completions`: its replies match the engine's output."""

from __future__ import annotations

import pytest

from tests.server.rig import Running


def test_a_whole_answer(server: Running) -> None:
    reply = server.complete("hello", max_tokens=6, temperature=0)
    assert reply.status == 200
    assert reply.headers["content-type"] == "application/json"
    body = reply.json
    assert body["id"].startswith("cmpl-")
    assert body["object"] == "text_completion"
    assert body["model"] == "tiny"
    assert body["system_fingerprint"].startswith("drut-")
    (choice,) = body["choices"]
    assert len(choice.pop("text")) == 6
    assert {name: value for name, value in choice.items() if value is not None} == {
        "index": 0, "finish_reason": "length"}
    assert body["usage"] == {"prompt_tokens": 5, "completion_tokens": 6, "total_tokens": 11,
                             "prompt_tokens_details": {"cached_tokens": 0}}


def test_the_default_is_16_tokens_at_temperature_1(server: Running) -> None:
    body = server.post("/v1/completions", {"prompt": "hello", "seed": 3, "ignore_eos": True}).json
    assert body["usage"]["completion_tokens"] == 16
    assert body["choices"] == server.complete(seed=3, ignore_eos=True, max_tokens=16, temperature=1).json["choices"]


def test_more_than_the_room_runs_to_the_room(server: Running) -> None:
    for most in (1000, 1 << 40):
        body = server.complete("x" * 150, max_tokens=most, ignore_eos=True).json
        assert body["choices"][0]["finish_reason"] == "length"
        assert body["usage"]["total_tokens"] == 160


def test_a_prompt_that_leaves_no_room_is_refused(server: Running) -> None:
    for length in (160, 161, 50_000):
        reply = server.complete("x" * length)
        assert reply.status == 400
        assert reply.error["code"] == "context_length_exceeded"
        assert "160" in reply.error["message"]
        assert str(length) in reply.error["message"]


def test_ids_are_as_good_as_text(server: Running) -> None:
    ids = server.post("/tokenize", {"prompt": "hello"}).json["tokens"]
    by_ids, by_text = server.complete(ids, temperature=0), server.complete("hello", temperature=0)
    assert by_ids.json["choices"] == by_text.json["choices"]


@pytest.mark.parametrize("as_ids", [False, True])
def test_several_prompts_are_each_answered_as_alone(server: Running, as_ids: bool) -> None:
    texts = ["one", "two", "three"]
    prompts = [[ord(c) for c in t] for t in texts] if as_ids else texts
    body = server.complete(prompts, n=2, seed=5, temperature=1, logprobs=1).json
    assert [c["index"] for c in body["choices"]] == list(range(6))
    assert body["usage"]["prompt_tokens"] == sum(map(len, texts))
    for i, prompt in enumerate(prompts):
        alone = server.complete(prompt, n=2, seed=5, temperature=1, logprobs=1).json["choices"]
        assert [c | {"index": c["index"] % 2} for c in body["choices"][2 * i : 2 * i + 2]] == alone


def test_echo_puts_the_prompt_first(server: Running) -> None:
    plain = server.complete("héllo", temperature=0).json["choices"][0]["text"]
    for stream in (False, True):
        reply = server.complete("héllo", temperature=0, echo=True, stream=stream)
        bodies = reply.events[:-1] if stream else [reply.json]
        assert "".join(b["choices"][0]["text"] for b in bodies) == "héllo" + plain


def test_echo_with_logprobs_scores_the_prompt(server: Running) -> None:
    """llama.cpp#27174: only what was generated was scored."""
    body = server.complete("The fox", echo=True, logprobs=2, max_tokens=3, temperature=0).json
    scores = body["choices"][0]["logprobs"]
    assert scores["token_logprobs"][0] is None
    assert scores["top_logprobs"][0] is None
    assert all(p <= 0 for p in scores["token_logprobs"][1:])
    assert "".join(scores["tokens"]) == body["choices"][0]["text"]
    assert scores["text_offset"] == list(range(10))
    assert all(len(top) in (2, 3) and scores["tokens"][i] in top for i, top in enumerate(scores["top_logprobs"][1:], 1))
    wanted = server.complete("The fox", prompt_logprobs=2, max_tokens=3, temperature=0).json["choices"][0]
    assert [p and p[str(ord(c))]["logprob"] for c, p in zip("The fox", wanted["prompt_logprobs"], strict=True)] == \
        scores["token_logprobs"][:7]


def test_logprobs_of_no_others_are_those_of_the_text(server: Running) -> None:
    """llama.cpp#11346: they were null."""
    fields = {"max_tokens": 5, "temperature": 0, "ignore_eos": True, "logprobs": 0}
    choice = server.complete("something", **fields).json["choices"][0]
    scores = choice["logprobs"]
    assert "".join(scores["tokens"]) == choice["text"]
    assert len(scores["token_logprobs"]) == len(scores["text_offset"]) == 5
    assert all(value <= 0 for value in scores["token_logprobs"])


def test_no_tokens_with_echo_scores_alone(server: Running) -> None:
    with_answer = server.complete("The fox", echo=True, logprobs=1, max_tokens=1, temperature=0).json["choices"][0]
    for stream in (False, True):
        reply = server.complete("The fox", echo=True, logprobs=1, max_tokens=0, stream=stream,
                                **({"stream_options": {"include_usage": True}} if stream else {}))
        body = reply.events[0] if stream else reply.json
        (choice,) = body["choices"]
        assert choice["text"] == "The fox"
        assert {k: v[:7] for k, v in with_answer["logprobs"].items()} == choice["logprobs"]
        usage = reply.events[-2]["usage"] if stream else body["usage"]
        assert (usage["completion_tokens"], usage["prompt_tokens"]) == (0, 7)
    finish = [e["choices"][0]["finish_reason"] for e in reply.events[:-2]]
    assert finish[-1] == "length"
    assert server.complete("x", max_tokens=0).error["param"] == "max_tokens"


def test_bytes_of_half_a_character_are_spelled_out(server: Running) -> None:
    body = server.complete("é", echo=True, logprobs=0, max_tokens=1, temperature=0).json["choices"][0]
    assert body["logprobs"]["tokens"][:2] == ["bytes:\\xc3", "bytes:\\xa9"]
    assert body["logprobs"]["text_offset"][:3] == [0, 0, 1]


def test_token_ids_come_where_they_are_asked_for(server: Running) -> None:
    choice = server.complete("hi", return_token_ids=True, temperature=0).json["choices"][0]
    assert choice["prompt_token_ids"] == [104, 105]
    assert server.post("/detokenize", {"tokens": choice["token_ids"]}).json["prompt"] == choice["text"]
    events = server.complete("hi", return_token_ids=True, temperature=0, stream=True).events[:-1]
    assert events[0]["choices"][0]["prompt_token_ids"] == [104, 105]
    assert [i for e in events for i in e["choices"][0]["token_ids"]] == choice["token_ids"]


def test_a_second_time_the_prompt_is_cached_unless_the_salt_is_another(server: Running) -> None:
    prompt = "cache me if you can, or do not: " * 3

    def cached(**fields: object) -> int:
        return server.complete(prompt, **fields).json["usage"]["prompt_tokens_details"]["cached_tokens"]

    assert cached(cache_salt="a") == 0
    assert cached(cache_salt="a") == 80
    assert cached(cache_salt="b") == 0
    assert cached() == 0
    assert cached() == 80


def test_stop_ids_and_strings(server: Running) -> None:
    free = server.complete("hello", temperature=0, max_tokens=30, ignore_eos=True).json["choices"][0]["text"]
    stop = free[10:13]
    first = free.index(stop)
    choice = server.complete("hello", temperature=0, max_tokens=30, ignore_eos=True, stop=stop).json["choices"][0]
    assert (choice["text"], choice["finish_reason"], choice["stop_reason"]) == (free[:first], "stop", stop)
    choice = server.complete("hello", temperature=0, max_tokens=30, ignore_eos=True, stop=[stop],
                             include_stop_str_in_output=True).json["choices"][0]
    assert choice["text"] == free[: first + 3]
    token = ord(free[10])
    at = free.index(free[10])
    for kept in (False, True):
        choice = server.complete("hello", temperature=0, max_tokens=30, ignore_eos=True, stop_token_ids=[token],
                                 include_stop_str_in_output=kept).json["choices"][0]
        assert (choice["text"], choice["stop_reason"]) == (free[: at + kept], token)


def test_an_end_of_text_is_left_out_unless_asked_for(server: Running) -> None:
    force = {"logit_bias": {"257": 100}, "temperature": 0}
    choice = server.complete(**force, logprobs=1).json["choices"][0]
    assert (choice["text"], choice["finish_reason"], choice["stop_reason"]) == ("", "stop", None)
    assert choice["logprobs"]["tokens"] == ["<eos>"]
    assert server.complete(**force, include_stop_str_in_output=True).json["choices"][0]["text"] == ""
    kept = server.complete(**force, include_stop_str_in_output=True, skip_special_tokens=False).json["choices"][0]
    assert kept["text"] == "<eos>"
    many = server.complete(**force, ignore_eos=True, skip_special_tokens=False, max_tokens=3).json["choices"][0]
    assert (many["text"], many["finish_reason"]) == ("<eos><eos><eos>", "length")


def test_a_stop_strings_tokens_have_no_logprobs(server: Running) -> None:
    free = server.complete("hello", temperature=0, max_tokens=20, ignore_eos=True).json["choices"][0]["text"]
    for stream in (False, True):
        reply = server.complete("hello", temperature=0, max_tokens=20, ignore_eos=True, stop=free[8:12], logprobs=0,
                                stream=stream)
        choices = [e["choices"][0] for e in reply.events[:-1]] if stream else reply.json["choices"]
        tokens = [t for c in choices for t in c["logprobs"]["tokens"]]
        assert "".join(tokens) == "".join(c["text"] for c in choices) == free[: free.index(free[8:12])]
