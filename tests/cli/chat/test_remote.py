"""A chat with a server: what it sends, shows, forgets, and how it bears servers that are wrong or gone."""

from __future__ import annotations

import io
import json
import sys
import threading
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from drut import SamplingParams
from drut.cli.chat import remote
from drut.cli.chat.commands import handle
from drut.cli.chat.interrupt import Interrupt
from drut.cli.chat.models import RemoteModels
from drut.cli.chat.remote import RemoteError, RemoteModel
from drut.cli.chat.screens import PipeScreen
from drut.cli.chat.session import Chat
from drut.cli.chat.settings import ChatSettings
from drut.cli.main import main
from drut.errors import DrutError, RequestError
from drut.parse.deltas import Content, Reasoning

PARAMS = SamplingParams(max_tokens=7)


def event(text: str | None = None, finish: str | None = None, **more: object) -> bytes:
    delta = {} if text is None else {"content": text}
    choices = [{"index": 0, "delta": delta, "finish_reason": finish}]
    return b"data: " + json.dumps({"choices": choices, **more}).encode() + b"\n\n"


USAGE = b'data: {"choices": [], "usage": {"prompt_tokens": 3, "completion_tokens": 2}}\n\n'
DONE = b"data: [DONE]\n\n"
ANSWER = [event(""), b": still here\n\n", event("Hé"), event("llo"), event(finish="stop"), USAGE, DONE]


class Fake(ThreadingHTTPServer):
    """A server that sends `answer` in pieces and records its requests."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.answer: list[bytes | float] = list(ANSWER)
        self.asked: list[tuple[str, dict[str, str], object]] = []
        self.room: int | None = 1000
        self.status, self.body = 200, b""
        self.hung_up = threading.Event()
        threading.Thread(target=self.serve_forever, args=(0.02,), daemon=True).start()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}"

    def handle_error(self, request, client_address) -> None:
        """A client that hangs up is expected."""


class Handler(BaseHTTPRequestHandler):
    server: Fake

    def do_GET(self) -> None:
        self._reply({"data": [{"id": "first"}, {"id": "second"}]})

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        if self.path == "/tokenize":
            count = sum(len(m["content"]) for m in body["messages"])
            room = self.server.room
            return self._reply({"tokens": [0] * count, "max_model_len": room}) if room else self.send_error(404)
        self.server.asked.append((self.path, dict(self.headers), body))
        if self.server.status != 200:
            self.send_response(self.server.status)
            self.end_headers()
            self.wfile.write(self.server.body)
            return None
        self.send_response(200)
        self.end_headers()
        try:
            for piece in self.server.answer:
                if isinstance(piece, float):
                    time.sleep(piece)
                else:
                    self.wfile.write(piece)
        except OSError:
            self.server.hung_up.set()
        return None

    def _reply(self, data: object) -> None:
        raw = json.dumps(data).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(raw)))
        self.end_headers()
        self.wfile.write(raw)

    def log_message(self, *args: object) -> None:
        """Quiet."""


@pytest.fixture
def server() -> Iterator[Fake]:
    made = Fake()
    yield made
    made.shutdown()
    made.server_close()


def ask(model: RemoteModel, question: str = "hi") -> str:
    parts = model.stream([{"role": "user", "content": question}], PARAMS, Interrupt())
    return "".join(delta.text for part in parts for delta in part.deltas)


def chat_with(server: Fake, **params: int) -> Chat:
    settings = ChatSettings(SamplingParams(**{"max_tokens": 7, **params}))
    return Chat(RemoteModels(server.url, None, None), settings, PipeScreen())


def test_a_piped_talk_with_a_server(server, capsys, monkeypatch):
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b"one\ntwo\n")))
    assert main(["chat", "--url", server.url + "/v1", "--api-key", "k", "--system", "Be kind.", "--max-tokens", "7",
                 "--seed", "3"]) == 0
    out, err = capsys.readouterr()
    assert out == "Héllo\n" * 2
    assert err == f"first at {server.url}/v1\n"
    path, headers, body = server.asked[1]
    assert path == "/v1/chat/completions"
    assert headers["Authorization"] == "Bearer k"
    assert body == {
        "model": "first", "stream": True, "stream_options": {"include_usage": True}, "max_tokens": 7,
        "seed": 3, "messages": [
            {"role": "system", "content": "Be kind."}, {"role": "user", "content": "one"},
            {"role": "assistant", "content": "Héllo"}, {"role": "user", "content": "two"}]}


def test_the_end_tells_counts_and_times(server):
    *_, last = RemoteModel(server.url, "second").stream([{"role": "user", "content": "hi"}], PARAMS, Interrupt())
    end = last.completion
    assert (end.text, end.finish_reason, end.prompt_tokens, end.completion_tokens) == ("Héllo", "stop", 3, 2)
    assert 0 < end.timings["ttft_s"] < 60
    assert server.asked[0][2]["model"] == "second"


def test_what_does_not_fit_the_servers_room_is_forgotten(server, capsys):
    server.room = 60
    chat = chat_with(server, max_tokens=10)
    for letter in "abcd":
        handle(chat, letter * 15)
    assert "forgotten: the conversation no longer fits 60 tokens" in capsys.readouterr().err
    with pytest.raises(RequestError, match="has 70 tokens"):
        handle(chat, "e" * 70)


def test_a_server_that_cannot_count_has_the_last_word(server, capsys):
    server.room = None
    chat = chat_with(server)
    handle(chat, "a" * 5000)
    assert capsys.readouterr().out == "Héllo\n"
    server.status, server.body = 400, b'{"error": {"message": "too long"}}'
    with pytest.raises(RemoteError, match="answers 400: too long"):
        handle(chat, "b")


def test_an_interrupt_ends_the_request_though_nothing_comes(server):
    server.answer = [event("Well"), 0.3, *[b": still here\n\n", 0.02] * 2000]
    interrupt, shown = Interrupt(), []
    for part in RemoteModel(server.url).stream([{"role": "user", "content": "hello"}], PARAMS, interrupt):
        shown += part.deltas
        interrupt.wanted = not part.deltas
        assert part.completion is None
    assert shown == [Content("Well")]
    assert server.hung_up.wait(20)


@pytest.mark.parametrize("name", ["reasoning_content", "reasoning"])
def test_reasoning_is_apart_from_the_answer(server, name):
    thought = {"choices": [{"index": 0, "delta": {name: "Hm."}, "finish_reason": None}]}
    server.answer = [b"data: " + json.dumps(thought).encode() + b"\n\n", *ANSWER]
    *parts, last = RemoteModel(server.url).stream([{"role": "user", "content": "hi"}], PARAMS, Interrupt())
    assert [d for part in parts for d in part.deltas] == [Reasoning("Hm."), Content("Hé"), Content("llo")]
    assert last.completion.text == "Héllo"


def test_another_served_model_continues(server):
    chat = chat_with(server)
    handle(chat, "/model second")
    handle(chat, "hi")
    assert server.asked[0][2]["model"] == "second"
    with pytest.raises(RequestError, match=r"serves no model 'secnd'; did you mean second\?"):
        handle(chat, "/model secnd")
    assert chat.models.name == "second"


WRONG = [
    ([event("Hi")], "ended before the answer was complete"),
    ([event("Hi"), DONE], "ended before the answer was complete"),
    ([event("Hi"), b'data: {"error": {"message": "a wheel came off"}}\n\n'], "a wheel came off"),
    ([b"data: {oops\n\n"], "an invalid event"), ([b"data: 3\n\n"], "an invalid event"),
    ([b"data: " + b"[" * 100_000 + b"\n\n"], "an invalid event"), ([b'data: {"choices": 3}\n\n'], "an invalid event"),
    ([b"data: " + b"x" * (2 << 20)], "an event of the stream is longer")]


@pytest.mark.parametrize(("answer", "words"), WRONG, ids=[w for _, w in WRONG])
def test_a_stream_that_is_wrong_is_an_error_and_keeps_nothing(server, answer, words):
    server.answer = answer
    with pytest.raises(RemoteError, match=words):
        ask(RemoteModel(server.url, "m"))
    server.answer = list(ANSWER)
    assert ask(RemoteModel(server.url, "m")) == "Héllo"


def test_refusals_are_told_whatever_their_form(server):
    told = b'{"error": {"message": "no such model"}}'
    for body, words in ((told, "404: no such model"), (b"<html>", "404: Not Found"),
                        (b'{"error": "flat"}', "404: Not Found")):
        server.status, server.body = 404, body
        with pytest.raises(RemoteError, match=words):
            ask(RemoteModel(server.url, "m"))


def test_a_silent_server_is_given_up(server, monkeypatch):
    monkeypatch.setattr(remote, "SILENCE_S", 0.2)
    server.answer = [event("Hi"), 5.0, DONE]
    with pytest.raises(RemoteError, match="timed out"):
        ask(RemoteModel(server.url, "m"))


def test_no_server_is_one_line(capsys):
    assert main(["chat", "--url", "http://127.0.0.1:9"]) == 2
    assert capsys.readouterr().err.startswith("drut: error: http://127.0.0.1:9: ")


@pytest.mark.parametrize(("argv", "words"), [
    (["chat"], "a MODEL is needed"), (["chat", "m", "--url", "http://x"], "give one"),
    (["chat", "m", "--model", "x"], "two models"),
    (["chat", "m", "--api-key", "x"], "--api-key requires"),
    (["chat", "--url", "http://x", "--threads", "2"], "--threads is a setting of the server"),
    (["chat", "--url", "ftp://x"], "must be http://HOST"), (["chat", "--url", "http://x:port"], "--url http://x:port")])
def test_flags_that_do_not_go_together_are_named(argv, words, capsys):
    assert main(argv) == 2
    assert words in capsys.readouterr().err


def test_errors_are_the_users_kind():
    assert issubclass(RemoteError, DrutError)
