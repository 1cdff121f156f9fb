"""The scripted server as an engine, to compare what a comparison finds with the script."""

from __future__ import annotations

import sys

from drut.bench.engines.engine import CannotRunError, EngineFiles, Launch, Options
from drut.bench.mock import load_script


class MockEngine:
    """`drut bench mock` with the script given by the flags `--script FILE`. It reads no model."""

    name = "mock"
    title = "Scripted server"
    verified = True

    def launch(self, files: EngineFiles, options: Options, port: int) -> Launch:
        """Raises CannotRunError without a script, RequestError if the script is invalid."""
        if len(options.flags) != 2 or options.flags[0] != "--script":
            raise CannotRunError("the scripted server needs the flags --script FILE, and accepts no others")
        argv = (sys.executable, "-m", "drut", "bench", "mock", *options.flags, "--port", str(port))
        return Launch(f"http://127.0.0.1:{port}", load_script(options.flags[1]).model, argv, metrics=True,
                      ready_timeout_s=60.0, weights="none", remarks=("service times are scripted",))
