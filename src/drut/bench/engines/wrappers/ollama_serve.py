"""A standalone script that starts `ollama serve`, imports a GGUF file as a model, and runs until the server ends.

    python ollama_serve.py OLLAMA MODEL FILE.gguf THREADS
"""

from __future__ import annotations

import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

WAIT_S = 60.0


def main(ollama: str, model: str, gguf: str, threads: str) -> int:
    server = subprocess.Popen([ollama, "serve"])
    signal.signal(signal.SIGTERM, lambda *_: server.terminate())
    end = time.monotonic() + WAIT_S
    while subprocess.run([ollama, "list"], capture_output=True).returncode:
        if server.poll() is not None or time.monotonic() > end:
            print("ollama serve does not answer", file=sys.stderr)
            server.terminate()
            return server.wait() or 1
        time.sleep(0.2)
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "Modelfile"
        file.write_text(f"FROM {Path(gguf).absolute()}\nPARAMETER num_thread {threads}\n")
        if code := subprocess.run([ollama, "create", model, "-f", file]).returncode:
            server.terminate()
            server.wait()
            return code
    return server.wait()


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:5]))
