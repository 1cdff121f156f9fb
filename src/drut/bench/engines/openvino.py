"""OpenVINO GenAI, whose package has no server: a small HTTP wrapper of this project serves it."""

from __future__ import annotations

import math
from pathlib import Path

from drut.bench.engines import where
from drut.bench.engines.engine import CannotRunError, EngineFiles, Launch, Options
from drut.bench.engines.kv import kv_bytes
from drut.bench.engines.weights import of_openvino

WRAPPER = Path(__file__).parent / "wrappers" / "openvino_server.py"
PACKAGES = ("openvino-genai", "openvino", "openvino-tokenizers")


class OpenVino:
    """Its continuous batching pipeline, with the prefix cache on."""

    name = "openvino"
    title = "OpenVINO GenAI, our HTTP wrapper"
    verified = True

    def launch(self, files: EngineFiles, options: Options, port: int) -> Launch:
        """Launches on the folder exported by optimum-cli."""
        if files.openvino is None:
            raise CannotRunError(f"OpenVINO reads folders exported by optimum-cli; {files.name} has none")
        python = where.python("openvino", "optimum-cli", "make peers ARGS=openvino")
        gb = max(1, math.ceil(kv_bytes(files.openvino, options.context * options.sequences, 2) / (1 << 30)))
        argv = (str(python), str(WRAPPER), "--model", str(files.openvino), "--name", files.name, "--port", str(port),
                "--threads", str(options.threads), "--sequences", str(options.sequences),
                "--context", str(options.context), "--cache-gb", str(gb), *options.flags)
        return Launch(f"http://127.0.0.1:{port}", files.name, argv, versions=where.versions(python, PACKAGES),
                      weights=of_openvino(files.openvino),
                      remarks=("behind our HTTP wrapper: its package has no server", "its prefix cache is on"))
