"""The student in torch: it computes what the engine does, learns the target's distribution, and continues exactly."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="torch is not installed (extra train); .ci/run runs these tests")

from drut import LLM  # noqa: E402
from drut.errors import RequestError, UnsupportedError  # noqa: E402
from drut.model.model import open_model  # noqa: E402
from drut.train.answers import AnswerSet, generate  # noqa: E402
from drut.train.batches import Batches  # noqa: E402
from drut.train.checkpoint import TrainState  # noqa: E402
from drut.train.distillation import divergence, head_rows  # noqa: E402
from drut.train.methods.student import Student, chosen_layers  # noqa: E402
from drut.train.prompts import read_prompts  # noqa: E402
from drut.train.settings import TrainSettings  # noqa: E402
from drut.train.trainer import CHECKPOINT_S, factor, train  # noqa: E402
from tests.golden.as_gguf import GGUF_NAMES, write_gguf  # noqa: E402
from tests.golden.weights import config, write_checkpoint  # noqa: E402
from tests.model.test_parity import TOLERANCE, golden, relative_error  # noqa: E402

PLAIN = ("llama_tied", "llama2_mha", "llama3_gqa", "rope_linear", "qwen2_tied", "qwen2_untied", "qwen3_gqa",
         "mistral_mqa")


@pytest.fixture(autouse=True)
def one_thread() -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


def student(path: Path, **settings: object) -> Student:
    return Student(open_model(path), TrainSettings(**settings))  # type: ignore[arg-type]


def whole(path: Path, **settings: object) -> Student:
    """A student of all layers, which is the target."""
    return student(path, layers=tuple(range(len(open_model(path).spec.layers))), **settings)


@pytest.mark.parametrize("container", ["directory", "gguf"])
@pytest.mark.parametrize("name", PLAIN)
def test_a_student_of_all_layers_computes_what_transformers_does(name: str, container: str, tmp_path: Path) -> None:
    if container == "gguf" and name not in GGUF_NAMES:
        pytest.skip("GGUF has no keys for it")
    write = write_gguf if container == "gguf" else write_checkpoint
    path = write(name, tmp_path / (f"{name}.gguf" if container == "gguf" else name))
    reference = golden(name)
    for prompt in ("short", "long"):
        wanted = reference[f"{prompt}_logits"]
        logits = whole(path).logits(torch.from_numpy(reference[f"{prompt}_ids"].astype(np.int64))).numpy()
        assert relative_error(logits[-len(wanted) :], wanted) < TOLERANCE


@pytest.mark.parametrize("name", ["gemma2", "mixtral_gqa", "mistral_window", "cohere2"])
def test_other_models_are_refused(name: str, tmp_path: Path) -> None:
    path = write_checkpoint(name, tmp_path / name)
    with pytest.raises(UnsupportedError, match=f"{name}: a drafter can be trained for plain llama, qwen2, qwen3 only"):
        student(path)


@pytest.mark.parametrize("name", ["llama_tied", "qwen2_untied", "qwen3_gqa"])
def test_what_is_written_is_what_was_trained(name: str, tmp_path: Path) -> None:
    """In bfloat16, as a model of the chosen layers."""
    path = write_checkpoint(name, tmp_path / name)
    trained = student(path, layers=(1,))
    with torch.no_grad():
        for p in trained.parameters.values():
            p.copy_((p + torch.randn(p.shape, generator=torch.Generator().manual_seed(1)) * 0.01).bfloat16().float())
    (tmp_path / "out").mkdir()
    trained.write(tmp_path / "out")
    trained.write(tmp_path / "out")  # over the first
    again = whole(tmp_path / "out")
    assert len(again.spec.layers) == 1
    ids = torch.arange(20)
    frozen = trained.logits(ids), again.logits(ids)
    for role, p in trained.parameters.items():
        if p.ndim == 2:
            assert torch.equal(p, again.parameters[role])
    assert relative_error(frozen[0].numpy(), frozen[1].numpy()) < 0.02
    assert "architectures" in (tmp_path / "out" / "config.json").read_text()
    assert config(name)["num_hidden_layers"] > 1


def test_layers_are_chosen(tiny: Path) -> None:
    spec = open_model(tiny).spec
    deep = replace(spec, layers=spec.layers * 15)
    assert chosen_layers(deep, ()) == (0, 15, 29)
    assert chosen_layers(spec, ()) == (0, 1)
    assert chosen_layers(deep, (3, 4)) == (3, 4)
    with pytest.raises(RequestError, match="--layers: the model has layers 0 to 1, not 2"):
        chosen_layers(spec, (0, 2))


def full_divergence(logits: np.ndarray, top_ids: np.ndarray, top_logprobs: np.ndarray) -> tuple[float, float]:
    """The same loss and overlap over the whole vocabulary, row by row."""
    losses, overlaps = [], []
    for row, ids, logprobs in zip(logits.astype(np.float64), top_ids, top_logprobs.astype(np.float64), strict=True):
        q = np.exp(row - row.max())
        q /= q.sum()
        p = np.exp(logprobs)
        classes = [*zip(p, q[ids], strict=True), (1 - p.sum(), 1 - q[ids].sum())]
        losses.append(sum(a * math.log(a / b) for a, b in classes))
        overlaps.append(np.minimum(p, q[ids]).sum())
    return float(np.mean(losses)), float(np.mean(overlaps))


def targets(rows: int, k: int, vocab: int, seed: int = 0) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Logits of a drafter (rows, vocab), and a target's likeliest ids with their logprobs."""
    dice = np.random.default_rng(seed)
    target = 2 * dice.standard_normal((rows, vocab))
    logprobs = target - np.log(np.exp(target).sum(1, keepdims=True))
    top = np.argsort(-logprobs, 1)[:, :k]
    mine = (target + dice.standard_normal((rows, vocab))).astype(np.float32)
    return mine, top.astype(np.int64), np.take_along_axis(logprobs, top, 1).astype(np.float32)


def reduced(logits: np.ndarray, top: np.ndarray, logprobs: np.ndarray, negatives: int, seed: int = 0) -> object:
    rows = head_rows(top, logits.shape[1], negatives, np.random.default_rng(seed))
    return divergence(torch.from_numpy(logits[:, rows.ids]), rows, torch.from_numpy(logprobs))


def test_with_all_ids_the_loss_is_that_over_the_whole_vocabulary() -> None:
    logits, top, logprobs = targets(7, 5, 60)
    loss, overlap = full_divergence(logits, top, logprobs)
    found = reduced(logits, top, logprobs, 60)
    assert found.loss.item() == pytest.approx(loss, rel=1e-5)  # type: ignore[attr-defined]
    assert found.overlap == pytest.approx(overlap, rel=1e-5)  # type: ignore[attr-defined]


def test_sampled_ids_stand_for_all() -> None:
    """The denominator of the softmax is right on average."""
    logits, top, _ = targets(1, 5, 400)
    estimates = []
    for seed in range(300):
        rows = head_rows(top, 400, 40, np.random.default_rng(seed))
        values = np.exp(logits[0, rows.ids].astype(np.float64))
        values[-rows.sampled :] *= math.exp(rows.log_weight)
        estimates.append(values.sum())
    error = np.std(estimates) / math.sqrt(len(estimates))
    assert abs(np.mean(estimates) - np.exp(logits[0].astype(np.float64)).sum()) < 4 * error


def test_the_target_itself_has_no_divergence() -> None:
    dice = np.random.default_rng(0)
    logits = dice.standard_normal((4, 50)).astype(np.float32)
    logprobs = np.log(np.exp(logits) / np.exp(logits).sum(1, keepdims=True))
    top = np.argsort(-logprobs, 1)[:, :8]
    found = reduced(logits, top, np.take_along_axis(logprobs, top, 1), 50)
    assert abs(found.loss.item()) < 1e-6  # type: ignore[attr-defined]


@pytest.fixture(scope="module")
def answers(tiny: Path, prompts: Path, tmp_path_factory: pytest.TempPathFactory) -> AnswerSet:
    folder = tmp_path_factory.mktemp("answers")
    with LLM(tiny, threads=1, kv_cache_gb=0.01) as llm:
        generate(llm, read_prompts(prompts, llm, 24), folder, temperature=1.0, seed=0, report=lambda line: None)
    return AnswerSet(folder)


class Ticking:
    """A clock that moves on by `each` seconds a look, and interrupts at look number `last`."""

    def __init__(self, each: float, last: int | None = None) -> None:
        self.each, self.looks, self.last = each, 0, last

    def __call__(self) -> float:
        self.looks += 1
        if self.looks == self.last:
            raise KeyboardInterrupt
        return self.looks * self.each


def run(path: Path, answers: AnswerSet, folder: Path, clock: Ticking, **settings: object) -> tuple[Student, TrainState]:
    chosen = TrainSettings(**{"steps": 12, "batch": 4, "rate": 3e-3, "negatives": 30, **settings})  # type: ignore
    learner = Student(open_model(path), chosen)
    state = train(learner, Batches(answers, chosen.batch, chosen.seed), chosen, folder, report=lambda line: None,
                  clock=clock)
    return learner, state


@pytest.mark.parametrize("dtype", ["fp32", "bf16"])
@pytest.mark.parametrize("cuts", [[5], [2, 3, 4], [8, 4]])
def test_an_interrupted_run_has_the_same_weights(tiny: Path, answers: AnswerSet, tmp_path: Path, cuts: list[int],
                                                 dtype: str) -> None:
    """A checkpoint after each second step, so that steps are computed again, too."""
    settings: dict[str, Any] = {"layers": (1,), "dtype": dtype}
    straight, state = run(tiny, answers, tmp_path / "straight", Ticking(0.0), **settings)
    each = CHECKPOINT_S / 2
    for cut in cuts:
        with pytest.raises(KeyboardInterrupt):
            run(tiny, answers, tmp_path / "cut", Ticking(each, cut), **settings)
    continued, again = run(tiny, answers, tmp_path / "cut", Ticking(each), **settings)
    assert (again.step, again.loss, again.overlap) == (12, state.loss, state.overlap)
    for role, p in straight.parameters.items():
        assert torch.equal(p, continued.parameters[role]), role
    assert [p.name for p in (tmp_path / "cut").iterdir()] == ["00000012"]


def test_training_moves_towards_the_target(tiny: Path, answers: AnswerSet, tmp_path: Path) -> None:
    """One layer of two, from a start that lacks the other."""
    def overlap(learner: Student) -> float:
        batch = Batches(answers, len(answers), 0)[0]
        return learner.loss(batch, np.random.default_rng(0)).overlap

    before = overlap(student(tiny, layers=(1,), negatives=300))
    learner, state = run(tiny, answers, tmp_path, Ticking(0.0), layers=(1,), steps=120, negatives=100)
    assert overlap(learner) > before + 0.05
    assert 0 < state.overlap <= 1


def test_bf16_rounds_the_products_only(tiny: Path, answers: AnswerSet) -> None:
    batch = Batches(answers, 8, 0)[0]
    found = [student(tiny, layers=(1,), dtype=dtype) for dtype in ("fp32", "bf16")]
    losses = [learner.loss(batch, np.random.default_rng(0)).loss for learner in found]
    assert 0 < abs(losses[0].item() - losses[1].item()) < 0.02 * losses[0].item()
    losses[1].backward()
    assert {p.dtype for p in found[1].parameters.values()} == {torch.float32}
    assert {p.grad.dtype for p in found[1].parameters.values()} == {torch.float32}


def test_minutes_end_the_training(tiny: Path, answers: AnswerSet, tmp_path: Path) -> None:
    """Ten seconds a step; a second run with more minutes continues."""
    _, state = run(tiny, answers, tmp_path, Ticking(10.0), steps=None, minutes=1)
    assert (state.step, state.seconds) == (6, 60)
    _, state = run(tiny, answers, tmp_path, Ticking(10.0), steps=None, minutes=1.5)
    assert (state.step, state.seconds) == (9, 90)
    _, state = run(tiny, answers, tmp_path, Ticking(10.0), steps=None, minutes=1.5)
    assert state.step == 9


def test_a_damaged_checkpoint_is_named(tiny: Path, answers: AnswerSet, tmp_path: Path) -> None:
    run(tiny, answers, tmp_path, Ticking(0.0), steps=2)
    with pytest.raises(RequestError, match=r"00000002: weights\.npy is of other parameters; remove"):
        run(tiny, answers, tmp_path, Ticking(0.0), steps=2, layers=(1,))
    (tmp_path / "00000002" / "state.json").write_text("{")
    with pytest.raises(RequestError, match=r"00000002: .*; remove"):
        run(tiny, answers, tmp_path, Ticking(0.0), steps=2)


def test_the_rate_rises_and_falls() -> None:
    rates = [factor(step, step / 1000) for step in range(1000)]
    assert rates[0] == pytest.approx(0.02)
    assert max(rates) == rates[49] > 0.99
    assert rates[49:] == sorted(rates[49:], reverse=True)
    assert factor(1000, 1.0) == pytest.approx(0.1)
