"""The default model behind the server: its template, its tokens, and answers that are the engine's own."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

from drut import LLM, SamplingParams
from drut.model.store import resolve
from tests.server.rig import Running, serving

MODEL = "smollm2-135m-instruct"
HI = [{"role": "user", "content": "Name three colours."}]

pytestmark = pytest.mark.model


@pytest.fixture(scope="module")
def real() -> Iterator[Running]:
    with serving(resolve(MODEL), engine={"threads": None, "kv_cache_gb": 0.2}) as running:
        yield running


def test_it_answers_as_the_library_does_alone_and_in_company(real: Running) -> None:
    prompts = ["The capital of France is", "Once upon a time", "2 + 2 =", "def fib(n):"]
    with ThreadPoolExecutor(8) as pool:
        asked = [pool.submit(real.complete, p, max_tokens=12, temperature=0, logprobs=1, stream=stream)
                 for p in prompts for stream in (False, True)]
    with LLM(MODEL, kv_cache_gb=0.2) as llm:
        wanted = llm.generate(prompts, SamplingParams(max_tokens=12, logprobs=1, temperature=0))
        fingerprint = llm.numerics_id
    for completion, whole, stream in zip(wanted, asked[::2], asked[1::2], strict=True):
        body, events = whole.result().json, stream.result().events[:-1]
        assert body["system_fingerprint"] == fingerprint
        assert body["choices"][0]["text"] == completion.text
        assert "".join(e["choices"][0]["text"] for e in events) == completion.text
        assert completion.logprobs is not None
        scores = [entry[i].logprob for i, entry in zip(completion.token_ids, completion.logprobs, strict=True)]
        assert body["choices"][0]["logprobs"]["token_logprobs"] == scores
        assert [p for e in events for p in e["choices"][0]["logprobs"]["token_logprobs"]] == scores


def test_a_conversation(real: Running) -> None:
    ask = {"messages": HI, "max_tokens": 40, "temperature": 0, "logprobs": True}
    body = real.post("/v1/chat/completions", ask).json
    (choice,) = body["choices"]
    assert choice["message"]["content"].strip()
    content = choice["logprobs"]["content"]
    assert len(content) == body["usage"]["completion_tokens"]
    assert bytes(b for t in content for b in t["bytes"] or ()).decode() == choice["message"]["content"]
    ids = real.post("/tokenize", {"messages": HI}).json["tokens"]
    text = real.post("/detokenize", {"tokens": ids}).json["prompt"]
    assert text.endswith("<|im_start|>user\nName three colours.<|im_end|>\n<|im_start|>assistant\n")


def test_developer_is_system_where_the_template_does_not_know_it(real: Running) -> None:
    def tokens(role: str) -> list[int]:
        talk = [{"role": role, "content": "Be brief."}, *HI]
        return real.post("/tokenize", {"messages": talk}).json["tokens"]

    assert tokens("developer") == tokens("system")


def test_an_echoed_prompt_is_scored_to_the_last_bit_at_any_batch(real: Running) -> None:
    texts = [f"The quick brown fox number {i} jumps over the lazy dog" for i in range(16)]
    fields = {"echo": True, "logprobs": 1, "max_tokens": 1, "temperature": 0}
    together = real.complete(texts, **fields).json["choices"]
    alone = [real.complete(t, **fields).json["choices"][0] for t in texts]
    assert [c | {"index": 0} for c in together] == alone
    for text, choice in zip(texts, alone, strict=True):
        assert choice["text"].startswith(text)
        assert "".join(choice["logprobs"]["tokens"]) == choice["text"]


def test_texts_come_back_and_special_tokens_are_known(real: Running) -> None:
    for value in ("<|im_start|>user", "user", " user", "<|im_end|>\nuser", "naïve 🔥 नमस्ते", "\t x\r\n", "1234567", ""):
        ids = real.post("/tokenize", {"prompt": value, "add_special_tokens": False}).json["tokens"]
        assert real.post("/detokenize", {"tokens": ids}).json["prompt"] == value
    assert real.post("/tokenize", {"prompt": "<|im_end|>"}).json["count"] == 1
