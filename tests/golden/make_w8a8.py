"""Golden W8A8 checkpoints: a tiny model quantized and saved by compressed-tensors, and logits of transformers.

    python tests/golden/make_w8a8.py --write   write w8a8.npz next to this file
    python tests/golden/make_w8a8.py --check   do it again and compare; exit code 1 if anything differs

Needs torch, transformers and compressed-tensors; what it writes is read without them.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import torch
import transformers
from compressed_tensors.compressors import ModelCompressor
from compressed_tensors.quantization import QuantizationConfig, apply_quantization_config, preset_name_to_scheme
from compressed_tensors.quantization.utils import calculate_qparams
from safetensors import safe_open

sys.path.insert(0, str(Path(__file__).parents[2]))
from tests.golden.make import TOLERANCE, load, logits
from tests.golden.weights import tensors, token_ids, write_checkpoint

FILE, NAME = Path(__file__).parent / "w8a8.npz", "llama_tied"
DTYPES = {"int8": "I8", "float32": "F32"}
LINEAR = preset_name_to_scheme("W8A8", ["Linear"])
EMBEDDING = LINEAR.model_copy(update={"targets": ["Embedding"], "input_activations": None, "format": "int-quantized"})
CASES = {"layers": ([LINEAR], ["lm_head"]), "head": ([LINEAR, EMBEDDING], [])}  # what is quantized


def save(case: str, source: Path, out: Path) -> None:
    """Quantizes and saves as LLM Compressor does, without calibration."""
    schemes, ignore = CASES[case]
    model = load(source)
    if not ignore:
        model.lm_head.weight = torch.nn.Parameter(model.model.embed_tokens.weight.detach().clone())
    groups = {f"group_{i}": scheme for i, scheme in enumerate(schemes)}
    apply_quantization_config(model, QuantizationConfig(config_groups=groups, ignore=ignore))
    for module in model.modules():
        if hasattr(module, "quantization_scheme"):
            weight = module.weight.detach()
            scale, _ = calculate_qparams(weight.amin(1, keepdim=True), weight.amax(1, keepdim=True),
                                         module.quantization_scheme.weights)
            module.weight_scale.data.copy_(scale)
    compressor = ModelCompressor.from_pretrained_model(model)
    compressor.compress_model(model)
    model.save_pretrained(out)
    compressor.update_config(str(out))


@torch.inference_mode()
def read(folder: Path, ids: list[int]) -> np.ndarray:
    """fp32 logits of a saved checkpoint with float activations: what its weights stand for."""
    model = load(folder)
    for module in model.modules():
        module.quantization_enabled = False
    return logits(model, ids)


def golden() -> dict[str, np.ndarray]:
    """What the file holds: of tensors those that are not the source's."""
    floats = dict(tensors(NAME))
    ids = token_ids(NAME, "short", 41)
    out: dict[str, np.ndarray] = {"ids": np.array(ids, np.int32)}
    with tempfile.TemporaryDirectory() as scratch:
        source = write_checkpoint(NAME, Path(scratch) / NAME)
        for case in CASES:
            folder = Path(scratch) / case
            save(case, source, folder)
            config: dict[str, Any] = json.loads((folder / "config.json").read_text())
            out[f"{case}/config"] = np.array(json.dumps(config))
            with safe_open(folder / "model.safetensors", "np") as stored:
                held = {key: stored.get_tensor(key) for key in stored.keys()}  # noqa: SIM118
            out[f"{case}/names"] = np.array(sorted(held))
            for key, value in held.items():
                if key in floats and value.dtype == np.float32:
                    assert np.array_equal(value, floats[key]), key
                else:  # a tied head has the bytes of the embedding
                    key = key.replace("lm_head.", "model.embed_tokens.")
                    assert np.array_equal(out.setdefault(f"{key}:{DTYPES[value.dtype.name]}", value), value), key
            out[f"{case}/logits"] = read(folder, ids)
    return out


def differs(new: np.ndarray, old: np.ndarray) -> bool:
    if new.dtype != np.float32:
        return not np.array_equal(new, old)
    return new.shape != old.shape or not np.abs(new - old).max() <= TOLERANCE * np.abs(old).max()


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--write", action="store_true")
    parser.add_argument("--check", action="store_true")
    args = parser.parse_args()
    transformers.logging.set_verbosity_error()
    transformers.logging.disable_progress_bar()
    made = golden()
    if args.write:
        np.savez_compressed(FILE, **made)
    if args.check:
        with np.load(FILE) as stored:
            kept = dict(stored)
        lines = [f"{key} differs" for key in sorted(made.keys() | kept.keys())
                 if key not in made or key not in kept or differs(made[key], kept[key])]
        print("\n".join(lines) or "all as committed")
        return bool(lines)
    return 0


if __name__ == "__main__":
    sys.exit(main())
