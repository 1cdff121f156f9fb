"""Many iterators over one engine, in a thread or a process: each gets its own answer, and fails or stops alone."""

from __future__ import annotations

import asyncio
import os
import random
import signal
from collections.abc import AsyncIterator, Coroutine, Iterator
from contextlib import aclosing
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from drut import LLM, AsyncEngine, Completion, SamplingParams
from drut.cache.pool import KvCorruptionError
from drut.constrain import Constraint
from drut.engine.engine import Engine
from drut.engine.service.transport import ProcessTransport
from drut.errors import DrutError, EngineDeadError, RequestError
from drut.kernels.native.executable import NativeExecutable
from tests.cli import tiny
from tests.engine.models import Said, said, write_bytes_model, write_poisoned_model

LONG = SamplingParams(max_tokens=150, ignore_eos=True, temperature=0)
SHORT = SamplingParams(max_tokens=5, ignore_eos=True, temperature=0)
SETTINGS: dict[str, Any] = {"threads": 1, "debug_kv": True}
HANG_S = 300

# An answer that has not ended yet however late a starved process gets to look: none of the tests takes so long.
ENDLESS = SamplingParams(max_tokens=90_000, ignore_eos=True, temperature=0)
ENDLESS_SETTINGS: dict[str, Any] = {"threads": 1, "multi_step": 1, "kv_cache_gb": 0.05}


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_bytes_model(tmp_path_factory.mktemp("async"))


@pytest.fixture(scope="module")
def llm(path: Path) -> Iterator[LLM]:
    with LLM(path, **SETTINGS) as made:
        yield made


@pytest.fixture(params=["thread", "process"])
def engine(request: pytest.FixtureRequest, path: Path) -> AsyncEngine:
    return AsyncEngine(path, process=request.param == "process", **SETTINGS)


@pytest.fixture(scope="module")
def endless_path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("endless") / "endless.gguf"
    path.write_bytes(tiny.model(llama__context_length=100_000))
    return path


@pytest.fixture(params=["thread", "process"])
def endless(request: pytest.FixtureRequest, endless_path: Path) -> AsyncEngine:
    return AsyncEngine(endless_path, process=request.param == "process", **ENDLESS_SETTINGS)


def run(main: Coroutine[Any, Any, None]) -> None:
    """Nothing here takes long on a machine of one's own; what hangs fails, on one that is starved too."""
    asyncio.run(asyncio.wait_for(main, HANG_S))


async def answers(engine: AsyncEngine, prompt: Any, params: SamplingParams, **kwargs: Any) -> list[Completion]:
    """The choices of one request, after checking that its pieces add up to them."""
    text: dict[int, str] = {}
    ends = []
    async for chunk in engine.generate(prompt, params, **kwargs):
        text[chunk.index] = text.get(chunk.index, "") + chunk.text
        if chunk.completion:
            assert chunk.completion.text == text[chunk.index]
            ends.append(chunk.completion)
    return sorted(ends, key=lambda c: c.index)


def expected(llm: LLM, prompt: Any, params: SamplingParams) -> list[Said]:
    return [said(c, scores=c.index == 0) for c in llm.generate([prompt], params)]


def shown(ends: list[Completion]) -> list[Said]:
    return [said(c, scores=c.index == 0) for c in ends]


def random_request(dice: random.Random) -> tuple[Any, SamplingParams]:
    prompt = "".join(dice.choice("abcdef ") for _ in range(dice.randrange(1, 60)))
    params = SamplingParams(
        max_tokens=dice.randrange(1, 40), temperature=dice.choice([0.0, 1.0]), seed=dice.randrange(99),
        n=dice.choice([1, 1, 2]), stop=dice.choice([(), ("q",)]), frequency_penalty=dice.choice([0.0, 0.5]),
        logprobs=dice.choice([None, 2]), prompt_logprobs=dice.choice([None, None, 1]))
    return dice.choice([prompt, [ord(c) for c in prompt]]), params


async def exhaust(stream: AsyncIterator[Any]) -> None:
    async for _ in stream:
        pass


@pytest.mark.slow
def test_concurrent_iterators_say_what_llm_says(engine: AsyncEngine, llm: LLM) -> None:
    dice = random.Random(1)
    requests = [random_request(dice) for _ in range(40)]

    async def main() -> None:
        async with engine:
            got = await asyncio.gather(*(answers(engine, *request) for request in requests))
        for request, ends in zip(requests, got, strict=True):
            assert shown(ends) == expected(llm, *request)

    run(main())


def test_ready_tells_what_was_loaded(engine: AsyncEngine, llm: LLM) -> None:
    async def main() -> None:
        async with engine:
            assert engine.ready.numerics_id == llm.numerics_id
            assert engine.ready.description == llm.backend.describe()
            assert engine.ready.load_s > 0

    run(main())


@pytest.mark.parametrize("process", [False, True])
@pytest.mark.parametrize("how", ["close", "cancel"])
def test_leaving_an_iterator_gives_its_pages_back(path: Path, llm: LLM, process: bool, how: str) -> None:
    """The pool holds one long answer; the next one is admitted at once."""
    page_bytes = llm.engine.cache.pool.memory.page_bytes
    engine = AsyncEngine(path, process=process, kv_cache_gb=10 * page_bytes / 1e9, prefix_cache=False, **SETTINGS)
    prompt = "x" * 130

    async def main() -> None:
        async with engine:
            for _ in range(5):
                if how == "close":
                    async with aclosing(engine.generate(prompt, LONG)) as stream:
                        await anext(stream)
                else:
                    task = asyncio.create_task(answers(engine, prompt, LONG))
                    await asyncio.sleep(0.005)
                    task.cancel()
                    await asyncio.gather(task, return_exceptions=True)
                (after,) = await answers(engine, "y" * 140, SHORT)
                assert after.why.waited_for == ""
                assert [said(after)] == expected(llm, "y" * 140, SHORT)

    run(main())


BAD_PROMPTS: list[Any] = ["", [], [999_999], [-1], "x" * 500, "\ud800", [1.5], ["a"], [[1], [2, 3]], [None], None, 3,
                          [1 << 70], [{"role": "user"}]]


def test_an_invalid_request_fails_alone(engine: AsyncEngine, llm: LLM) -> None:
    async def main() -> None:
        async with engine:
            good = asyncio.create_task(answers(engine, "hello", LONG))
            failed = await asyncio.gather(*(answers(engine, p, SHORT) for p in BAD_PROMPTS), return_exceptions=True)
            assert [type(e) for e in failed] == [RequestError] * len(BAD_PROMPTS), failed
            for params in ({"logit_bias": {300: 1.0}}, {"stop": "x" * 20_000}, {"stop_token_ids": [300]}):
                with pytest.raises(RequestError, match=next(iter(params))):
                    await answers(engine, "hello", SamplingParams(**params))  # type: ignore[arg-type]
            assert shown(await good) == expected(llm, "hello", LONG)
            assert shown(await answers(engine, "hello", SHORT)) == expected(llm, "hello", SHORT)

    run(main())


def test_an_id_is_in_use_once(engine: AsyncEngine, llm: LLM) -> None:
    async def main() -> None:
        async with engine:
            first = asyncio.create_task(answers(engine, "hello", LONG, request_id="mine"))
            await asyncio.sleep(0)
            with pytest.raises(RequestError, match="request id 'mine' is in use"):
                await answers(engine, "other", SHORT, request_id="mine")
            assert shown(await first) == expected(llm, "hello", LONG)
            assert shown(await answers(engine, "a", SHORT, request_id="mine")) == expected(llm, "a", SHORT)

    run(main())


def test_nothing_of_a_stopped_request_reaches_the_next_of_its_name(engine: AsyncEngine, llm: LLM) -> None:
    wanted = expected(llm, "other", SHORT)

    async def main() -> None:
        async with engine:
            for _ in range(20):
                async with aclosing(engine.generate("hello", LONG, request_id="mine")) as stream:
                    await anext(stream)
                assert shown(await answers(engine, "other", SHORT, request_id="mine")) == wanted

    run(main())


@pytest.mark.parametrize("process", [False, True])
def test_a_model_that_computes_nonsense_fails_that_request_alone(tmp_path: Path, process: bool) -> None:
    poisoned = write_poisoned_model(tmp_path, token=ord("!"))
    with LLM(poisoned, **SETTINGS) as alone:
        wanted = expected(alone, "hello", LONG)

    async def main() -> None:
        async with AsyncEngine(poisoned, process=process, **SETTINGS) as engine:
            good = asyncio.create_task(answers(engine, "hello", LONG))
            for n in (1, 2, 3):
                with pytest.raises(DrutError, match="not finite") as error:
                    await answers(engine, "hello!", SamplingParams(max_tokens=5, ignore_eos=True, n=n, temperature=0))
                assert not isinstance(error.value, EngineDeadError)
            assert shown(await good) == wanted

    run(main())


def test_a_model_that_cannot_be_loaded_is_one_error(tmp_path: Path) -> None:
    missing = tmp_path / "missing.gguf"

    async def main(process: bool) -> None:
        with pytest.raises(DrutError, match=r"missing\.gguf"):
            async with AsyncEngine(missing, process=process):
                pass

    run(main(False))
    run(main(True))


def test_a_killed_engine_ends_every_stream(endless_path: Path) -> None:
    engine = AsyncEngine(endless_path, process=True, **ENDLESS_SETTINGS)

    async def main() -> None:
        async with engine:
            streams = [engine.generate("hello", ENDLESS) for _ in range(3)]
            for stream in streams:
                await anext(stream)
            transport = engine._transport
            assert isinstance(transport, ProcessTransport)
            assert transport._process is not None
            os.kill(transport._process.pid, signal.SIGKILL)

            ends = await asyncio.gather(*map(exhaust, streams), return_exceptions=True)
            assert [type(e) for e in ends] == [EngineDeadError] * 3, ends
            with pytest.raises(EngineDeadError, match="ended with code -9"):
                await answers(engine, "hello", SHORT)

    run(main())


def test_a_step_that_fails_ends_its_requests_and_the_engine_goes_on(
        path: Path, llm: LLM, monkeypatch: pytest.MonkeyPatch) -> None:
    real, steps = NativeExecutable.launch, iter(range(5))

    def launch_or_break(self: NativeExecutable, *args: Any) -> Any:
        if next(steps, None) == 4:
            raise RuntimeError("a wheel came off")
        return real(self, *args)

    monkeypatch.setattr(NativeExecutable, "launch", launch_or_break)

    async def main() -> None:
        async with AsyncEngine(path, multi_step=1, **SETTINGS) as engine:
            ends = await asyncio.gather(*(answers(engine, "hello", LONG) for _ in range(3)), return_exceptions=True)
            assert [type(e) for e in ends] == [DrutError] * 3, ends
            assert "RuntimeError: a wheel came off" in str(ends[0])
            assert shown(await answers(engine, "hello", LONG)) == expected(llm, "hello", LONG)
            assert engine.dead is None
            stats = await engine.stats()
            assert stats.failed_steps == 1
            assert (stats.running, stats.waiting) == (0, {})
            assert stats.free_pages + stats.cached_pages == stats.pages

    run(main())


def test_a_constraint_is_compiled_ahead_of_its_requests_and_once(engine: AsyncEngine) -> None:
    words, bad = Constraint.regex("one|two"), Constraint.regex("a[^\\s\\S]")

    async def main() -> None:
        async with engine:
            under_way = asyncio.create_task(answers(engine, "hello", LONG))
            await asyncio.gather(*(engine.compile(words) for _ in range(3)))
            for _ in range(2):
                with pytest.raises(RequestError, match="no token of this model can come"):
                    await engine.compile(bad)
            made = await answers(engine, "hello", replace(LONG, constraint=words, ignore_eos=False, n=2))
            assert {completion.text for completion in made} <= {"one", "two"}
            await under_way
            assert (await engine.stats()).compiled_grammars == 2
        with pytest.raises(EngineDeadError):
            await engine.compile(words)

    run(main())


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
def test_an_engine_whose_pages_do_not_add_up_ends(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def step(self: Engine) -> Any:
        raise KvCorruptionError("page 3 is FREE, expected CACHED")

    monkeypatch.setattr(Engine, "step", step)
    reasons: list[str] = []

    async def main() -> None:
        async with AsyncEngine(path, **SETTINGS) as engine:
            engine.on_death(reasons.append)
            with pytest.raises(EngineDeadError, match="page 3 is FREE"):
                await answers(engine, "hello", LONG)
            assert engine.dead == reasons[0]
            engine.on_death(reasons.append)
            assert len(set(reasons)) == 1
            assert len(reasons) == 2

    run(main())


def test_stats_are_told_while_it_is_idle_and_while_it_works(endless: AsyncEngine) -> None:
    async def main() -> None:
        async with endless as engine:
            idle = await engine.stats()
            assert (idle.steps, idle.running, idle.waiting) == (0, 0, {})
            stream = engine.generate("hello", ENDLESS)
            await anext(stream)
            busy = await engine.stats()
            assert busy.running == 1
            assert busy.pages > busy.free_pages + busy.cached_pages
            await stream.aclose()
            after = [await engine.stats() for _ in range(3)][-1]
            assert (after.running, after.free_pages + after.cached_pages) == (0, after.pages)
            assert sum(engine.ready.parts.values()) == pytest.approx(engine.ready.load_s)
            assert engine.ready.room == 100_000

    run(main())


def test_a_killed_engine_fails_its_requests_at_once(endless: AsyncEngine) -> None:
    async def main() -> None:
        async with endless as engine:
            stream = engine.generate("hello", ENDLESS)
            await anext(stream)
            engine.kill("enough")
            with pytest.raises(EngineDeadError, match="enough"):
                await exhaust(stream)
            with pytest.raises(EngineDeadError, match="enough"):
                await engine.stats()

    run(main())


def test_a_stopped_engine_says_so(endless: AsyncEngine) -> None:
    async def main() -> None:
        async with endless as engine:
            stream = engine.generate("hello", ENDLESS)
            await anext(stream)
        with pytest.raises(EngineDeadError, match="the engine was stopped"):
            await exhaust(stream)
        with pytest.raises(EngineDeadError, match="the engine was stopped"):
            await answers(engine, "hello", SHORT)

    run(main())


def test_an_engine_whose_owner_is_gone_ends(path: Path) -> None:
    engine = AsyncEngine(path, process=True, **SETTINGS)

    async def main() -> None:
        async with engine:
            await answers(engine, "hello", SHORT)
            transport = engine._transport
            assert isinstance(transport, ProcessTransport)
            assert transport._process is not None
            assert transport._socket is not None
            transport._socket.shutdown(2)
            assert await asyncio.to_thread(transport._process.wait, HANG_S) == 0

    run(main())
