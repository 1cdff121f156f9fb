"""A training run: answers, training, the drafter's files, evaluation. Every stage continues where an earlier run in the
same folder ended."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import torch

from drut.config import EngineConfig
from drut.engine.llm import LLM
from drut.errors import RequestError
from drut.machine import usable_cpus
from drut.model.model import open_model
from drut.model.store import resolve
from drut.train.answers import AnswerSet, generate
from drut.train.batches import Batches
from drut.train.evaluation import evaluate
from drut.train.files import write_atomically
from drut.train.methods import drafter_of
from drut.train.prompts import TrainPrompt, digest, read_prompts, split
from drut.train.settings import TrainSettings, check_or_write
from drut.train.trainer import train

Report = Callable[[str], None]


def train_drafter(model: str, data: Path, out: Path, settings: TrainSettings, config: EngineConfig,
                  report: Report) -> dict[str, Any]:
    """Trains a drafter for `model` on the prompts of `data` into the folder `out`. Returns what out/report.json has.

    Raises DrutError, which names what is wrong with the model, the data, the folder or a setting.
    """
    if "," in str(out):
        raise RequestError(f"--out {out}: a setting cannot name a path with a comma")
    config = replace(config, speculate="none")
    torch.set_num_threads(config.threads or len(usable_cpus()))
    files = open_model(resolve(model))
    try:
        drafter = drafter_of(settings.method)(files, settings)  # before hours of answers
        numerics_id, held_out = _answer(model, data, out / "data", settings, config, report)
        answers = AnswerSet(out / "data")
        if not len(answers):
            raise RequestError(f"{out / 'data'}: all answers are empty, so there is nothing to learn")
        report(f"{len(answers)} answers, {answers.answer_tokens} tokens")
        check_or_write(out / "training.json", settings.of_training(),
                       "give the same settings or, to train again from the same answers, remove training.json and "
                       "checkpoint")
        state = train(drafter, Batches(answers, settings.batch, settings.seed), settings, out / "checkpoint",
                      report=report)
        drafter.write(out)
    finally:
        files.close()
    speculate = drafter.speculate(out)
    report(f"trained for {state.step} steps in {state.seconds / 60:.1f} minutes; answering {len(held_out)} held-out "
           "prompts with drafts")
    found = evaluate(model, speculate, held_out, config, drafts=settings.drafts, temperature=settings.temperature,
                     seed=settings.seed)
    result = {"target": str(files.path), "numerics_id": numerics_id, "method": settings.method,
              "drafter": drafter.facts(), "speculate": speculate,
              "answers": {"sequences": len(answers), "tokens": answers.answer_tokens, **settings.of_answers()},
              "training": settings.of_training() | asdict(state), "evaluation": asdict(found)}
    with write_atomically(out / "report.json") as file:
        file.write(json.dumps(result, indent=1).encode())
    return result


def _answer(model: str, data: Path, folder: Path, settings: TrainSettings, config: EngineConfig,
            report: Report) -> tuple[str, list[TrainPrompt]]:
    """Generates the answers that are missing. Returns the target's numerics id and the held-out prompts."""
    with LLM(model, config=config) as llm:
        prompts = read_prompts(data, llm, settings.max_tokens)
        training, held_out = split(prompts)
        folder.mkdir(parents=True, exist_ok=True)
        record = settings.of_answers() | {"numerics_id": llm.numerics_id, "prompts": digest(prompts)}
        check_or_write(folder / "settings.json", record,
                       "the answers are of another run: give the same settings and data, or another --out")
        generate(llm, training, folder, temperature=settings.temperature, seed=settings.seed, report=report)
        return llm.numerics_id, held_out
