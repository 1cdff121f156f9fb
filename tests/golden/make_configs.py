"""What `transformers` makes of a config.json: saved again, written otherwise, and left out.

    python tests/golden/make_configs.py --write    write the files below, beside this one
    python tests/golden/make_configs.py --check    make them again and compare; exit code 1 if they differ

`resaved.json` has the config of each tiny checkpoint as `save_pretrained` writes it, its tensors being those of the
checkpoint; `defaults.json` what each config class takes where a file says nothing; `variants.npz` the logits of the
last row of VARIANTS. Needs torch and transformers; what it writes is read without either.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import transformers
from safetensors.numpy import load_file

sys.path.insert(0, str(Path(__file__).parents[2]))
from tests.golden.make import differences, load, logits
from tests.golden.variants import VARIANTS, variant
from tests.golden.weights import HERE, NAMES, config, tensors, token_ids, write_checkpoint

ROW = 80  # tokens of a variant's text
RESAVED, DEFAULTS, LOGITS = HERE / "resaved.json", HERE / "defaults.json", HERE / "variants.npz"
HEADS = {"glm4_moe": {"num_attention_heads": 32}}  # where those of the class have no size that runs
Configs = dict[str, dict[str, Any]]


def resaved(scratch: Path) -> Configs:
    """The config of each checkpoint that is saved again with the same tensors. Quantized weights are saved as floats,
    which makes another model of them."""
    made = {}
    for name in NAMES:
        if "quantization_config" in config(name):
            continue
        load(write_checkpoint(name, scratch / name)).save_pretrained(scratch / f"{name}-again")
        saved = load_file(scratch / f"{name}-again" / "model.safetensors")
        own = dict(tensors(name))
        if saved.keys() != own.keys() or not all(np.array_equal(saved[key], own[key]) for key in own):
            raise SystemExit(f"{name}: saved again, its tensors are others")
        made[name] = read(scratch / f"{name}-again" / "config.json")
    return made


def defaults(scratch: Path) -> Configs:
    """The config of each class, by its `model_type`."""
    made = {}
    for kind in sorted({config(name)["model_type"] for name in NAMES}):
        transformers.AutoConfig.for_model(kind, **HEADS.get(kind, {})).save_pretrained(scratch / kind)
        made[kind] = read(scratch / kind / "config.json")
    return made


def read(path: Path) -> dict[str, Any]:
    saved: dict[str, Any] = json.loads(path.read_text())
    del saved["transformers_version"]
    return saved


def rows(scratch: Path) -> dict[str, np.ndarray]:
    """The last row of each variant's logits."""
    made = {}
    for name, (base, _) in VARIANTS.items():
        model = load(write_checkpoint(base, scratch / name, variant(name)))
        made[name] = logits(model, token_ids(base, name, ROW))[-1]
    return made


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    mode = parser.add_mutually_exclusive_group(required=True)
    mode.add_argument("--write", action="store_true", help="write the files")
    mode.add_argument("--check", action="store_true", help="compare with the committed ones")
    args = parser.parse_args()
    transformers.logging.set_verbosity_error()
    transformers.logging.disable_progress_bar()
    with tempfile.TemporaryDirectory() as scratch:
        configs = {RESAVED: resaved(Path(scratch)), DEFAULTS: defaults(Path(scratch))}
        made = rows(Path(scratch))
    if args.write:
        for path, content in configs.items():
            path.write_text(json.dumps(content, indent=1, sort_keys=True) + "\n")
        np.savez_compressed(LOGITS, **made)
        return 0
    lines = [f"{path.name}: differs" for path, content in configs.items() if json.loads(path.read_text()) != content]
    with np.load(LOGITS) as committed:
        lines += differences(made, dict(committed))
    print("\n".join(lines) or f"{len(configs[RESAVED])} configs and {len(made)} variants are what transformers makes")
    return int(bool(lines))


if __name__ == "__main__":
    sys.exit(main())
