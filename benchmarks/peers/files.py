"""Makes one model in every layout that an engine reads, from one bf16 checkpoint.

    python -m benchmarks.peers.files [NAME ...]

Existing files stay; files that cannot be made are named, and the others continue. Each NAME becomes the file
build/compare/models/NAME.json for `drut bench compare --model-files`.
"""

from __future__ import annotations

import argparse
import shutil
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from benchmarks.peers.build import PEERS
from benchmarks.peers.models import FOLDER, SHIPPED, CannotMakeError, quantize, run_step

from drut.bench.engines.engine import EngineFiles
from drut.bench.engines.files import save_model_files


@dataclass(frozen=True)
class Recipe:
    """A model with its checkpoint, and the formats of the other layouts."""

    base: str
    title: str
    gguf: str
    openvino: str


_SMOLLM2 = "SmolLM2-135M-Instruct"
_LLAMA = "the shape of Llama 3.2 1B, random weights: its answers mean nothing"
RECIPES = {
    "smollm2-135m-q8_0": Recipe("smollm2-135m", _SMOLLM2, "Q8_0", "int8"),
    "smollm2-135m-q4_0": Recipe("smollm2-135m", _SMOLLM2, "Q4_0", "int4"),
    "llama-1b-q8_0": Recipe("llama-1b", _LLAMA, "Q8_0", "int8"),
    "llama-1b-q4_0": Recipe("llama-1b", _LLAMA, "Q4_0", "int4"),
}


def model_files(name: str) -> EngineFiles:
    """Returns the existing files of the model."""
    recipe = RECIPES[name]
    hf, gguf, openvino, mlx = (path if path.exists() else None for path in _paths(recipe))
    label = f"{recipe.title}; GGUF {recipe.gguf}, checkpoint bf16, OpenVINO {recipe.openvino}, MLX fp32"
    return EngineFiles(name=name, tokenizer=str(hf or gguf or SHIPPED), gguf=gguf, hf=hf, openvino=openvino, mlx=mlx,
                       label=label)


def make(name: str) -> dict[str, str]:
    """Makes all layouts of the model; returns the reasons for missing ones, by layout."""
    recipe = RECIPES[name]
    hf, gguf, openvino, mlx = _paths(recipe)
    steps: dict[str, tuple[Path, Callable[[], None]]] = {
        "checkpoint": (hf, lambda: _checkpoint(recipe.base, hf)),
        "GGUF": (gguf, lambda: _gguf(hf, gguf, recipe.gguf)),
        "MLX": (mlx, lambda: _mlx(hf, mlx)),
        "OpenVINO": (openvino, lambda: _openvino(hf, openvino, recipe.openvino)),
    }
    missing = {}
    for layout, (path, step) in steps.items():
        if not path.exists():
            since = time.monotonic()
            try:
                step()
                print(f"{path.name}: made in {time.monotonic() - since:.0f} s", flush=True)
            except CannotMakeError as error:
                missing[layout] = str(error)
    return missing


def _paths(recipe: Recipe) -> tuple[Path, Path, Path, Path]:
    base, folder = recipe.base, FOLDER.resolve()
    return (folder / f"{base}-bf16", folder / f"{base}-{recipe.gguf}.gguf",
            folder / f"{base}-openvino-{recipe.openvino}", folder / f"{base}-mlx-fp32")


def _checkpoint(base: str, target: Path) -> None:
    if base == "smollm2-135m":
        _whole(target, lambda partial: run_step(
            [sys.executable, "-m", "drut", "convert", SHIPPED, partial, "--encoding", "BF16"], f"{target.name}.log"))
    else:
        like = FOLDER / "smollm2-135m-bf16"
        if not like.exists():
            _checkpoint("smollm2-135m", like)
        run_step([sys.executable, "-m", "benchmarks.peers.random_checkpoint", like, target], f"{target.name}.log")


def _gguf(hf: Path, target: Path, encoding: str) -> None:
    source = hf.parent / f"{hf.name}.gguf"
    if not source.exists():
        partial = source.with_suffix(".partial.gguf")
        partial.unlink(missing_ok=True)
        run_step([sys.executable, "-m", "drut", "convert", hf, partial], f"{source.name}.log")
        partial.rename(source)
    quantize(source, target, encoding)


def _openvino(hf: Path, target: Path, encoding: str) -> None:
    weights = ["--weight-format", encoding]
    if encoding == "int4":  # SmolLM2's 576 inputs are not a multiple of the default group, 128
        weights += ["--sym", "--group-size", "64", "--ratio", "1.0"]
    _whole(target, lambda partial: run_step(
        [PEERS["openvino"].folder / "bin" / "optimum-cli", "export", "openvino", "--model", hf, "--task",
         "text-generation-with-past", *weights, partial], f"{target.name}.log"))


def _mlx(hf: Path, target: Path) -> None:
    _whole(target, lambda partial: run_step(
        [PEERS["mlx"].python, "-m", "mlx_lm", "convert", "--hf-path", hf, "--mlx-path", partial, "--dtype", "float32"],
        f"{target.name}.log"))


def _whole(target: Path, step: Callable[[Path], None]) -> None:
    """Makes a folder under a temporary name and renames it, so that none is incomplete."""
    partial = target.with_suffix(".partial")
    shutil.rmtree(partial, ignore_errors=True)
    step(partial)
    partial.rename(target)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"models (default: all):  {', '.join(RECIPES)}")
    names: list[str] = parser.parse_args().names or list(RECIPES)
    if unknown := [name for name in names if name not in RECIPES]:
        parser.error(f"unknown model:  {', '.join(unknown)}")
    FOLDER.mkdir(parents=True, exist_ok=True)
    without = 0
    for name in names:
        for layout, why in make(name).items():
            without += 1
            print(f"{name}: no {layout}: {why}", file=sys.stderr)
        path = FOLDER / f"{name}.json"
        save_model_files(model_files(name), path)
        print(path, flush=True)
    return int(without > 0)


if __name__ == "__main__":
    sys.exit(main())
