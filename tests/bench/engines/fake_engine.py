"""A process that behaves as engines do, well and badly: `python fake_engine.py PORT DO ...`.

DO: serve; never (lives, does not listen); die (prints why, ends with 3); deaf (serves, ignores SIGTERM); children
(serves, with a child, one that ignores SIGTERM, and one in a session of its own whose parent is gone); slow (answers
503 at first); burn (serves, and computes); big (serves, with 64 MB).
"""

from __future__ import annotations

import http.server
import os
import signal
import subprocess
import sys
import threading
import time

SLEEP = [sys.executable, "-c", "import time; time.sleep(600)"]
DEAF = [sys.executable, "-c", "import signal,time; signal.signal(signal.SIGTERM, signal.SIG_IGN); time.sleep(600)"]
ORPHAN = [sys.executable, "-c", f"import subprocess; subprocess.Popen({SLEEP!r}, start_new_session=True)"]


class Handler(http.server.BaseHTTPRequestHandler):
    since = time.monotonic()
    slow_s = 0.0

    def do_GET(self) -> None:
        self.send_response(200 if time.monotonic() - self.since >= self.slow_s else 503)
        self.send_header("Content-Length", "0")
        self.end_headers()

    def do_POST(self) -> None:
        self.do_GET()

    def log_message(self, format: str, *args: object) -> None:
        pass


def main(port: int, do: set[str]) -> None:
    print("starting", sorted(do), flush=True)
    if "die" in do:
        print("no such tensor: blk.7", flush=True)
        sys.exit(3)
    if "deaf" in do:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
    if "children" in do:
        subprocess.Popen(SLEEP)
        subprocess.Popen(DEAF)
        subprocess.run(ORPHAN, check=True)
    if "never" in do:
        time.sleep(600)
    Handler.slow_s = 0.5 if "slow" in do else 0.0
    held = os.urandom(64 << 20) if "big" in do else b""
    if "burn" in do:
        threading.Thread(target=lambda: [None for _ in iter(int, 1)], daemon=True).start()
    http.server.ThreadingHTTPServer(("127.0.0.1", port), Handler).serve_forever()
    del held


if __name__ == "__main__":
    main(int(sys.argv[1]), set(sys.argv[2:]))
