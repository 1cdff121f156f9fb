"""A headless Chromium over its own pipe (the DevTools protocol): no driver and no library between."""

from __future__ import annotations

import base64
import json
import os
import select
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

_NAMES = ("chromium", "chromium-browser", "google-chrome", "chrome")
_FLAGS = ("--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--no-first-run",
          "--disable-background-networking", "--disable-extensions", "--remote-debugging-pipe")

_START = """import fcntl, os, sys  # first away from 3 and 4, where Chromium reads and writes
read, back = (fcntl.fcntl(int(fd), fcntl.F_DUPFD, 10) for fd in sys.argv[1:3])
os.dup2(read, 3)
os.dup2(back, 4)
os.execv(sys.argv[3], sys.argv[3:])"""


def installed() -> str | None:
    """Its path; None where there is none."""
    return next((path for name in _NAMES if (path := shutil.which(name))), None)


class Page:
    """`with Page() as page`: one tab. `events` are those of the protocol so far."""

    def __init__(self, timeout_s: float = 60.0) -> None:
        self._timeout_s = timeout_s  # of each answer
        self._profile = tempfile.TemporaryDirectory(ignore_cleanup_errors=True)
        self._buffer, self._last, self._session = b"", 0, None
        self.events: list[dict[str, Any]] = []

    def __enter__(self) -> Page:
        path = installed()
        assert path is not None
        read, self._out = os.pipe()
        self._in, back = os.pipe()
        self._process = subprocess.Popen(
            [sys.executable, "-c", _START, str(read), str(back), path, *_FLAGS,
             f"--user-data-dir={self._profile.name}", "about:blank"],
            pass_fds=(read, back), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        os.close(read)
        os.close(back)
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        self._session = self.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.call(f"{domain}.enable")
        return self

    def __exit__(self, *_: object) -> None:
        try:
            self._session = None
            self.call("Browser.close")
            self._process.wait(5)
        except (OSError, TimeoutError, EOFError, subprocess.TimeoutExpired):
            self._process.kill()
            self._process.wait()
        os.close(self._in)
        os.close(self._out)
        self._profile.cleanup()

    def call(self, method: str, **params: Any) -> dict[str, Any]:
        """A command and its result."""
        self._last += 1
        message = {"id": self._last, "method": method, "params": params}
        if self._session is not None:
            message["sessionId"] = self._session
        os.write(self._out, json.dumps(message).encode() + b"\0")
        while True:
            answer = self._next()
            if answer.get("id") == self._last:
                assert "error" not in answer, (method, answer["error"])
                result: dict[str, Any] = answer["result"]
                return result
            self.events.append(answer)

    def open(self, path: Path | str, *, width: int, height: int = 900, scheme: str = "light") -> None:
        """Shows a file or a URL, with a screen of that width and the user's wish for light or dark."""
        self.screen(width, height, scheme)
        uri = path if isinstance(path, str) else path.resolve().as_uri()
        self.call("Page.navigate", url=uri)
        while not self.evaluate(f"document.readyState === 'complete' && location.href === {json.dumps(uri)}"):
            time.sleep(0.05)

    def screen(self, width: int, height: int = 900, scheme: str = "light", media: str = "") -> None:
        """As another device would have it."""
        self.call("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=False)
        self.call("Emulation.setEmulatedMedia", media=media,
                  features=[{"name": "prefers-color-scheme", "value": scheme}])

    def evaluate(self, expression: str) -> Any:
        """The value of JavaScript of ours, or of its promise; the page's own policy does not bind it."""
        answer = self.call("Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True)
        assert "exceptionDetails" not in answer, answer
        return answer["result"].get("value")

    def screenshot(self, path: Path, *, whole: bool = True) -> None:
        """As PNG."""
        data = self.call("Page.captureScreenshot", format="png", captureBeyondViewport=whole)["data"]
        path.write_bytes(base64.b64decode(data))

    def _next(self) -> dict[str, Any]:
        deadline = time.monotonic() + self._timeout_s
        while b"\0" not in self._buffer:
            left = deadline - time.monotonic()
            if left <= 0 or not select.select([self._in], [], [], left)[0]:
                raise TimeoutError("Chromium did not answer in time")
            data = os.read(self._in, 1 << 16)
            if not data:
                raise EOFError("Chromium has ended")
            self._buffer += data
        message, self._buffer = self._buffer.split(b"\0", 1)
        answer: dict[str, Any] = json.loads(message)
        return answer
