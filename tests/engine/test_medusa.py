"""Medusa heads: their logits are those of a plain computation, and they change no bit of an answer."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from drut import LLM, SamplingParams
from drut.errors import ModelFileError
from tests.cli import tiny
from tests.engine.chance import make_llm
from tests.engine.test_speculation import alone, check, path  # noqa: F401 - fixtures
from tests.golden.weights import write_safetensors
from tests.speculate import reference

HEADS, BLOCKS = 3, 2


def tensors(dialect: str, seed: int = 0, *, own_matrix: bool = True) -> dict[str, np.ndarray]:
    dice = np.random.default_rng(seed)
    names = {"a": ("{k}.{j}.linear.{part}", "{k}.2.weight"),
             "b": ("medusa_heads.blocks.{k}.layers.{j}.{part}", "medusa_heads.lm_heads.{k}.weight")}[dialect]
    made: dict[str, np.ndarray] = {}
    for k in range(HEADS):
        for j in range(BLOCKS):
            made[names[0].format(k=k, j=j, part="weight")] = 0.2 * dice.standard_normal((tiny.HIDDEN, tiny.HIDDEN))
            made[names[0].format(k=k, j=j, part="bias")] = 0.1 * dice.standard_normal(tiny.HIDDEN)
        if own_matrix:
            made[names[1].format(k=k)] = dice.standard_normal((tiny.VOCAB, tiny.HIDDEN))
    return {name: values.astype(np.float32) for name, values in made.items()}


def write(directory: Path, items: dict[str, np.ndarray], name: str = "medusa_lm_head.safetensors") -> Path:
    directory.mkdir(exist_ok=True)
    (directory / "config.json").write_text(json.dumps({"medusa_num_heads": 2, "medusa_num_layers": BLOCKS}))
    write_safetensors(directory / name, items.items())
    return directory


@pytest.mark.parametrize("more", [
    {"dialect": "a"}, {"dialect": "b", "backend": "numpy"}, {"dialect": "b", "own_matrix": False}], ids=str)
def test_logits_are_those_of_a_plain_computation(path: Path, tmp_path: Path, more: dict[str, Any]) -> None:  # noqa: F811
    """Of each head at each proposal. With the stream behind another layer they are far off."""
    items = tensors(more.pop("dialect"), own_matrix=more.get("own_matrix", True))
    own = more.pop("own_matrix", True)
    heads = write(tmp_path / "heads", items)
    values = [each.astype(np.float64) for each in items.values()]
    each = 2 * BLOCKS + own
    blocks = [[(values[k * each + 2 * j], values[k * each + 2 * j + 1]) for j in range(BLOCKS)] for k in range(HEADS)]
    matrices = [values[k * each + each - 1] if own else reference.target_weights()["token_embd.weight"]
                for k in range(HEADS)]
    seen: list[tuple[list[int], list[np.ndarray]]] = []
    with LLM(path, threads=1, kv_dtype="fp32", speculate=f"medusa:model={heads},adaptive=0", **more) as llm:
        drafter: Any = llm.engine.speculation.drafter
        assert len(drafter._heads) == HEADS, "as many as there are, whatever the config says"
        made = with_logits(drafter._heads)
        propose = drafter.propose

        def noted(inputs: Any) -> Any:
            made.clear()
            drafts = propose(inputs)
            seen.append((list(inputs[0].tokens), list(made)))
            return drafts

        drafter.propose = noted
        llm.generate(["some words"], SamplingParams(max_tokens=12, temperature=0.0, ignore_eos=True))
    assert len(seen) > 5
    for tokens, logits in seen:
        wanted = reference.medusa(blocks, matrices, tokens[:-1])
        other = reference.medusa(blocks, matrices, tokens[:-1], tap=-2)
        for got, right, wrong in zip(logits, wanted, other, strict=False):
            np.testing.assert_allclose(got, right, rtol=0, atol=2e-3)
            assert np.abs(got - wrong).max() > 0.5


def with_logits(heads: Any) -> list[np.ndarray]:
    """Returns a list to which each launch of a head appends its logits of one row."""
    made: list[np.ndarray] = []
    for head in heads:
        def launch(step: Any, head: Any = head, launch: Any = head.launch) -> Any:
            pending = launch(step)
            made.append(head.logits(1)[0].astype(np.float64))
            return pending

        head.launch = launch
    return made


@pytest.mark.parametrize("more", [
    {}, {"overlap": False, "multi_step": 1}, {"preempt": 0.2, "max_seqs": 5}, {"chunk_tokens": 3, "max_seqs": 32},
    {"speculate": "medusa:model={heads},k=2"}], ids=str)
def test_medusa_changes_no_bit(path: Path, alone: Any, tmp_path: Path, more: dict[str, Any]) -> None:  # noqa: F811
    heads = write(tmp_path / "heads", tensors("a"))
    speculate = more.pop("speculate", "medusa:model={heads},adaptive=0").format(heads=heads)
    with make_llm(path, threads=1, debug_kv=True, speculate=speculate, **more) as llm:
        check(llm, alone)
        assert llm.engine.speculation.counts["medusa"].drafted > 10


def test_a_head_without_blocks_is_the_target_s_own(path: Path, tmp_path: Path) -> None:  # noqa: F811
    """One whose blocks are zero as well: it drafts once more the token that the target has just drawn."""
    items = {f"{k}.0.linear.{part}": np.zeros(shape, np.float32)
             for k in range(2) for part, shape in (("weight", (tiny.HIDDEN, tiny.HIDDEN)), ("bias", (tiny.HIDDEN,)))}
    heads = write(tmp_path / "heads", items)
    with LLM(path, threads=1, speculate=f"medusa:model={heads},adaptive=0") as llm:
        drafter: Any = llm.engine.speculation.drafter
        propose = drafter.propose

        def same_again(inputs: Any) -> Any:
            drafts = propose(inputs)
            for given, made in zip(inputs, drafts, strict=True):
                assert all(draft == given.tokens[-1] for draft in made)
            return drafts

        drafter.propose = same_again
        llm.generate(["abc", "def"], SamplingParams(max_tokens=30, temperature=0.0, ignore_eos=True))
        assert llm.engine.speculation.counts["medusa"].drafted > 50


@pytest.mark.parametrize(("change", "named"), [
    ({"0.1.linear.weight": None}, "head 0 lacks a block"), ({"stray": np.zeros(3, np.float32)}, "'stray' is none of a"),
    ({"1.2.weight": np.zeros((4, 32), np.float32)}, r"has shape \[4, 32\], expected \[258, 32\]"),
    ({"1.0.linear.bias": np.full(32, np.nan, np.float32)}, "not finite")], ids=["block", "stray", "shape", "nan"])
def test_an_error_names_the_tensor(path: Path, tmp_path: Path, change: dict[str, Any], named: str) -> None:  # noqa: F811
    items = {name: values for name, values in (tensors("a") | change).items() if values is not None}
    heads = write(tmp_path / "heads", items)
    with pytest.raises(ModelFileError, match=named):
        LLM(path, threads=1, speculate=f"medusa:model={heads}")


def test_pickled_heads_are_refused(path: Path, tmp_path: Path) -> None:  # noqa: F811
    (tmp_path / "config.json").write_text("{}")
    (tmp_path / "medusa_lm_head.pt").write_bytes(b"\x80\x02.")
    with pytest.raises(ModelFileError, match=r"medusa_lm_head\.pt is pickled, .* convert it by `drut convert-drafter`"):
        LLM(path, threads=1, speculate=f"medusa:model={tmp_path}")
