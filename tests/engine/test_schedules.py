"""Random schedules over the testbed: arrivals, aborts, preemptions, shared prefixes, tiny pools, priorities.

Whatever happens, each request says exactly what it must, every step makes progress, and no page is lost.
"""

from __future__ import annotations

import random
import time
from typing import Any

import pytest

from drut.engine.engine import Engine
from drut.engine.request.params import SamplingParams
from drut.engine.schedule.policy import LeastServed
from tests import rows
from tests.engine.scripted import SCRIPTS
from tests.engine.testbed import (
    VOCAB,
    Erratic,
    Guesser,
    Log,
    check_answer,
    check_idle,
    finish_all,
    make_engine,
    make_log,
    step,
)

STEPS, PARTS = 100_000, 25
CHOICES = {
    "pages": [6, 10, 20, 64],
    "seqs": [1, 2, 4, 8],
    "tokens": [1, 3, 16, 64],
    "chunk": [None, 0, 1, 5, 16],
    "policy": ["fcfs", "priority", "aging", "least-served", "longest-prefix"],
    "continuous": [True, True, False],
    "reserve_quantile": [0.0, 0.0, 0.5, 1.0],
    "overlap": [False, True],
    "burst": [1, 1, 4, 20],
    "prefix_cache": [False, True, True],
    "force_preempt": [0.0, 0.0, 0.3],
    "canary": [False, True],
    "drafter": [None, None, 0.0, 0.2, 1.0, *SCRIPTS],  # the chance that a guess is wrong, or what becomes of right ones
    "controller": [None, Erratic],
    "samples": [None, 64],
    "windows": [(0,), (0,), (0, 20), (0, 2), (0, 40, 5), (20,), (17, 3)],
    "window_pages": [6, 10, 64],
}


def random_prompt(dice: random.Random, bases: list[list[int]]) -> list[int]:
    """Some beginning of a common text, and an end of its own."""
    base = dice.choice(bases)
    return base[: dice.randrange(1, len(base) + 1)] + [dice.randrange(VOCAB) for _ in range(dice.randrange(9))]


def random_params(dice: random.Random) -> SamplingParams:
    max_tokens = dice.choice([1, 2, 9, 30])
    return SamplingParams(
        max_tokens=max_tokens, seed=dice.randrange(1 << 62), n=dice.choice([1, 1, 1, 3]),
        min_tokens=dice.choice([0, 0, dice.randrange(max_tokens + 1)]), ignore_eos=dice.random() < 0.3,
        stop_token_ids=dice.choice([(), (), (3, 4)]), logit_bias=dice.choice([None, None, {5: 1.5, 9: -2.25}]),
        frequency_penalty=dice.choice([0.0, 0.0, 0.5]), repetition_penalty=dice.choice([1.0, 1.0, 1.3]),
        logprobs=dice.choice([None, None, 0, 3]), prompt_logprobs=dice.choice([None, None, None, 0, 2]), temperature=0)


def built(settings: dict[str, Any], seed: int) -> dict[str, Any]:
    """The settings with a drafter and a controller in place of what describes them."""
    how, controller = settings["drafter"], settings["controller"]
    drafter = Guesser(0.0, seed=seed, script=SCRIPTS[how]) if how in SCRIPTS else how and Guesser(how, seed=seed)
    return settings | {"drafter": drafter, "controller": controller and controller(seed)}


def play(engine: Engine, dice: random.Random) -> Log:
    """Requests arriving while steps run, some of them aborted; returns what each said."""
    bases = [[dice.randrange(VOCAB) for _ in range(dice.choice([5, 16, 33, 70]))] for _ in range(3)]
    log = make_log()
    for _ in range(dice.choice([1, 4, 12])):
        prompt = random_prompt(dice, bases)
        if len(prompt) >= engine.room:
            continue
        for request in engine.submit(prompt, random_params(dice), priority=dice.randrange(3),
                                     salt=dice.choice(["", "other"])):
            log[request]
            if isinstance(drafter := engine.speculation.drafter, Guesser):
                drafter.learn(engine, request)
        for _ in range(dice.randrange(6)):
            step(engine, log)
        if dice.random() < 0.2 and log:
            engine.abort(dice.choice(list(log)))
        if dice.random() < 0.3:
            engine.check_idle()
    finish_all(engine, log)
    return log


@pytest.mark.slow
@pytest.mark.parametrize("block", range(8))
def test_random_schedules(block: int) -> None:
    for seed in range(block * 40, block * 40 + 40):
        dice = random.Random(seed)
        settings = {name: dice.choice(values) for name, values in CHOICES.items()}
        engine = make_engine(**built(settings, seed))
        try:
            for request, said in play(engine, dice).items():
                assert request.finish_reason in ("stop", "length", "abort")
                check_answer(engine, request, said)
            check_idle(engine)
        except Exception as error:
            error.add_note(f"seed {seed}: {settings}")
            raise
        finally:
            engine.close()


@pytest.mark.slow
@pytest.mark.parametrize("part", range(PARTS) if rows.seed() == "all" else [int(rows.seed()) % PARTS])
def test_drafts_over_many_steps(part: int) -> None:
    """Of a hundred thousand steps a run takes a part, and other commits other parts."""
    steps, seed = 0, 10_000 * (part + 1)
    while steps < STEPS // PARTS:
        dice = random.Random(seed)
        settings = {name: dice.choice(values) for name, values in CHOICES.items()} | {
            "drafter": dice.choice([0.0, 0.2, *SCRIPTS]), "samples": 64, "tokens": dice.choice([16, 64])}
        engine = make_engine(**built(settings, seed))
        try:
            for request, said in play(engine, dice).items():
                check_answer(engine, request, said)
            check_idle(engine)
        except Exception as error:
            error.add_note(f"seed {seed}: {settings}")
            raise
        finally:
            engine.close()
        steps, seed = steps + engine.runner.executable.steps, seed + 1


@pytest.mark.slow
@pytest.mark.parametrize("settings", [
    {"seqs": 3, "pages": 64}, {"seqs": 8, "pages": 20}, {"seqs": 8, "pages": 20, "overlap": True, "burst": 20},
    {"seqs": 2, "pages": 40, "reserve_quantile": 0.5, "overlap": True},
    {"seqs": 4, "pages": 20, "prefix_cache": False, "chunk": 5}], ids=str)
def test_who_is_displaced_says_the_same(settings: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    """Least-served with a small quantum: long answers give way to new ones all the time, and to each other."""
    monkeypatch.setattr(LeastServed, "QUANTUM", 2)
    dice = random.Random(str(settings))
    engine = make_engine(policy="least-served", canary=True, **settings)
    log = make_log()
    for _ in range(24):
        for _ in range(dice.choice([1, 1, 3])):
            params = SamplingParams(max_tokens=dice.choice([4, 4, 200]), seed=dice.randrange(1 << 62),
                                    temperature=0, ignore_eos=dice.random() < 0.8,
                                    frequency_penalty=dice.choice([0.0, 0.0, 0.5]))
            log[engine.submit([dice.randrange(VOCAB) for _ in range(dice.randrange(1, 20))], params)[0]]
        for _ in range(dice.randrange(12)):
            step(engine, log)
    finish_all(engine, log)
    for request, said in log.items():
        check_answer(engine, request, said)
    assert engine.scheduler.preemptions["policy"] > 3
    check_idle(engine)
    engine.close()


def test_a_thousand_steps_take_a_second_or_less() -> None:
    """Scheduling must cost little compared with a step of a real model. 8 streams decode; the fake works too.

    Counted is the CPU's time, the best of some, so that it holds on a busy machine.
    """
    engine = make_engine(pages=64)
    for i in range(8):
        engine.submit([i + 1] * 5, SamplingParams(max_tokens=100, seed=i, ignore_eos=True, temperature=0))
    seconds = []
    for _ in range(9):
        started = time.process_time()
        for _ in range(10):
            assert len(engine.step()) == 8
        seconds.append((time.process_time() - started) / 10)
    assert min(seconds) < 1e-3
