"""The official client, which checks types as it reads."""

from __future__ import annotations

from collections.abc import Iterator

import openai
import pytest
from openai.types import Completion, CompletionUsage
from openai.types.chat import ChatCompletion, ChatCompletionChunk

from tests.server.rig import Running

HI = [{"role": "user", "content": "hi"}]


@pytest.fixture(scope="module")
def client(server: Running) -> Iterator[openai.OpenAI]:
    with openai.OpenAI(base_url=f"{server.url}/v1", api_key="none", max_retries=0, timeout=30,
                       _strict_response_validation=True) as made:
        yield made


@pytest.fixture(scope="module")
def lenient(server: Running) -> Iterator[openai.OpenAI]:
    """Its types leave no room for null in completions, where OpenAI's own server says null: a chunk's finish_reason,
    the logprob of a prompt's first token."""
    with openai.OpenAI(base_url=f"{server.url}/v1", api_key="none", max_retries=0, timeout=30) as made:
        yield made


def test_models(client: openai.OpenAI, server: Running) -> None:
    (model,) = client.models.list().data
    assert model.id == "tiny"
    assert client.models.retrieve("tiny") == model
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


def test_errors_are_told_apart(client: openai.OpenAI, server: Running) -> None:
    with pytest.raises(openai.BadRequestError) as bad:
        client.chat.completions.create(model="tiny", messages=HI, temperature=3)
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
        async with openai.AsyncOpenAI(base_url=f"{server.url}/v1", api_key="none", max_retries=0, timeout=30) as many:
            asked = [many.completions.create(model="tiny", prompt=f"<{i:03d}>", max_tokens=4, echo=True)
                     for i in range(24)]
            for i, answer in enumerate(await asyncio.gather(*asked)):
                assert answer.choices[0].text.startswith(f"<{i:03d}>")

    asyncio.run(main())
