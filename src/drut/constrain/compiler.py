"""Compiles constraints for one vocabulary, on a thread of its own, and keeps what it made within a budget of bytes."""

from __future__ import annotations

import threading
import time
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TYPE_CHECKING

from drut.constrain.compiling import Compiling
from drut.constrain.constraint import Constraint
from drut.constrain.guide import Guide
from drut.constrain.kept import Kept
from drut.constrain.thought import ThoughtWatch
from drut.model.tokenizer import Tokenizer

if TYPE_CHECKING:
    from llguidance import LLMatcher, LLTokenizer

NO_TEXT = "this model has no tokenizer, so there is no text to constrain"
STACK_BYTES = 128 << 20  # room, not memory; a schema within another takes 5 to 10 KB of it, a rule 3


class Grammars:
    """Safe to use from several threads. The vocabulary is read when the first constraint comes."""

    def __init__(self, tokenizer: Tokenizer, vocab: int, eos_ids: frozenset[int], *, cache_bytes: int,
                 seconds: float) -> None:
        """`seconds`: from asking for a grammar to having it; the first one reads the vocabulary too."""
        self._source = tokenizer, vocab, eos_ids
        self._seconds = seconds
        self._tokenizer: LLTokenizer | None = None
        self._thread = _roomy_thread("drut-grammar")
        self._lock = threading.Lock()
        self._kept: Kept[Future[LLMatcher]] = Kept(cache_bytes)  # what already uses a dropped one is not affected
        self.compiled = 0

    @property
    def bytes(self) -> int:
        """Charged for what is kept."""
        return self._kept.bytes

    def compile(self, constraint: Constraint) -> Compiling:
        """Starts it, or finds it made or on its way."""
        with self._lock:
            future = self._kept.get(constraint)
            if future is None:
                future = self._thread.submit(self.build, constraint)
                self._kept.put(constraint, future)
        return Compiling(future, time.monotonic() + self._seconds, self._seconds)

    def guide(self, constraint: Constraint, thought: ThoughtWatch | None = None, *, ignore_eos: bool = False) -> Guide:
        """For one sequence, of which `thought` comes before what is constrained."""
        _, vocab, eos_ids = self._source
        return Guide(self.compile(constraint), thought, eos_ids, vocab, ignore_eos=ignore_eos)

    def check(self, constraint: Constraint) -> None:
        """RequestError where the constraint does not compile."""
        self.compile(constraint).result()

    def close(self) -> None:
        self._thread.shutdown(cancel_futures=True)

    def build(self, constraint: Constraint) -> LLMatcher:
        """Compiles it on the calling thread, known or not. RequestError with the library's reason."""
        from drut.constrain import building, vocabulary  # the library: no part of a start without constraints

        if self._tokenizer is None:
            self._tokenizer = vocabulary.read(*self._source)
        self.compiled += 1
        return building.build(self._tokenizer, constraint)


def _roomy_thread(name: str) -> ThreadPoolExecutor:
    """One thread, started with a stack of its own size: the library recurses, and an overflow ends the process."""
    before = threading.stack_size(STACK_BYTES)
    try:
        thread = ThreadPoolExecutor(1, name)
        thread.submit(int).result()
    finally:
        threading.stack_size(before)
    return thread
