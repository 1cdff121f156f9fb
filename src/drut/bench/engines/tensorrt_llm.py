"""TensorRT-LLM, which needs an NVIDIA GPU. Its flags are taken from its manual; this launcher was never run."""

from __future__ import annotations

from drut.bench.engines import where
from drut.bench.engines.engine import CannotRunError, EngineFiles, Launch, Options
from drut.bench.engines.weights import of_folder


class TensorRtLlm:
    """`trtllm-serve` on its PyTorch backend, which reads checkpoints unchanged."""

    name = "tensorrt-llm"
    title = "TensorRT-LLM"
    verified = False

    def launch(self, files: EngineFiles, options: Options, port: int) -> Launch:
        """Launches on the checkpoint."""
        if files.hf is None:
            raise CannotRunError(f"TensorRT-LLM reads Hugging Face folders; {files.name} has none")
        if not where.has_nvidia():
            raise CannotRunError("TensorRT-LLM needs an NVIDIA GPU, and there is none here")
        command = where.program(self.name, "trtllm-serve", "pip install tensorrt-llm, by NVIDIA's instructions")
        python = where.python(self.name, "trtllm-serve", "there is no interpreter in its folder")
        argv = (str(command), "serve", str(files.hf), "--served_model_name", files.name, "--host", "127.0.0.1",
                "--port", str(port), "--backend", "pytorch", "--max_batch_size", str(options.sequences),
                "--max_seq_len", str(options.context), *options.flags)
        # Some versions answer the path before the engine is ready.
        return Launch(f"http://127.0.0.1:{port}", files.name, argv, {"HF_HUB_OFFLINE": "1"}, ready="completion",
                      ready_timeout_s=900.0, versions=where.versions(python, ("tensorrt-llm", "tensorrt_llm", "torch")),
                      weights=of_folder(files.hf))
