"""Profiles an engine: runs real steps, times each operation, and makes a step ledger for each shape of step."""

from __future__ import annotations

import time
from collections.abc import Sequence

import numpy as np

from drut.engine.llm import LLM
from drut.engine.request.params import SamplingParams
from drut.errors import RequestError, UnsupportedError
from drut.kernels.cost import StepShape
from drut.kernels.native.executable import NativeExecutable
from drut.observe.ledger import LedgerEntry, Peaks, StepLedger, account
from drut.speculate import DraftInput, VerifiedDrafts


class FillingDrafter:
    """Proposes as many drafts as can be verified, whatever they are."""

    def propose(self, inputs: Sequence[DraftInput]) -> list[list[int]]:
        return [[0] * given.max_drafts for given in inputs]

    def commit(self, verified: Sequence[VerifiedDrafts]) -> None:
        """Has no state."""

    def method(self, sequence: int) -> str:
        return "filling"

    def forget(self, sequence: int) -> None:
        """Has no state."""


class Profiler:
    """Times the operations of an LLM's steps. Needs the native backend in replay without overlap, and exclusive use of
    the
    LLM."""

    def __init__(self, llm: LLM, peaks: Peaks) -> None:
        executable = llm.engine.runner.executable
        if not isinstance(executable, NativeExecutable) or llm.config.execution != "replay" or llm.config.overlap:
            raise UnsupportedError("profiling needs the native backend in replay, without overlap")
        self._llm, self._peaks, self._executable = llm, peaks, executable

    def prefill(self, tokens: int, rounds: int = 3) -> StepLedger:
        """Profiles the prefill of a prompt of `tokens`, which must fit one step. Returns the median of the rounds."""
        return self._median([self._steps(1, tokens, 1, seed)[0] for seed in range(rounds)])

    def decode(self, batch: int, tokens: int = 32, prompt: int = 32) -> StepLedger:
        """Profiles the decode of `batch` sequences. Returns the median of `tokens` steps. Raises RequestError if the
        batch
        does not fit."""
        cache = self._llm.engine.cache
        for group, pool in zip(cache.groups, cache.pools, strict=True):
            needed, pages = batch * group.max_pages(prompt + tokens + 1), pool.total
            if needed > pages:
                raise RequestError(f"a batch of {batch} needs {needed} pages, the KV cache has {pages}: "
                                   "set kv_cache_gb")
        if batch > self._llm.config.max_seqs:
            raise RequestError(f"a batch of {batch} is larger than max_seqs, {self._llm.config.max_seqs}")
        steps = [s for s in self._steps(batch, prompt, tokens + 1, batch) if s.rows == batch]
        return self._median(steps[1:] or steps)

    def verify(self, rows: int, tokens: int = 16, prompt: int = 32) -> StepLedger:
        """Profiles the verification of `rows` - 1 drafts of one sequence. Returns the median of `tokens` steps."""
        speculation = self._llm.engine.speculation
        before = speculation.use(FillingDrafter(), rows - 1)
        try:
            steps = [s for s in self._steps(1, prompt, tokens * rows, rows) if s.rows == rows]
        finally:
            speculation.use(*before)
        return self._median(steps[1:] or steps)

    @staticmethod
    def _median(ledgers: Sequence[StepLedger]) -> StepLedger:
        return sorted(ledgers, key=lambda ledger: ledger.wall_s)[(len(ledgers) - 1) // 2]

    def _steps(self, batch: int, prompt: int, tokens: int, seed: int) -> list[StepLedger]:
        """Returns the ledgers of all steps of `batch` random prompts."""
        llm, rng = self._llm, np.random.default_rng([seed, prompt])
        params = SamplingParams(max_tokens=tokens, temperature=0.0, ignore_eos=True)
        answers = [llm.submit(rng.integers(0, llm.files.spec.vocab, prompt).tolist(), params) for _ in range(batch)]
        ledgers = []
        self._executable.time_operations(True)
        try:
            while llm.engine.busy:
                llm.engine.step()
                ledgers.append(self._ledger())
        finally:
            self._executable.time_operations(False)
            for group in answers:
                for answer in group:
                    llm.engine.abort(answer.request)
        return ledgers

    def _ledger(self) -> StepLedger:
        runner = self._llm.engine.runner
        shape: StepShape = runner.last_shape
        ops, times = self._executable.plan.ops, self._executable.op_ns.tolist()
        entries = [LedgerEntry(type(op).__name__, getattr(op, "layer", 0), *op.cost(shape), ns / 1e9)
                   for op, ns in zip(ops, times, strict=True)]
        return account(shape.rows, entries, runner.last_seconds, self._peaks)


def warm_up(llm: LLM, seconds: float = 0.3) -> None:
    """Runs short requests for `seconds`, until CPU clocks and caches are in a steady state."""
    end = time.perf_counter() + seconds
    while time.perf_counter() < end:
        llm.generate([[1] * 16], SamplingParams(max_tokens=8, temperature=0.0, ignore_eos=True))
