"""LMDeploy, which needs an NVIDIA GPU. Its flags are taken from its manual; this launcher was never run."""

from __future__ import annotations

from drut.bench.engines import where
from drut.bench.engines.engine import CannotRunError, EngineFiles, Launch, Options
from drut.bench.engines.weights import of_folder

HOW = "pip install lmdeploy"


class LmDeploy:
    """`lmdeploy serve api_server` on TurboMind."""

    name = "lmdeploy"
    title = "LMDeploy"
    verified = False

    def launch(self, files: EngineFiles, options: Options, port: int) -> Launch:
        """Launches on the checkpoint."""
        if files.hf is None:
            raise CannotRunError(f"LMDeploy reads Hugging Face folders; {files.name} has none")
        if not where.has_nvidia():
            raise CannotRunError("LMDeploy needs an NVIDIA GPU, and there is none here")
        command = where.program(self.name, "lmdeploy", HOW)
        argv = (str(command), "serve", "api_server", str(files.hf), "--model-name", files.name,
                "--server-name", "127.0.0.1", "--server-port", str(port), "--backend", "turbomind",
                "--session-len", str(options.context), "--max-batch-size", str(options.sequences),
                "--enable-prefix-caching", *options.flags)
        return Launch(f"http://127.0.0.1:{port}", files.name, argv, {"HF_HUB_OFFLINE": "1"}, ready="/v1/models",
                      ready_timeout_s=900.0, token_ids=False,
                      versions=where.versions(where.python(self.name, "lmdeploy", HOW), ("lmdeploy", "torch")),
                      weights=of_folder(files.hf), remarks=("its prefix cache is on (default: off)",))
