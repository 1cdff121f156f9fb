"""Ollama. Its settings are taken from its manual; this launcher was never run."""

from __future__ import annotations

import sys
from pathlib import Path

from drut.bench.engines import where
from drut.bench.engines.engine import CannotRunError, EngineFiles, Launch, Options
from drut.bench.engines.weights import of_gguf
from drut.home import home

WRAPPER = Path(__file__).parent / "wrappers" / "ollama_serve.py"


class Ollama:
    """`ollama serve` with the GGUF file imported as a model, by a script that does both."""

    name = "ollama"
    title = "Ollama"
    verified = False

    def launch(self, files: EngineFiles, options: Options, port: int) -> Launch:
        """Launches on the GGUF file, which Ollama copies. It has no flags: `options.flags` are settings NAME=VALUE."""
        if files.gguf is None:
            raise CannotRunError(f"Ollama reads GGUF files; {files.name} has none")
        if bad := [flag for flag in options.flags if "=" not in flag]:
            raise CannotRunError(f"Ollama settings are NAME=VALUE, not {bad[0]!r}")
        command = where.program(self.name, "ollama", "install it by its own instructions")
        env = {"OLLAMA_HOST": f"127.0.0.1:{port}", "OLLAMA_MODELS": str(home() / "bench" / "ollama"),
               "OLLAMA_NUM_PARALLEL": str(options.sequences), "OLLAMA_CONTEXT_LENGTH": str(options.context),
               "OLLAMA_KEEP_ALIVE": "-1", **dict(flag.split("=", 1) for flag in options.flags)}
        argv = (sys.executable, str(WRAPPER), str(command), files.name, str(files.gguf), str(options.threads))
        return Launch(f"http://127.0.0.1:{port}", files.name, argv, env, ready="completion", token_ids=False,
                      versions=_version(command), weights=of_gguf(files.gguf),
                      remarks=("no ignore_eos: responses may end early",))


def _version(command: Path) -> dict[str, str]:
    lines = [line for line in where.output_lines([command, "--version"]) if "version is" in line]
    return {"ollama": lines[-1].split()[-1]} if lines else {}
