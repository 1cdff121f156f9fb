"""The Python surface: a model that answers."""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cached_property
from numbers import Integral
from pathlib import Path
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from drut.cache.pool import KvCorruptionError
from drut.config import EngineConfig
from drut.constrain.thought import Thought, ThoughtWatch
from drut.engine.answer import Answer, completions
from drut.engine.build import build_engine, choose_backend, numerics_id
from drut.engine.logits import LogitsReader
from drut.engine.output import AnswerError, Chunk, Completion
from drut.engine.params import SamplingParams
from drut.engine.request import Request
from drut.engine.turn import Turn
from drut.engine.update import Update
from drut.errors import DrutError, RequestError
from drut.kernels.ops import F32
from drut.model.model import open_model
from drut.model.store import Progress, resolve, show
from drut.model.templates import ChatTemplates
from drut.model.tokenizer import StopStrings, Tokenizer
from drut.observe.laps import Laps

Prompt = str | Sequence[int]
Messages = Sequence[Mapping[str, object]]
logger = logging.getLogger(__name__)


class LLM:
    """A loaded model. `model` is a known name, a `.gguf` file or a HF-style directory; settings as in EngineConfig.

    `decoded`: its weights are computed with as float32, whatever the file stores. It takes as much memory.
    Any number of threads may call it. They take turns at steps in the order in which they ask, and each step computes
    every open request, whichever thread reads it. `close` (or leaving a `with` block) waits for the step under way and
    ends the worker threads; calls and streams that are still open then raise a DrutError.
    """

    def __init__(self, model: str | Path, *, progress: Progress = show, config: EngineConfig | None = None,
                 decoded: bool = False, **settings: Any) -> None:
        self.config = config if config is not None else EngineConfig.resolve(settings)
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
        self._turn = Turn()  # who has it may use the engine
        self._open: dict[Request, Answer | LogitsReader] = {}  # of every call under way
        self._left: deque[Sequence[Answer | LogitsReader]] = deque()  # whose reader is gone, to be aborted
        self._over = ""  # why the engine can be used no more
        self._closed = False
        self.load_s, self.load_parts = laps.total_s, laps.parts

    def __enter__(self) -> LLM:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Ends the worker threads and unmaps the file. Does nothing the second time."""
        with self._turn:
            if self._closed:
                return
            self._closed, self._over = True, "the model was closed"
            self.engine.close()
            self.backend.close()
            self.files.close()

    @cached_property
    def numerics_id(self) -> str:
        """Two runs with the same id give the same bits."""
        return numerics_id(self.files, self.backend, self.config)

    @property
    def room(self) -> int:
        """Tokens that a prompt and its answer may have together."""
        return self.engine.room

    def generate(self, prompts: Prompt | Sequence[Prompt],
                 params: SamplingParams | Sequence[SamplingParams] | None = None, *,
                 priorities: Sequence[int] | None = None) -> list[Completion]:
        """Answers each prompt, a text or a list of token ids; one prompt alone gives a list of one.

        `params` for all, or one each. With `n` choices a prompt has n completions side by side. Where the model
        breaks down over some of them, the others are finished all the same, and AnswerError carries them.
        """
        prompts = _each_prompt(prompts)
        each = [params or SamplingParams()] * len(prompts) if not isinstance(params, Sequence) else list(params)
        ranks = list(priorities) if priorities is not None else [0] * len(prompts)
        if len(each) != len(prompts) or len(ranks) != len(prompts):
            raise RequestError(f"{len(prompts)} prompts need as many params and priorities")
        groups: list[list[Answer]] = []
        try:
            for prompt, p, rank in zip(prompts, each, ranks, strict=True):
                groups.append(self._begin(prompt, p, rank))
            answers = [a for group in groups for a in group]
            while not all(a.done for a in answers):
                with self._alone():
                    self._step(answers)
        finally:
            self._leave([a for group in groups for a in group])
        failed = [i for i, group in enumerate(groups, 1) if any(a.failed for a in group)]
        results = [c for group in groups for c in completions(group)]
        if failed:
            where = f"prompt {failed[0]} of {len(groups)}: " if len(groups) > 1 else ""
            reason = next(a.why_failed for a in groups[failed[0] - 1] if a.failed)
            raise AnswerError(where + str(reason), results)
        return results

    def chat(self, messages: Messages, params: SamplingParams | None = None, *,
             tools: Sequence[Mapping[str, object]] = ()) -> Completion:
        """Answers a conversation: messages of `role` and `content`, through the model's chat template.

        The text of a model that thinks or calls `tools` holds that too; drut.parse tells them apart.
        """
        return self.generate([self.encode_chat(messages, tools)], params)[0]

    def stream(self, prompt: Prompt | Messages, params: SamplingParams | None = None) -> Generator[Chunk, None, None]:
        """The answer to a prompt or a conversation, piece by piece: a chunk a step, empty while the prompt is computed.

        Several streams may be read in turns, or by a thread each. Closing the generator aborts the request.
        """
        answers = self._begin(prompt, params or SamplingParams())
        unread = list(answers)
        try:
            while unread:
                with self._alone():
                    self._step(unread)
                    chunks = [answer.take() for answer in unread]
                yield from chunks
                unread = [a for a in unread if not a.taken]
        finally:
            self._leave(answers)

    def encode_chat(self, messages: Messages, tools: Sequence[Mapping[str, object]] = ()) -> list[int]:
        """Token ids of a conversation up to where the answer starts; `tools` as in OpenAI's requests."""
        return self._tokenizer().encode_chat(self.templates.render(messages, tools))

    def expert_loads(self) -> dict[int, NDArray[np.int64]]:
        """By layer, how many rows each of its experts got since the model was loaded; empty for a dense model."""
        with self._alone():
            return self.engine.runner.executable.expert_loads()

    def logits(self, token_ids: Sequence[int], chunk: int = 64) -> F32:
        """Raw logits of every position, float32 of shape (len(token_ids), vocab), `chunk` rows in a step at most."""
        ids = list(token_ids)
        with self._alone():
            reader = LogitsReader(self.engine.submit_logits(ids, chunk))
            self._open[reader.request] = reader
        try:
            while reader.request.finish_reason is None:
                with self._alone():
                    self._spread(self._compute())
            return reader.result()
        finally:
            self._leave([reader])

    @cached_property
    def templates(self) -> ChatTemplates:
        """They turn conversations into prompts. UnsupportedError where the model has none."""
        return ChatTemplates.of(self._tokenizer())

    def _tokenizer(self) -> Tokenizer:
        if self.tokenizer is None:
            raise RequestError(f"{self.files.path.name} has no tokenizer: give prompts as token ids")
        return self.tokenizer

    def _encode(self, prompt: Prompt | Messages) -> list[int]:
        if isinstance(prompt, str):
            return self._tokenizer().encode(prompt)
        if not isinstance(prompt, Iterable):
            raise RequestError(f"a prompt is text, token ids or messages, not {type(prompt).__name__}")
        items: list[Any] = list(prompt)
        return self.encode_chat(items) if items and isinstance(items[0], Mapping) else items

    def submit(self, prompt: Prompt | Messages, params: SamplingParams, *, priority: int = 0, salt: str = "",
               request_id: str = "", lean: bool = False) -> list[Answer]:
        """Queues a prompt or a conversation for `engine.step`: one answer a choice. For one thread, which steps too."""
        return self._submit(self._encode(prompt), params, priority=priority, salt=salt, request_id=request_id,
                            lean=lean)

    def _submit(self, ids: list[int], params: SamplingParams, *, priority: int, salt: str = "",
                request_id: str = "", lean: bool = False) -> list[Answer]:
        if self.tokenizer is None and params.stop:
            raise RequestError(f"stop: {self.files.path.name} has no tokenizer")
        stops = StopStrings(params.stop)
        reasoning = self._watch(params.reasoning, params) if params.reasoning is not None else None
        requests = self.engine.submit(ids, params, priority=priority, salt=salt, request_id=request_id,
                                      reasoning=reasoning)
        return [Answer(request, self.tokenizer, stops, self.load_s, lean=lean) for request in requests]

    def _watch(self, reasoning: Thought, params: SamplingParams) -> ThoughtWatch:
        tokenizer = self._tokenizer()
        special = tokenizer.special_ids if params.skip_special_tokens else frozenset[int]()
        return ThoughtWatch.of(reasoning, tokenizer, special.difference(params.shown_special_ids),
                               again=params.constraint is None)

    def _begin(self, prompt: Prompt | Messages, params: SamplingParams, priority: int = 0) -> list[Answer]:
        if params.constraint is not None and self.engine.grammars is not None:
            self.engine.grammars.check(params.constraint)  # here, where no other thread waits for the engine
        ids = self._encode(prompt)
        with self._alone():
            answers = self._submit(ids, params, priority=priority)
            self._open.update((a.request, a) for a in answers)
        return answers

    @contextmanager
    def _alone(self) -> Iterator[None]:
        """The engine for this thread, between two steps of others. DrutError where it can be used no more."""
        try:
            with self._turn:
                if self._over:
                    raise DrutError(self._over)
                yield
        finally:
            self._sweep()

    def _step(self, answers: Iterable[Answer]) -> None:
        """One step, which may bring something to any open answer; those of `answers` whose request ended are ended."""
        if any(answer.request.finish_reason is None for answer in answers):  # else other threads' steps ended them
            self._spread(self._compute())
        for answer in answers:
            if answer.request.finish_reason is not None:
                answer.end()

    def _compute(self) -> list[Update]:
        """What a step brought. One that raises loses the requests that were in it, and no others."""
        try:
            return self.engine.step()
        except KvCorruptionError as error:
            self._over = f"the engine has ended: {error}"
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
            self._spread(updates)  # an interrupt ends this thread's call; other threads have what came before it
            raise

    def _spread(self, updates: Iterable[Update]) -> None:
        for update in updates:
            answer = self._open.get(update.request)
            if answer is not None and answer.push(update):
                self.engine.finish(update.request, "stop")

    def _leave(self, answers: Sequence[Answer | LogitsReader]) -> None:
        """Aborts what is left of `answers`, at the latest when the thread that has the engine is done with it.

        It never waits: the garbage collector may close a stream in the midst of a step.
        """
        self._left.append(answers)
        self._sweep()

    def _sweep(self) -> None:
        while self._left and self._turn.try_enter():
            try:
                while self._left and not self._over:
                    for answer in self._left[0]:
                        self._open.pop(answer.request, None)
                        self.engine.abort(answer.request)
                    self._left.popleft()
                if self._over:
                    self._left.clear()
                elif not self._open:
                    self.engine.drain()
            finally:
                self._turn.leave()


def _each_prompt(prompts: Prompt | Sequence[Prompt]) -> Sequence[Prompt]:
    """One prompt, a text or a list of ids, becomes a list of one."""
    if len(prompts) == 0 and not isinstance(prompts, str):
        raise RequestError("there is no prompt")
    if isinstance(prompts, str) or isinstance(prompts[0], Integral):
        return [cast(Prompt, prompts)]
    return cast(Sequence[Prompt], prompts)
