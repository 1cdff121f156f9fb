"""Names the format of the weights in a model's files, from the files' own metadata."""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path
from typing import Any

import msgspec

_GGUF_TYPE = re.compile(r"(?<![A-Za-z0-9])([IT]?Q\d\w*|MXFP4\w*|BF16|F16|F32)(?![A-Za-z0-9])", re.IGNORECASE)
_NAMES = {"BF16": "bf16", "F16": "fp16", "F32": "fp32", "F8_E4M3": "fp8"}
_MAX_HEADER = 64 << 20


def of_gguf(path: Path) -> str:
    """Names the format of a GGUF file by its file name, as "GGUF Q4_0"; "GGUF" if the name does not contain it."""
    found = _GGUF_TYPE.findall(path.stem)
    return f"GGUF {found[-1].upper()}" if found else "GGUF"


def of_folder(folder: Path) -> str:
    """Names the format of a Hugging Face or MLX folder: its quantization, else the data type of most of its bytes."""
    config = _json(folder / "config.json")
    for key in ("quantization_config", "quantization"):
        if isinstance(config.get(key), dict):
            given = config[key]
            return " ".join(filter(None, [str(given.get("quant_method", "")), _bits(given)])) or key
    for path in sorted(folder.glob("*.safetensors")):
        if stored := _most(path):
            return _NAMES.get(stored, stored.lower())
    return ""


def _bits(given: dict[str, Any]) -> str:
    """Returns the bits of the weights, and those of activations if compressed-tensors names them, as "W8A8"."""
    if bits := given.get("bits") or given.get("w_bit"):
        return f"{bits} bits"
    groups = _object(given, "config_groups")
    scheme = _object(groups, next(iter(groups), ""))
    bits = _object(scheme, "weights").get("num_bits")
    return f"W{bits}A{_object(scheme, 'input_activations').get('num_bits', 16)}" if bits else ""


def _object(parent: dict[str, Any], key: str) -> dict[str, Any]:
    found = parent.get(key)
    return found if isinstance(found, dict) else {}


def of_openvino(folder: Path) -> str:
    """Names the format of a folder exported by optimum-intel."""
    config = _json(folder / "openvino_config.json")
    given = config.get("quantization_config") or {}
    if isinstance(given, dict) and isinstance(given.get("default_config"), dict):
        given = given["default_config"]
    bits = given.get("bits") if isinstance(given, dict) else None
    bits = bits or next(iter(re.findall(r"int(\d)", folder.name)), None)
    return f"OpenVINO int{bits}" if bits else "OpenVINO"


def _json(path: Path) -> dict[str, Any]:
    try:
        read = msgspec.json.decode(path.read_bytes())
    except (OSError, msgspec.DecodeError):
        return {}
    return read if isinstance(read, dict) else {}


def _most(path: Path) -> str | None:
    """Returns the data type of most bytes in a safetensors file."""
    try:
        with path.open("rb") as file:
            length = int.from_bytes(file.read(8), "little")
            header = msgspec.json.decode(file.read(length)) if length <= _MAX_HEADER else {}
        sizes: Counter[str] = Counter()
        for name, tensor in header.items():
            if name != "__metadata__":
                sizes[tensor["dtype"]] += tensor["data_offsets"][1] - tensor["data_offsets"][0]
    except (OSError, msgspec.DecodeError, AttributeError, KeyError, TypeError):
        return None
    return sizes.most_common(1)[0][0] if sizes else None
