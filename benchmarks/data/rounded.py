"""A Hugging Face directory of float32 weights, rounded element by element to a format of safetensors."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from drut.formats.planes import E4M3
from drut.model.weights.safetensors import SafetensorsFile

F32 = NDArray[np.float32]
E2M1 = np.array([0, 0.5, 1, 1.5, 2, 3, 4, 6], np.float32)


class Held(NamedTuple):
    dtype: str
    bits: NDArray[Any]


Parts = dict[str, Held]


def _int4(w: F32, group: int) -> Parts:
    """Returns symmetric weights, packed as compressed-tensors packs them."""
    blocks = w.reshape(len(w), -1, group)
    scale = (np.abs(blocks).max(axis=2) / np.float32(7.5)).astype(np.float16)
    codes = np.clip(np.rint(blocks / scale.astype(np.float32)[..., None]), -8, 7).astype(np.int64).reshape(w.shape) + 8
    words = (codes.reshape(len(w), -1, 8) << (4 * np.arange(8))).sum(axis=2).astype(np.uint32).view(np.int32)
    return {"weight_packed": Held("I32", words), "weight_scale": Held("F16", scale),
            "weight_shape": Held("I64", np.array(w.shape, np.int64))}


def _fp8(w: F32) -> Parts:
    scale = np.abs(w).max(axis=1, keepdims=True) / np.float32(448)
    return {"weight": Held("F8_E4M3", _nearest(w / scale, E4M3[:127])), "weight_scale": Held("F32", scale)}


def _nvfp4(w: F32) -> Parts:
    whole = np.float32(448 * 6) / np.abs(w).max()
    blocks = w.reshape(len(w), -1, 16)
    fine = _nearest(np.abs(blocks).max(axis=2) / 6 * whole, E4M3[:127])
    scale = np.maximum(E4M3[fine], np.float32(2.0**-9)) / whole
    codes = _nearest((blocks / scale[..., None]).reshape(w.shape), E2M1, sign=8)
    return {"weight_packed": Held("U8", codes[:, ::2] | codes[:, 1::2] << 4), "weight_scale": Held("F8_E4M3", fine),
            "weight_global_scale": Held("F32", np.array([whole], np.float32))}


def _nearest(x: F32, sizes: F32, sign: int = 128) -> NDArray[np.uint8]:
    """Returns the code of the nearest of `sizes`, ascending, and the sign bit."""
    middle = (sizes[1:] + sizes[:-1]) / 2
    return (np.searchsorted(middle, np.abs(x)) + sign * np.signbit(x)).astype(np.uint8)


ROUNDED: dict[str, tuple[Callable[[F32], Parts], str, dict[str, Any]]] = {
    "int4-g32-f16": (lambda w: _int4(w, 32), "pack-quantized", {"num_bits": 4, "strategy": "group", "group_size": 32}),
    "int4-g64-f16": (lambda w: _int4(w, 64), "pack-quantized", {"num_bits": 4, "strategy": "group", "group_size": 64}),
    "fp8-row-f32": (_fp8, "float-quantized", {"num_bits": 8, "type": "float", "strategy": "channel"}),
    "nvfp4": (_nvfp4, "nvfp4-pack-quantized", {"num_bits": 4, "type": "float", "strategy": "tensor_group",
                                               "group_size": 16}),
}


def round_to(name: str, source: Path, out: Path) -> Path:
    """Writes the model at `source` to `out`, with all linear layers except the head in the format `name`."""
    make, form, weights = ROUNDED[name]
    shutil.copytree(source, out, ignore=shutil.ignore_patterns("*.safetensors"))
    config = json.loads((source / "config.json").read_text())
    config["quantization_config"] = {"quant_method": "compressed-tensors", "format": form, "config_groups": {
        "group_0": {"targets": ["Linear"], "weights": {"symmetric": True, "type": "int"} | weights}}}
    (out / "config.json").write_text(json.dumps(config))
    file, held = SafetensorsFile(source / "model.safetensors"), {}
    for name_, info in file.tensors.items():
        values = file.raw(name_).view(np.float32).reshape(info.shape)
        if name_.endswith("_proj.weight"):
            held |= {name_.removesuffix("weight") + part: value for part, value in make(values).items()}
        else:
            held[name_] = Held("F32", values)
    _write(out / "model.safetensors", held)
    return out


def _write(path: Path, tensors: dict[str, Held]) -> None:
    header, end = {}, 0
    for name, held in tensors.items():
        header[name] = {"dtype": held.dtype, "shape": held.bits.shape, "data_offsets": [end, end + held.bits.nbytes]}
        end += held.bits.nbytes
    text = json.dumps(header).encode()
    with path.open("wb") as file:
        file.write(len(text).to_bytes(8, "little") + text)
        for held in tensors.values():
            file.write(np.ascontiguousarray(held.bits).data)
