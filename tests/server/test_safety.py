"""Who is let in, and what is refused before it costs anything."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from drut.errors import RequestError
from drut.server.config import ServerConfig
from drut.server.http.auth import ApiKeys, Hosts, check_exposure, salt_of
from drut.server.http.origins import allowed
from drut.server.openai.protocol.errors import ApiError
from tests.server.rig import Client, Running, serving, until

KEYS = ("first-key-123", "second-key-456")
GUARDED = [("GET", p) for p in ("/v1/models", "/v1/models/tiny", "/version", "/metrics", "/docs", "/openapi.json")] + [
    ("POST", p) for p in ("/v1/completions", "/v1/chat/completions", "/tokenize", "/detokenize")]


@pytest.fixture(scope="module")
def locked(model_path: Path) -> Iterator[Running]:
    with serving(model_path, api_key=",".join(KEYS)) as running:
        yield running


@pytest.mark.parametrize(("method", "path"), GUARDED)
def test_without_a_key_every_route_is_refused(locked: Running, method: str, path: str) -> None:
    for headers in ({}, {"Authorization": "Bearer wrong-key-000"}, {"Authorization": KEYS[0]},
                    {"Authorization": f"Basic {KEYS[0]}"}, {"Authorization": "Bearer "},
                    {"Authorization": f"Bearer {KEYS[0]},{KEYS[1]}"}):
        reply = locked.request(method, path, b"{}" if method == "POST" else None, headers)
        assert (reply.status, reply.error["code"]) == (401, "invalid_api_key")
        assert reply.error["type"] == "authentication_error"


def test_each_key_opens(locked: Running) -> None:
    for key in KEYS:
        assert Client(locked.url, key).get("/v1/models").status == 200
    assert locked.get("/health").status == 200
    until(lambda: locked.get("/ready").status == 200)


ODD_HEADS = [
    b"GET /v1/models HTTP/1.1\r\nHost: x/?\r\n", b"GET /v1/models HTTP/1.1\r\nHost: a#\r\n",
    b"GET /v1/models HTTP/1.1\r\nHost: a/health?b=\r\n", b"GET http://h/v1/models HTTP/1.1\r\nHost: h\r\n",
    b"GET http://h/health/../v1/models HTTP/1.1\r\nHost: h\r\n", b"GET //v1/models HTTP/1.1\r\nHost: a\r\n",
    b"GET /v1/../v1/models HTTP/1.1\r\nHost: a\r\n", b"GET /V1/models HTTP/1.1\r\nHost: a\r\n",
    b"GET /health/../v1/models HTTP/1.1\r\nHost: a\r\n", b"GET /%76%31/models HTTP/1.1\r\nHost: a\r\n",
    b"GET /v1/models?/health HTTP/1.1\r\nHost: a\r\n", b"HEAD /v1/models HTTP/1.1\r\nHost: a\r\n",
]


@pytest.mark.parametrize("head", ODD_HEADS)
def test_no_odd_head_opens(locked: Running, head: bytes) -> None:
    reply = locked.raw(head + b"Connection: close\r\n\r\n")
    assert reply.split(b" ")[1] in (b"400", b"401", b"404"), reply
    assert b"max_model_len" not in reply


def test_keys_do_not_share_cached_prefixes(locked: Running) -> None:
    prompt = "the same words for everybody, that is: " * 2

    def cached(key: str, **fields: str) -> int:
        usage = Client(locked.url, key).complete(prompt, **fields).json["usage"]
        return usage["prompt_tokens_details"]["cached_tokens"]

    assert [cached(KEYS[0]), cached(KEYS[0])] == [0, 64]
    assert [cached(KEYS[1]), cached(KEYS[1])] == [0, 64]
    assert [cached(KEYS[0], cache_salt="s"), cached(KEYS[1], cache_salt="s")] == [0, 0]


def test_salts_of_different_callers_never_meet() -> None:
    assert salt_of("", None) == ""
    made = [salt_of(caller, salt) for caller in ("", "a", "b") for salt in (None, "x", "a/x", "/x")]
    assert len(set(made)) == len(made)


@pytest.mark.parametrize("bad", ["with space 123", "ünïcode-key", "tab\tkey-123", "", "good-key-123,"])
def test_weak_keys_are_refused(bad: str) -> None:
    with pytest.raises(RequestError, match="API key") as error:
        ApiKeys.of(ServerConfig(api_key=bad))
    assert bad not in str(error.value) or not bad


def test_keys_from_a_file(tmp_path: Path) -> None:
    file = tmp_path / "keys"
    file.write_text("first-key-123\n\nsecond-key-456\n")
    keys = ApiKeys.of(ServerConfig(api_key_file=str(file)))
    assert len({keys.caller(f"Bearer {key}") for key in KEYS}) == len(keys) == 2
    for made in (tmp_path / "missing", tmp_path):
        with pytest.raises(RequestError, match="api_key_file"):
            ApiKeys.of(ServerConfig(api_key_file=str(made)))
    file.write_text("\n")
    with pytest.raises(RequestError, match="holds no key"):
        ApiKeys.of(ServerConfig(api_key_file=str(file)))


@pytest.mark.parametrize("host", ["0.0.0.0", "192.168.1.5", "::", "example.org"])
def test_a_public_address_needs_a_key(host: str) -> None:
    with pytest.raises(RequestError, match="allow-keyless"):
        check_exposure(ServerConfig(host=host), ApiKeys([]))
    check_exposure(ServerConfig(host=host), ApiKeys(KEYS))
    check_exposure(ServerConfig(host=host, allow_keyless=True), ApiKeys([]))


def test_a_loopback_address_needs_none() -> None:
    for host in ("127.0.0.1", "127.1.2.3", "::1", "localhost"):
        check_exposure(ServerConfig(host=host), ApiKeys([]))


def test_a_short_key_is_taken_where_only_this_machine_can_guess(caplog: pytest.LogCaptureFixture) -> None:
    keys = ApiKeys.of(ServerConfig(api_key="none"))
    assert keys.caller("Bearer none")
    for host in ("127.0.0.1", "::1", "localhost"):
        caplog.clear()
        check_exposure(ServerConfig(host=host), keys)
        assert "at least 8" in caplog.text
        assert "none" not in caplog.text
    for allow in (False, True):
        with pytest.raises(RequestError, match="at least 8"):
            check_exposure(ServerConfig(host="0.0.0.0", allow_keyless=allow), keys)
    caplog.clear()
    check_exposure(ServerConfig(), ApiKeys(KEYS))
    assert not caplog.text


def test_a_page_of_another_origin_is_allowed_nothing(server: Running, locked: Running) -> None:
    """Without a list of origins no reply says that a browser may show it to another page."""
    asks = {"Origin": "http://localhost:3000", "Access-Control-Request-Method": "POST",
            "Access-Control-Request-Headers": "authorization,content-type"}
    for running in (server, locked):
        preflight = running.request("OPTIONS", "/v1/chat/completions", headers=asks)
        assert (preflight.status, preflight.headers["allow"]) == (405, "POST")
        for reply in (preflight, running.get("/v1/models", headers={"Origin": "http://localhost:3000"}),
                      running.post("/tokenize", {"prompt": "a"}, headers={"Origin": "http://localhost:3000"})):
            assert not [name for name in reply.headers if name.startswith("access-control")]


PAGE, OTHER = "http://localhost:3000", "http://localhost:3001"
PREFLIGHT = {"Access-Control-Request-Method": "POST",
             "Access-Control-Request-Headers": "authorization,content-type,x-stainless-lang,x-stainless-timeout"}


@pytest.fixture(scope="module", params=[None, KEYS[0]])
def shared(request: pytest.FixtureRequest, model_path: Path) -> Iterator[tuple[Running, str | None]]:
    """A server that pages of PAGE may call, without a key and with one."""
    with serving(model_path, api_key=request.param, cors_origins=f"HTTPS://A.example:443, {PAGE}",
                 max_body_mb=0.01) as running:
        yield running, request.param


def test_preflights_of_allowed_origins_need_no_key(shared: tuple[Running, str | None]) -> None:
    running, _ = shared
    for path in ("/v1/chat/completions", "/completions"):
        for origin in (PAGE, "https://a.example"):
            reply = running.request("OPTIONS", path, headers={"Origin": origin, **PREFLIGHT})
            assert (reply.status, reply.headers["access-control-allow-origin"]) == (200, origin)
            assert reply.headers["access-control-allow-headers"] == PREFLIGHT["Access-Control-Request-Headers"]
            assert reply.headers["access-control-allow-methods"] == "GET, POST"
            assert int(reply.headers["access-control-max-age"]) > 0
            assert "Origin" in reply.headers["vary"]
        refused = running.request("OPTIONS", path, headers={"Origin": OTHER, **PREFLIGHT})
        assert refused.status == 400
        assert "access-control-allow-origin" not in refused.headers
    method = running.request("OPTIONS", "/v1/models", headers={
        "Origin": PAGE, "Access-Control-Request-Method": "DELETE"})
    assert method.status == 400


def test_replies_to_pages_of_allowed_origins_may_be_read(shared: tuple[Running, str | None]) -> None:
    """Streams and errors too."""
    running, key = shared
    auth = {"authorization": f"Bearer {key}"} if key else {}
    for origin, may in ((PAGE, PAGE), (OTHER, None), (None, None)):
        sent = {"Origin": origin, **auth} if origin else auth
        replies = [running.get("/v1/models", headers=sent), running.get("/nowhere", headers=sent)]
        replies += [running.post("/v1/completions", {"prompt": "a", "max_tokens": 2} | fields, headers=sent | wrong)
                    for fields, wrong in (({"stream": True}, {}), ({"top_p": 7}, {}), ({"prompt": "a" * 20_000}, {}),
                                          ({}, {"authorization": "Bearer no"}))]
        assert [r.status for r in replies] == [200, 404, 200, 400, 413, 401 if key else 200]
        for reply in replies:
            assert reply.headers.get("access-control-allow-origin") == may
            assert "Origin" in reply.headers["vary"]
            if may:
                assert {"x-request-id", "x-drut-ignored"} <= set(
                    reply.headers["access-control-expose-headers"].split(", "))


@pytest.mark.parametrize("origin", ["localhost:3000", "http://a/", "http://", "null", "http://a.example/path",
                                    "http://*.example"])
def test_what_is_no_origin_is_refused_at_the_start(origin: str) -> None:
    with pytest.raises(RequestError, match="--cors-origins: '"):
        allowed(ServerConfig(cors_origins=f"http://b.example,{origin}"), keyless=False)


def test_all_origins_are_allowed_only_with_a_key() -> None:
    every = ServerConfig(cors_origins="*")
    assert allowed(every, keyless=False) == ["*"]
    with pytest.raises(RequestError, match="set an API key"):
        allowed(every, keyless=True)


@pytest.mark.parametrize("name", ["drut:8000", "http://drut", "a b"])
def test_what_is_no_host_name_is_refused_at_the_start(name: str) -> None:
    with pytest.raises(RequestError, match="--allowed-hosts"):
        Hosts(ServerConfig(allowed_hosts=f"drut,{name}"), keyless=True)


def test_hosts() -> None:
    hosts = Hosts(ServerConfig(host="0.0.0.0", allowed_hosts="llm.example.org, b"), keyless=True)
    for good in ("localhost", "LOCALHOST:8000", "127.0.0.1:1", "[::1]:80", "[::1]", "10.0.0.7", "b",
                 "llm.example.org:443"):
        hosts.check(good)
    for bad in ("evil.example.org", "", "localhost.evil.org", "127.0.0.1.evil.org:80", "[::1].evil", "a:b:c",
                "localhost@x"):
        with pytest.raises(ApiError):
            hosts.check(bad)
        Hosts(ServerConfig(), keyless=False).check(bad)


def test_a_page_cannot_reach_a_keyless_server_by_its_own_name(server: Running) -> None:
    for path in ("/v1/models", "/health"):
        reply = server.get(path, headers={"Host": "evil.example.org"})
        assert (reply.status, reply.error["code"]) == (403, "host_not_allowed")
        assert "--allowed-hosts evil.example.org" in reply.error["message"]


@pytest.mark.parametrize("kind", ["text/plain", "application/x-www-form-urlencoded", "multipart/form-data", "", None])
def test_only_json_is_read(server: Running, kind: str | None) -> None:
    for path in ("/v1/completions", "/v1/chat/completions", "/tokenize", "/detokenize"):
        reply = server.request("POST", path, b"{}", {"content-type": kind} if kind else {"content-type": "x"})
        assert (reply.status, reply.error["code"]) == (415, "unsupported_media_type")
    head = b"POST /tokenize HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nContent-Length: 14\r\n\r\n"
    assert b" 415 " in server.raw(head + b'{"prompt":"a"}').split(b"\r\n")[0]
    good = {"content-type": "Application/JSON; charset=utf-8"}
    assert server.post("/tokenize", b'{"prompt":"a"}', headers=good).status == 200


def test_a_body_has_a_largest_size(server: Running) -> None:
    for length in (b"8000001", b"99999999999999999999999"):
        head = b"POST /tokenize HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: "
        reply = server.raw(head + length + b"\r\n\r\n{")
        assert reply.split(b" ")[1] in (b"413", b"400"), reply
    reply = server.post("/tokenize", b'{"prompt":"' + b"a" * 8_000_000 + b'"}')
    assert (reply.status, reply.error["code"]) == (413, "body_too_large")
    chunked = b"POST /tokenize HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n" \
              b"Transfer-Encoding: chunked\r\n\r\n" + b"186A0\r\n" * 1 + b"a" * 100_000 + b"\r\n"
    chunked += (b"186A0\r\n" + b"a" * 100_000 + b"\r\n") * 85 + b"0\r\n\r\n"
    assert b" 413 " in server.raw(chunked).split(b"\r\n")[0]


def test_a_head_has_a_largest_size(server: Running) -> None:
    start = b"GET /health HTTP/1.1\r\nHost: localhost\r\n"
    bombs = [start + b"X: " + b"a" * 8_000_000 + b"\r\n\r\n", start + b"X: a\r\n" * 100_000 + b"\r\n",
             start + b"X: " + b"a" * 70_000 + b"\r\n\r\n", b"GET /" + b"a" * 100_000 + b" HTTP/1.1\r\n\r\n",
             start + b"X: a\r\n" * 101 + b"\r\n", b"A" * 200_000]
    for bomb in bombs:
        begun = time.monotonic()
        reply = server.raw(bomb)
        assert reply == b"" or reply.split(b" ")[1] in (b"431", b"400"), reply[:100]
        assert time.monotonic() - begun < 10
    assert b" 200 " in server.raw(start + b"X: a\r\n" * 90 + b"Connection: close\r\n\r\n")


def test_a_head_or_body_that_never_ends_is_cut_off(model_path: Path) -> None:
    with serving(model_path, head_timeout_s=0.3, body_timeout_s=0.3) as running:
        assert running.raw(b"GET /health HTTP/1.1\r\nHost: loc") == b""
        assert running.raw(b"") == b""
        head = b"POST /tokenize HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
        started = head + b"Content-Length: 10\r\n\r\n{"
        assert b" 408 " in running.raw(started).split(b"\r\n")[0]
        assert running.get("/health").status == 200


def test_data_that_is_not_http_gets_400(server: Running) -> None:
    for data in (b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03", b"hello\r\n\r\n", b"GET / HTTP/9.9\r\n\r\n",
                 b"GET /\xff HTTP/1.1\r\nHost: localhost\r\n\r\n"):
        reply = server.raw(data)
        assert reply.startswith(b"HTTP/1.1 4"), reply
        assert b'{"error":{"message":' in reply


def test_request_ids_come_back_clean(server: Running) -> None:
    assert server.get("/health", headers={"X-Request-Id": "abc-1"}).headers["x-request-id"] == "abc-1"
    assert server.get("/health", headers={"X-Request-Id": "x" * 500}).headers["x-request-id"] == "x" * 128
    head = b"GET /health HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n"
    reply = server.raw(head + b"X-Request-Id: a\tb\xe9c\r\n\r\n")
    assert b"x-request-id: abc\r\n" in reply
    assert len(server.get("/health").headers["x-request-id"]) == 24


def test_other_paths_and_methods(server: Running) -> None:
    for path in ("/", "/v1", "/v2/models", "/v1/embeddings", "/v1/completions/", "/../etc/passwd"):
        assert (server.get(path).status, server.get(path).error["type"]) == (404, "not_found_error")
    for method, path in (("GET", "/v1/completions"), ("POST", "/v1/models"), ("DELETE", "/health"),
                         ("PUT", "/tokenize")):
        reply = server.request(method, path)
        assert (reply.status, reply.error["code"]) == (405, "method_not_allowed")
        allowed = "POST" if path in ("/v1/completions", "/tokenize") else "GET, HEAD"
        assert sorted(reply.headers["allow"].split(", ")) == sorted(allowed.split(", "))
        for name in allowed.split(", "):
            assert name in reply.error["message"]
