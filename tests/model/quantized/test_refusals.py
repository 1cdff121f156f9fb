"""Lying and unsupported quantized checkpoints: one error that names the key or the tensor."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from drut.errors import DrutError, ModelFileError, UnsupportedError
from tests.model.quantized.files import As, Tensors, awq, gptq, opened, values

GPTQ = {"quant_method": "gptq", "bits": 4, "group_size": 64, "sym": False}
AWQ = {"quant_method": "awq", "bits": 4, "group_size": 64}
PACKED = {"quant_method": "compressed-tensors", "format": "pack-quantized", "config_groups": {"group_0": {
    "targets": ["Linear"], "weights": {"num_bits": 4, "type": "int", "symmetric": True, "strategy": "group",
                                       "group_size": 32}}}}


def packed(**changes: Any) -> Tensors:
    tensors: Tensors = {"x.weight_packed": np.zeros((8, 8), np.int32), "x.weight_scale": np.ones((8, 2), np.float32),
                        "x.weight_shape": np.array([8, 64], np.int64)}
    return {name: value for name, value in (tensors | changes).items() if value is not None}


def gptq_tensors(**changes: Any) -> Tensors:
    return {k: v for k, v in (gptq(np.random.default_rng(1), 16, 128, 64).tensors | changes).items() if v is not None}


def awq_tensors(**changes: Any) -> Tensors:
    return {k: v for k, v in (awq(np.random.default_rng(1), 16, 128, 64).tensors | changes).items() if v is not None}


LIES = [
    (GPTQ, gptq_tensors(**{"x.qzeros": None}), "tensor 'x.qzeros' is missing"),
    (GPTQ, gptq_tensors(**{"x.qweight": None}), "tensor 'x.qweight' is missing"),
    (GPTQ, gptq_tensors(**{"x.scales": np.ones((3, 16), np.float16)}),
     r"'x.scales' has shape \[3, 16\], expected \[2, 16\] "
     r"\(bits 4, group_size 64 in quantization_config\)"),
    (GPTQ | {"bits": 8}, gptq_tensors(), r"rows of 64 |'x.scales' has shape"),
    (GPTQ | {"group_size": 48}, gptq_tensors(), "not whole groups of group_size 48"),
    (GPTQ, gptq_tensors(**{"x.qweight": np.zeros((16, 16), np.float32)}), "'x.qweight' is F32, expected I32"),
    (GPTQ, gptq_tensors(**{"x.qweight": np.zeros(16, np.int32)}), "'x.qweight' has shape .* must be a matrix"),
    (GPTQ, gptq_tensors(**{"x.weight": np.zeros((16, 128), np.float16)}), "'x.weight' is stored both quantized and"),
    (GPTQ, {"y.weight": np.zeros((16, 128), np.float16)}, "no tensor has that format"),
    (GPTQ | {"bits": "4"}, gptq_tensors(), "key 'bits' must be an integer"),
    (AWQ, awq_tensors(**{"x.qzeros": None}), "tensor 'x.qzeros' is missing"),
    (AWQ | {"group_size": 128}, awq_tensors(), r"expected \[1, 16\] \(group_size 128 in quantization_config\)"),
    (PACKED, packed(**{"x.weight_scale": None}), "'x.weight_scale' is missing"),
    (PACKED, packed(**{"x.weight_scale": np.ones((8, 1), np.float32)}), "no group of quantization_config matches"),
    (PACKED, packed(**{"x.weight_scale": np.ones((7, 2), np.float32)}), "does not fit 8 rows of 64"),
    (PACKED, packed(**{"x.weight_shape": np.array([8, 1 << 60], np.int64)}), "does not fit 8 rows of"),
    (PACKED, packed(**{"x.weight_zero_point": np.zeros((1, 2), np.int32)}), "with zero points: no group"),
    (PACKED | {"config_groups": {}}, packed(), "config_groups is missing or empty"),
    ({"quant_method": "fp8"}, {"x.weight": As("F8_E4M3", np.zeros((64, 64), np.uint8))}, "'x.weight_scale' is missing"),
    ({"quant_method": "fp8"}, {"x.weight": As("F8_E4M3", np.zeros((64, 64), np.uint8)),
                               "x.weight_scale": np.ones((2, 2), np.float32)}, "neither one scale, nor one for"),
    ({"quant_method": "mxfp4"}, {"x_blocks": np.zeros((2, 3, 1, 16), np.uint8)}, "'x_scales' is missing"),
    ({"quant_method": "mxfp4"},
     {"x_blocks": np.zeros((2, 3, 1, 15), np.uint8), "x_scales": np.zeros((2, 3, 1), np.uint8)},
     r"expected \[2, 3, 1, 16\]"),
    ({"quant_method": "modelopt", "quant_algo": "NVFP4"},
     {"x.weight": np.zeros((8, 32), np.uint8), "x.weight_scale": As("F8_E4M3", np.zeros((8, 2), np.uint8)),
      "x.weight_scale_2": np.ones(1, np.float32)}, r"'x.weight_scale' has shape \[8, 2\], expected \[8, 4\]"),
    ({"bits": 4}, gptq_tensors(), "key 'quant_method' is missing"),
]


@pytest.mark.parametrize(("config", "tensors", "why"), LIES, ids=[str(i) for i in range(len(LIES))])
def test_lies_are_told(tmp_path: Path, config: dict[str, Any], tensors: Tensors, why: str) -> None:
    with pytest.raises(ModelFileError, match=why) as error:
        opened(tmp_path, tensors, config)
    assert "\n" not in str(error.value)
    assert "config.json" in str(error.value)


@pytest.mark.parametrize(("index", "why"), [([0] * 128, "does not have 64 columns for each of 2 groups"),
                                            ([-1] * 64 + [0] * 64, "does not have"), ([9] * 128, "does not have")])
def test_groups_of_columns_that_do_not_fit(tmp_path: Path, index: list[int], why: str) -> None:
    source = opened(tmp_path, gptq_tensors(**{"x.g_idx": np.array(index, np.int32)}), GPTQ)
    with pytest.raises(ModelFileError, match=why):
        values(source, "x.weight")


def test_zero_points_of_a_symmetric_model(tmp_path: Path) -> None:
    source = opened(tmp_path, gptq_tensors(), GPTQ | {"sym": True})
    with pytest.raises(ModelFileError, match=r"'x.qzeros' has zero points that contradict sym"):
        values(source, "x.weight")


UNSUPPORTED = [
    ({"quant_method": "bitsandbytes"}, gptq_tensors(), "quant_method 'bitsandbytes' is not supported"),
    (GPTQ | {"bits": 3}, gptq_tensors(), "GPTQ of 3 bits"),
    (GPTQ | {"checkpoint_format": "marlin"}, gptq_tensors(), "checkpoint_format 'marlin'"),
    (GPTQ | {"dynamic": {"-:lm_head": {}}}, gptq_tensors(), "dynamic"),
    (GPTQ | {"group_size": 16}, gptq(np.random.default_rng(1), 16, 128, 16).tensors, "groups of 16 is not supported"),
    (AWQ | {"version": "gemv"}, awq_tensors(), "AWQ version 'gemv'"),
    (AWQ | {"zero_point": False}, awq_tensors(), "without zero_point"),
    (PACKED | {"format": "marlin-24"}, packed(), "format 'marlin-24'"),
    (PACKED | {"sparsity_config": {"format": "sparse-24-bitmask"}}, packed(), "'sparse-24-bitmask'"),
    (PACKED | {"transform_config": {"config_groups": {"u": {}}}}, packed(), "transform_config"),
    ({"quant_method": "fp8"}, {"x.weight": As("F8_E5M2", np.zeros((32, 32), np.uint8))}, "F8_E5M2 is not supported"),
    ({"quant_method": "modelopt", "quant_algo": "W4A8_AWQ"}, awq_tensors(), "quant_algo 'W4A8_AWQ'"),
    ({"quant_method": "fp8"},
     {"x.weight": As("F8_E4M3", np.zeros((8, 40), np.uint8)), "x.weight_scale": np.ones(1, np.float32)},
     "quantized rows of 40 are not supported"),
]


@pytest.mark.parametrize(("config", "tensors", "why"), UNSUPPORTED, ids=[str(i) for i in range(len(UNSUPPORTED))])
def test_what_is_not_supported_is_named(tmp_path: Path, config: dict[str, Any], tensors: Tensors, why: str) -> None:
    with pytest.raises(UnsupportedError, match=why) as error:
        opened(tmp_path, tensors, config)
    assert isinstance(error.value, DrutError)
