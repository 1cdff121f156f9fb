from __future__ import annotations

import json
from pathlib import Path

import pytest

from drut.bench.engines.engine import CannotRunError
from drut.bench.engines.kv import kv_bytes
from drut.bench.engines.weights import of_folder, of_gguf, of_openvino


@pytest.mark.parametrize(("name", "weights"), [
    ("SmolLM2-135M-Instruct.Q4_1.gguf", "GGUF Q4_1"), ("smollm2-135m-Q8_0.gguf", "GGUF Q8_0"),
    ("x-q4_k_m.gguf", "GGUF Q4_K_M"), ("x-IQ4_XS.gguf", "GGUF IQ4_XS"), ("x-TQ1_0.gguf", "GGUF TQ1_0"),
    ("gpt-oss-MXFP4.gguf", "GGUF MXFP4"), ("x.bf16.gguf", "GGUF BF16"), ("Qwen2.5-0.5B.gguf", "GGUF"),
    ("model.gguf", "GGUF")])
def test_a_gguf_file_is_named_by_its_type(name: str, weights: str) -> None:
    assert of_gguf(Path(name)) == weights


@pytest.mark.parametrize(("config", "weights"), [
    ({"quantization_config": {"quant_method": "awq", "bits": 4}}, "awq 4 bits"),
    ({"quantization_config": {"quant_method": "fp8"}}, "fp8"),
    ({"quantization_config": {"quant_method": "compressed-tensors", "config_groups": {"group_0": {
        "weights": {"num_bits": 8}, "input_activations": {"num_bits": 8}}}}}, "compressed-tensors W8A8"),
    ({"quantization_config": {"quant_method": "compressed-tensors", "config_groups": {"group_0": {
        "weights": {"num_bits": 4}, "input_activations": None}}}}, "compressed-tensors W4A16"),
    ({"quantization_config": {"quant_method": "compressed-tensors", "config_groups": []}}, "compressed-tensors"),
    ({"quantization": {"bits": 4, "group_size": 64}}, "4 bits"), ({}, "")])
def test_a_folder_is_named_by_how_it_was_quantized(tmp_path: Path, config: object, weights: str) -> None:
    (tmp_path / "config.json").write_text(json.dumps(config))
    assert of_folder(tmp_path) == weights


@pytest.mark.parametrize("data", [b"", b"\xff" * 8, b"\x02" + bytes(7) + b"[]", b"\x09" + bytes(7) + b'{"a": {}}'])
def test_a_damaged_folder_has_no_name(tmp_path: Path, data: bytes) -> None:
    (tmp_path / "config.json").write_bytes(b"\xff")
    (tmp_path / "model.safetensors").write_bytes(data)
    assert of_folder(tmp_path) == ""


def test_an_openvino_folder_is_named_by_its_bits(tmp_path: Path) -> None:
    (tmp_path / "openvino_config.json").write_text(json.dumps({"quantization_config": {"bits": 4}}))
    assert of_openvino(tmp_path) == "OpenVINO int4"
    assert of_openvino(tmp_path / "smollm2-openvino-int8") == "OpenVINO int8"
    assert of_openvino(tmp_path / "x") == "OpenVINO"


def test_keys_and_values_take_what_the_shape_states(tmp_path: Path) -> None:
    shape = {"num_hidden_layers": 30, "num_attention_heads": 9, "num_key_value_heads": 3, "hidden_size": 576}
    (tmp_path / "config.json").write_text(json.dumps(shape))
    assert kv_bytes(tmp_path, 1000, 2) == 1000 * 30 * 3 * 64 * 2 * 2
    (tmp_path / "config.json").write_text(json.dumps({"text_config": {**shape, "head_dim": 32}}))
    assert kv_bytes(tmp_path, 1, 2) == 30 * 3 * 32 * 2 * 2
    for bad in ("{}", "[]", "", json.dumps({**shape, "num_attention_heads": 0})):
        (tmp_path / "config.json").write_text(bad)
        with pytest.raises(CannotRunError, match=r"config\.json does not state"):
            kv_bytes(tmp_path, 1, 2)
