from __future__ import annotations

import json

import numpy as np
import pytest
from tokenizers import Tokenizer, decoders, models

from drut.cli.main import main
from drut.model.weights.gguf import GGUFFile
from drut.model.weights.safetensors import SafetensorsFile
from tests.cli.tiny import BOS, CONTEXT, EOS, TEMPLATE, VOCAB, metadata, model, tensors
from tests.golden.weights import config, write_checkpoint, write_safetensors
from tests.golden.weights import tensors as checkpoint_tensors
from tests.model.gguf_writer import F32, Tensor, gguf

IQ3_S = 21


@pytest.fixture(autouse=True)
def weights_stay_unread(monkeypatch):
    def raw(self, name):
        raise AssertionError(f"{name} was read")

    monkeypatch.setattr(GGUFFile, "raw", raw)
    monkeypatch.setattr(SafetensorsFile, "raw", raw)


def inspect(capsys, path) -> dict[str, object]:
    assert main(["show", str(path), "--json"]) == 0
    out, err = capsys.readouterr()
    assert (out.count("\n"), err) == (1, "")
    return json.loads(out)


def test_all_of_a_tiny_model(tiny, capsys):
    weights = VOCAB * 32 + 32 + 2 * (2 * 32 * 32 + 2 * 16 * 32 + 3 * 32 * 64 + 2 * 32)
    layers = {"layers": 2, "mixer": "attention", "heads": 2, "kv_heads": 1, "head_dim": 16}
    assert inspect(capsys, tiny) == {
        "path": tiny,
        "name": "Tiny",
        "licence": "cc0-1.0",
        "architecture": "llama",
        "family": "llama",
        "parameters": weights,
        "quantization": "F32",
        "file_bytes": len(model()),
        "bits_per_weight": 32.0,
        "tensors": 20,
        "unsupported_tensors": [],
        "problems": [],
        "encodings": [
            {"encoding": "F32", "supported": True, "tensors": 20, "weights": weights, "nbytes": 4 * weights}
        ],
        "hidden": 32,
        "layers": 2,
        "layer_runs": [layers | {"ffn": "gated", "ffn_width": 64, "window": 0}],
        "rope": {"base": 5000.0, "elements": 16, "scaling": "none"},
        "tied_head": True,
        "vocabulary": VOCAB,
        "context": CONTEXT,
        "kv_bytes_per_token": {"bf16": 2 * 2 * 16 * 2, "fp32": 2 * 2 * 16 * 4, "int8": 2 * 2 * (16 + 4)},
        "kv_groups": [{
            "layers": 2, "window": 0, "bytes_per_token": {"bf16": 128, "fp32": 256, "int8": 80},
            "bytes_per_sequence": {"bf16": 128 * CONTEXT, "fp32": 256 * CONTEXT, "int8": 80 * CONTEXT},
        }],
        "tokenizer": {
            "kind": "gpt2",
            "pre": "gpt-2",
            "tokens": VOCAB,
            "bos": {"id": BOS, "text": "<bos>"},
            "adds_bos": False,
            "eos": [{"id": EOS, "text": "<eos>"}],
        },
        "chat_template": TEMPLATE,
        "named_templates": {},
    }


def test_people_read_the_same_in_lines(tiny, capsys):
    assert main(["show", tiny]) == 0
    out = capsys.readouterr().out
    for words in (
        "Tiny",
        "cc0-1.0",
        "family llama",
        "26,848",
        "F32",
        "2 query and 1 key/value heads of 16",
        "base 5000",
        "160 tokens",
        "128 bytes per token in bf16",
        "pre gpt-2",
        "EOS 257 <eos>",
        "2 lines",
        "tied to the embedding",
    ):
        assert words in out
    assert "{% endfor %}[a]" in out
    assert "cannot run" not in out
    assert out.endswith("runs here      yes\n")


def test_what_is_not_supported_is_told(tmp_path, capsys):
    """A tokenizer and an encoding; rows of 256 elements, since that is a block of IQ3_S."""
    made = []
    for t in tensors():
        dims = tuple(256 if d == 32 else d for d in t.dims)
        if t.name.endswith(("attn_q.weight", "attn_output.weight")):
            dims = (256, 256)
        elif t.name.endswith(("attn_k.weight", "attn_v.weight")):
            dims = (256, 128)
        size = int(np.prod(dims))
        kind = IQ3_S if t.name in ("blk.0.attn_q.weight", "blk.1.ffn_up.weight") else F32
        made.append(Tensor(t.name, dims, kind, bytes(size // 256 * 110 if kind == IQ3_S else 4 * size)))
    path = tmp_path / "wide.gguf"
    changes = {"llama.embedding_length": 256, "tokenizer.ggml.pre": "klingon\n"}
    path.write_bytes(gguf(metadata() | changes, made))
    told = inspect(capsys, path)
    weights = 256 * 256 + 64 * 256
    assert told["encodings"][1] == {
        "encoding": "IQ3_S",
        "supported": False,
        "tensors": 2,
        "weights": weights,
        "nbytes": weights // 256 * 110,
    }
    assert told["unsupported_tensors"] == ["blk.0.attn_q.weight", "blk.1.ffn_up.weight"]
    tokenizer, encoding = told["problems"]
    assert "'klingon\\n' is not supported" in tokenizer
    assert "'blk.0.attn_q.weight': quantization 'IQ3_S' is not supported" in encoding
    assert told["tokenizer"]["pre"] == "klingon\n"
    assert told["tokenizer"]["tokens"] is None
    assert told["chat_template"] == TEMPLATE

    assert main(["show", str(path)]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line for line in lines if line.startswith("not supported")] == [
        "not supported  the encodings of blk.0.attn_q.weight, blk.1.ffn_up.weight"
    ]
    assert sum(line.startswith("cannot run") for line in lines) == 2
    assert not any(line.startswith("runs here") for line in lines)
    assert any(line.endswith("weights, not supported") for line in lines)


ROPES = {
    "head_dim_48": (100000.0, "none"),
    "llama2_mha": (10000.0, "none"),
    "llama3_gqa": (500000.0, "llama3"),
    "llama_tied": (50000.0, "none"),
    "mistral_mqa": (1000000.0, "none"),
    "rope_linear": (10000.0, "linear"),
}


@pytest.mark.parametrize("name", ROPES)
def test_checkpoints_of_other_shapes(name, tmp_path, capsys):
    path, cfg = write_checkpoint(name, tmp_path / name), config(name)
    told = inspect(capsys, path)
    assert told["parameters"] == sum(array.size for _, array in checkpoint_tensors(name))
    assert told["file_bytes"] == (path / "model.safetensors").stat().st_size
    assert (told["rope"]["base"], told["rope"]["scaling"]) == ROPES[name]
    (run,) = told["layer_runs"]
    assert (run["heads"], run["kv_heads"]) == (cfg["num_attention_heads"], cfg["num_key_value_heads"])
    assert told["tied_head"] == cfg["tie_word_embeddings"]
    assert told["tokenizer"] is None


def test_a_directory_of_shards_with_a_tokenizer(tmp_path, capsys):
    path, name = tmp_path / "sharded", "llama_tied"
    write_checkpoint(name, path)
    (path / "model.safetensors").unlink()
    halves = list(checkpoint_tensors(name))
    where = {}
    for file, part in (("a.safetensors", halves[:5]), ("b.safetensors", halves[5:])):
        write_safetensors(path / file, part)
        where |= {tensor: file for tensor, _ in part}
    (path / "model.safetensors.index.json").write_text(json.dumps({"weight_map": where}))
    (path / "unused.safetensors").write_bytes(b"")
    backend = Tokenizer(models.BPE({"a": 0, "<s>": 1, "</s>": 2}, []))
    backend.decoder = decoders.ByteLevel()
    backend.save(str(path / "tokenizer.json"))
    (path / "tokenizer_config.json").write_text(
        json.dumps({"bos_token": "<s>", "chat_template": "{{ messages }}"})
    )
    (path / "additional_chat_templates").mkdir()
    (path / "additional_chat_templates" / "tool_use.jinja").write_text("{{ tools }}")
    told = inspect(capsys, path)
    assert told["file_bytes"] == sum((path / f"{half}.safetensors").stat().st_size for half in "ab")
    assert told["tensors"] == len(halves)
    assert told["tokenizer"] == {
        "kind": "BPE",
        "pre": None,
        "tokens": 3,
        "bos": {"id": 1, "text": "<s>"},
        "adds_bos": False,
        "eos": [{"id": 2, "text": "</s>"}],
    }
    assert told["chat_template"] == "{{ messages }}"
    assert told["named_templates"] == {"tool_use": "{{ tools }}"}
    assert main(["show", str(path)]) == 0
    assert "chat template  'tool_use': 11 characters, 1 lines\n" in capsys.readouterr().out


def test_kv_groups_of_a_model_with_windows(tmp_path, capsys):
    """Two layers of four see 24 positions of 1,024: two pages of 16 hold them."""
    path = write_checkpoint("gpt_oss", tmp_path / "m")
    full, window = inspect(capsys, path)["kv_groups"]
    assert (full["layers"], full["window"], window["layers"], window["window"]) == (2, 0, 2, 24)
    assert full["bytes_per_token"]["bf16"] == window["bytes_per_token"]["bf16"] == 2 * 2 * 2 * 16 * 2
    assert (full["bytes_per_sequence"]["bf16"], window["bytes_per_sequence"]["bf16"]) == (1024 * 256, 32 * 256)
    assert main(["show", str(path)]) == 0
    out = capsys.readouterr().out
    assert "2 layers keep all tokens: 256 bytes in bf16" in out
    assert "2 layers keep the last 24 tokens: 256 bytes in bf16" in out
    assert "a sequence of 1,024 tokens: 270,336 bytes in bf16" in out


@pytest.mark.model
def test_the_default_model(capsys):
    told = inspect(capsys, "smollm2-135m-instruct")
    assert told["parameters"] == 134_515_008
    assert told["file_bytes"] == 98_362_432
    assert [(use["encoding"], use["tensors"]) for use in told["encodings"]] == [
        ("Q4_1", 210),
        ("Q8_0", 1),
        ("F32", 61),
    ]
    assert (told["layers"], told["hidden"], told["context"], told["vocabulary"]) == (30, 576, 8192, 49152)
    assert told["kv_bytes_per_token"] == {"bf16": 23_040, "fp32": 46_080, "int8": 12_240}
    assert told["licence"] == "apache-2.0"
    assert told["problems"] == []
