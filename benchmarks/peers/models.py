"""The model files of the comparison, made on first use under build/compare/models/."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

from benchmarks.peers.build import PEERS, ROOT
from benchmarks.peers.process import EngineProcess

FOLDER = ROOT / "build" / "compare" / "models"
SHIPPED = "smollm2-135m-instruct"
VOCAB = 49152  # of SmolLM2, whose token ids the other shape has too
QUANTIZE_S = 1800.0
W8A8 = "W8A8"
RANDOM = "llama-1b"  # the base with random weights, of `benchmarks.peers.files`


class CannotMakeError(Exception):
    """Raised if a model file cannot be made here; the text has the reason."""


@dataclass(frozen=True)
class Model:
    """A file for Drut and llama.cpp, and the files of other engines."""

    name: str
    title: str
    base: str  # the file from which it is quantized
    type: str  # the type for llama.cpp's quantizer; "" for the base itself; W8A8, which Drut writes and llama.cpp lacks
    columns: tuple[str, ...]  # what is measured unless asked otherwise
    openvino: str = ""  # the weight format of the OpenVINO conversion
    vllm: bool = False
    kv_dtype: str = "bf16"  # of Drut's KV cache; the other engines keep their default


STEPS, LONG = ("prefill", "decode1", "decode8", "decode32"), ("prefill2048", "prefill4096", "prefill7600")
LARGE = ("prefill", "decode1")

MODELS = {model.name: model for model in (
    Model("smollm2-q4_0", "SmolLM2-135M, Q4_0", "smollm2", "Q4_0", STEPS, openvino="int4"),
    Model("smollm2-q4_1", "SmolLM2-135M, Q4_1 as shipped", "smollm2", "", STEPS),
    Model("smollm2-q8_0", "SmolLM2-135M, Q8_0", "smollm2", "Q8_0", STEPS, openvino="int8", vllm=True),
    Model("smollm2-q8_0-long", "SmolLM2-135M, Q8_0, long prompts", "smollm2", "Q8_0", LONG, openvino="int8"),
    Model("smollm2-q8_0-kv8", "SmolLM2-135M, Q8_0, long prompts, int8 KV cache", "smollm2", "Q8_0", LONG,
          openvino="int8", kv_dtype="int8"),
    Model("smollm2-w8a8", "SmolLM2-135M, W8A8", "smollm2", W8A8, STEPS, openvino="int8"),
    Model("llama1b-q4_0", "Llama shape of 1.1 G weights, Q4_0", RANDOM, "Q4_0", LARGE),
    Model("llama1b-q8_0", "Llama shape of 1.1 G weights, Q8_0", RANDOM, "Q8_0", LARGE, openvino="int8"),
    Model("llama1b-q4_k_m", "Llama shape of 1.1 G weights, Q4_K_M", RANDOM, "Q4_K_M", LARGE),
)}


def drut_file(model: Model) -> Path:
    """Returns Drut's file, llama.cpp's too but of W8A8. Raises CannotMakeError if it is missing and cannot be made."""
    base = _base(model.base)
    if not model.type:
        return base
    if model.type == W8A8:
        return _w8a8_folder(base, FOLDER / f"{model.base}-{W8A8}")
    target = FOLDER / f"{model.base}-{model.type}.gguf"
    if not target.exists():
        quantize(base, target, model.type)
    return target


def _w8a8_folder(base: Path, target: Path) -> Path:
    if not target.exists():
        run_step([sys.executable, "-m", "drut", "convert", base, target, "--encoding", W8A8], f"{target.name}.log")
    return target


def openvino_folder(model: Model) -> Path:
    """Returns the conversion with `model.openvino` weights, from the checkpoint."""
    target = FOLDER / f"{model.base}-openvino-{model.openvino}"
    if not target.exists():
        partial = target.with_suffix(".partial")
        shutil.rmtree(partial, ignore_errors=True)
        weights = ["--weight-format", model.openvino]
        if model.openvino == "int4":  # 576 inputs are not a multiple of the default group, 128
            weights += ["--sym", "--group-size", "64", "--ratio", "1.0"]
        run_step([PEERS["openvino"].folder / "bin" / "optimum-cli", "export", "openvino", "--model", checkpoint(model),
              "--task", "text-generation-with-past", *weights, partial], f"{target.name}.log")
        partial.rename(target)
    return target


def checkpoint(model: Model) -> Path:
    """Returns a checkpoint in the Hugging Face layout: the shipped file's weights, dequantized, or the random ones."""
    if model.base == RANDOM:
        return _random_checkpoint()
    target = FOLDER / f"{model.base}-hf"
    if not (target / "tokenizer_config.json").exists():
        code = ("import sys; from pathlib import Path; from tests.golden.dequantize import dequantize;"
                "dequantize(Path(sys.argv[1]), Path(sys.argv[2]))")
        run_step([sys.executable, "-c", code, _base(model.base), target], f"{target.name}.log")
        (target / "tokenizer_config.json").write_text(json.dumps({
            "tokenizer_class": "PreTrainedTokenizerFast", "eos_token": "<|im_end|>", "model_max_length": 8192}))
    return target


def _base(name: str) -> Path:
    if name == "smollm2":
        from drut.model.store import resolve

        return resolve(SHIPPED)
    _random_checkpoint()
    return FOLDER / f"{RANDOM}-bf16.gguf"


def _random_checkpoint() -> Path:
    """Returns the checkpoint of random weights, with a GGUF file of it next to it."""
    target = FOLDER / f"{RANDOM}-bf16"
    if not target.with_suffix(".gguf").exists():
        run_step([sys.executable, "-m", "benchmarks.peers.files", f"{RANDOM}-q8_0"], f"{RANDOM}.log")
    return target


def quantize(source: Path, target: Path, type: str) -> None:
    """Quantizes a GGUF file with llama.cpp's quantizer. Raises CannotMakeError if that is not built."""
    peer = next((PEERS[name] for name in ("llamacpp", "llamacpp-avx2") if PEERS[name].ready()), None)
    if peer is None:
        raise CannotMakeError(f"{target.name}: llama.cpp's quantizer is not built")
    print(f"making {target.name}", file=sys.stderr, flush=True)
    FOLDER.mkdir(parents=True, exist_ok=True)
    process = EngineProcess(python=peer.python, module="benchmarks.peers.offline.workers.llamacpp_worker",
                            log=FOLDER / "quantize.log", cwd=ROOT, env={}, cpus=sorted(os.sched_getaffinity(0)),
                            niceness=19)
    try:
        process.ask("quantize", QUANTIZE_S, source=str(source), target=str(target), type=type)
    finally:
        process.close()


def run_step(command: list[str | Path], log_name: str) -> None:
    """Runs one step at the lowest priority. Raises CannotMakeError with the end of its log."""
    print(f"making {Path(command[-1]).name}", file=sys.stderr, flush=True)
    FOLDER.mkdir(parents=True, exist_ok=True)
    log = FOLDER / log_name
    with log.open("w") as out:
        done = subprocess.run(["nice", "-n", "19", *command], stdout=out, stderr=out, cwd=ROOT,
                              env={**os.environ, "HF_HUB_OFFLINE": "1", "PYTHONPATH": _python_path()})
    if done.returncode:
        lines = log.read_text(errors="replace").strip().splitlines()[-1:]
        raise CannotMakeError(f"{Path(command[-1]).name}: {' '.join(lines) or done.returncode} ({log})")


def _python_path() -> str:
    return os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH", "")]))
