"""The grammar compiler: compiles constraints for one vocabulary, on its own thread, with a cache of bounded bytes."""

from __future__ import annotations

import threading
import time
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TYPE_CHECKING

from drut.constrain.compiling import Compiling
from drut.constrain.constraint import Constraint
from drut.constrain.grammar_matcher import GrammarMatcher
from drut.constrain.kept import ConstraintCache
from drut.constrain.reasoning import ReasoningTracker
from drut.model.tokenizer import Tokenizer

if TYPE_CHECKING:
    from llguidance import LLMatcher, LLTokenizer

NO_TEXT = "this model has no tokenizer, so there is no text to constrain"
STACK_BYTES = 128 << 20  # address space, not memory; a nested schema takes 5 to 10 KB of it, a rule 3 KB


class GrammarCompiler:
    """The grammar compiler. Threads: safe to use from several threads. It reads the vocabulary with the first
    constraint.

    A compilation that exceeds its timeout keeps the thread until it ends: the library cannot cancel it. A further
    thread would not help, since CPU time and memory of the abandoned one have no bound. So `limits.py`, `ways.py` and
    `schema/` refuse beforehand what the library would not finish.
    """

    def __init__(self, tokenizer: Tokenizer, vocab: int, eos_ids: frozenset[int], *, cache_bytes: int,
                 seconds: float) -> None:
        """`seconds`: timeout of a compilation, from its request on; the first one includes reading the vocabulary."""
        self._source = tokenizer, vocab, eos_ids
        self._seconds = seconds
        self._tokenizer: LLTokenizer | None = None
        self._thread = _roomy_thread("drut-grammar")
        self._lock = threading.Lock()
        # Matchers that use a removed grammar stay valid.
        self._kept: ConstraintCache[Future[LLMatcher]] = ConstraintCache(cache_bytes)
        self.compiled = 0

    @property
    def bytes(self) -> int:
        """The estimated bytes of the cached grammars."""
        return self._kept.bytes

    def compile(self, constraint: Constraint) -> Compiling:
        """Returns the compilation of the constraint from the cache, or starts it."""
        with self._lock:
            future = self._kept.get(constraint)
            if future is None:
                future = self._thread.submit(self.build, constraint)
                self._kept.put(constraint, future)
        return Compiling(future, time.monotonic() + self._seconds, self._seconds)

    def guide(self, constraint: Constraint, reasoning: ReasoningTracker | None = None, *,
              ignore_eos: bool = False) -> GrammarMatcher:
        """Returns the matcher of one output, whose `reasoning` comes before the constrained answer."""
        _, vocab, eos_ids = self._source
        return GrammarMatcher(self.compile(constraint), reasoning, eos_ids, vocab, ignore_eos=ignore_eos)

    def check(self, constraint: Constraint) -> None:
        """Raises RequestError if the constraint does not compile."""
        self.compile(constraint).result()

    def close(self) -> None:
        self._thread.shutdown(cancel_futures=True)

    def build(self, constraint: Constraint) -> LLMatcher:
        """Compiles the constraint on the calling thread, without the cache. Raises RequestError with the library's
        reason."""
        from drut.constrain import building, vocabulary  # imports the library only if a constraint is used

        if self._tokenizer is None:
            self._tokenizer = vocabulary.read(*self._source)
        self.compiled += 1
        return building.build(self._tokenizer, constraint)


def _roomy_thread(name: str) -> ThreadPoolExecutor:
    """Returns an executor of one thread with a large stack. Hazard: the library recurses, and a stack overflow would
    end the process."""
    before = threading.stack_size(STACK_BYTES)
    try:
        thread = ThreadPoolExecutor(1, name)
        thread.submit(int).result()
    finally:
        threading.stack_size(before)
    return thread
