"""The Python surface as programs meet it: types, names of other libraries, calls at a wrong time, what is printed."""

from __future__ import annotations

import asyncio
import io
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from drut import LLM, AsyncEngine, Chunk, Completion, DrutError, EngineConfig, EngineDeadError, RequestError
from drut import SamplingParams as Params
from drut.foreign import ARGUMENTS, COMPLETION, SAMPLING, SETTINGS
from drut.observe import bars
from tests.engine.models import write_bytes_model

SHORT = Params(max_tokens=4, temperature=0, ignore_eos=True)
HI = [{"role": "user", "content": "hi"}]


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_bytes_model(tmp_path_factory.mktemp("model"))


@pytest.fixture(scope="module")
def llm(path: Path) -> Iterator[LLM]:
    with LLM(path, threads=1) as made:
        yield made


def refusal(call: Callable[[], object]) -> str:
    with pytest.raises(RequestError) as error:
        call()
    assert len(str(error.value).splitlines()) == 1
    return str(error.value)


def test_names_of_other_libraries_are_answered_with_ours(path: Path, llm: LLM) -> None:
    for name, hint in SETTINGS.items():
        assert refusal(lambda name=name: LLM(**{name: 1})) == f"LLM() has no argument {name!r}: {hint}"
        assert refusal(lambda name=name: AsyncEngine(path, **{name: 1})).endswith(f"has no argument {name!r}: {hint}")
        assert refusal(lambda name=name: EngineConfig.resolve({name: 1})) == f"there is no setting {name!r}: {hint}"
    for name, hint in SAMPLING.items():
        assert refusal(lambda name=name: Params(**{name: 1})) == f"SamplingParams has no field {name!r}: {hint}"
    for name, hint in ARGUMENTS.items():
        for call in (llm.generate, llm.chat):
            words = f"{call.__name__}() has no argument {name!r}: {hint}"
            assert refusal(lambda name=name, call=call: call(HI, **{name: 1})) == words
    answer = llm.generate("hi", SHORT)[0]
    for name, hint in COMPLETION.items():
        with pytest.raises(AttributeError) as error:
            getattr(answer, name)
        assert str(error.value) == f"a Completion has no {name!r}: {hint}"
    assert not hasattr(answer, "outputs")
    for name in "max_seqs", "max_batch_tokens", "kv_dtype", "max_model_len", "threads", "prefix_cache", "multi_step":
        assert any(f"use {name}" in hint for hint in SETTINGS.values())
        assert name in EngineConfig.names()


def test_a_misspelled_name_is_answered_with_the_nearest(path: Path, llm: LLM) -> None:
    assert refusal(lambda: LLM(path, max_seq=1)) == "there is no setting 'max_seq'; did you mean max_seqs?"
    assert refusal(lambda: Params(temprature=1)).endswith("did you mean temperature?")
    assert refusal(lambda: llm.stream("hi", parms=SHORT)).endswith("did you mean params?")
    assert refusal(lambda: llm.generate("hi", zzz=1)) == "generate() has no argument 'zzz'"


@pytest.mark.parametrize(("prompts", "words"), [
    (5, "not int"), (None, "not NoneType"), (b"hi", "not bytes"), ([], "no prompt"), ([None], "not NoneType"),
    (["a", 5], "not int"), ([[1, "a"]], "not a list with str"), ([1.5], "not float"), ({"a": 1}, "not dict"),
    (HI, "a conversation is for chat"), ([[HI[0]]], "a list with dict"), ([1, None], "not int")])
def test_a_prompt_of_a_wrong_type_is_named(llm: LLM, prompts: Any, words: str) -> None:
    assert words in refusal(lambda: llm.generate(prompts, SHORT))


@pytest.mark.parametrize(("messages", "words"), [
    ("hi", "not str"), (5, "not int"), ([], "messages is empty"), (["hi"], "not a list of str"), ([[]], "is empty"),
    ([HI, "hi"], "not a list of str"), (HI[0], "not dict"), ([{"content": "hi"}], "messages[0].role is missing"),
    ([{"role": "user", "content": 5}], "messages[0].content must be text or a list of parts, not int"),
    ([*HI, {"role": "user", "content": [{"type": "image_url", "image_url": {}}]}],
     "messages[1].content[0]: type 'image_url' is not supported; text and refusal are"),
    ([{"role": "user", "content": [5]}], "messages[0].content[0] must be text or a dict"),
    ([{"role": "user", "content": [{"type": "text"}]}], "messages[0].content[0].text is missing")])
def test_a_conversation_of_a_wrong_type_is_named(llm: LLM, messages: Any, words: str) -> None:
    assert words in refusal(lambda: llm.chat(messages, SHORT))


@pytest.mark.parametrize(("tools", "words"), [
    (5, "tools must be a list of dicts, not int"), ({"type": "function"}, "tools must be a list of dicts, not dict"),
    ([{}, print], "tools[1] must be a dict, not builtin_function_or_method")])
def test_tools_of_a_wrong_type_are_named(llm: LLM, tools: Any, words: str) -> None:
    assert refusal(lambda: llm.chat(HI, SHORT, tools=tools)) == words
    assert refusal(lambda: llm.encode_chat(HI, tools)) == words


def test_models_and_messages_of_a_wrong_type_are_named(llm: LLM) -> None:
    model: Any
    for model in (None, 5, b"m.gguf"):
        assert refusal(lambda model=model: LLM(model)) == (
            f"model must be a name or a path, not {type(model).__name__}")
    assert "not NoneType" in refusal(lambda: llm.encode_chat(None))  # type: ignore[arg-type]
    assert "not empty, not 5" in refusal(lambda: Params(stop=5))  # type: ignore[arg-type]


def test_params_of_a_wrong_type_are_named(path: Path, llm: LLM) -> None:
    for call in (lambda p: llm.generate("hi", p), lambda p: llm.chat(HI, p), lambda p: next(llm.stream("hi", p))):
        assert refusal(lambda call=call: call({"temperature": 0})) == (
            "params must be SamplingParams, not dict: use SamplingParams(**params)")
        assert refusal(lambda call=call: call(5)) == "params must be SamplingParams, not int"
    assert refusal(lambda: llm.generate(["a", "b"], [SHORT])) == "params has 1 entries for 2 prompts"
    assert refusal(lambda: llm.generate("a", priorities=[1, 2])) == "priorities has 2 entries for 1 prompts"
    assert refusal(lambda: LLM(path, max_seqs="8")) == "max_seqs must be an integer, not '8'"
    assert refusal(lambda: EngineConfig(max_seqs=None)) == "max_seqs must be an integer, not None"
    assert refusal(lambda: LLM(path, config={"max_seqs": 8})) == "config must be EngineConfig, not dict"
    both = lambda: LLM(path, config=EngineConfig(), max_seqs=8)  # noqa: E731
    assert refusal(both) == "config has all settings: set max_seqs in it"


def test_chat_takes_one_conversation_or_several_and_returns_every_choice(llm: LLM) -> None:
    other = [{"role": "user", "content": "bye"}]
    alone = [llm.chat(messages, SHORT)[0] for messages in (HI, other)]
    both = llm.chat([HI, other], [SHORT, SHORT])
    assert [a.token_ids for a in both] == [a.token_ids for a in alone]
    three = llm.chat(HI, Params(max_tokens=4, n=3, seed=1))
    assert [a.index for a in three] == [0, 1, 2]
    assert len(llm.chat([HI, other], Params(max_tokens=4, n=2))) == 4
    parts = [{"role": "user", "content": [{"type": "text", "text": "h"}, {"type": "text", "text": "i"}]}]
    assert llm.chat(parts, SHORT)[0].token_ids == alone[0].token_ids
    assert llm.encode_chat(parts) == llm.encode_chat(HI)


def test_ids_may_be_an_array_and_a_prompt_alone_is_a_list_of_one(llm: LLM) -> None:
    wanted = [a.token_ids for a in llm.generate([104, 105], SHORT)]
    assert len(wanted) == 1
    assert [a.token_ids for a in llm.generate(np.array([104, 105]), SHORT)] == wanted
    assert [a.token_ids for a in llm.generate(range(104, 106), SHORT)] == wanted


def test_reprs_are_short(path: Path) -> None:
    assert repr(Params(temperature=0.5, n=2, stop="x")) == "SamplingParams(temperature=0.5, n=2, stop=('x',))"
    assert repr(Params()) == "SamplingParams()"
    done = Completion(text="word " * 1000, token_ids=[1] * 1000, finish_reason="stop", prompt_tokens=3, cached_tokens=0,
                      completion_tokens=1000, seed=1, index=2)
    assert repr(done).startswith("Completion('word word")
    assert repr(done).endswith("1000 tokens, finish_reason='stop', index=2)")
    assert len(repr(done)) < 130
    assert repr(Chunk("a\n", [7])) == "Chunk('a\\n', 1 token)"
    llm = LLM(path, threads=1)
    assert repr(llm).startswith(f"LLM('{path.name}', ")
    llm.close()
    assert repr(llm) == f"LLM('{path.name}', closed)"
    assert repr(AsyncEngine(path)) == f"AsyncEngine('{path}', not started)"


def test_after_close_every_call_is_refused(path: Path) -> None:
    llm = LLM(path, threads=1)
    llm.close()
    llm.close()
    calls = (lambda: llm.generate("hi"), lambda: llm.chat(HI), lambda: next(llm.stream("hi")), lambda: llm.logits([1]),
             lambda: llm.expert_loads(), lambda: llm.__enter__(),
             lambda: llm.submit("hi", SHORT))
    for call in calls:
        with pytest.raises(DrutError, match="the model was closed"):
            call()


def test_an_async_engine_outside_of_async_with_is_refused_at_once(path: Path) -> None:
    engine = AsyncEngine(path, threads=1)

    async def refused(kind: type[DrutError], words: str) -> None:
        async def iterated() -> None:
            async for _ in engine.generate("hi"):
                pass

        async def awaited() -> None:
            await engine.generate("hi")  # type: ignore[misc]

        for call in (iterated, awaited, engine.stats):
            with pytest.raises(kind, match=words):
                await asyncio.wait_for(call(), 5)

    async def main() -> None:
        await refused(DrutError, "inside `async with AsyncEngine")
        async with engine:
            assert all([type(chunk) is Chunk async for chunk in engine.generate("hi", SHORT)])
            with pytest.raises(RequestError, match="params must be SamplingParams, not dict"):
                engine.generate("hi", {"max_tokens": 4})  # type: ignore[arg-type]
            with pytest.raises(RequestError, match="text or a list of token ids, not int"):
                engine.generate(5)  # type: ignore[arg-type]
            with pytest.raises(RequestError, match="no argument 'sampling_params': use params"):
                engine.generate("hi", sampling_params=SHORT)  # type: ignore[call-arg]
        await refused(EngineDeadError, "the engine was stopped")
        with pytest.raises(DrutError, match="started once"):
            await engine.__aenter__()

    asyncio.run(main())


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def shown(monkeypatch: pytest.MonkeyPatch, stream: io.StringIO, call: Callable[[], object]) -> str:
    monkeypatch.setattr(sys, "stderr", stream)
    monkeypatch.setenv("TERM", "xterm")
    call()
    return stream.getvalue()


def test_a_bar_is_shown_for_several_prompts_on_a_terminal_alone(llm: LLM, monkeypatch: pytest.MonkeyPatch) -> None:
    two = ["hi", "ho"]
    text = shown(monkeypatch, Terminal(), lambda: llm.generate(two, SHORT))
    assert "2/2" in text
    assert "8 tokens" in text
    assert "1/1" in shown(monkeypatch, Terminal(), lambda: llm.generate("hi", SHORT, progress=True))
    assert "2/2" in shown(monkeypatch, Terminal(), lambda: llm.chat([HI, HI], SHORT))
    for stream, prompts, wanted in [(Terminal(), "hi", None), (Terminal(), two, False), (io.StringIO(), two, True)]:
        assert shown(monkeypatch, stream, lambda p=prompts, w=wanted: llm.generate(p, SHORT, progress=w)) == ""


def test_a_notebook_is_known_by_its_shell(monkeypatch: pytest.MonkeyPatch) -> None:
    class ZMQInteractiveShell:
        pass

    monkeypatch.setattr(sys, "stderr", io.StringIO())
    assert not bars.can_show()
    monkeypatch.setitem(sys.modules, "IPython", type("IPython", (), {"get_ipython": ZMQInteractiveShell}))
    assert bars.can_show()
