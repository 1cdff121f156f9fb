"""The Python interface: loads a model, and generates, streams and chats."""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import Any, Unpack

import numpy as np
from numpy.typing import NDArray

from drut.cache.pool import KvCorruptionError
from drut.config import EngineConfig, EngineSettings
from drut.constrain.reasoning import ReasoningSpec, ReasoningTracker
from drut.engine.build import build_engine, choose_backend, numerics_id
from drut.engine.output_processor import OutputProcessor, completions
from drut.engine.request.arguments import (
    Messages,
    Prompt,
    checked_tools,
    each_conversation,
    each_params,
    each_prompt,
)
from drut.engine.request.bar import bar_of
from drut.engine.request.output import AnswerError, Chunk, Completion
from drut.engine.request.params import MAX_TOKENS, SamplingParams, checked_params
from drut.engine.request.request import Request
from drut.engine.request.update import Update
from drut.engine.step.logits import LogitsReader
from drut.engine.step.turn import CallTurn
from drut.errors import DrutError, RequestError
from drut.foreign import names_checked
from drut.kernels.ops import F32
from drut.model.content import with_text
from drut.model.model import open_model
from drut.model.special_tokens import SpecialTokenEscaper, SpecialTokens
from drut.model.store import DownloadProgress, resolve, show
from drut.model.template.templates import ChatTemplates
from drut.model.tokenizer import StopStrings, Tokenizer
from drut.observe.laps import Laps

logger = logging.getLogger(__name__)


class LLM:
    """A loaded model. `model` is a known name, a `.gguf` file or a HF-style directory; `settings` are the fields of
    EngineConfig, or `config` has them all.

    `progress`: of a download. `decoded`: decodes all weights to float32, which takes the memory of float32 weights.
    Any number of threads may call it. They run steps in turns, in the order of their calls, and each step computes the
    open requests of all threads. `close` (or leaving a `with` block) waits for the running step and ends the worker
    threads; calls and streams that are still open then raise a DrutError.
    """

    @names_checked
    def __init__(self, model: str | Path, *, progress: DownloadProgress = show, config: EngineConfig | None = None,
                 decoded: bool = False, **settings: Unpack[EngineSettings]) -> None:
        self.config = EngineConfig.chosen(config, settings)
        path = resolve(model, progress=progress)
        laps = Laps()
        self.files = open_model(path).decoded() if decoded else open_model(path)
        self.files.check()
        laps.lap("headers")
        self.tokenizer: Tokenizer | None = self.files.tokenizer()
        laps.lap("tokenizer")
        self.backend = choose_backend(self.config)
        laps.lap("threads")
        try:
            self.engine = build_engine(self.files, self.backend, self.config, self.tokenizer, laps)
        except MemoryError as error:
            raise DrutError(f"{error}: set kv_cache_gb, max_batch_tokens or max_seqs lower") from None
        self._turn = CallTurn()  # a thread holds it while it uses the engine
        self._open: dict[Request, OutputProcessor | LogitsReader] = {}  # requests of all open calls
        self._abandoned: deque[Sequence[OutputProcessor | LogitsReader]] = deque()  # to be aborted
        self._end_reason = ""  # why the engine can no longer be used
        self._closed = False
        self.load_s, self.load_parts = laps.total_s, laps.parts

    def __enter__(self) -> LLM:
        with self._exclusive():
            return self

    def __repr__(self) -> str:
        state = "closed" if self._closed else self.backend.describe()
        return f"LLM({self.files.path.name!r}, {state})"

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Ends the worker threads and unmaps the file. Does nothing the second time."""
        with self._turn:
            if self._closed:
                return
            self._closed, self._end_reason = True, "the model was closed"
            self.engine.close()
            self.backend.close()
            self.files.close()

    @cached_property
    def numerics_id(self) -> str:
        """An id of everything that determines the bits: two runs with the same id give the same bits."""
        return numerics_id(self.files, self.backend, self.config)

    @property
    def room(self) -> int:
        """The maximum number of tokens of a prompt and its output together."""
        return self.engine.room

    @names_checked
    def generate(self, prompts: Prompt | Sequence[Prompt],
                 params: SamplingParams | Sequence[SamplingParams] | None = None, *,
                 priorities: Sequence[int] | None = None, progress: bool | None = None) -> list[Completion]:
        """Generates completions for each prompt, a text or a list of token ids. One prompt alone returns a list of one.

        `params`: one for all, or one for each prompt. With `n` choices a prompt has n completions in a row. If some
        requests fail, the others are finished first; then AnswerError is raised and has all completions. `progress`:
        whether a terminal or a notebook shows a bar; None: if there are several prompts.
        """
        given = each_prompt(prompts)
        return self._complete(given, each_params(params, len(given)), priorities, progress)

    @names_checked
    def chat(self, messages: Messages | Sequence[Messages],
             params: SamplingParams | Sequence[SamplingParams] | None = None, *,
             tools: Sequence[Mapping[str, object]] = (), progress: bool | None = None) -> list[Completion]:
        """Generates the next message of each conversation: messages of `role` and `content`, rendered by the chat
        template. One conversation alone returns a list of one, or of `n` choices; the rest is as for `generate`.

        The text includes reasoning and calls of `tools`; drut.parse separates them.
        """
        given = each_conversation(messages)
        params = [p if p.max_tokens is not None else replace(p, max_tokens=MAX_TOKENS)
                  for p in each_params(params, len(given))]
        return self._complete([self.encode_chat(m, tools) for m in given], params, None, progress)

    def _complete(self, prompts: Sequence[Prompt], each: Sequence[SamplingParams], priorities: Sequence[int] | None,
                  progress: bool | None) -> list[Completion]:
        """Returns the completions of all prompts, with parameters for each."""
        ranks = list(priorities) if priorities is not None else [0] * len(prompts)
        if len(ranks) != len(prompts):
            raise RequestError(f"priorities has {len(ranks)} entries for {len(prompts)} prompts")
        groups: list[list[OutputProcessor]] = []
        try:
            for prompt, p, rank in zip(prompts, each, ranks, strict=True):
                groups.append(self._begin(prompt, p, rank))
            answers = [a for group in groups for a in group]
            with bar_of(groups, progress) as report:
                while not all(a.done for a in answers):
                    with self._exclusive():
                        self._step(answers)
                    report()
        finally:
            self._abandon([a for group in groups for a in group])
        failed = [i for i, group in enumerate(groups, 1) if any(a.failed for a in group)]
        results = [c for group in groups for c in completions(group)]
        if failed:
            where = f"prompt {failed[0]} of {len(groups)}: " if len(groups) > 1 else ""
            reason = next(a.why_failed for a in groups[failed[0] - 1] if a.failed)
            raise AnswerError(where + str(reason), results)
        return results

    @names_checked
    def stream(self, prompt: Prompt | Messages, params: SamplingParams | None = None) -> Generator[Chunk, None, None]:
        """Yields the output for a prompt or a conversation, one chunk per step; chunks are empty during prefill.

        Several streams may be read in turns, or by one thread each. Closing the generator aborts the request.
        """
        answers = self._begin(prompt, checked_params(params))
        unread = list(answers)
        try:
            while unread:
                with self._exclusive():
                    self._step(unread)
                    chunks = [answer.take() for answer in unread]
                yield from chunks
                unread = [a for a in unread if not a.taken]
        finally:
            self._abandon(answers)

    def encode_chat(self, messages: Messages, tools: Sequence[Mapping[str, object]] = (), *,
                    special_tokens: SpecialTokens = "text") -> list[int]:
        """Returns the token ids of a conversation, up to the start of the answer; `tools` as in OpenAI's requests.
        Text of messages that spells a special token stays text, or becomes the token with "parse"."""
        messages, tools = with_text(messages), checked_tools(tools)
        if special_tokens == "parse":
            return self._tokenizer().encode_chat(self.templates.render(messages, tools))
        escape = self._escaper.begin(messages, tools)
        return escape.encode(self.templates.offering(tools).render(messages, tools=tools, hide=escape.hide))

    def expert_loads(self) -> dict[int, NDArray[np.int64]]:
        """Returns by layer the number of rows of each expert since the model was loaded; empty for a dense model."""
        with self._exclusive():
            return self.engine.runner.executable.expert_loads()

    def logits(self, token_ids: Sequence[int], chunk: int = 64) -> F32:
        """Returns the raw logits of every position, float32 (len(token_ids), vocab); at most `chunk` rows per step."""
        ids = list(token_ids)
        with self._exclusive():
            reader = LogitsReader(self.engine.submit_logits(ids, chunk))
            self._open[reader.request] = reader
        try:
            while reader.request.finish_reason is None:
                with self._exclusive():
                    self._distribute(self._compute())
            return reader.result()
        finally:
            self._abandon([reader])

    @cached_property
    def templates(self) -> ChatTemplates:
        """The chat templates of the model. Raises UnsupportedError if it has none."""
        return ChatTemplates.of(self._tokenizer())

    @cached_property
    def _escaper(self) -> SpecialTokenEscaper:
        return SpecialTokenEscaper(self._tokenizer(), self.templates)

    def _tokenizer(self) -> Tokenizer:
        if self.tokenizer is None:
            raise RequestError(f"{self.files.path.name} has no tokenizer: give prompts as token ids")
        return self.tokenizer

    def _encoded(self, prompt: Prompt | Messages, params: SamplingParams) -> tuple[list[int], SamplingParams]:
        """Returns token ids; and parameters whose `max_tokens` is set, unless the prompt is a conversation."""
        if isinstance(prompt, str):
            return self._tokenizer().encode(prompt), params.for_text()
        if isinstance(prompt, bytes | Mapping) or not isinstance(prompt, Iterable):
            raise RequestError(f"a prompt is text, token ids or messages, not {type(prompt).__name__}")
        items: list[Any] = list(prompt)
        if items and isinstance(items[0], Mapping):
            return self.encode_chat(items), params
        return items, params.for_text()

    def submit(self, prompt: Prompt | Messages, params: SamplingParams, *, priority: int = 0, salt: str = "",
               request_id: str = "", lean: bool = False) -> list[OutputProcessor]:
        """Queues a prompt or a conversation for `engine.step`. Returns one output processor per choice.

        Only for a thread that alone uses the engine and runs its steps itself.
        """
        if self._end_reason:
            raise DrutError(self._end_reason)
        ids, params = self._encoded(prompt, params)
        return self._submit(ids, params, priority=priority, salt=salt, request_id=request_id,
                            lean=lean)

    def _submit(self, ids: list[int], params: SamplingParams, *, priority: int, salt: str = "",
                request_id: str = "", lean: bool = False) -> list[OutputProcessor]:
        if self.tokenizer is None and params.stop:
            raise RequestError(f"stop: {self.files.path.name} has no tokenizer")
        stops = StopStrings(params.stop)
        reasoning = self._track(params.reasoning, params) if params.reasoning is not None else None
        requests = self.engine.submit(ids, params, priority=priority, salt=salt, request_id=request_id,
                                      reasoning=reasoning)
        return [OutputProcessor(request, self.tokenizer, stops, self.load_s, lean=lean) for request in requests]

    def _track(self, reasoning: ReasoningSpec, params: SamplingParams) -> ReasoningTracker:
        tokenizer = self._tokenizer()
        special = tokenizer.special_ids if params.skip_special_tokens else frozenset[int]()
        return ReasoningTracker.of(reasoning, tokenizer, special.difference(params.shown_special_ids),
                                   again=params.constraint is None)

    def _begin(self, prompt: Prompt | Messages, params: SamplingParams, priority: int = 0) -> list[OutputProcessor]:
        if params.constraint is not None and self.engine.grammars is not None:
            self.engine.grammars.check(params.constraint)  # here, so that other threads need not wait for the engine
        ids, params = self._encoded(prompt, params)
        with self._exclusive():
            answers = self._submit(ids, params, priority=priority)
            self._open.update((a.request, a) for a in answers)
        return answers

    @contextmanager
    def _exclusive(self) -> Iterator[None]:
        """Gives this thread exclusive use of the engine, between two steps. Raises DrutError if the engine has
        ended."""
        try:
            with self._turn:
                if self._end_reason:
                    raise DrutError(self._end_reason)
                yield
        finally:
            self._abort_abandoned()

    def _step(self, answers: Iterable[OutputProcessor]) -> None:
        """Runs one step, which updates the open answers of all threads; then ends those of `answers` that are
        finished."""
        if any(answer.request.finish_reason is None for answer in answers):  # else other threads have ended them
            self._distribute(self._compute())
        for answer in answers:
            if answer.request.finish_reason is not None:
                answer.end()

    def _compute(self) -> list[Update]:
        """Runs a step and returns its updates. If it raises, the requests that were in it fail, and no others."""
        try:
            return self.engine.step()
        except KvCorruptionError as error:
            self._end_reason = f"the engine has ended: {error}"
            for request in self._open:
                self.engine.abort(request)
            raise
        except BaseException as error:
            updates, lost = self.engine.recover()
            for request in lost:
                request.failure = DrutError(f"the step that computed it failed: {type(error).__name__}: {error}")
            if lost and isinstance(error, Exception):
                logger.exception("a step failed")
                return updates
            self._distribute(updates)  # an interrupt ends this thread's call only; other threads need the updates
            raise

    def _distribute(self, updates: Iterable[Update]) -> None:
        for update in updates:
            answer = self._open.get(update.request)
            if answer is not None and answer.push(update):
                self.engine.finish(update.request, "stop")

    def _abandon(self, answers: Sequence[OutputProcessor | LogitsReader]) -> None:
        """Aborts `answers`: now if the engine is free, else when the thread that has the engine releases it.

        Never waits: the garbage collector may close a stream in the middle of a step, on any thread.
        """
        self._abandoned.append(answers)
        self._abort_abandoned()

    def _abort_abandoned(self) -> None:
        while self._abandoned and self._turn.try_enter():
            try:
                while self._abandoned and not self._end_reason:
                    for answer in self._abandoned[0]:
                        self._open.pop(answer.request, None)
                        self.engine.abort(answer.request)
                    self._abandoned.popleft()
                if self._end_reason:
                    self._abandoned.clear()
                elif not self._open:
                    self.engine.drain()
            finally:
                self._turn.leave()
