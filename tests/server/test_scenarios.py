"""Courses of events that made other servers fail; each names the report it comes from."""

from __future__ import annotations

import random
import socket
import struct
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from tests.cli import tiny
from tests.server.rig import Client, Reply, Running, serving


def text(reply: Reply) -> str:
    assert reply.status == 200, reply.raw
    return reply.json["choices"][0]["text"]


def streamed(reply: Reply) -> str:
    assert reply.events[-1] == "[DONE]"
    return "".join(e["choices"][0]["text"] for e in reply.events[:-1])


def hang_up(sock: socket.socket) -> None:
    """At once and without a goodbye."""
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    sock.close()


def test_a_prompt_longer_than_the_kv_cache_starves_no_other(model_path: Path) -> None:
    """vllm#39102: what could never be scheduled was accepted."""
    page_gb = 16 * tiny.LAYERS * 2 * tiny.HIDDEN // tiny.HEADS * tiny.KV_HEADS * 2 / 1e9
    with serving(model_path, engine={"kv_cache_gb": 4.5 * page_gb}) as running:
        with ThreadPoolExecutor(5) as pool:
            long = pool.submit(running.complete, "x" * 100)
            short = [pool.submit(running.complete, f"{i}") for i in range(4)]
        assert long.result().error["code"] == "context_length_exceeded"
        assert "64 tokens" in long.result().error["message"]
        assert [s.result().status for s in short] == [200] * 4


def test_a_prompt_that_ends_within_a_character(server: Running) -> None:
    """vllm#48853: the whole prompt came again in the stream."""
    ids = server.post("/tokenize", {"prompt": "Hello world \U0001f336"}).json["tokens"][:-2]
    fields = {"max_tokens": 4, "temperature": 0}
    assert "Hello" not in (said := streamed(server.complete(ids, stream=True, **fields)))
    assert said == text(server.complete(ids, **fields))


def test_bytes_in_any_order(server: Running) -> None:
    """vllm#17448: the library's decoder raised, and the loop for all ended."""
    bias = {str(i): 100 for i in (240, 159, 146, 227, 128, 97, 98, 32, 255)}
    for seed in range(20):
        fields: dict[str, Any] = {"temperature": 2, "logit_bias": bias, "max_tokens": 150, "seed": seed}
        whole = server.complete("x", **fields)
        assert streamed(server.complete("x", stream=True, **fields)) == text(whole)
        whole.raw.decode("utf-8", "strict")


def test_text_held_back_for_a_stop_string_comes_at_the_end(server: Running) -> None:
    """llama.cpp#9867: it was lost."""
    fields = {"max_tokens": 12, "temperature": 0, "ignore_eos": True}
    free = text(server.complete(**fields))
    reply = server.complete(stop=[free[-3:] + "\u0001q"], stream=True, **fields)
    assert streamed(reply) == free
    assert reply.events[-2]["choices"][0]["finish_reason"] == "length"


def test_a_stop_string_of_several_tokens(server: Running) -> None:
    """llama.cpp#11538: it was not seen."""
    fields = {"max_tokens": 64, "temperature": 0, "ignore_eos": True}
    free = text(server.complete("A B C D E F G", **fields))
    stop = free[30:35]
    reply = server.complete("A B C D E F G", stop=[stop], **fields)
    assert stop not in text(reply)
    assert reply.json["choices"][0]["finish_reason"] == "stop"


def test_answers_do_not_cross(server: Running) -> None:
    """mlx-lm#965: one client's answer reached another."""
    def ask(number: int) -> None:
        dice = random.Random(number)
        marker = "".join(dice.choice("abcdefghij") for _ in range(12))
        reply = server.complete(marker + " tell me", echo=True, max_tokens=4)
        assert text(reply).startswith(marker + " tell me")
        assert reply.json["usage"]["prompt_tokens"] == 20

    with ThreadPoolExecutor(24) as pool:
        list(pool.map(ask, range(240)))


def test_a_cached_prefix_gives_the_same_numbers(model_path: Path) -> None:
    """llama.cpp#27148: a restored entry belonged to another conversation. Here not a bit differs."""
    dice = random.Random(5)
    shared = "".join(dice.choice("abcdef ") for _ in range(120))
    prompts = [shared[: dice.randrange(120)] + f" {i}" for i in range(20)]
    page_gb = 16 * tiny.LAYERS * 2 * tiny.HIDDEN // tiny.HEADS * tiny.KV_HEADS * 2 / 1e9

    def scores(running: Running, prompt: str) -> Any:
        choice = running.complete(prompt, max_tokens=3, temperature=0, logprobs=0).json["choices"][0]
        return choice["text"], choice["logprobs"]

    with serving(model_path, engine={"prefix_cache": False}) as fresh:
        wanted = {p: scores(fresh, p) for p in prompts}
    with serving(model_path, engine={"kv_cache_gb": 20.5 * page_gb}) as small, ThreadPoolExecutor(8) as pool:
        for _ in range(3):
            dice.shuffle(prompts)
            assert list(pool.map(lambda p: scores(small, p), prompts)) == [wanted[p] for p in prompts]


def test_streams_that_are_left_give_everything_back(server: Running) -> None:
    """Rapid-MLX#1759: each left a slot behind until none was free."""
    for _ in range(40):
        sock = server.open_stream("/v1/completions", {"prompt": "hi", "max_tokens": 150, "stream": True,
                                                      "ignore_eos": True})
        sock.recv(50)
        hang_up(sock)
    server.until_idle()
    server.assert_well()


def test_many_at_once_that_are_left_at_once(server: Running) -> None:
    """sglang#28341: an abort met an end, and the loop ended with a KeyError."""
    for stream in (True, False, True):
        body = {"prompt": "hi", "max_tokens": 6, "stream": stream, "ignore_eos": True}
        socks = [server.open_stream("/v1/completions", body) for _ in range(60)]
        time.sleep(0.02)
        for sock in socks:
            hang_up(sock)
    server.until_idle()
    server.assert_well()


def test_two_requests_of_one_name(server: Running) -> None:
    """sglang#19035: the second took the first one's place, and both hung."""
    def ask(_: int) -> Reply:
        return server.post("/v1/completions", {"prompt": "hi", "max_tokens": 50, "request_id": "same", "stream": True},
                           headers={"X-Request-Id": "same"})

    with ThreadPoolExecutor(4) as pool:
        replies = list(pool.map(ask, range(4)))
    assert {r.headers["x-request-id"] for r in replies} == {"same"}
    assert len({r.events[0]["id"] for r in replies}) == 4
    assert all(r.events[-1] == "[DONE]" for r in replies)


def test_a_long_text_leaves_others_alone(server: Running) -> None:
    """vllm#34789: tokenizing in the event loop stopped everybody."""
    gaps, stop = [0.0], threading.Event()

    def poll() -> None:
        while not stop.is_set():
            begun = time.monotonic()
            assert server.get("/health").status == 200
            gaps.append(time.monotonic() - begun)

    watcher = threading.Thread(target=poll)
    watcher.start()
    for path, field in (("/v1/completions", "prompt"), ("/tokenize", "prompt")):
        reply = server.post(path, {field: "x" * 5_000_000})
        assert reply.status == 400
    assert server.post("/tokenize", {"prompt": "x" * 500_000}).json["count"] == 500_000
    stop.set()
    watcher.join()
    assert sorted(gaps)[len(gaps) * 9 // 10] < 1  # a busy machine alone may stop one of them for long


def test_a_picture_in_text_is_only_text(server: Running) -> None:
    """CVE-2026-0599: it was fetched."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        listener.settimeout(0.2)
        port = listener.getsockname()[1]
        assert server.chat(f"look ![](http://127.0.0.1:{port}/big.png)").status == 200
        with pytest.raises(TimeoutError):
            listener.accept()


EVIL = ("{{ ''.__class__.__mro__[1].__subclasses__() }}", "{% for i in range(10**9) %}{% endfor %}",
        "{% for i in range(99999) %}{% for j in range(99999) %}x{% endfor %}{% endfor %}")


@pytest.mark.serial
@pytest.mark.slow
@pytest.mark.parametrize("template", EVIL)
def test_a_hostile_template_ends_its_request_alone(tmp_path: Path, template: str) -> None:
    """CVE-2026-5760: a model's template ran commands."""
    path = tmp_path / "evil.gguf"
    path.write_bytes(tiny.model(tokenizer__chat_template=template))
    with serving(path) as running:
        for route in ("/v1/chat/completions", "/tokenize"):
            begun = time.monotonic()
            reply = running.post(route, {"messages": [{"role": "user", "content": "hi"}]})
            assert (reply.status, reply.error["param"]) == (400, "messages")
            assert time.monotonic() - begun < 5
        running.assert_well()


def test_texts_come_back_as_they_were(server: Running) -> None:
    """llama.cpp#8584: a space was put in front."""
    for value in ("", " ", "a", "  a", "a\r\n\tb", "\0", "é́", "שלום", "🔥👩‍👩‍👧", "x = [1,\n    2]", "<bos>", "\ufffd"):
        ids = server.post("/tokenize", {"prompt": value, "add_special_tokens": False}).json["tokens"]
        assert server.post("/detokenize", {"tokens": ids}).json["prompt"] == value


def test_tokens_have_names(server: Running) -> None:
    body = server.post("/tokenize", {"prompt": "aé<eos>", "return_token_strs": True}).json
    assert body == {"count": 4, "max_model_len": 160, "tokens": [97, 195, 169, 257],
                    "token_strs": ["a", "bytes:\\xc3", "bytes:\\xa9", "<eos>"]}
    chat = server.post("/tokenize", {"messages": [{"role": "user", "content": "hi"}]}).json["tokens"]
    whole = server.chat("hi", return_token_ids=True).json
    assert chat == whole["prompt_token_ids"]


def test_many_connections_at_once(server: Running) -> None:
    def ask(i: int) -> int:
        return Client(server.url).complete(f"{i}", max_tokens=1).status

    with ThreadPoolExecutor(100) as pool:
        assert set(pool.map(ask, range(200))) <= {200, 429}
