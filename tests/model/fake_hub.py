"""The few routes of the Hugging Face hub that a pull uses, served on the loopback interface."""

from __future__ import annotations

import contextlib
import hashlib
import json
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import unquote, urlsplit

REPO = "org/tiny"


@dataclass
class FakeHub:
    """One repository: `files` by name at `commit`; `served` replaces the bytes that a download gets."""

    files: dict[str, bytes]
    commit: str = "a" * 40
    served: dict[str, bytes] = field(default_factory=dict)
    requests: list[str] = field(default_factory=list)
    url: str = ""

    def describe(self) -> dict[str, object]:
        siblings = []
        for name, data in self.files.items():
            entry: dict[str, object] = {"rfilename": name, "size": len(data), "blobId": oid(data)}
            if is_lfs(name):
                entry["lfs"] = {"sha256": sha256(data), "size": len(data), "pointerSize": 130}
            siblings.append(entry)
        return {"id": REPO, "sha": self.commit, "siblings": siblings, "private": False, "tags": []}

    def tree(self) -> list[dict[str, object]]:
        entries = []
        for name, data in self.files.items():
            entry: dict[str, object] = {"type": "file", "path": name, "size": len(data), "oid": oid(data)}
            if is_lfs(name):
                entry["lfs"] = {"oid": sha256(data), "size": len(data), "pointerSize": 130}
            entries.append(entry)
        return entries

    def answer(self, path: str) -> tuple[int, bytes, dict[str, str]]:
        """Status, body and headers of a GET of `path`."""
        if path in (f"/api/models/{REPO}/revision/main", f"/api/models/{REPO}/revision/{self.commit}"):
            return 200, json.dumps(self.describe()).encode(), {}
        if path.startswith(f"/api/models/{REPO}/tree/"):
            return 200, json.dumps(self.tree()).encode(), {}
        name = path.removeprefix(f"/{REPO}/resolve/{self.commit}/")
        if name not in self.files:
            return 404, b'{"error": "not found"}', {"X-Error-Code": "RepoNotFound"}
        etag = sha256(self.files[name]) if is_lfs(name) else oid(self.files[name])
        headers = {"ETag": f'"{etag}"', "X-Repo-Commit": self.commit}
        return 200, self.served.get(name, self.files[name]), headers


def is_lfs(name: str) -> bool:
    return name.endswith((".safetensors", ".gguf", ".bin"))


def sha256(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def oid(data: bytes) -> str:
    return hashlib.sha1(data).hexdigest()


@contextlib.contextmanager
def serving(hub: FakeHub) -> Iterator[FakeHub]:
    """Serve `hub` at `hub.url` while the block runs."""

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            path = unquote(urlsplit(self.path).path)
            hub.requests.append(f"{self.command} {path}")
            status, body, headers = hub.answer(path)
            start = int(self.headers.get("Range", "bytes=0-").removeprefix("bytes=").split("-")[0])
            self.send_response(206 if start else status)
            if start:
                self.send_header("Content-Range", f"bytes {start}-{len(body) - 1}/{len(body)}")
            for key, value in {**headers, "Content-Length": str(len(body) - start)}.items():
                self.send_header(key, value)
            self.end_headers()
            if self.command == "GET":
                self.wfile.write(body[start:])

        do_HEAD = do_GET  # noqa: N815

        def log_message(self, format: str, *args: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        hub.url = f"http://127.0.0.1:{server.server_port}"
        yield hub
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
