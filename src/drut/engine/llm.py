"""The Python surface: a model that answers."""

from __future__ import annotations

import time
from collections.abc import Generator, Iterable, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any, cast

from drut.config import EngineConfig
from drut.engine.answer import Answer, completions
from drut.engine.build import build_engine, choose_backend, numerics_id
from drut.engine.output import Chunk, Completion
from drut.engine.params import SamplingParams
from drut.engine.request import Request
from drut.errors import RequestError
from drut.kernels.ops import F32
from drut.model.model import open_model
from drut.model.store import Progress, resolve, show
from drut.model.template import ChatTemplate
from drut.model.tokenizer import Tokenizer

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
        self.engine.close()
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

    def generate(self, prompts: Prompt | Sequence[Prompt],
                 params: SamplingParams | Sequence[SamplingParams] | None = None, *,
                 priorities: Sequence[int] | None = None) -> list[Completion]:
        """Answers each prompt, a text or a list of token ids; one prompt alone gives a list of one.

        `params` for all, or one each. With `n` choices a prompt has n completions side by side.
        """
        prompts = _each_prompt(prompts)
        each = [params or SamplingParams()] * len(prompts) if not isinstance(params, Sequence) else list(params)
        ranks = list(priorities) if priorities is not None else [0] * len(prompts)
        if len(each) != len(prompts) or len(ranks) != len(prompts):
            raise RequestError(f"{len(prompts)} prompts need as many params and priorities")
        groups: list[list[Answer]] = []
        try:
            for prompt, p, rank in zip(prompts, each, ranks, strict=True):
                groups.append(self.submit(prompt, p, priority=rank))
            answers = {a.request: a for group in groups for a in group}
            while not all(a.done for a in answers.values()):
                self._step(answers)
        finally:
            self._abort(a.request for group in groups for a in group)
        return [c for group in groups for c in completions(group)]

    def chat(self, messages: Messages, params: SamplingParams | None = None) -> Completion:
        """Answers a conversation: messages of `role` and `content`, through the model's chat template."""
        return self.generate([self.encode_chat(messages)], params)[0]

    def stream(self, prompt: Prompt | Messages, params: SamplingParams | None = None) -> Generator[Chunk, None, None]:
        """The answer to a prompt or a conversation, piece by piece: a chunk a step, empty while the prompt is computed.

        Closing the generator aborts the request.
        """
        answers = {a.request: a for a in self.submit(prompt, params or SamplingParams())}
        try:
            while answers:
                self._step(answers)
                for request, answer in list(answers.items()):
                    if answer.done:
                        del answers[request]
                    yield answer.take()
        finally:
            self._abort(answers)

    def encode_chat(self, messages: Messages) -> list[int]:
        """Token ids of a conversation up to where the answer starts."""
        return self._tokenizer().encode_chat(self._template.render(messages))

    def logits(self, token_ids: Sequence[int], chunk: int = 64) -> F32:
        """Raw logits of every position, float32 of shape (len(token_ids), vocab)."""
        return self.engine.logits(list(token_ids), chunk)

    @cached_property
    def _template(self) -> ChatTemplate:
        return ChatTemplate.of(self._tokenizer())

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

    def submit(self, prompt: Prompt | Messages, params: SamplingParams, *, priority: int = 0, salt: str = "",
               request_id: str = "") -> list[Answer]:
        """Queues a prompt or a conversation for `engine.step`: one answer a choice."""
        if self.tokenizer is None and params.stop:
            raise RequestError(f"stop: {self.files.path.name} has no tokenizer")
        requests = self.engine.submit(self._encode(prompt), params, priority=priority, salt=salt, request_id=request_id)
        return [Answer(request, self.tokenizer, self.load_s) for request in requests]

    def _step(self, answers: Mapping[Request, Answer]) -> None:
        for update in self.engine.step():
            answer = answers.get(update.request)
            if answer is not None and answer.push(update):
                self.engine.finish(update.request, "stop")
        for answer in answers.values():
            if answer.request.finish_reason is not None:
                answer.end()

    def _abort(self, requests: Iterable[Request]) -> None:
        for request in requests:
            self.engine.abort(request)
        self.engine.drain()


def _each_prompt(prompts: Prompt | Sequence[Prompt]) -> Sequence[Prompt]:
    """One prompt, a text or a list of ids, becomes a list of one."""
    if len(prompts) == 0 and not isinstance(prompts, str):
        raise RequestError("there is no prompt")
    if isinstance(prompts, str) or isinstance(prompts[0], int):
        return [cast(Prompt, prompts)]
    return cast(Sequence[Prompt], prompts)
