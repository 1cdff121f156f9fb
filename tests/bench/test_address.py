"""At which paths of a URL a server is asked."""

from __future__ import annotations

from pathlib import Path

import pytest

from drut.bench.address import Address, shown
from drut.bench.load.client import Target
from drut.bench.load.prime import prime
from drut.bench.server_side.page import fetch
from drut.bench.tokens import ServerTokenizer
from drut.bench.work import ConversationTurn
from drut.cli.main import main
from drut.errors import RequestError
from tests.bench.scripted import Request, ScriptedServer, tokens

NAMES = ("/v1/chat/completions", "/v1/models", "/metrics")


@pytest.mark.parametrize(("url", "chat", "models", "metrics"), [
    ("http://h", "/v1/chat/completions", "/v1/models", "/metrics"),
    ("http://h/", "/v1/chat/completions", "/v1/models", "/metrics"),
    ("http://h/v1/", "/v1/chat/completions", "/v1/models", "/metrics"),
    ("https://h:1/a", "/a/v1/chat/completions", "/a/v1/models", "/a/metrics"),
    ("http://h/a/v1", "/a/v1/chat/completions", "/a/v1/models", "/a/metrics"),
    ("http://h/v1beta/openai/", "/v1beta/openai/chat/completions", "/v1beta/openai/models", "/metrics"),
    ("http://h/api/v3", "/api/v3/chat/completions", "/api/v3/models", "/api/metrics"),
    ("http://h/v1/chat/completions", "/v1/chat/completions", "/v1/models", "/metrics"),
    ("http://h/api/v3/chat/completions/", "/api/v3/chat/completions", "/api/v3/models", "/api/metrics"),
    ("http://h/v1?api-version=2026-01-01&a=", "/v1/chat/completions?api-version=2026-01-01&a=",
     "/v1/models?api-version=2026-01-01&a=", "/metrics?api-version=2026-01-01&a="),
    ("http://[::1]:8/v1", "/v1/chat/completions", "/v1/models", "/metrics"),
])
def test_paths_follow_from_the_url(url: str, chat: str, models: str, metrics: str) -> None:
    address = Address(url)
    assert [address.path(name) for name in NAMES] == [chat, models, metrics]
    assert address.whole("/metrics").endswith(metrics)


@pytest.mark.parametrize(("url", "endpoint", "chat"), [
    ("http://h", "/chat/completions", "/chat/completions"),
    ("http://h/openai/deployments/d?api-version=1", "/chat/completions",
     "/openai/deployments/d/chat/completions?api-version=1"),
    ("http://h/v1", "/chat", "/v1/chat"),
    ("http://h/v2/models/m", "/v1/chat/completions", "/v2/models/m/v1/chat/completions"),
])
def test_an_endpoint_is_added_to_the_url(url: str, endpoint: str, chat: str) -> None:
    assert Target(url, "m", endpoint=endpoint).path(chat=True) == chat


@pytest.mark.parametrize(("url", "endpoint", "words"), [
    ("http://h/a b", None, "percent-encoded"),
    ("http://h/\r\nX: y", None, "percent-encoded"),
    ("http://h/é", None, "percent-encoded"),
    ("http://h/v1#top", None, "fragment"),
    ("http://h:0/v1", None, "must be http://HOST"),
    ("http://h", "chat/completions", "must be a path"),
    ("http://h", "/chat/completions?a=1", "must be a path"),
    ("http://h", "/chat completions", "must be a path"),
    ("http://h/v1/chat/completions", "/chat/completions", "already ends in /chat/completions"),
])
def test_what_is_no_address_is_refused(url: str, endpoint: str | None, words: str) -> None:
    with pytest.raises(RequestError, match=words):
        Target(url, "m", endpoint=endpoint)


@pytest.mark.parametrize(("given", "chat"), [({"url": "http://h/v1/completions"}, True),
                                             ({"url": "http://h/v1/chat/completions"}, False),
                                             ({"url": "http://h", "endpoint": "/completions"}, True)])
def test_a_route_of_the_other_api_is_refused(given: dict[str, str], chat: bool) -> None:
    with pytest.raises(RequestError, match="and --api asks for"):
        Target(model="m", **given).path(chat)


def test_a_route_of_the_other_api_ends_a_run_before_it_begins(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    code = main(["bench", "serve", "--url", "http://127.0.0.1:1/v1/completions", "--model", "m", "--workload",
                 "chat:max_tokens=2", "--rate", "1", "--duration", "1", "--out", str(tmp_path), "--no-metrics"])
    assert code == 2
    assert "/v1/completions serves completions, and --api asks for chats" in capsys.readouterr().err


def test_the_query_goes_with_every_request_and_its_values_into_no_file() -> None:
    async def either(request: Request) -> None:
        if "tokenize" in request.path:
            await request.json({"tokens": [1], "count": 1})
        else:
            await tokens(1)(request)

    with ScriptedServer(either) as server:
        url = f"{server.url}/v1?key=sesame"
        tokenizer = ServerTokenizer(url, "m")
        fetch(f"{server.url}/metrics?key=sesame")
        prime(Target(url, "m", endpoint="/chat"), [ConversationTurn(messages=[{"role": "user", "content": "a"}],
                                                                    max_tokens=1)])
        assert [request.path for request in server.requests] == [
            "/tokenize?key=sesame", "/metrics?key=sesame", "/v1/chat?key=sesame"]
    assert "sesame" not in tokenizer.name
    assert shown("http://h/v1?key=sesame&v=") == "http://h/v1?key=...&v=..."
