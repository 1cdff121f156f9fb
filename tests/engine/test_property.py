"""Random mixes of requests under random settings: each answer has the bits it has alone."""

from __future__ import annotations

import os
import random
import secrets
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from drut import LLM
from drut.engine.output_processor import OutputProcessor
from drut.errors import RequestError
from drut.kernels.native import library
from tests.engine.chance import make_llm
from tests.engine.matrix import Ask, Reference, random_params, text
from tests.engine.models import write_gguf
from tests.golden.weights import config
from tests.kernels.rig import usable_isas

SECONDS = float(os.environ.get("DRUT_PROPERTY_SECONDS", "5"))
CHECKPOINTS = {"llama_tied": ("Q4_1", "Q8_0"), "qwen3_gqa": ("BF16", "F16"), "gemma2": ("BF16", "F16")}
ISAS = [isa for isa in usable_isas() if isa != "portable"] or ["auto"]

pytestmark = pytest.mark.skipif(library.load() is None, reason="the native kernels are not built")


class Model:
    """A tiny checkpoint: its file, its requests alone, and the bytes of a page."""

    def __init__(self, name: str, directory: Path) -> None:
        self.path = write_gguf(name, directory / f"{name}.gguf", *CHECKPOINTS[name])
        self.reference = Reference(self.path, isa=ISAS[0])
        self.page_bytes = self.reference.page_bytes
        self.vocab = config(name)["vocab_size"]


@pytest.fixture(scope="module", params=CHECKPOINTS)
def model(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Model]:
    made = Model(request.param, tmp_path_factory.mktemp("property"))
    yield made
    made.reference.close()


def random_asks(dice: random.Random, model: Model, count: int) -> list[Ask]:
    """Prompts that share beginnings, each with params of its own."""
    bases = [text(dice.randrange(1 << 30), dice.choice([5, 16, 33, 80]), model.vocab) for _ in range(3)]
    asks = []
    for _ in range(count):
        base = dice.choice(bases)
        tail = text(dice.randrange(1 << 30), dice.randrange(9), model.vocab)
        params = random_params(dice, dice.choice([1, 4, 12, 30]), model.vocab)
        asks.append(Ask(base[: dice.randrange(1, len(base) + 1)] + tail, replace(params, n=dice.choice([1, 1, 1, 3]))))
    return asks


def random_settings(dice: random.Random, model: Model) -> dict[str, object]:
    pages = dice.choice([9, 12, 20, 200])  # the longest request takes eight
    return {
        "kv_cache_gb": (pages + 0.1) * model.page_bytes / 1e9, "max_batch_tokens": dice.choice([8, 64, 512]),
        "max_seqs": dice.choice([1, 3, 8, 40]), "chunk_tokens": dice.choice([None, 0, 1, 7, 40]),
        "policy": dice.choice(["fcfs", "priority", "aging", "least-served", "longest-prefix"]),
        "reserve_quantile": dice.choice([0.0, 0.0, 0.5, 1.0]), "prefix_cache": dice.random() < 0.8,
        "continuous_batching": dice.random() < 0.7,
        "overlap": dice.random() < 0.5, "multi_step": dice.choice([1, 3, 16]),
        "preempt": dice.choice([0.0, 0.0, 0.3]), "isa": dice.choice(ISAS),
        "threads": dice.choice([1, 1, 2, 3]), "execution": dice.choice(["eager", "replay"]),
        "fusion": dice.random() < 0.7,
        "debug_kv": dice.random() < 0.5}


def serve(llm: LLM, asks: list[Ask], dice: random.Random) -> list[list[OutputProcessor]]:
    """Requests that arrive while others run; some are aborted."""
    answers: list[list[OutputProcessor]] = []
    waiting = list(asks)
    while waiting or llm.engine.busy:
        if waiting and dice.random() < 0.5:
            ask = waiting.pop()
            rank, salt = dice.randrange(3), dice.choice(["", "s"])
            answers.insert(0, llm.submit(ask.prompt, ask.params, priority=rank, salt=salt))
        by_request = {a.request: a for choices in answers for a in choices}
        for update in llm.engine.step():
            if by_request[update.request].push(update):
                llm.engine.finish(update.request, "stop")
        if by_request and dice.random() < 0.01:
            llm.engine.abort(dice.choice(list(by_request)))
    for choices in answers:
        for answer in choices:
            answer.end()
    return answers


def play(model: Model, seed: int) -> None:
    """One mix; the same for the same seed."""
    dice = random.Random(seed)
    settings = random_settings(dice, model)
    asks = random_asks(dice, model, dice.randrange(1, 25))
    with make_llm(model.path, **settings) as llm:  # type: ignore[arg-type]
        answers = serve(llm, asks, dice)
        llm.engine.check_idle()
        assert all(pool.free + pool.cached == pool.total for pool in llm.engine.cache.pools)
    for ask, choices in zip(asks, answers, strict=True):
        check(model, ask, choices)


def check(model: Model, ask: Ask, choices: list[OutputProcessor]) -> None:
    """What was not aborted has the bits of the request alone, what was aborted the first of them."""
    ends = [a.completion(choices[0].prompt_logprobs) for a in choices]
    if all(end.finish_reason != "abort" for end in ends):
        assert model.reference.difference(ask, ends) is None
        return
    for end, wanted in zip(ends, model.reference.answers(ask, 1), strict=True):
        whole = end.finish_reason != "abort"
        assert end.token_ids == (wanted.token_ids if whole else wanted.token_ids[: len(end.token_ids)])


@pytest.mark.slow
def test_random_mixes(model: Model) -> None:
    """For DRUT_PROPERTY_SECONDS; `play(model, seed)` shows again what a failure names."""
    end = time.monotonic() + SECONDS / len(CHECKPOINTS)
    while time.monotonic() < end:
        seed = secrets.randbits(32)
        try:
            play(model, seed)
        except Exception as error:
            error.add_note(f"play(model, {seed}) with {random_settings(random.Random(seed), model)}")
            raise


def mixed(model: Model, count: int, seed: int) -> list[Ask]:
    """Requests of up to 14 pages with params of every kind, that share some beginnings."""
    dice = random.Random(seed)
    asks = random_asks(dice, model, count // 2)
    for i in range(count - len(asks)):
        params = replace(random_params(dice, 60, model.vocab), max_tokens=60, stop_token_ids=())
        asks.append(Ask(text(i, dice.randrange(1, 160), model.vocab), params))
    return asks


@pytest.mark.slow
@pytest.mark.parametrize("model", ["llama_tied", "qwen3_gqa"], indirect=True)
@pytest.mark.parametrize(("pages", "settings"), [
    (500, {}), (40, {"chunk_tokens": 24}), (40, {"overlap": True, "policy": "longest-prefix", "chunk_tokens": 24}),
    (40, {"prefix_cache": False, "chunk_tokens": 7})], ids=str)
def test_sixty_four_mixed_requests(model: Model, pages: int, settings: dict[str, object]) -> None:
    """All are answered exactly, from a pool of 40 pages by preemption, and nothing is left behind."""
    asks = mixed(model, 64, seed=4)
    room = (pages + 0.1) * model.page_bytes / 1e9
    with make_llm(model.path, threads=2, debug_kv=True, kv_cache_gb=room, **settings) as llm:  # type: ignore[arg-type]
        got = iter(llm.generate([list(a.prompt) for a in asks], [a.params for a in asks]))
        for ask in asks:
            assert model.reference.difference(ask, [next(got) for _ in range(ask.params.n)]) is None
        llm.engine.check_idle()
        for pool in llm.engine.cache.pools:
            assert pool.free + pool.cached == pool.total
            assert pool.total == pages
        assert llm.engine.preemptions > 10 or pages > 40


def test_what_a_pool_of_forty_pages_can_never_hold_is_refused(model: Model) -> None:
    with LLM(model.path, threads=1, kv_cache_gb=40.1 * model.page_bytes / 1e9) as llm, \
            pytest.raises(RequestError, match="the KV cache of 640 leaves no room"):
        llm.generate([list(text(0, 640, model.vocab))])
