"""The server and a real browser: a page of another origin that calls it, and `/docs` on its screens."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from tests.bench.report.chromium import Page, installed
from tests.server.rig import Running, serving

pytestmark = [pytest.mark.slow, pytest.mark.skipif(installed() is None, reason="there is no Chromium here")]

KEY = "a-key-of-a-page"
ASK = """(async (url, key, body) => {
  const headers = {"Authorization": `Bearer ${key}`, "Content-Type": "application/json", "X-Stainless-Lang": "js"};
  try {
    const reply = await fetch(url + "/v1/chat/completions", {method: "POST", headers, body: JSON.stringify(body)});
    const reader = reply.body.getReader(), pieces = [];
    for (let part; !(part = await reader.read()).done;) pieces.push(new TextDecoder().decode(part.value));
    return {status: reply.status, id: reply.headers.get("x-request-id"), ignored: reply.headers.get("x-drut-ignored"),
            text: pieces.join("")};
  } catch (error) { return {failed: error.name}; }
})"""


class Blank(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        self.send_response(200)
        self.end_headers()
        self.wfile.write(b"<!doctype html><title>a page</title>")

    def log_message(self, format: str, *args: object) -> None:
        pass


@pytest.fixture(scope="module")
def page() -> Iterator[Page]:
    with Page() as opened:
        yield opened


@pytest.fixture(scope="module")
def origins() -> Iterator[list[str]]:
    """Two origins that serve a blank page."""
    servers = [ThreadingHTTPServer(("127.0.0.1", 0), Blank) for _ in range(2)]
    for one in servers:
        threading.Thread(target=one.serve_forever, daemon=True).start()
    yield [f"http://localhost:{one.server_port}" for one in servers]
    for one in servers:
        one.shutdown()
        one.server_close()


def test_a_page_of_a_named_origin_streams_and_reads_errors_and_no_other_does(
    model_path: Path, page: Page, origins: list[str]
) -> None:
    allowed, other = origins
    body: dict[str, Any] = {"messages": [{"role": "user", "content": "hi"}], "max_tokens": 4, "ignore_eos": True}

    def ask(origin: str, key: str, **fields: object) -> dict[str, Any]:
        page.open(f"{origin}/", width=800)
        asked = f"{ASK}({json.dumps(running.url)}, {json.dumps(key)}, {json.dumps(body | fields)})"
        found: dict[str, Any] = page.evaluate(asked)
        return found

    with serving(model_path, api_key=KEY, cors_origins=allowed, max_body_mb=0.01) as running:
        streamed = ask(allowed, KEY, stream=True, user_name="x")
        assert (streamed["status"], streamed["ignored"]) == (200, "user_name")
        assert streamed["id"]
        assert streamed["text"].endswith("data: [DONE]\n\n")
        assert streamed["text"].count("data: ") >= 3
        for key, fields, status in ((KEY, {"top_p": 7}, 400), ("wrong", {}, 401), (KEY, {"stop": ["x" * 20_000]}, 413)):
            failed = ask(allowed, key, **fields)
            assert (failed["status"], "error" in json.loads(failed["text"])) == (status, True)
        assert ask(other, KEY) == {"failed": "TypeError"}


def test_the_docs_fit_narrow_and_wide_screens_in_both_themes(server: Running, page: Page) -> None:
    colours = set()
    for width in (400, 1200):
        for theme in ("light", "dark"):
            page.open(f"{server.url}/docs", width=width, scheme=theme)
            page.evaluate("document.querySelectorAll('details').forEach(d => { d.open = true })")
            assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
            colours.add(page.evaluate("getComputedStyle(document.body).backgroundColor"))
    assert len(colours) == 2
    page.call("Input.dispatchKeyEvent", type="keyDown", key="Tab", windowsVirtualKeyCode=9)
    assert page.evaluate("document.activeElement.className") == "skip"
    assert page.evaluate("document.activeElement.getBoundingClientRect().left") >= 0, "it is shown"
