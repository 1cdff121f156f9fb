"""Golden weights of quantized layers: packed and decoded by the package compressed-tensors.

    python tests/golden/make_quantized.py --write   write quantized.npz beside this file
    python tests/golden/make_quantized.py --check   do it again and compare; exit code 1 if anything differs

Needs torch and compressed-tensors; what it writes is read without either.
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import Any

import numpy as np
import torch
from compressed_tensors.compressors import BaseCompressor
from compressed_tensors.compressors.nvfp4.helpers import unpack_fp4_from_uint8
from compressed_tensors.quantization import QuantizationArgs, QuantizationScheme
from compressed_tensors.quantization.lifecycle.forward import dequantize
from compressed_tensors.quantization.utils import calculate_qparams, generate_gparam

FILE = Path(__file__).parent / "quantized.npz"
DTYPES = {torch.int32: "I32", torch.int64: "I64", torch.int8: "I8", torch.uint8: "U8", torch.float8_e4m3fn: "F8_E4M3",
          torch.float16: "F16", torch.bfloat16: "BF16", torch.float32: "F32"}
# name: (format, weight arguments, type of the scales, rows, columns)
CASES: dict[str, tuple[str, dict[str, Any], torch.dtype, int, int]] = {
    "w4-group": ("pack-quantized", {"num_bits": 4, "strategy": "group", "group_size": 128}, torch.bfloat16, 40, 256),
    "w4-group-zeros": ("pack-quantized", {"num_bits": 4, "strategy": "group", "group_size": 64, "symmetric": False},
                       torch.float16, 37, 192),
    "w4-channel-zeros": ("pack-quantized", {"num_bits": 4, "strategy": "channel", "symmetric": False},
                         torch.float32, 33, 96),
    "w8-group": ("pack-quantized", {"num_bits": 8, "strategy": "group", "group_size": 32}, torch.bfloat16, 10, 64),
    "int8-channel": ("int-quantized", {"num_bits": 8, "strategy": "channel"}, torch.bfloat16, 33, 64),
    "int8-channel-zeros": ("int-quantized", {"num_bits": 8, "strategy": "channel", "symmetric": False},
                           torch.float32, 9, 96),
    "int8-tensor": ("int-quantized", {"num_bits": 8, "strategy": "tensor"}, torch.float32, 9, 64),
    "fp8-channel": ("float-quantized", {"num_bits": 8, "type": "float", "strategy": "channel"}, torch.bfloat16, 9, 64),
    "fp8-tensor": ("float-quantized", {"num_bits": 8, "type": "float", "strategy": "tensor"}, torch.float32, 9, 64),
    "fp8-block": ("float-quantized", {"num_bits": 8, "type": "float", "strategy": "block",
                                      "block_structure": [128, 128]}, torch.float32, 150, 160),
    "nvfp4": ("nvfp4-pack-quantized", {"num_bits": 4, "type": "float", "strategy": "tensor_group", "group_size": 16,
                                       "scale_dtype": "torch.float8_e4m3fn"}, torch.float32, 9, 64),
    "mxfp4": ("mxfp4-pack-quantized", {"num_bits": 4, "type": "float", "strategy": "group", "group_size": 32,
                                       "scale_dtype": "torch.uint8"}, torch.float32, 9, 64),
}  # fmt: skip


def make(name: str) -> dict[str, np.ndarray]:
    """The stored tensors of a case (`NAME/part:DTYPE`), its config, and what it decodes to."""
    form, arguments, dtype, n, k = CASES[name]
    raw = np.random.PCG64(sum(name.encode())).random_raw(n * k) >> np.uint64(40)
    weight = torch.from_numpy((raw.astype(np.float32) * np.float32(2.0**-26) - np.float32(0.12)).reshape(n, k))
    args = QuantizationArgs(**arguments)
    state = {"weight": weight} | _parameters(weight, args, dtype)
    scheme = QuantizationScheme(targets=["Linear"], weights=args)
    compressor = BaseCompressor.get_value_from_registry(form)
    stored = compressor.compress(state, scheme)
    if form == "nvfp4-pack-quantized":
        decoded = _nvfp4(stored, args)
    else:
        halves = (torch.bfloat16, torch.float16)
        wide = {key: value.float() if value.dtype in halves else value for key, value in stored.items()}
        decoded = compressor.decompress(wide, scheme)["weight"].float()
    config = {"quant_method": "compressed-tensors", "format": form,
              "config_groups": {"group_0": {"targets": ["Linear"], "weights": json.loads(args.model_dump_json())}}}
    out = {f"{name}/{part}:{DTYPES[t.dtype]}": _bits(t) for part, t in stored.items()}
    return out | {f"{name}/config": np.array(json.dumps(config)), f"{name}/decoded": decoded.numpy()}


def _parameters(weight: torch.Tensor, args: QuantizationArgs, dtype: torch.dtype) -> dict[str, torch.Tensor]:
    n, k = weight.shape
    extra = {}
    if args.strategy == "block":
        rows, columns = args.block_structure
        padded = torch.nn.functional.pad(weight, (0, -k % columns, 0, -n % rows))
        blocks = padded.reshape(-(-n // rows), rows, -(-k // columns), columns).transpose(1, 2).flatten(2)
    elif args.strategy == "tensor":
        blocks = weight.reshape(1, 1, -1)
    else:
        blocks = weight.reshape(n, -1, args.group_size if args.group_size and args.group_size > 0 else k)
    low, high = blocks.amin(-1), blocks.amax(-1)
    if args.strategy == "tensor":
        low, high = low.reshape(1), high.reshape(1)
    if args.strategy == "tensor_group":
        extra["weight_global_scale"] = generate_gparam(weight.amin(), weight.amax())
    scale, zero = calculate_qparams(low, high, args, global_scale=extra.get("weight_global_scale"))
    if args.scale_dtype is None:
        scale = scale.to(dtype)
    return {"weight_scale": scale, "weight_zero_point": zero.to(torch.int8)} | extra


def _nvfp4(stored: dict[str, torch.Tensor], args: QuantizationArgs) -> torch.Tensor:
    """In float32, where the compressor would round to bf16."""
    packed = stored["weight_packed"]
    elements = unpack_fp4_from_uint8(packed, packed.shape[0], 2 * packed.shape[1], torch.float32)
    return dequantize(elements, stored["weight_scale"].float(), args=args, dtype=torch.float32,
                      global_scale=stored["weight_global_scale"])


def _bits(tensor: torch.Tensor) -> np.ndarray:
    if tensor.dtype in (torch.bfloat16, torch.float16):
        tensor = tensor.view(torch.int16)
    if tensor.dtype == torch.float8_e4m3fn:
        tensor = tensor.view(torch.uint8)
    return tensor.contiguous().numpy()


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--write", action="store_true")
    parser.add_argument("--check", action="store_true")
    args = parser.parse_args()
    made = {key: value for name in CASES for key, value in make(name).items()}
    e4m3 = torch.arange(256, dtype=torch.uint8).view(torch.float8_e4m3fn).float()
    made["e4m3"] = e4m3.numpy()
    if args.write:
        np.savez_compressed(FILE, **made)
    if args.check:
        with np.load(FILE) as stored:
            kept = dict(stored)
        differ = [key for key in made.keys() | kept.keys()
                  if key not in made or key not in kept or made[key].tobytes() != kept[key].tobytes()]
        print("\n".join(f"{key} differs" for key in sorted(differ)) or "all as committed")
        return bool(differ)
    return 0


if __name__ == "__main__":
    sys.exit(main())
