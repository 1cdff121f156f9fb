"""SGLang: unchanged on a GPU; on a CPU with attention by torch, because its own CPU kernels need AMX."""

from __future__ import annotations

from drut.bench.engines import where
from drut.bench.engines.engine import CannotRunError, EngineFiles, Launch, Options
from drut.bench.engines.weights import of_folder

HOW = "make peers ARGS=sglang, or pip install sglang where there is a GPU"
NOT_FAST = "not its fast path: attention by torch, because its CPU kernels need AMX and a build from source"


class Sglang:
    """`sglang.launch_server`."""

    name = "sglang"
    title = "SGLang"
    verified = True

    def launch(self, files: EngineFiles, options: Options, port: int) -> Launch:
        """Launches on the checkpoint."""
        if files.hf is None:
            raise CannotRunError(f"SGLang reads Hugging Face folders; {files.name} has none")
        python = where.python("sglang", "sglang", HOW)
        argv = [str(python), "-m", "sglang.launch_server", "--model-path", str(files.hf),
                "--served-model-name", files.name, "--host", "127.0.0.1", "--port", str(port),
                "--context-length", str(options.context), "--max-running-requests", str(options.sequences),
                "--enable-metrics"]
        env = {"HF_HUB_OFFLINE": "1"}
        remarks: tuple[str, ...] = ()
        if not where.has_nvidia():
            env |= {"SGLANG_USE_CPU_ENGINE": "1", "OMP_NUM_THREADS": str(options.threads)}
            # By default its KV pool takes most of the machine's memory.
            argv += ["--device", "cpu", "--attention-backend", "torch_native",
                     "--max-total-tokens", str(options.context * options.sequences)]
            remarks = (NOT_FAST,)
        return Launch(f"http://127.0.0.1:{port}", files.name, (*argv, *options.flags), env, ready_timeout_s=600.0,
                      metrics=True, versions=where.versions(python, ("sglang", "torch", "transformers")),
                      weights=of_folder(files.hf), remarks=remarks)
