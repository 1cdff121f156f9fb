"""Quantized layers are decoded bit for bit as their definitions, or the packages that write them, demand."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from drut.formats.planes import E4M3
from tests.model.quantized.files import As, awq, gptq, opened, values

GOLDEN = Path(__file__).parents[2] / "golden" / "quantized.npz"
GPTQ = {"quant_method": "gptq", "bits": 4, "group_size": 64, "sym": False}


def golden() -> dict[str, np.ndarray]:
    with np.load(GOLDEN) as stored:
        return dict(stored)


CASES = sorted({key.split("/")[0] for key in golden() if "/" in key})


@pytest.mark.parametrize("case", CASES)
def test_what_compressed_tensors_decodes(tmp_path: Path, case: str) -> None:
    stored = {key.removeprefix(f"{case}/"): value for key, value in golden().items() if key.startswith(f"{case}/")}
    tensors = {}
    for key in filter(lambda key: ":" in key, stored):
        part, dtype = key.split(":")
        tensors[f"x.{part}"] = As(dtype, stored[key])
    source = opened(tmp_path, tensors, json.loads(str(stored["config"])))
    assert set(source.tensors) == {"x.weight"}
    actual = values(source, "x.weight")
    assert actual.shape == stored["decoded"].shape
    if case == "nvfp4":  # the file's float divides there, here its reciprocal multiplies
        np.testing.assert_allclose(actual, stored["decoded"], rtol=2.0**-22)
    else:
        assert (actual == stored["decoded"]).all()


def test_e4m3_is_what_torch_has() -> None:
    np.testing.assert_array_equal(E4M3, golden()["e4m3"])


@pytest.mark.parametrize("bits", [4, 8])
@pytest.mark.parametrize("version", [1, 2])
@pytest.mark.parametrize("reorder", [False, True])
@pytest.mark.parametrize("symmetric", [False, True])
def test_gptq(tmp_path: Path, bits: int, version: int, reorder: bool, symmetric: bool) -> None:
    layer = gptq(np.random.default_rng(1), 40, 128, 64, bits=bits, version=version, reorder=reorder,
                 symmetric=symmetric)
    config = GPTQ | {"bits": bits, "sym": symmetric, "checkpoint_format": "gptq" if version == 1 else "gptq_v2"}
    source = opened(tmp_path, layer.tensors, config)
    assert source.tensors["x.weight"].encoding == f"int{bits}{'' if symmetric else 'z'}-g64-f16"
    assert (source.columns("x.weight") is not None) == reorder
    assert (values(source, "x.weight") == layer.decoded).all()


def test_gptq_with_one_group_a_row(tmp_path: Path) -> None:
    layer = gptq(np.random.default_rng(2), 16, 96, 96)
    source = opened(tmp_path, layer.tensors, GPTQ | {"group_size": -1})
    assert source.tensors["x.weight"].encoding == "int4z-row-f16"
    assert (values(source, "x.weight") == layer.decoded).all()


@pytest.mark.parametrize("group", [32, 128])
def test_awq(tmp_path: Path, group: int) -> None:
    layer = awq(np.random.default_rng(3), 40, 256, group)
    source = opened(tmp_path, layer.tensors, {"quant_method": "awq", "bits": 4, "group_size": group, "version": "gemm"})
    assert source.tensors["x.weight"].encoding == f"int4z-g{group}-f16"
    assert (values(source, "x.weight") == layer.decoded).all()


@pytest.mark.parametrize("shape", [(), (1,), (50,), (50, 1), (2, 3)])
def test_fp8_scales(tmp_path: Path, shape: tuple[int, ...]) -> None:
    rng = np.random.default_rng(4)
    codes = rng.integers(0, 127, (50, 96), np.uint8)
    scale = rng.uniform(0.01, 0.02, shape).astype(np.float32)
    name = "x.weight_scale_inv" if shape == (2, 3) else "x.weight_scale"
    config = {"quant_method": "fp8", **({"weight_block_size": [32, 32]} if shape == (2, 3) else {})}
    source = opened(tmp_path, {"x.weight": As("F8_E4M3", codes), name: np.asarray(scale)}, config)
    blocks = np.repeat(np.repeat(scale, 32, axis=0), 32, axis=1)[:50] if shape == (2, 3) else None
    spread = scale.reshape(-1, 1) if blocks is None else blocks
    assert (values(source, "x.weight") == E4M3[codes] * spread).all()


def test_modelopt_nvfp4_multiplies(tmp_path: Path) -> None:
    rng = np.random.default_rng(5)
    codes, fine = rng.integers(0, 256, (5, 32), np.uint8), rng.integers(1, 120, (5, 4), np.uint8)
    tensors = {"x.weight": codes, "x.weight_scale": As("F8_E4M3", fine),
               "x.weight_scale_2": np.float32(0.02).reshape(()), "x.input_scale": np.ones((), np.float32)}
    source = opened(tmp_path, tensors, {"quant_method": "modelopt", "quant_algo": "NVFP4"})
    e2m1 = np.array([0, 0.5, 1, 1.5, 2, 3, 4, 6, 0, -0.5, -1, -1.5, -2, -3, -4, -6], np.float32)
    elements = np.stack([codes & 15, codes >> 4], axis=-1).reshape(5, 64)
    expected = e2m1[elements] * np.repeat(E4M3[fine] * np.float32(0.02), 16, axis=1)
    assert (values(source, "x.weight") == expected).all()


def test_experts_of_gpt_oss(tmp_path: Path) -> None:
    rng = np.random.default_rng(6)
    blocks, scales = rng.integers(0, 256, (3, 4, 2, 16), np.uint8), rng.integers(110, 130, (3, 4, 2), np.uint8)
    source = opened(tmp_path, {"x_blocks": blocks, "x_scales": scales}, {"quant_method": "mxfp4"})
    assert source.tensors["x.weight"].shape == (3, 4, 64)
    e2m1 = np.array([0, 0.5, 1, 1.5, 2, 3, 4, 6, 0, -0.5, -1, -1.5, -2, -3, -4, -6], np.float32)
    elements = np.stack([blocks & 15, blocks >> 4], axis=-1).reshape(3, 4, 2, 32)
    expected = e2m1[elements] * np.exp2(scales.astype(np.float32) - 127)[..., None]
    assert (values(source, "x.weight") == expected.reshape(3, 4, 64)).all()
