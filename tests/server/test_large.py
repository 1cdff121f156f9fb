"""Replies of many megabytes: refused before anything is computed, or made in parts that hold up no other client."""

from __future__ import annotations

import asyncio
import threading
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec
import pytest

from drut.engine.request.output import Chunk, Completion, Logprob
from drut.engine.request.params import FilledParams
from drut.engine.service.messages import FromEngine, Output
from drut.engine.service.transport import USUAL_FRAME, frames
from drut.server.openai.render import parts as parts_module
from drut.server.openai.render.chat import ChatDialect
from drut.server.openai.render.completions import CompletionsDialect
from drut.server.openai.render.dialect import Dialect
from drut.server.openai.render.parts import BUNDLE_BYTES, bundles, lazily, parts
from drut.server.service import SMALL_REPLY
from drut.server.stream.assembler import Assembler
from drut.server.stream.logprob_bytes import ScoreRow
from drut.server.stream.prepared_request import PreparedPrompt, PreparedRequest
from drut.server.stream.reply_memory import ReplyMemory
from drut.server.stream.reply_size import REPLY, ReplySize
from tests.cli import tiny
from tests.server.rig import Running, serving, until


class Form(msgspec.Struct):
    name: str
    items: list[object]
    last: list[int] | None = None


def test_parts_are_the_json_of_the_whole() -> None:
    inner = [Form("a\x00b", [i, str(i)], [i]) for i in range(3)]
    plain = Form("outer", [*inner], list(range(1000)))
    lazy = Form("outer", lazily((Form(f.name, lazily(f.items), f.last) for f in inner), whole=False),
                lazily(iter(range(1000))))
    made = list(parts(lazy))
    assert b"".join(made) == msgspec.json.encode(plain)
    assert max(map(len, made)) < 800, "a thousand numbers do not come at once"
    assert b"".join(bundles(made)) == b"".join(made)
    for simple in (Form("x", []), plain):
        assert b"".join(parts(simple)) == msgspec.json.encode(simple)
    assert b"".join(parts(Form("x", lazily([])))) == msgspec.json.encode(Form("x", []))
    with pytest.raises(TypeError, match="cannot contain a object"):
        list(parts(Form("x", [object()])))


def test_rows_hold_what_they_were_made_of() -> None:
    scores = {7: Logprob(-0.1, 1, "a"), 3: Logprob(-2.5, 2, "b"), 900: Logprob(-11.25, 1 << 20, "c")}
    row = ScoreRow.of(scores)
    assert [(s.token, s.logprob, s.rank) for s in row.scores()] == [(i, p.logprob, p.rank) for i, p in scores.items()]
    assert row.logprob(900) == -11.25


def job(operation: str, *, n: int = 1, prompt: int = 3000, top: int = 20, **fields: Any) -> PreparedRequest:
    params = FilledParams(n=n, logprobs=top, max_tokens=4, prompt_logprobs=top)
    scored = {"echo": True, "echo_scores": True} if operation == "text_completion" else {"prompt_logprobs": True}
    return PreparedRequest("id", "m", "f", [PreparedPrompt([97] * prompt, "a" * prompt)], params, logprobs=True,
                           operation=operation, **(scored | fields))


def assembled(asked: PreparedRequest) -> Assembler:
    """With all that an engine has to say of it."""
    row = {97 + i: Logprob(-i / 3, i + 1, "a") for i in range((asked.params.logprobs or 0) + 1)}
    assembler, prompt = Assembler(asked, None), asked.prompts[0].ids
    for start in range(0, len(prompt), 512):
        rows = [None if i == 0 else row for i in range(start, min(len(prompt), start + 512))]
        assert assembler.push(0, Chunk(text="", token_ids=[], completion=None, index=0, logprobs=None,
                                       prompt_logprobs=rows)) == (start + 512 >= len(prompt))
    for index in range(asked.params.n):
        end = Completion(text="", token_ids=[], finish_reason="length", prompt_tokens=len(prompt), cached_tokens=0,
                         completion_tokens=4, seed=0, index=index)
        assembler.push(0, Chunk("abcd", [97, 98, 99, 100], end, index, [row] * 4, text_lengths=[1] * 4))
    return assembler


@pytest.mark.parametrize("make", [CompletionsDialect, ChatDialect])
def test_a_reply_is_made_in_small_steps(make: type[CompletionsDialect] | type[ChatDialect]) -> None:
    """Whatever its size, no step makes more than some hundred entries, which is what bounds a thread's hold."""
    asked = job("text_completion" if make is CompletionsDialect else "chat", n=3)
    assembler = assembled(asked)
    dialect: Dialect = make(asked, assembler, None)
    made = list(parts(dialect.reply(assembler.take())))
    whole = b"".join(made)
    assert len(whole) > 2_000_000
    assert max(map(len, made)) < 300_000
    assert max(map(len, bundles(made))) < BUNDLE_BYTES + 300_000
    reply = msgspec.json.decode(whole)
    assert len(reply["choices"]) == 3
    if make is CompletionsDialect:
        assert [len(c["logprobs"]["top_logprobs"]) for c in reply["choices"]] == [3004] * 3
    else:
        assert len(reply["prompt_logprobs"]) == 3000


@pytest.fixture(scope="module")
def wide(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    """A server with room for long prompts, and little for replies."""
    path: Path = tmp_path_factory.mktemp("large") / "wide.gguf"
    path.write_bytes(tiny.model(llama__context_length=2048))
    with serving(path, max_reply_mb=5) as running:
        yield running


LONG = [97 + i % 20 for i in range(1500)]


@pytest.mark.parametrize("body", [
    {"prompt": [LONG, LONG], "n": 128, "echo": True, "logprobs": 20, "max_tokens": 1},
    {"prompt": [LONG, LONG], "n": 128, "echo": True, "logprobs": 20, "max_tokens": 1, "stream": True},
    {"prompt": [LONG] * 4, "n": 16, "prompt_logprobs": 20, "max_tokens": 1},
    {"prompt": LONG, "n": 128, "logprobs": 20, "max_tokens": 500},
    {"prompt": "a", "n": 128, "max_tokens": 2000, "logprobs": 3},
    {"prompt": [LONG] * 8, "n": 128, "return_token_ids": True, "max_tokens": 500},
], ids=["echo", "echo streamed", "scored prompts", "answers with logprobs", "long answers", "ids"])
def test_a_reply_that_may_get_too_large_is_refused_at_once(wide: Running, body: dict[str, Any]) -> None:
    if body.get("n", 1) * (len(body["prompt"]) if isinstance(body["prompt"][0], list) else 1) > 256:
        body = body | {"n": 256 // len(body["prompt"])}
    reply = wide.post("/v1/completions", body)
    assert (reply.status, reply.error["code"]) == (400, "reply_too_large")
    for said in ("choices of up to", "tokens of prompts", "at most 5 MB are allowed (--max-reply-mb)"):
        assert said in reply.error["message"]
    assert reply.error["param"] in body


def test_a_chat_that_may_get_too_large_is_refused_too(wide: Running) -> None:
    reply = wide.chat("hi", n=64, logprobs=True, top_logprobs=20, max_tokens=1000)
    assert (reply.status, reply.error["code"], reply.error["param"]) == (400, "reply_too_large", "logprobs")
    streamed = wide.chat("hi", n=64, logprobs=True, top_logprobs=20, max_tokens=3, stream=True)
    assert streamed.status == 200, "an answer goes out as it comes"


ASKS: list[dict[str, Any]] = [
    {"prompt": LONG, "echo": True, "logprobs": 20, "max_tokens": 1, "n": 2},
    {"prompt": LONG, "prompt_logprobs": 5, "max_tokens": 3, "n": 2, "return_token_ids": True},
    {"prompt": "abc", "max_tokens": 60, "logprobs": 2, "n": 3, "temperature": 1.5, "ignore_eos": True},
    {"prompt": ["abc", "defg"], "max_tokens": 30, "n": 2, "echo": True, "temperature": 2, "ignore_eos": True},
    {"prompt": LONG, "echo": True, "logprobs": 0, "max_tokens": 0},
]


@pytest.mark.parametrize("body", ASKS, ids=range(len(ASKS)))
def test_no_reply_is_larger_than_was_expected(wide: Running, body: dict[str, Any],
                                              monkeypatch: pytest.MonkeyPatch) -> None:
    sizes: list[ReplySize] = []
    monkeypatch.setattr(wide.server.service.limits.__class__, "check_reply", lambda _, size: sizes.append(size))
    for chat in (False, True):
        if chat:
            fields = {k: v for k, v in body.items() if k not in ("prompt", "echo", "logprobs")}
            top = {"logprobs": True, "top_logprobs": body["logprobs"]} if body.get("logprobs") else {}
            text = "".join(map(chr, LONG)) if body["prompt"] is LONG else "abc"
            reply = wide.chat(text, **(fields | top | {"max_tokens": body["max_tokens"] or 1}))
        else:
            reply = wide.post("/v1/completions", body)
        assert reply.status == 200, reply.raw[:200]
        assert len(reply.raw) <= sizes[-1].bytes


def test_a_large_reply_is_made_off_the_event_loop(wide: Running, monkeypatch: pytest.MonkeyPatch) -> None:
    """In threads for text, one bundle at a time; whole, streamed and in small parts it is the same.

    A stream's last events are small and may come alone: the event loop encodes these itself.
    """
    encoded: Counter[str] = Counter()  # bytes of lists, by kind of thread
    real = parts_module.msgspec.json.encode

    def noting(value: Any, **kwargs: Any) -> bytes:
        data: bytes = real(value, **kwargs)
        if isinstance(value, list):
            encoded[threading.current_thread().name.rpartition("_")[0]] += len(data)
        return data

    class Json:
        encode = staticmethod(noting)

    class Noting:
        json, Raw = Json, msgspec.Raw

    monkeypatch.setattr(parts_module, "msgspec", Noting)
    body = {"prompt": LONG, "echo": True, "logprobs": 20, "max_tokens": 2, "n": 2, "seed": 3, "temperature": 1}
    large = wide.post("/v1/completions", body)
    assert large.status == 200
    assert len(large.raw) > 2 * SMALL_REPLY
    assert set(encoded) == {"drut-text"}
    assert "content-length" not in large.headers
    encoded.clear()
    streamed = wide.post("/v1/completions", body | {"stream": True})
    assert encoded.pop("drut-text") > SMALL_REPLY
    assert encoded.total() < SMALL_REPLY / 4
    for choice in large.json["choices"]:
        pieces = [e["choices"][0] for e in streamed.events[:-1] if e["choices"][0]["index"] == choice["index"]]
        for name in ("tokens", "token_logprobs", "top_logprobs", "text_offset"):
            assert [x for p in pieces for x in p["logprobs"][name]] == choice["logprobs"][name]
        assert "".join(p["text"] for p in pieces) == choice["text"]
        alone = wide.post("/v1/completions", body | {"n": 1}).json["choices"][0]
        assert alone["logprobs"]["top_logprobs"][:1500] == choice["logprobs"]["top_logprobs"][:1500]


def test_a_text_of_ids_has_a_largest_size(model_path: Path) -> None:
    with serving(model_path, max_reply_mb=0.001) as small:
        assert small.post("/detokenize", {"tokens": [97] * 900}).status == 200
        reply = small.post("/detokenize", {"tokens": [97] * 1100})
        assert (reply.status, reply.error["code"], reply.error["param"]) == (400, "reply_too_large", "tokens")


def test_large_replies_wait_for_room_and_small_ones_pass_them() -> None:
    async def main() -> None:
        room, order = ReplyMemory(100, small=10), list[str]()

        async def reply(name: str, size: int, ends: asyncio.Event) -> None:
            async with room.hold(size, 30):
                order.append(name)
                await ends.wait()

        ends = {name: asyncio.Event() for name in "abcdef"}
        tasks = {name: asyncio.create_task(reply(name, size, ends[name])) for name, size in
                 (("a", 60), ("b", 60), ("c", 30), ("d", 10), ("e", 500), ("f", 20))}
        await asyncio.sleep(0)
        assert order == ["a", "d"], "c waits behind b, who came first"
        tasks["b"].cancel()
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        assert order == ["a", "d", "c"]
        ends["a"].set()
        ends["c"].set()
        while "e" not in order:
            await asyncio.sleep(0)
        assert "f" not in order, "what is larger than all room has it for itself"
        for event in ends.values():
            event.set()
        await asyncio.gather(*tasks.values(), return_exceptions=True)
        assert sorted(order) == ["a", "c", "d", "e", "f"]
        async with room.hold(100, 30):
            with pytest.raises(TimeoutError):
                async with room.hold(20, 0):
                    raise AssertionError("there is no room")
            async with room.hold(5, 0):
                pass
        async with room.hold(100, 0):
            pass

    asyncio.run(asyncio.wait_for(main(), 30))


def test_a_place_whose_task_is_cancelled_is_passed_over_by_one_that_leaves() -> None:
    """In the same turn of the loop: the task that waits has not run since."""
    async def main() -> None:
        room, leave = ReplyMemory(100, small=10), asyncio.Event()

        async def reply(size: int) -> None:
            async with room.hold(size, 30):
                await leave.wait()

        first = asyncio.create_task(reply(100))
        second, third = (asyncio.create_task(reply(60)) for _ in range(2))
        await asyncio.sleep(0)
        leave.set()
        second.cancel()
        assert isinstance((await asyncio.gather(first, second, third, return_exceptions=True))[1],
                          asyncio.CancelledError)
        await first
        await third
        async with room.hold(100, 0):
            pass

    asyncio.run(asyncio.wait_for(main(), 30))


def test_a_large_reply_that_finds_no_room_in_time_is_refused(model_path: Path) -> None:
    ask: dict[str, Any] = {"n": 20, "logprobs": 20, "echo": True, "max_tokens": 1}
    with serving(model_path, max_wait_s=0.1) as running:
        room = running.server.service.reply_memory = ReplyMemory(1, small=SMALL_REPLY)
        assert running.complete("x" * 140, **ask).status == 200
        until(lambda: room._held == 0)
        room._held = 1  # as by a reply that is being sent
        refused = running.complete("x" * 140, **ask)
        assert (refused.status, refused.error["code"]) == (429, "queue_full")
        assert refused.headers["retry-after"] == "1"
        late = running.complete("x" * 140, **ask, deadline_s=0.01)
        assert (late.status, late.error["code"]) == (504, "deadline_exceeded")
        assert running.complete().status == 200


def test_messages_of_a_step_go_in_frames_of_a_bounded_size() -> None:
    rows = [{i: Logprob(-1.0, 1, "a") for i in range(21)}] * 400
    messages: list[FromEngine] = [Output(str(i), Chunk(text="", token_ids=[], completion=None, index=0, logprobs=None,
                                                       prompt_logprobs=list(rows)), False) for i in range(40)]
    made = list(frames(messages))
    assert len(made) > 1
    assert all(len(frame) <= USUAL_FRAME for frame in made)
    decoded = [m for frame in made for m in msgspec.msgpack.decode(frame, type=list[FromEngine])]
    assert [m.id for m in decoded if isinstance(m, Output)] == [str(i) for i in range(40)]


def test_of_a_stream_only_its_prompt_fields_count() -> None:
    whole, streamed = job("text_completion"), job("text_completion", stream=True)
    assert ReplySize.of(streamed, 10_000).answer_tokens == 0
    assert ReplySize.of(streamed, 10_000).bytes < ReplySize.of(whole, 10_000).bytes
    several = ReplySize.of(replace(whole, params=replace(whole.params, n=7)), 10_000)
    assert several.bytes - REPLY == 7 * (ReplySize.of(whole, 10_000).bytes - REPLY)
    assert (several.choices, several.prompt_tokens, several.scores) == (7, 3000, 20)
