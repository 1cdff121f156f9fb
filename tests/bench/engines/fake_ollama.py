"""`ollama serve`, `list` and `create` of a server that is up after a moment."""

from __future__ import annotations

import http.server
import os
import sys
import urllib.request
from pathlib import Path

from tests.bench.engines.fake_engine import Handler

host, port = os.environ["OLLAMA_HOST"].split(":")
models = Path(os.environ["OLLAMA_MODELS"])


class Server(Handler):
    slow_s = 0.2

    def do_POST(self) -> None:  # noqa: N802
        self.send_response(200 if models.exists() else 404)
        self.send_header("Content-Length", "0")
        self.end_headers()


match sys.argv[1]:
    case "serve":
        http.server.ThreadingHTTPServer((host, int(port)), Server).serve_forever()
    case "list":
        try:
            urllib.request.urlopen(f"http://{host}:{port}/", timeout=10).close()
        except OSError:
            sys.exit(1)
    case "create":
        print("created", sys.argv[2], Path(sys.argv[4]).read_text().split(), flush=True)
        if sys.argv[2] == "broken":
            sys.exit(1)
        models.mkdir(parents=True)
