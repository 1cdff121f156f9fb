"""An EAGLE-3 drafter: its logits are those of a plain computation over the whole text, whatever was cached, drafted and
rejected before; and it changes no bit of an answer."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from drut import LLM, SamplingParams
from drut.errors import ModelFileError, UnsupportedError
from tests.cli import tiny
from tests.engine.chance import make_llm
from tests.engine.test_speculation import alone, check, path  # noqa: F401 - fixtures
from tests.golden.weights import write_safetensors
from tests.speculate import reference

HEADS, KV_HEADS, SIZE, FFN, DRAFT_VOCAB = 4, 2, 16, 48, 100
IDS = [1, 2]
PROMPT = "a prompt of more than two pages, of tokens of a byte each"
GREEDY = SamplingParams(max_tokens=24, temperature=0.0, ignore_eos=True)


def tensors(seed: int = 0, prefix: str = "midlayer.") -> dict[str, np.ndarray]:
    d, dice = tiny.HIDDEN, np.random.default_rng(seed)
    shapes = {"fc": (d, len(IDS) * d), "lm_head": (DRAFT_VOCAB, d)} | {prefix + name: shape for name, shape in {
        "self_attn.q_proj": (HEADS * SIZE, 2 * d), "self_attn.k_proj": (KV_HEADS * SIZE, 2 * d),
        "self_attn.v_proj": (KV_HEADS * SIZE, 2 * d), "self_attn.o_proj": (d, HEADS * SIZE),
        "mlp.gate_proj": (FFN, d), "mlp.up_proj": (FFN, d), "mlp.down_proj": (d, FFN)}.items()}
    made = {f"{name}.weight": 0.2 * dice.standard_normal(shape) for name, shape in shapes.items()}
    for name in ("norm", *(prefix + n for n in ("input_layernorm", "hidden_norm", "post_attention_layernorm"))):
        made[f"{name}.weight"] = 1 + 0.1 * dice.standard_normal(d)
    return {name: values.astype(np.float32) for name, values in made.items()}


def chosen_ids(seed: int = 1) -> np.ndarray:
    return np.sort(np.random.default_rng(seed).permutation(tiny.VOCAB)[:DRAFT_VOCAB])


CONFIG = {"hidden_size": tiny.HIDDEN, "intermediate_size": FFN, "num_attention_heads": HEADS, "head_dim": SIZE,
          "num_key_value_heads": KV_HEADS, "rms_norm_eps": 1e-5, "num_hidden_layers": 1, "vocab_size": tiny.VOCAB,
          "draft_vocab_size": DRAFT_VOCAB, "max_position_embeddings": 64,
          "eagle_config": {"eagle_aux_hidden_state_layer_ids": IDS}}


def write(directory: Path, config: dict[str, Any] = CONFIG, prefix: str = "midlayer.", **more: Any) -> Path:
    directory.mkdir(exist_ok=True)
    (directory / "config.json").write_text(json.dumps(config | more))
    items = dict(tensors(prefix=prefix))
    write_safetensors_with_ids(directory / "model.safetensors", items)
    return directory


def write_safetensors_with_ids(file: Path, items: dict[str, np.ndarray]) -> None:
    """The floats, and d2t as 64-bit integers."""
    offsets = chosen_ids() - np.arange(DRAFT_VOCAB)
    write_safetensors(file, [*items.items(), ("d2t", offsets.astype("<i8").view(np.uint8))])
    raw = file.read_bytes()
    length = int.from_bytes(raw[:8], "little")
    header = json.loads(raw[8 : 8 + length])
    header["d2t"] |= {"dtype": "I64", "shape": [DRAFT_VOCAB]}
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    file.write_bytes(len(text).to_bytes(8, "little") + text + raw[8 + length :])


def noted(llm: LLM) -> list[tuple[list[int], list[int], list[np.ndarray]]]:
    """Returns a list to which each proposal for one sequence appends its tokens, its drafts, and the logits of each."""
    drafter: Any = llm.engine.speculation.drafter
    seen: list[tuple[list[int], list[int], list[np.ndarray]]] = []
    made: list[np.ndarray] = []
    propose, sampled = drafter.propose, drafter._sampled

    def sampling(best: int, logits: Any, job: Any) -> int:
        made.append(logits.astype(np.float64))
        return int(sampled(best, logits, job))

    def proposing(inputs: Any) -> Any:
        made.clear()
        drafts = propose(inputs)
        if len(inputs) == 1 and drafts[0]:
            seen.append((list(inputs[0].tokens), list(drafts[0]), list(made)))
        return drafts

    drafter.propose, drafter._sampled = proposing, sampling
    return seen


def weights(prefix: str = "midlayer.") -> dict[str, np.ndarray]:
    return {name.replace(prefix, "midlayer."): values.astype(np.float64)
            for name, values in tensors(prefix=prefix).items()}


@pytest.mark.parametrize("more", [
    {}, {"backend": "numpy"}, {"norm_before_residual": True}, {"prefix": "layers.0."}, {"chunk_tokens": 5}], ids=str)
def test_logits_are_those_of_a_plain_computation(path: Path, tmp_path: Path, more: dict[str, Any]) -> None:  # noqa: F811
    """Of each draft of each proposal, the second time behind a cached prefix. With taps of one layer less they are far
    off."""
    normed, prefix = more.pop("norm_before_residual", False), more.pop("prefix", "midlayer.")
    drafter = write(tmp_path / "eagle", prefix=prefix, norm_before_residual=normed)
    settings = {"threads": 1, "kv_dtype": "fp32", "speculate": f"eagle3:model={drafter},adaptive=0,k=3", **more}
    with LLM(path, **settings) as llm:
        seen = noted(llm)
        for end in ("", "!"):
            llm.generate([PROMPT + end], GREEDY)
    assert len(seen) > 20
    for tokens, drafts, logits in seen:
        assert set(drafts) <= set(chosen_ids().tolist())
        wanted = reference.eagle3(weights(), IDS, tokens, drafts[:-1], HEADS, norm_before_residual=normed)
        assert drafts == [int(chosen_ids()[each.argmax()]) for each in logits]
        for got, right in zip(logits, wanted, strict=True):
            np.testing.assert_allclose(got, right, rtol=0, atol=5e-3)
        early = reference.eagle3(weights(), [0, 1], tokens, (), HEADS, norm_before_residual=normed)
        assert np.abs(logits[0] - early[0]).max() > 0.3


@pytest.mark.parametrize("more", [
    {}, {"overlap": False}, {"preempt": 0.2, "max_seqs": 5}, {"chunk_tokens": 3, "max_seqs": 32},
    {"kv_cache_gb": 2e-4, "max_seqs": 6}, {"prefix_cache": False}, {"speculate": "eagle3:model={drafter}"}], ids=str)
def test_eagle3_changes_no_bit(path: Path, alone: Any, tmp_path: Path, more: dict[str, Any]) -> None:  # noqa: F811
    drafter = write(tmp_path / "eagle")
    speculate = more.pop("speculate", "eagle3:model={drafter},adaptive=0").format(drafter=drafter)
    with make_llm(path, threads=1, debug_kv=True, speculate=speculate, **more) as llm:
        for _ in range(1 if more else 2):
            check(llm, alone)
        assert llm.engine.speculation.counts["eagle3"].drafted > 10


def test_a_prefix_is_found_as_far_as_the_drafter_has_it(path: Path, tmp_path: Path) -> None:  # noqa: F811
    """A request without drafts leaves pages without the drafter's rows: the next one computes them again."""
    drafter = write(tmp_path / "eagle")
    with LLM(path, threads=1, speculate=f"eagle3:model={drafter},adaptive=0") as llm:
        llm.generate([PROMPT], replace(GREEDY, speculation=False))
        seen = noted(llm)
        first, second = (llm.generate([PROMPT + end], GREEDY)[0] for end in "!?")
        assert (first.cached_tokens, second.cached_tokens) == (0, 48)
        assert len(seen) > 5


@pytest.mark.parametrize(("change", "error", "named"), [
    ({"eagle_config": {}}, ModelFileError, r"eagle_aux_hidden_state_layer_ids must list .* from 0 to 2, not None"),
    ({"eagle_config": {"eagle_aux_hidden_state_layer_ids": [1, 3]}}, ModelFileError, r"from 0 to 2, not \[1, 3\]"),
    ({"fc_norm": True}, UnsupportedError, "fc_norm is not supported"),
    ({"intermediate_size": 64}, ModelFileError, r"mlp\.gate_proj\.weight' has shape")],
    ids=["none", "range", "norm", "shape"])
def test_an_error_names_what_is_wrong(path: Path, tmp_path: Path, change: dict[str, Any],  # noqa: F811
                                      error: type[Exception], named: str) -> None:
    with pytest.raises(error, match=named):
        LLM(path, threads=1, speculate=f"eagle3:model={write(tmp_path / 'eagle', **change)}")
