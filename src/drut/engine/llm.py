"""The Python surface: a model that answers."""

from __future__ import annotations

import time
from collections.abc import Generator, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

from drut.config import EngineConfig
from drut.engine.build import build_engine, choose_backend, numerics_id
from drut.engine.output import Chunk, Completion
from drut.engine.params import SamplingParams
from drut.engine.request import Request
from drut.errors import DrutError, RequestError
from drut.kernels.ops import F32
from drut.model.model import open_model
from drut.model.store import Progress, resolve, show
from drut.model.template import ChatTemplate
from drut.model.tokenizer import TextStream, Tokenizer

Prompt = str | Sequence[int]
Messages = Sequence[Mapping[str, object]]


class LLM:
    """A loaded model. `model` is a known name, a `.gguf` file or a HF-style directory; settings as in EngineConfig.

    Use from one thread at a time. `close` (or leaving a `with` block) ends its threads.
    """

    def __init__(self, model: str | Path, *, progress: Progress = show, config: EngineConfig | None = None,
                 **settings: Any) -> None:
        self.config = config if config is not None else EngineConfig.resolve(settings)
        path = resolve(model, progress=progress)
        started = time.monotonic()
        self.files = open_model(path)
        self.files.check()
        self.tokenizer: Tokenizer | None = self.files.tokenizer()
        self.backend = choose_backend(self.config)
        eos = self.tokenizer.eos_ids if self.tokenizer else frozenset[int]()
        self.engine = build_engine(self.files, self.backend, self.config, eos)
        self.load_s = time.monotonic() - started

    def __enter__(self) -> LLM:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Ends the worker threads and unmaps the file."""
        self.backend.close()
        self.files.close()

    @cached_property
    def numerics_id(self) -> str:
        """Two runs with the same id give the same bits."""
        return numerics_id(self.files, self.backend, self.config.kv_dtype)

    @property
    def room(self) -> int:
        """Tokens that a prompt and its answer may have together."""
        return self.engine.room

    def generate(self, prompts: Prompt | Sequence[Prompt], params: SamplingParams | None = None) -> list[Completion]:
        """Answers each prompt, a text or a list of token ids; one prompt alone gives a list of one."""
        if isinstance(prompts, str) or (len(prompts) > 0 and isinstance(prompts[0], int)):
            prompts = [prompts]  # type: ignore[list-item]
        if len(prompts) == 0:
            raise RequestError("there is no prompt")
        params = params or SamplingParams()
        answers = [self._submit(self._encode(p), params) for p in prompts]
        try:
            while any(not a.done for a in answers):
                self._step({a.request: a for a in answers})
        finally:
            for a in answers:
                self.engine.abort(a.request)
        return [a.completion() for a in answers]

    def chat(self, messages: Messages, params: SamplingParams | None = None) -> Completion:
        """Answers a conversation: messages of `role` and `content`, through the model's chat template."""
        return self.generate([self.encode_chat(messages)], params)[0]

    def stream(self, prompt: Prompt | Messages,
               params: SamplingParams | None = None) -> Generator[Chunk, None, None]:
        """The answer to a prompt or a conversation, a piece a step: those before the first token are empty.

        Closing the generator aborts the request.
        """
        answer = self._submit(self._encode(prompt), params or SamplingParams())
        try:
            while not answer.done:
                self._step({answer.request: answer})
                if answer.done:
                    break
                yield Chunk(*answer.take())
            text, ids = answer.take()
            yield Chunk(text, ids, answer.completion())
        finally:
            self.engine.abort(answer.request)

    def encode_chat(self, messages: Messages) -> list[int]:
        """Token ids of a conversation up to where the answer starts."""
        tokenizer = self._tokenizer()
        return tokenizer.encode_chat(ChatTemplate.of(tokenizer).render(messages))

    def logits(self, token_ids: Sequence[int], chunk: int = 64) -> F32:
        """Raw logits of every position, float32 of shape (len(token_ids), vocab)."""
        return self.engine.logits(list(token_ids), chunk)

    def _tokenizer(self) -> Tokenizer:
        if self.tokenizer is None:
            raise RequestError(f"{self.files.path.name} has no tokenizer: give prompts as token ids")
        return self.tokenizer

    def _encode(self, prompt: Prompt | Messages) -> list[int]:
        if isinstance(prompt, str):
            return self._tokenizer().encode(prompt)
        if len(prompt) > 0 and isinstance(prompt[0], Mapping):
            return self.encode_chat(prompt)  # type: ignore[arg-type]
        return list(prompt)  # type: ignore[arg-type]

    def _submit(self, tokens: list[int], params: SamplingParams) -> _Answer:
        request = self.engine.submit(tokens, params)
        stream = TextStream(self.tokenizer, params.stop) if self.tokenizer else None
        if stream is None and params.stop:
            raise RequestError(f"stop: {self.files.path.name} has no tokenizer")
        return _Answer(request, stream, self.load_s)

    def _step(self, answers: Mapping[Request, _Answer]) -> None:
        new = self.engine.step()
        for request, token in new:
            answer = answers.get(request)
            if answer is not None and answer.push(token):
                self.engine.finish(request, "stop")
        for answer in answers.values():
            if answer.request.finish_reason == "error":
                raise DrutError("the model's logits are not finite; its weights are damaged or overflow")
            if answer.request.finish_reason is not None:
                answer.end()


class _Answer:
    """A request's text as it grows."""

    def __init__(self, request: Request, stream: TextStream | None, load_s: float) -> None:
        self.request, self._stream, self._load_s = request, stream, load_s
        self._text: list[str] = []
        self._taken = self._ids_taken = 0
        self.done = False

    def push(self, token: int) -> bool:
        """Adds a token; True where a stop string ended the text."""
        if self._stream is None:
            return False
        delta = self._stream.push((token,))
        self._text.append(delta.text)
        return delta.stopped

    def end(self) -> None:
        if not self.done:
            self.done = True
            if self._stream is not None:
                self._text.append(self._stream.flush().text)

    def take(self) -> tuple[str, list[int]]:
        """Text and ids since the last call."""
        text = "".join(self._text[self._taken :])
        ids = list(self.request.output[self._ids_taken :])
        self._taken, self._ids_taken = len(self._text), self._ids_taken + len(ids)
        return text, ids

    def completion(self) -> Completion:
        r = self.request
        ids = list(r.output)
        assert r.finish_reason is not None
        return Completion("".join(self._text), ids, r.finish_reason, r.prompt_tokens, 0, len(ids), r.seed, self._timings())

    def _timings(self) -> dict[str, float]:
        """Seconds from arrival to the first token, and the rate of the tokens after it."""
        r = self.request
        if r.first_token_at is None or r.finished_at is None:
            return {"load_s": self._load_s}
        ttft, more = r.first_token_at - r.arrived, len(r.output) - 1
        decode = r.finished_at - r.first_token_at
        return {
            "load_s": self._load_s,
            "ttft_s": ttft,
            "prefill_tokens_per_s": r.prompt_tokens / ttft if ttft > 0 else 0.0,
            "decode_tokens_per_s": more / decode if decode > 0 else 0.0,
        }
