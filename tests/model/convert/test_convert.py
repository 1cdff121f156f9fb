"""From one container to the other and back: the same numbers, the same text, and another reader that agrees."""

from __future__ import annotations

import json
from pathlib import Path

import gguf
import numpy as np
import pytest
import tokenizers
from tokenizers import decoders, models, pre_tokenizers

from drut import LLM, SamplingParams
from drut.errors import DrutError, UnsupportedError
from drut.formats.decode import decode
from drut.formats.encoding import encoding
from drut.model.convert import convert
from drut.model.model import ModelFiles, open_model
from drut.model.roles import expected_shapes
from drut.model.tokenizer.pieces import byte_alphabet
from tests.golden.weights import config, write_checkpoint
from tests.model.quantized.files import gptq

NAMES = ["llama_tied", "llama3_gqa", "qwen2_untied", "qwen3_gqa", "rope_linear"]
TEXT = "abc  cab, 12 ba\n<end>"
TEMPLATES = {"default": "{{ messages }}", "tool_use": "{{ tools }}"}


def tokenizer(vocab: int) -> tokenizers.Tokenizer:
    """Byte-level BPE of some bytes and merges, and an end token."""
    base = sorted(byte_alphabet())[: vocab - 4]
    entries = {text: i for i, text in enumerate([*base, "ab", "abc", "ca"])}
    made = tokenizers.Tokenizer(models.BPE(entries, [("a", "b"), ("ab", "c"), ("c", "a")]))
    made.pre_tokenizer = pre_tokenizers.Sequence([pre_tokenizers.Digits(individual_digits=True),
                                                  pre_tokenizers.ByteLevel(add_prefix_space=False)])
    made.decoder = decoders.ByteLevel()
    made.add_special_tokens(["<end>"])
    return made


def checkpoint(name: str, folder: Path) -> Path:
    write_checkpoint(name, folder)
    tokenizer(config(name)["vocab_size"]).save(str(folder / "tokenizer.json"))
    (folder / "tokenizer_config.json").write_text(json.dumps({"eos_token": "<end>", "chat_template": [
        {"name": name, "template": text} for name, text in TEMPLATES.items()]}))
    return folder


def canonical(files: ModelFiles) -> dict[str, np.ndarray]:
    """Every role's numbers, rows in the order of a checkpoint."""
    out = {}
    for role, shape in expected_shapes(files.spec).items():
        stored = files.table[role]
        info = files.source.tensors[stored.name]
        values = decode(encoding(info.encoding), files.source.raw(stored.name), shape[-1]).reshape(shape)
        order = stored.row_order(shape[0])
        out[role] = values if order is None else values[order]
    return out


def converted(source: Path, out: Path, to: str | None = None) -> Path:
    files = open_model(source)
    try:
        convert(files, out, to)
    finally:
        files.close()
    return out


@pytest.mark.parametrize("name", NAMES)
def test_to_gguf_and_back(tmp_path: Path, name: str) -> None:
    source = checkpoint(name, tmp_path / "source")
    first = open_model(source)
    there = open_model(converted(source, tmp_path / "there.gguf"))
    back = open_model(converted(tmp_path / "there.gguf", tmp_path / "back"))
    for other in (there, back):
        assert canonical(first).keys() == canonical(other).keys()
        for role, values in canonical(first).items():
            np.testing.assert_array_equal(canonical(other)[role], values, role)
        mixers = [files.spec.layers[0].mixer for files in (first, other)]
        np.testing.assert_allclose(mixers[1].rope.inv_freq, mixers[0].rope.inv_freq, rtol=1e-6)
        assert (mixers[1].heads, mixers[1].kv_heads, mixers[1].head_dim) == (
            mixers[0].heads, mixers[0].kv_heads, mixers[0].head_dim)
        assert (other.spec.vocab, other.spec.context, other.spec.tied_head) == (
            first.spec.vocab, first.spec.context, first.spec.tied_head)
        assert other.spec.norm_eps == pytest.approx(first.spec.norm_eps, rel=1e-6)
        ours, theirs = first.tokenizer(), other.tokenizer()
        assert theirs.encode(TEXT) == ours.encode(TEXT)
        assert theirs.eos_ids == ours.eos_ids
        assert len(ours.eos_ids) > 1  # of the tokenizer and of generation_config.json
        assert theirs.chat_templates == TEMPLATES


def test_the_answer_is_the_same(tmp_path: Path) -> None:
    source = checkpoint("llama3_gqa", tmp_path / "source")
    answers = []
    for path in (source, converted(source, tmp_path / "x.gguf")):
        with LLM(path, backend="numpy", kv_dtype="fp32") as llm:
            params = SamplingParams(max_tokens=12, ignore_eos=True, temperature=0)
            answers.append(llm.generate([[1, 5, 9, 2]], params)[0].token_ids)
    assert answers[0] == answers[1]


@pytest.mark.parametrize("to", ["Q8_0", "Q4_0", "F16"])
def test_the_package_gguf_reads_it(tmp_path: Path, to: str) -> None:
    source = checkpoint("llama_tied", tmp_path / "source")
    reader = gguf.GGUFReader(converted(source, tmp_path / "x.gguf", to))
    ours = open_model(source)
    assert {t.name for t in reader.tensors} == {s.name for s in open_model(tmp_path / "x.gguf").table.values()}
    up = next(t for t in reader.tensors if t.name == "blk.0.ffn_up.weight")
    assert up.tensor_type == gguf.GGMLQuantizationType[to]
    expected = canonical(ours)["layers.0.up"]
    again = gguf.quants.dequantize(gguf.quants.quantize(expected, up.tensor_type), up.tensor_type)
    np.testing.assert_array_equal(gguf.quants.dequantize(up.data, up.tensor_type), again)
    assert all(t.tensor_type == gguf.GGMLQuantizationType.F32 for t in reader.tensors if "norm" in t.name)


def test_a_quantized_checkpoint_needs_an_encoding(tmp_path: Path) -> None:
    source = checkpoint("llama_tied", tmp_path / "source")
    cfg = json.loads((source / "config.json").read_text())
    layers, k, n = cfg["num_hidden_layers"], cfg["hidden_size"], cfg["intermediate_size"]
    assert k % 32 == 0
    from drut.model.weights.safetensors import SafetensorsFile
    from tests.model.quantized.files import As, write

    file = SafetensorsFile(source / "model.safetensors")
    tensors = {t.name: As(t.encoding, file.raw(t.name).view(np.float32).reshape(t.shape).copy())
               for t in file.tensors.values()}
    decoded = {}
    for i in range(layers):
        name = f"model.layers.{i}.mlp.up_proj"
        del tensors[f"{name}.weight"]
        made = gptq(np.random.default_rng(i), n, k, 32, reorder=True, name=name)
        tensors |= made.tensors
        decoded[f"layers.{i}.up"] = made.decoded
    write(source / "model.safetensors", tensors)
    cfg["quantization_config"] = {"quant_method": "gptq", "bits": 4, "group_size": 32}
    (source / "config.json").write_text(json.dumps(cfg))
    with pytest.raises(UnsupportedError, match=r"layers.0.up is stored as int4z-g32-f16, which a GGUF"):
        converted(source, tmp_path / "x.gguf")
    assert list(tmp_path.iterdir()) == [source]
    out = canonical(open_model(converted(source, tmp_path / "x.gguf", "F32")))
    for role, values in decoded.items():
        np.testing.assert_array_equal(out[role], values)


def test_what_cannot_be_written(tmp_path: Path) -> None:
    source = checkpoint("llama_tied", tmp_path / "source")
    with pytest.raises(DrutError, match="exists already"):
        converted(source, source)
    with pytest.raises(UnsupportedError, match="a directory takes F32, F16, BF16, W8A8, not Q8_0"):
        converted(source, tmp_path / "out", "Q8_0")
    (source / "tokenizer.json").unlink()
    with pytest.raises(UnsupportedError, match=r"no tokenizer.json"):
        converted(source, tmp_path / "x.gguf")
    assert list(tmp_path.iterdir()) == [source]
