"""A server's /tokenize in both dialects, and servers that do as they like."""

import json
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from drut.bench import exchange
from drut.bench.tokens import ServerTokenizer, counting, open_tokenizer
from drut.bench.workloads.texts import WorkloadTexts
from drut.errors import RequestError


def vllm(path, body):
    if path == "/tokenize":
        ids = list(body["prompt"].encode())
        return {"count": len(ids) + body["add_special_tokens"], "max_model_len": 9, "tokens": ids}
    return {"prompt": bytes(body["tokens"]).decode()}


def llama_cpp(path, body):
    if path == "/tokenize":
        return {"tokens": [*[1] * body.get("add_special", False), *body.get("content", "").encode()]}
    return {"content": bytes(body["tokens"]).decode()}


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True  # else each answer waits 40 ms for the client's acknowledgement

    def do_POST(self):
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        self.server.seen.append((self.path, body, self.headers.get("Authorization")))
        self.server.answer(self, body)

    def reply(self, data, status=200):
        self.send_response(status)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, *args):
        pass


@pytest.fixture
def serve():
    """Starts a server that answers as the given function does; the URL, and what it has seen."""
    servers = []

    def start(answer):
        server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        server.daemon_threads, server.seen, server.answer = True, [], answer
        servers.append(server)
        threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True).start()
        return f"http://127.0.0.1:{server.server_port}", server.seen

    yield start
    for server in servers:
        server.shutdown()
        server.server_close()


def speaking(dialect):
    return lambda handler, body: handler.reply(json.dumps(dialect(handler.path, body)).encode())


@pytest.mark.parametrize("dialect", [vllm, llama_cpp])
def test_dialects(serve, dialect):
    url, seen = serve(speaking(dialect))
    tokenizer = ServerTokenizer(url + "/v1", "m", {"Authorization": "Bearer k"})
    assert tokenizer.encode("näh") == list("näh".encode())
    assert tokenizer.count("four") == 4
    assert tokenizer.decode([104, 105]) == "hi"
    assert {path for path, _, _ in seen} == {"/tokenize", "/detokenize"}
    assert {key for _, _, key in seen} == {"Bearer k"}


def test_texts_of_exact_length_over_http(serve):
    url, seen = serve(speaking(vllm))
    source = WorkloadTexts(ServerTokenizer(url, "m"), [1])
    before = len(seen)
    assert [len(source.text(n, n).encode()) for n in (1, 7, 400)] == [1, 7, 400]
    assert before < 250  # requests to learn the vocabulary
    assert len(seen) - before < 80


def test_the_server_stands_in_where_nothing_is_local(serve):
    url, _ = serve(speaking(llama_cpp))
    assert open_tokenizer(model="m/x", url=url).remote


def test_a_connection_closed_between_requests_is_opened_again(serve):
    def answer(handler, body):
        speaking(vllm)(handler, body)
        handler.close_connection = True  # without saying so

    url, _ = serve(answer)
    tokenizer = ServerTokenizer(url, "m")
    assert [tokenizer.count("a" * n) for n in range(5)] == [0, 1, 2, 3, 4]


@pytest.mark.parametrize(("reply", "words"), [
    (b"<html>", "not a reply of a tokenizer"),
    (b"[" * 100_000, "not a reply of a tokenizer"),
    (b'{"tokens": ["a"]}', "not a reply of a tokenizer"),
    (b"[]", "not a reply of a tokenizer"),
])
def test_answers_that_are_none(serve, reply, words):
    url, _ = serve(lambda handler, body: handler.reply(reply))
    with pytest.raises(RequestError, match=words):
        ServerTokenizer(url, "m")


def test_statuses(serve):
    url, _ = serve(lambda handler, body: handler.reply(b"", 404))
    with pytest.raises(RequestError, match="the server has none"):
        ServerTokenizer(url, "m")
    url, seen = serve(lambda handler, body: handler.reply(b"busy\xff", 503) if len(seen) > 1 else speaking(vllm)(
        handler, body))
    with pytest.raises(RequestError, match="answered 503: busy"):
        ServerTokenizer(url, "m").encode("a")


@pytest.mark.parametrize("status", [400, 401, 404, 405, 422, 500, 501, 503])
def test_a_server_that_answers_otherwise_has_none(serve, status):
    url, _ = serve(lambda handler, body: handler.reply(b"{}", status))
    with pytest.raises(RequestError, match=f"the server has none .status {status}"):
        ServerTokenizer(url, "m")


def test_a_server_that_refuses_the_other_dialect_is_understood(serve):
    """As a llama.cpp that misses `content` may."""
    url, _ = serve(lambda handler, body: speaking(llama_cpp)(handler, body) if "content" in body else handler.reply(
        b"no content", 400))
    assert ServerTokenizer(url, "m").count("four") == 4


def test_a_count_that_is_lost_is_none_and_asked_for_once(serve):
    url, seen = serve(lambda handler, body: speaking(vllm)(handler, body) if len(seen) < 3 else handler.reply(b"", 500))
    count = counting(ServerTokenizer(url, "m"))
    assert [count("four") for _ in range(4)] == [4, None, None, None]
    assert len(seen) == 3


def test_too_long_an_answer(serve, monkeypatch):
    monkeypatch.setattr(exchange, "MAX_REPLY_BYTES", 1000)
    url, _ = serve(speaking(vllm))
    with pytest.raises(RequestError, match="longer than 1000 bytes"):
        ServerTokenizer(url, "m").encode("a" * 900)


def test_a_dripping_server_ends(serve):
    """Each byte comes well within the socket's timeout; the whole never would."""
    stop = threading.Event()

    def answer(handler, body):
        handler.send_response(200)
        handler.send_header("Content-Length", "1000000")
        handler.end_headers()
        while not stop.wait(0.02):
            handler.wfile.write(b" ")
            handler.wfile.flush()

    url, _ = serve(answer)
    try:
        with pytest.raises(RequestError, match=r"no reply within 0\.2 s"):
            ServerTokenizer(url, "m", timeout_s=0.2)
    finally:
        stop.set()


@pytest.mark.parametrize("url", ["ftp://x", "http://", "nothing", "http://h:99999", "http://[::1", "http://u:p@h"])
def test_urls(url):
    with pytest.raises(RequestError, match="URL"):
        ServerTokenizer(url, "m")
