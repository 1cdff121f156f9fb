"""Drut's own server."""

from __future__ import annotations

import sys

from drut import __version__
from drut.bench.engines.engine import CannotRunError, EngineFiles, Launch, Options
from drut.bench.engines.weights import of_folder, of_gguf


class Drut:
    """`drut serve` of this installation."""

    name = "drut"
    title = "Drut"
    verified = True

    def launch(self, files: EngineFiles, options: Options, port: int) -> Launch:
        """Launches on the GGUF file if there is one, else on the checkpoint."""
        path = files.gguf or files.hf
        if path is None:
            raise CannotRunError(f"drut reads GGUF files and Hugging Face folders; {files.name} has neither")
        argv = (sys.executable, "-m", "drut", "serve", str(path), "--served-model-name", files.name,
                "--host", "127.0.0.1", "--port", str(port), "--threads", str(options.threads),
                "--max-model-len", str(options.context), "--max-seqs", str(options.sequences),
                "--no-request-log", "--drain-s", "1", *options.flags)
        return Launch(f"http://127.0.0.1:{port}", files.name, argv, ready="/ready", metrics=True,
                      versions={"drut": __version__, "python": sys.version.split()[0]},
                      weights=of_gguf(path) if path == files.gguf else of_folder(path))
