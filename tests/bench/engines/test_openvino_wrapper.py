"""The HTTP wrapper over a pipeline that computes nothing; over the real one it is in docs/engines.md."""

from __future__ import annotations

import http.client
import importlib
import json
import queue
import socket
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from drut.bench.engines import openvino
from drut.bench.engines.engine import Launch
from drut.bench.engines.process import Running, free_port, start

FAKE = Path(__file__).with_name("fake_openvino")


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    port = free_port()
    argv = (sys.executable, str(openvino.WRAPPER), "--model", "/m", "--name", "tiny", "--port", str(port),
            "--threads", "2", "--sequences", "4", "--context", "400", "--cache-gb", "1", "--batch-tokens", "64")
    with start(Launch(f"http://127.0.0.1:{port}", "tiny", argv, {"PYTHONPATH": str(FAKE)}),
               tmp_path_factory.mktemp("log") / "log") as running:
        yield running


def ask(server: Running, path: str, body: Any, expect: int = 200) -> Any:
    connection = http.client.HTTPConnection("127.0.0.1", int(server.url.rsplit(":", 1)[1]), timeout=60)
    connection.request("POST", path, body if isinstance(body, bytes) else json.dumps(body))
    answer = connection.getresponse()
    data = answer.read()
    connection.close()
    assert answer.status == expect, data
    return json.loads(data) if answer.getheader("Content-Type") == "application/json" else data.decode()


def complete(server: Running, **body: Any) -> Any:
    return ask(server, "/v1/completions", {"temperature": 0, **body})


def streamed(server: Running, path: str, **body: Any) -> list[Any]:
    text = ask(server, path, {"stream": True, "temperature": 0, **body})
    lines = [line.removeprefix("data: ") for line in text.split("\n") if line]
    assert lines[-1] == "[DONE]"
    return [json.loads(line) for line in lines[:-1]]


def test_it_was_started_as_ordered(server: Running) -> None:
    log = server.log.read_text()
    assert "/m on CPU, {'INFERENCE_NUM_THREADS': 2}" in log
    assert "'cache_size': 1, 'max_num_seqs': 4, 'max_num_batched_tokens': 64, 'enable_prefix_caching': True" in log


def test_no_token_waits_for_the_client_to_acknowledge_the_one_before(monkeypatch: pytest.MonkeyPatch) -> None:
    for folder in (FAKE, openvino.WRAPPER.parent):
        monkeypatch.syspath_prepend(folder)
    for name in ("openvino", "openvino_genai", "openvino_engine", "openvino_server"):
        monkeypatch.delitem(sys.modules, name, raising=False)
    wrapper = importlib.import_module("openvino_server")
    seen = queue.SimpleQueue[int]()

    class Looks(wrapper.OpenVinoHandler):  # type: ignore[name-defined, misc]
        def handle(self) -> None:
            seen.put(self.connection.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY))

    with (wrapper.OpenVinoServer(("127.0.0.1", 0), Looks) as listening,
          socket.create_connection(listening.server_address)):
        listening.handle_request()
        assert seen.get(timeout=60)


def test_a_completion(server: Running) -> None:
    got = complete(server, prompt="abc", max_tokens=7)
    assert got["choices"] == [{"index": 0, "finish_reason": "length", "text": "abcabca"}]
    assert got["usage"] == {"prompt_tokens": 3, "completion_tokens": 7, "total_tokens": 10}


def test_ids_and_a_list_of_one(server: Running) -> None:
    for prompt in ([97, 98], [[97, 98]], ["ab"]):
        assert complete(server, prompt=prompt, max_tokens=3)["choices"][0]["text"] == "aba"


def test_a_chat(server: Running) -> None:
    messages = [{"role": "user", "content": "hi"}]
    got = ask(server, "/v1/chat/completions", {"messages": messages, "max_completion_tokens": 8})
    assert got["choices"][0]["message"] == {"role": "assistant", "content": "<user>hi"}
    events = streamed(server, "/v1/chat/completions", messages=messages, max_tokens=8)
    assert {event["object"] for event in events} == {"chat.completion.chunk"}
    assert "".join(event["choices"][0]["delta"]["content"] for event in events) == "<user>hi"
    assert [event["choices"][0]["finish_reason"] for event in events] == [None] * (len(events) - 1) + ["length"]


def test_the_end_of_an_answer_counts_unless_it_is_ignored(server: Running) -> None:
    ended = complete(server, prompt=[97, 98, 0, 99], max_tokens=9)
    assert ended["choices"][0] == {"index": 0, "finish_reason": "stop", "text": "ab"}
    assert ended["usage"]["completion_tokens"] == 2
    assert complete(server, prompt=[97, 0], max_tokens=9, ignore_eos=True)["usage"]["completion_tokens"] == 9


def test_usage_in_a_stream_is_told_when_asked_for(server: Running) -> None:
    body: dict[str, Any] = {"prompt": "ab", "max_tokens": 5}
    *pieces, last = streamed(server, "/v1/completions", **body, stream_options={"include_usage": True})
    assert last["choices"] == []
    assert last["usage"]["completion_tokens"] == 5
    assert "".join(event["choices"][0]["text"] for event in pieces) == "ababa"
    assert all("usage" not in event for event in streamed(server, "/v1/completions", **body))


def test_a_character_of_several_tokens_comes_whole(server: Running) -> None:
    text = "द्रुत, लय। " * 3
    events = streamed(server, "/v1/completions", prompt=text, max_tokens=len(text.encode()) - 1)
    pieces = [event["choices"][0]["text"] for event in events]
    assert "".join(pieces) == text[:-1]
    assert not any("\ufffd" in piece for piece in pieces)
    cut = complete(server, prompt="é", max_tokens=1)
    assert cut["choices"][0]["text"] == "\ufffd"


def test_stop_strings_are_cut_off_wherever_pieces_end(server: Running) -> None:
    got = complete(server, prompt="abcdef", max_tokens=20, stop=["de", "zz"])
    assert got["choices"][0] == {"index": 0, "finish_reason": "stop", "text": "abc"}
    assert complete(server, prompt="abcdef", max_tokens=5, stop="fa")["choices"][0]["text"] == "abcde"


def test_a_schema_is_handed_on(server: Running) -> None:
    schema = {"type": "object", "additionalProperties": False}
    format_ = {"type": "json_schema", "json_schema": {"name": "x", "schema": schema}}
    text = json.dumps(schema)
    got = complete(server, prompt="a", max_tokens=len(text), response_format=format_)
    assert got["choices"][0]["text"] == text


@pytest.mark.parametrize(("body", "why"), [
    (b"{", "Expecting"),
    (b"[]", "indices"),
    ({}, "prompt"),
    ({"prompt": ["a", "b"]}, "one text"),
    ({"prompt": []}, "one text"),
    ({"prompt": "a", "n": 2}, "n other than 1"),
    ({"prompt": "a", "logprobs": 1}, "logprobs is not supported"),
    ({"prompt": "a" * 400}, "the prompt has 400 tokens, and the context 400"),
    ({"prompt": "a", "response_format": {"type": "grammar"}}, "'grammar' is not supported"),
])
def test_what_it_cannot_do_is_refused(server: Running, body: Any, why: str) -> None:
    assert why in ask(server, "/v1/completions", body, expect=400)["error"]["message"]


def test_other_paths_are_not_there(server: Running) -> None:
    assert ask(server, "/v1/embeddings", {}, expect=404)


def test_many_at_once(server: Running) -> None:
    from concurrent.futures import ThreadPoolExecutor

    def one(n: int) -> str:
        return str(complete(server, prompt=f"{n:03}", max_tokens=6)["choices"][0]["text"])

    with ThreadPoolExecutor(8) as pool:
        assert list(pool.map(one, range(24))) == [f"{n:03}{n:03}" for n in range(24)]


def test_a_failure_of_the_engine_ends_those_under_way_alone(server: Running) -> None:
    assert "the device is gone" in ask(server, "/v1/completions", {"prompt": "fail"}, expect=400)["error"]["message"]
    text = ask(server, "/v1/completions", {"prompt": "fail", "stream": True})
    assert "the device is gone" in text
    assert complete(server, prompt="a", max_tokens=2)["choices"][0]["text"] == "aa"
