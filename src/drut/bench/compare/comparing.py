"""Runs a comparison from the first start to the last turn."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgspec

from drut.bench.compare.block import BlockWork, take
from drut.bench.compare.candidate import Candidate
from drut.bench.compare.cells import parse_cells, seed_of
from drut.bench.compare.entries import parse_entries
from drut.bench.compare.files import save, write
from drut.bench.compare.gate.agreement import Reference, read_reference
from drut.bench.compare.gate.ask import Asker
from drut.bench.compare.gate.exam import Paper, examine, judge
from drut.bench.compare.models import model_files
from drut.bench.compare.notes import notes
from drut.bench.compare.order import OrderTurn, turns
from drut.bench.compare.schema import SCHEMA, Block, Cell, Comparison
from drut.bench.compare.settings import CompareSettings
from drut.bench.compare.verdicts import rankings, ratios
from drut.bench.cost import parse_price
from drut.bench.engines.engine import CannotRunError, EngineFailedError, EngineFiles, Options
from drut.bench.engines.registry import find
from drut.bench.metrics.request import Slo
from drut.bench.result.build import environment
from drut.bench.tokens import BenchTokenizer, open_tokenizer
from drut.bench.workloads import load
from drut.errors import DrutError, RequestError
from drut.machine import usable_cpus

Report = Callable[[str], None]
TURN_S = 2.0  # seconds of a turn in addition to its load: client processes start, the last requests end
TEMPLATE = 64  # tokens that a chat template may add


@dataclass
class Comparing:
    """A comparison and its results so far. `run` continues it; however it ends, `comparison` returns the results, and
    no engine keeps running."""

    settings: CompareSettings
    folder: Path
    files: EngineFiles
    candidates: list[Candidate]
    works: list[BlockWork]
    tokenizer: BenchTokenizer | None
    reference: Reference | None
    before: Comparison | None = None
    blocks: list[Block] = field(default_factory=list)
    started_at: float = field(default_factory=time.time)

    @classmethod
    def of(cls, settings: CompareSettings, folder: Path, before: Comparison | None = None) -> Comparing:
        """Creates it. `before`: an unfinished comparison in the same folder, which is continued. Raises RequestError
        for invalid settings, before anything is started."""
        entries, cells, files = parse_entries(settings.engines), parse_cells(settings.cells), model_files(settings)
        if settings.base is not None and settings.base not in {entry.name for entry in entries}:
            raise RequestError(f"base: {settings.base!r} is not a contestant")
        if settings.slo is not None:
            Slo.parse(settings.slo)
        if settings.price is not None:
            parse_price(settings.price)
        reference = None if settings.reference is None else read_reference(Path(settings.reference).expanduser())
        tokenizer = _tokenizer(files)
        threads = settings.threads or len(usable_cpus())
        candidates = [Candidate(entry, find(entry.engine), files,
                                Options(threads, settings.context, settings.sequences, entry.flags),
                                folder / "logs" / f"{entry.name}.log") for entry in entries]
        comparing = cls(settings, folder, files, candidates, [_work(cell, settings, tokenizer) for cell in cells],
                        tokenizer, reference, before, list(before.blocks) if before else [])
        comparing._check_reference()
        comparing._check_machine()
        return comparing

    @property
    def paper(self) -> Paper:
        s = self.settings
        return Paper(
            full=s.gate == "full", prompts=s.gate_prompts, tokens=s.gate_tokens, texts=s.gate_texts, sums=s.gate_sums,
            sum_tokens=s.gate_sum_tokens, together=min(s.sequences, 8), least_agreement=s.gate_agreement,
            most_increase=s.gate_perplexity, most_divergence=s.gate_divergence, most_sums_lost=s.gate_sums_lost,
            least_valid=s.gate_valid, least_exact=s.gate_exact)

    def missing(self) -> list[OrderTurn]:
        """Returns the turns that were not taken yet, in order."""
        done = {(b.round, b.cell, b.contestant) for b in self.blocks if b.again or not b.held_up}
        every = turns(self.settings.rounds, [work.cell.name for work in self.works],
                      [candidate.name for candidate in self.candidates], self.settings.restart)
        return [turn for turn in every if (turn.round, turn.cell, turn.contestant) not in done]

    def seconds(self, count: int) -> float:
        """Returns the minimum duration of `count` turns: in addition, the requests in flight at the end of each are
        waited for."""
        return count * (self.settings.warmup + self.settings.duration + TURN_S)

    def run(self, report: Report) -> None:
        """Starts and examines the engines, and measures. Saves after each turn. Raises KeyboardInterrupt, and DrutError
        if the files cannot be written or the work cannot be sent."""
        with ExitStack() as ends:
            for candidate in self.candidates:
                ends.callback(candidate.stop)
            wanted = {turn.contestant for turn in self.missing()}
            for candidate in self.candidates:
                if candidate.name in wanted:
                    report(f"starting {candidate.name}")
                    self._start(candidate, report)
            self._judge(report)
            save(self.comparison(), self.folder)
            self._turns(report)

    def _start(self, candidate: Candidate, report: Report) -> None:
        """Starts a candidate and runs its gate."""
        old = None if self.before is None else next(c for c in self.before.contestants if c.name == candidate.name)
        try:
            running = candidate.serve()
            report(f"{candidate.name}: ready in {running.ready_s:.1f} s")
            if old is not None and old.gate is not None:
                candidate.gate = old.gate
                candidate.outcome = "measured" if old.gate.passed else "gate"
            else:
                assert candidate.launch is not None
                asker = Asker(candidate.launch, self.settings.api == "chat", self.settings.timeout)
                began = time.monotonic()
                candidate.answers = examine(asker, self.paper)
                report(f"{candidate.name}: answered the gate in {time.monotonic() - began:.0f} s")
            candidate.rest(self.settings.restart)
        except DrutError as error:
            candidate.fail(_why(candidate, error, "at the gate: " if candidate.running is not None else ""))
        if candidate.why:
            report(f"{candidate.name}: {candidate.outcome}: {candidate.why}")

    def _judge(self, report: Report) -> None:
        """Judges all candidates with new answers against the reference: the stored one, else the answers and scores of
        the base or, if it has none, of the first contestant with some."""
        examined = [candidate for candidate in self.candidates if candidate.answers is not None]
        if not examined:
            return
        examined.sort(key=lambda candidate: candidate.name != self._base_name())
        first = examined[0]
        assert first.answers is not None
        prompts = [question.text for question in self.paper.greedy()]
        if self.reference is None:
            answers = {prompt: answer.text for prompt, answer in zip(prompts, first.answers.greedy, strict=True)}
            self.reference = Reference(first.name, self.settings.api == "chat", self.settings.gate_tokens, answers)
        if not self.reference.scores:
            scorer = next((c for c in examined if c.answers is not None and c.answers.scores), None)
            if scorer is not None and scorer.answers is not None:
                self.reference = msgspec.structs.replace(self.reference, scores=scorer.answers.scores,
                                                         scores_of=scorer.name)
        write(self.folder / "reference.json", msgspec.json.encode(self.reference))
        encode = self.tokenizer.encode if self.tokenizer is not None else str.split
        sums = self._base_sums() or first.answers.sums
        for candidate in examined:
            assert candidate.answers is not None
            candidate.gate = judge(self.paper, candidate.answers, self.reference, sums, encode)
            if not candidate.gate.passed:
                candidate.outcome, candidate.why = "gate", "; ".join(candidate.gate.reasons)
                report(f"{candidate.name}: not ranked: {candidate.why}")

    def _turns(self, report: Report) -> None:
        left = [turn for turn in self.missing() if self._candidate(turn.contestant).ready]
        total, current, began = len(left), None, time.monotonic()
        for number, turn in enumerate(left, 1):
            candidate = self._candidate(turn.contestant)
            if not candidate.ready:
                continue
            if current is not None and current is not candidate:
                current.rest(self.settings.restart)
            current = candidate
            for again in (True,) if self._tried(turn) else (False, True):
                block = self._turn(turn._replace(again=again), candidate, report)
                if block is not None:
                    report(_line(number, total, block, (time.monotonic() - began) / number * (total - number)))
                save(self.comparison(), self.folder)
                if block is None or not block.held_up:
                    break

    def _tried(self, turn: OrderTurn) -> bool:
        """Returns whether an interrupted part left a void first try of the turn."""
        return any((b.round, b.cell, b.contestant) == (turn.round, turn.cell, turn.contestant) for b in self.blocks)

    def _turn(self, turn: OrderTurn, candidate: Candidate, report: Report) -> Block | None:
        """Takes a turn. Returns None if it ended the candidate."""
        work = next(work for work in self.works if work.cell.name == turn.cell)
        try:
            candidate.serve()
            block = take(turn, candidate, work, self.settings, self.tokenizer)
        except DrutError as error:
            candidate.fail(_why(candidate, error))
            report(f"{candidate.name}: {candidate.outcome}: {candidate.why}")
            return None
        self.blocks.append(block)
        return block

    def comparison(self) -> Comparison:
        """Returns all results, with verdicts."""
        old = {} if self.before is None else {c.name: c for c in self.before.contestants}
        contestants = [candidate.contestant(old.get(candidate.name)) for candidate in self.candidates]
        cells = [work.cell for work in self.works]
        ranked = [c.name for c in contestants if c.outcome == "measured"]
        base = self._base_name()
        against = base if base in ranked or not ranked else ranked[0]
        failed = {c.name for c in contestants if c.outcome in ("failed", "cannot run")}
        price = None if self.settings.price is None else parse_price(self.settings.price)
        return Comparison(schema=SCHEMA, settings=msgspec.structs.asdict(self.settings),
                          environment=self._environment(), model=self.files.name, contestants=contestants, cells=cells,
                          blocks=self.blocks, ratios=ratios(self.blocks, cells, against, ranked), base=against,
                          notes=notes(self.settings, contestants, self.blocks, base, against),
                          cost_per_hour=None if price is None else price.hourly,
                          currency="USD" if price is None else price.currency,
                          rankings=rankings(self.blocks, cells, ranked),
                          finished=all(turn.contestant in failed for turn in self.missing()))

    def _base_name(self) -> str:
        return self.settings.base or self.candidates[0].name

    def _base_sums(self) -> Sequence[bool]:
        gate = self._candidate(self._base_name()).gate
        return [] if gate is None else gate.sums

    def _candidate(self, name: str) -> Candidate:
        return next(candidate for candidate in self.candidates if candidate.name == name)

    def _environment(self) -> dict[str, Any]:
        """Returns the environment as it was at the first turn."""
        if self.before is not None and self.before.blocks:
            return self.before.environment
        return environment(self.started_at)

    def _check_machine(self) -> None:
        """Rejects a second machine: its rounds do not belong to the same comparison."""
        now = environment(self.started_at)
        for name in ("cpu", "cpus"):
            if (had := self._environment().get(name, now[name])) != now[name]:
                raise RequestError(f"--resume: it was started with {name} {had}, but this machine has {now[name]}")

    def _check_reference(self) -> None:
        stored, settings = self.reference, self.settings
        path = self.folder / "reference.json"
        if stored is None and self.before is not None and path.exists():
            self.reference = stored = read_reference(path)
        if stored is None:
            return
        if (stored.chat, stored.max_tokens) != (settings.api == "chat", settings.gate_tokens) or any(
                question.text not in stored.answers for question in self.paper.greedy()):
            raise RequestError("--reference: it was made with other --api, --gate-tokens or fewer --gate-prompts")


def _tokenizer(files: EngineFiles) -> BenchTokenizer | None:
    return open_tokenizer(files.tokenizer, model="") if files.tokenizer else None


def _work(cell: Cell, settings: CompareSettings, tokenizer: BenchTokenizer | None) -> BlockWork:
    """Checks the first session, so that invalid or too long work is an error before anything is started."""
    sessions = load(cell.workload, tokenizer=tokenizer, seed=seed_of(settings.seed, 0, cell.name),
                    chat=settings.api == "chat", no_tokenizer="--tokenizer names it, or one of the model's files")
    first = next(sessions, None)
    if first is None:
        raise RequestError(f"cell {cell.name!r}: the workload has no sessions")
    for turn in first.turns:
        needs = (turn.input_tokens or 0) + turn.max_tokens + (TEMPLATE if settings.api == "chat" else 0)
        if turn.exact and needs > settings.context:
            raise RequestError(f"cell {cell.name!r} needs {needs} tokens of context, and --context is "
                               f"{settings.context}")
    return BlockWork(cell, all(turn.exact for turn in first.turns), turns=len(first.turns) > 1)


def _why(candidate: Candidate, error: DrutError, where: str = "") -> DrutError:
    """Returns how an engine that does not answer ended, if it ended."""
    if isinstance(error, CannotRunError | EngineFailedError):
        return error
    try:
        candidate.check()
    except EngineFailedError as ended:
        return ended
    return EngineFailedError(f"{where}{error}")


def _line(number: int, total: int, block: Block, left_s: float) -> str:
    speed = block.figures.get("output_tokens_per_s")
    answer = f"{speed:.4g} tokens/s" if isinstance(speed, float) else "no speed"
    void = "" if block.valid else f"; void: {'; '.join(block.reasons)}"
    return (f"{number} of {total}, round {block.round + 1}, {block.cell}, {block.contestant}: {answer}{void}"
            f" ({math.ceil(left_s / 60)} min left)")
