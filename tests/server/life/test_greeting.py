"""The message of a server that is ready."""

from __future__ import annotations

import shlex

import pytest

from drut.engine.service.messages import EngineReady
from drut.server.life.greeting import example, greeting, reachable


@pytest.mark.parametrize(("url", "shown"), [
    ("http://0.0.0.0:8000", "http://127.0.0.1:8000"), ("http://[::]:1", "http://[::1]:1"),
    ("http://10.0.0.2:8000", "http://10.0.0.2:8000"), ("http://[fe80::1]:1", "http://[fe80::1]:1")])
def test_the_address_is_one_that_this_machine_can_connect_to(url: str, shown: str) -> None:
    assert reachable(url) == shown


@pytest.mark.parametrize(("chats", "texts", "path", "field"), [
    (True, True, "chat/completions", '"messages"'), (False, True, "completions", '"prompt": "Once'),
    (False, False, "completions", '"prompt": [1')])
def test_the_example_is_what_the_model_can_do(chats: bool, texts: bool, path: str, field: str) -> None:
    words = shlex.split(example("http://127.0.0.1:1", keyed=False, chats=chats, texts=texts))
    assert words[:2] == ["curl", f"http://127.0.0.1:1/v1/{path}"]
    assert field in words[-1]


def test_a_key_is_named_and_never_shown() -> None:
    ready = EngineReady(load_s=1.0, numerics_id="n", description="kernels", room=8192, max_seqs=1, step_tokens=1,
                        parts={}, weights="135M weights in Q4_1", kv_tokens=32768, kv_bytes=755_000_000)
    text = "\n".join(greeting("http://0.0.0.0:1", "m", ready, keyed=True, kv_dtype="bf16", chats=True, texts=True))
    assert "Bearer $DRUT_API_KEY" in text
    for part in ("m: 135M weights in Q4_1; kernels", "8,192 tokens", "32,768 tokens, 0.76 GB in bf16",
                 "http://127.0.0.1:1/docs"):
        assert part in text
    assert all(len(line) <= 100 for line in text.splitlines())
