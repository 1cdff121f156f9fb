"""Drives OpenVINO GenAI's continuous batching in one thread: takes requests and yields tokens as they are generated."""

from __future__ import annotations

import queue
import threading
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import openvino as ov
import openvino_genai as genai

TAIL, KEEP = 24, 6  # token ids decoded together, so that the cost of a piece of text does not grow with the response


class OpenVinoRequest:
    """A request in progress. Iteration yields lists of token ids until the response ends."""

    def __init__(self, ids: Sequence[int], config: Any) -> None:
        self.ids, self.config = ids, config
        self.cancelled = False
        self.arrived: queue.SimpleQueue[list[int] | Exception | None] = queue.SimpleQueue()

    def __iter__(self) -> Iterator[list[int]]:
        while (ids := self.arrived.get()) is not None:
            if isinstance(ids, Exception):
                raise ids
            yield ids


class OpenVinoEngine:
    """The pipeline on the CPU and the thread that steps it."""

    def __init__(self, model: str, threads: int, sequences: int, cache_gb: int, batch_tokens: int) -> None:
        scheduler = genai.SchedulerConfig()
        scheduler.cache_size, scheduler.max_num_seqs = cache_gb, sequences
        scheduler.max_num_batched_tokens = batch_tokens
        scheduler.enable_prefix_caching = True
        self._pipeline = genai.ContinuousBatchingPipeline(model, scheduler, "CPU", {"INFERENCE_NUM_THREADS": threads})
        self.tokenizer = self._pipeline.get_tokenizer()
        self._inbox: queue.Queue[OpenVinoRequest] = queue.Queue()
        self._active: list[tuple[OpenVinoRequest, Any]] = []
        self._count = 0
        threading.Thread(target=self._run, daemon=True).start()

    def ask(self, ids: Sequence[int], config: Any) -> OpenVinoRequest:
        asked = OpenVinoRequest(ids, config)
        self._inbox.put(asked)
        return asked

    def _run(self) -> None:
        while True:
            self._take()
            try:
                self._pipeline.step()
            except RuntimeError as error:
                for asked, _ in self._active:
                    asked.arrived.put(error)
                self._active.clear()
                continue
            self._active = [pair for pair in self._active if self._give(*pair)]

    def _take(self) -> None:
        """Takes all new requests; waits if there is no other work."""
        while not self._active or not self._inbox.empty():
            asked = self._inbox.get()
            self._count += 1
            try:
                tensor = ov.Tensor(np.array([asked.ids], np.int64))
                self._active.append((asked, self._pipeline.add_request(self._count, tensor, asked.config)))
            except RuntimeError as error:
                asked.arrived.put(error)

    def _give(self, asked: OpenVinoRequest, handle: Any) -> bool:
        """Passes new tokens on. Returns whether there will be more."""
        if asked.cancelled:
            handle.cancel()
            asked.arrived.put(None)
            return False
        while handle.can_read():
            for output in handle.read().values():
                asked.arrived.put(list(output.generated_ids))
        if handle.get_status() != genai.GenerationStatus.RUNNING:
            asked.arrived.put(None)
            return False
        return True


class OpenVinoText:
    """The text of a response, piece by piece; an incomplete character is held back."""

    def __init__(self, tokenizer: Any) -> None:
        self._tokenizer = tokenizer
        self._ids: list[int] = []
        self._shown = ""

    def add(self, ids: list[int], last: bool = False) -> str:
        self._ids += ids
        text = str(self._tokenizer.decode(self._ids))
        if not last and text.endswith("\ufffd"):
            return ""
        new, self._shown = text[len(self._shown):], text
        if len(self._ids) > TAIL:
            self._ids = self._ids[-KEEP:]
            self._shown = self._tokenizer.decode(self._ids)
        return new
