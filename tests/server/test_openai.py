"""The official client, which checks types as it reads."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import openai
import pytest
from openai.types import Completion, CompletionUsage
from openai.types.chat import ChatCompletion, ChatCompletionChunk

from drut.engine.request.output import Chunk
from drut.server.admission import QueuedRequest, QueueFullError
from tests.server.rig import PATIENCE_S, Running
from tests.server.scripted import ended, scripted

HI = [{"role": "user", "content": "hi"}]


@pytest.fixture(scope="module")
def client(server: Running) -> Iterator[openai.OpenAI]:
    with openai.OpenAI(base_url=f"{server.url}/v1", api_key="none", max_retries=0, timeout=PATIENCE_S,
                       _strict_response_validation=True) as made:
        yield made


@pytest.fixture(scope="module")
def lenient(server: Running) -> Iterator[openai.OpenAI]:
    """Its types leave no room for null in completions, where OpenAI's own server says null: a chunk's finish_reason,
    the logprob of a prompt's first token."""
    with openai.OpenAI(base_url=f"{server.url}/v1", api_key="none", max_retries=0, timeout=PATIENCE_S) as made:
        yield made


def test_models(client: openai.OpenAI, server: Running) -> None:
    (model,) = client.models.list().data
    assert model.id == "tiny"
    assert client.models.retrieve("tiny") == model
    assert model.to_dict()["sampling_defaults"] == {"temperature": 1.0, "top_p": 1.0, "top_k": 0, "min_p": 0.0,
                                                    "repetition_penalty": 1.0}
    with pytest.raises(openai.NotFoundError) as error:
        client.models.retrieve("other")
    assert error.value.code == "model_not_found"


def test_chat(client: openai.OpenAI, server: Running) -> None:
    answer = client.chat.completions.create(model="tiny", messages=HI, max_completion_tokens=5, n=2, seed=1,
                                            logprobs=True, top_logprobs=2, temperature=1.0)
    assert isinstance(answer, ChatCompletion)
    assert len(answer.choices) == 2
    for choice in answer.choices:
        assert choice.message.role == "assistant"
        assert choice.message.tool_calls is None
        assert choice.logprobs is not None
        assert choice.logprobs.content is not None
        assert bytes(b for t in choice.logprobs.content for b in t.bytes or ()).decode(
            errors="replace") == choice.message.content
    assert isinstance(answer.usage, CompletionUsage)
    assert answer.usage.prompt_tokens_details is not None
    assert answer.usage.total_tokens == answer.usage.prompt_tokens + answer.usage.completion_tokens


def test_chat_stream(client: openai.OpenAI, server: Running) -> None:
    whole = client.chat.completions.create(model="tiny", messages=HI, max_tokens=9, temperature=0)
    stream = client.chat.completions.create(model="tiny", messages=HI, max_tokens=9, temperature=0, stream=True,
                                            stream_options={"include_usage": True})
    chunks = list(stream)
    assert all(isinstance(c, ChatCompletionChunk) for c in chunks)
    text = "".join(c.choices[0].delta.content or "" for c in chunks if c.choices)
    assert text == whole.choices[0].message.content
    assert chunks[-1].usage is not None
    assert whole.usage is not None
    assert chunks[-1].usage.total_tokens == whole.usage.total_tokens


def test_timings_come_through_extra_body(client: openai.OpenAI, server: Running) -> None:
    asked = {"model": "tiny", "messages": HI, "max_tokens": 3, "extra_body": {"timings": True}}
    whole = client.chat.completions.create(**asked)
    *_, last = client.chat.completions.create(**asked, stream=True)
    for reply in (whole, last):
        assert reply.model_extra["timings"]["predicted_n"] == 3 or reply.choices[0].finish_reason == "stop"
        assert reply.model_extra["timings"]["prompt_n"] + reply.model_extra["timings"]["cache_n"] > 0


def test_the_stream_helper(client: openai.OpenAI, server: Running) -> None:
    ends = {"logit_bias": {"257": 100}, "min_tokens": 4}
    with client.chat.completions.stream(model="tiny", messages=HI, temperature=0, logprobs=True,
                                        extra_body=ends) as stream:
        for _ in stream:
            pass
        final = stream.get_final_completion()
    assert final.choices[0].finish_reason == "stop"
    assert len(final.choices[0].message.content or "") == 4
    assert final.choices[0].logprobs is not None


def test_completions(client: openai.OpenAI, lenient: openai.OpenAI, server: Running) -> None:
    answer = lenient.completions.create(model="tiny", prompt=["a", "b"], max_tokens=4, logprobs=2, echo=True,
                                        temperature=0)
    assert isinstance(answer, Completion)
    for prompt, choice in zip("ab", answer.choices, strict=True):
        assert choice.text.startswith(prompt)
        assert choice.logprobs is not None
        assert choice.logprobs.tokens is not None
        assert "".join(choice.logprobs.tokens) == choice.text
    pieces = lenient.completions.create(model="tiny", prompt=[97, 98], max_tokens=4, stream=True, temperature=0)
    whole = client.completions.create(model="tiny", prompt=[97, 98], max_tokens=4, temperature=0)
    assert "".join(p.choices[0].text for p in pieces) == whole.choices[0].text


def test_leaving_a_stream_early_ends_it(lenient: openai.OpenAI, server: Running) -> None:
    stream = lenient.completions.create(model="tiny", prompt="a", max_tokens=150, stream=True,
                                       extra_body={"ignore_eos": True})
    next(iter(stream))
    stream.close()
    server.until_idle()


def test_errors_are_distinguished(client: openai.OpenAI, server: Running) -> None:
    with pytest.raises(openai.BadRequestError) as bad:
        client.chat.completions.create(model="tiny", messages=HI, temperature=101)
    assert (bad.value.param, bad.value.type) == ("temperature", "invalid_request_error")
    with pytest.raises(openai.BadRequestError) as unsupported:
        client.chat.completions.create(model="tiny", messages=HI, modalities=["text", "audio"])
    assert unsupported.value.code == "unsupported_parameter"
    with pytest.raises(openai.BadRequestError) as long:
        client.completions.create(model="tiny", prompt="x" * 500)
    assert long.value.code == "context_length_exceeded"


@pytest.mark.filterwarnings("ignore")
def test_the_async_client_many_at_a_time(server: Running) -> None:
    import asyncio

    async def main() -> None:
        async with openai.AsyncOpenAI(base_url=f"{server.url}/v1", api_key="none", max_retries=0,
                                      timeout=PATIENCE_S) as many:
            asked = [many.completions.create(model="tiny", prompt=f"<{i:03d}>", max_tokens=4, echo=True)
                     for i in range(24)]
            for i, answer in enumerate(await asyncio.gather(*asked)):
                assert answer.choices[0].text.startswith(f"<{i:03d}>")

    asyncio.run(main())


def test_a_seed_gives_the_same_answer_again_and_a_stop_ends_it(client: openai.OpenAI, server: Running) -> None:
    def ask(**more: object) -> ChatCompletion:
        return client.chat.completions.create(model="tiny", messages=HI, max_completion_tokens=12, temperature=1.5,
                                              extra_body={"ignore_eos": True}, **{"seed": 7, **more})  # type: ignore[call-overload,no-any-return]

    first = ask()
    text = first.choices[0].message.content or ""
    assert first.choices[0].finish_reason == "length"
    assert ask().choices[0].message.content == text
    assert ask(seed=8).choices[0].message.content != text
    assert ask().system_fingerprint == first.system_fingerprint is not None
    stop = text[5:7]
    cut = ask(stop=[stop])
    assert (cut.choices[0].message.content, cut.choices[0].finish_reason) == (text[: text.index(stop)], "stop")


def test_a_stream_of_several_choices_with_logprobs(client: openai.OpenAI, server: Running) -> None:
    asked = {"model": "tiny", "messages": HI, "max_tokens": 6, "n": 3, "seed": 1, "temperature": 1.0, "logprobs": True,
             "top_logprobs": 2, "extra_body": {"ignore_eos": True}}
    whole = client.chat.completions.create(**asked)  # type: ignore[call-overload]
    chunks = list(client.chat.completions.create(**asked, stream=True))  # type: ignore[call-overload]
    for choice in whole.choices:
        parts = [c.choices[0] for c in chunks if c.choices and c.choices[0].index == choice.index]
        assert "".join(p.delta.content or "" for p in parts) == choice.message.content
        told = [t for p in parts if p.logprobs is not None for t in p.logprobs.content or ()]
        assert told == choice.logprobs.content
        assert [p.finish_reason for p in parts if p.finish_reason] == [choice.finish_reason] == ["length"]


def test_a_stream_of_completions_with_usage(lenient: openai.OpenAI, server: Running) -> None:
    chunks = list(lenient.completions.create(model="tiny", prompt=[97, 98, 99], max_tokens=5, stream=True, logprobs=1,
                                             temperature=0,
                                             stream_options={"include_usage": True}, extra_body={"ignore_eos": True}))
    assert chunks[-1].choices == []
    assert chunks[-1].usage is not None
    assert (chunks[-1].usage.prompt_tokens, chunks[-1].usage.completion_tokens) == (3, 5)
    tokens = [t for c in chunks if c.choices and c.choices[0].logprobs for t in c.choices[0].logprobs.tokens or ()]
    assert "".join(tokens) == "".join(c.choices[0].text for c in chunks if c.choices)
    assert len(tokens) == 5


def test_scores_of_a_prompt_as_evaluations_ask_for_them(lenient: openai.OpenAI, server: Running) -> None:
    """Token ids, echo, logprobs: alone and beside others they are the same to the last bit."""
    prompts = [[97 + i, 98, 99 + i, 100] for i in range(8)]
    asked = {"model": "tiny", "max_tokens": 1, "logprobs": 1, "echo": True, "temperature": 0, "seed": 1234}
    together = lenient.completions.create(prompt=prompts, **asked)  # type: ignore[call-overload]
    for prompt, choice in zip(prompts, sorted(together.choices, key=lambda c: c.index), strict=True):
        alone = lenient.completions.create(prompt=prompt, **asked).choices[0]  # type: ignore[call-overload]
        assert alone.logprobs == choice.logprobs
        assert alone.logprobs.token_logprobs[0] is None
        assert all(logprob <= 0 for logprob in alone.logprobs.token_logprobs[1:])
        assert len(alone.logprobs.token_logprobs) == len(prompt) + 1


def test_headers_and_what_was_ignored(client: openai.OpenAI, server: Running) -> None:
    raw = client.chat.completions.with_raw_response.create(
        model="tiny", messages=HI, max_tokens=2, user="me", extra_body={"not_a_field": 1},
        extra_headers={"X-Request-Id": "mine-1"})
    assert raw.headers["x-request-id"] == "mine-1"
    assert "not_a_field" in raw.headers["x-drut-ignored"]
    assert raw.parse().choices[0].finish_reason is not None


def test_strangers_crowds_and_what_is_not_here(model_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def nothing(ask: QueuedRequest) -> AsyncIterator[Chunk]:
        yield ended()

    def refuse(*_: object) -> None:
        raise QueueFullError("9 requests are waiting", 6.2)

    with scripted(model_path, nothing, api_key="the-right-one") as (server, admission):
        url = f"{server.url}/v1"
        with openai.OpenAI(base_url=url, api_key="another-one", max_retries=0) as stranger, \
                pytest.raises(openai.AuthenticationError) as unknown:
            stranger.models.list()
        assert unknown.value.code == "invalid_api_key"
        with openai.OpenAI(base_url=url, api_key="the-right-one", max_retries=0, timeout=30) as known:
            assert known.models.list().data[0].id == "tiny"
            with pytest.raises(openai.NotFoundError):
                known.embeddings.create(model="tiny", input="x")
            monkeypatch.setattr(admission, "submit", refuse)
            with pytest.raises(openai.RateLimitError, match="9 requests are waiting") as full:
                known.chat.completions.create(model="tiny", messages=HI)
            assert full.value.response.headers["retry-after"] == "7"
