"""The state of one contestant during a comparison: its process and its outcome."""

from __future__ import annotations

import contextlib
import shlex
import statistics
from pathlib import Path
from typing import Literal

from drut.bench.compare.entries import CompareEntry
from drut.bench.compare.gate.exam import Answers
from drut.bench.compare.schema import Contestant, GateRecord
from drut.bench.engines.cached import read_ahead
from drut.bench.engines.engine import BenchEngine, CannotRunError, EngineFailedError, EngineFiles, Launch, Options
from drut.bench.engines.process import Running, free_port, start
from drut.errors import DrutError


class Candidate:
    """A contestant. `ready` while it may take turns; otherwise `outcome` and `why` explain."""

    def __init__(self, entry: CompareEntry, engine: BenchEngine, files: EngineFiles, options: Options,
                 log: Path) -> None:
        self.entry, self._engine, self._log = entry, engine, log
        self._files, self._options = entry.of(files), options
        self.name = entry.name
        self.outcome: Literal["measured", "failed", "cannot run", "gate"] = "measured"
        self.why = ""
        self.gate: GateRecord | None = None
        self.answers: Answers | None = None
        self.launch: Launch | None = None
        self.running: Running | None = None
        self._starts: list[float] = []
        self._ready_mb: float | None = None
        self._peak_mb: float | None = None

    @property
    def ready(self) -> bool:
        """Returns whether it may take turns. A contestant that fails the gate may, so that its figures are reported."""
        return self.outcome in ("measured", "gate")

    def fail(self, error: DrutError) -> None:
        """Ends it after a failure: it takes no further turn, and its processes end."""
        self.outcome = "cannot run" if isinstance(error, CannotRunError) else "failed"
        self.why = str(error)
        self.stop()

    def serve(self) -> Running:
        """Starts or resumes it. Raises CannotRunError, EngineFailedError."""
        if self.running is None:
            self.launch = self._engine.launch(self._files, self._options, self.entry.port or free_port())
            with contextlib.suppress(OSError):  # the engine's own error is more precise
                read_ahead(self.launch, self._files)
            self.running = start(self.launch, self._log)
            self._starts.append(self.running.ready_s)
            self.weigh()
        else:
            self.running.resume()
        return self.running

    def check(self) -> None:
        """Raises EngineFailedError if it no longer runs. For a server that already ran, only its responses show
        that."""
        running = self.running
        if running is not None and running.pid is not None and not running.alive():
            raise EngineFailedError(running.how_it_ended())

    def rest(self, end: bool) -> None:
        """Suspends it during the turns of others, or ends it if `end`."""
        if self.running is not None and not end:
            self.running.suspend()
        else:
            self.stop()

    def stop(self) -> None:
        running, self.running = self.running, None
        if running is not None:
            running.stop()

    def contestant(self, before: Contestant | None = None) -> Contestant:
        """Returns it for the file. `before`: its state in an earlier part of the comparison, which is kept if this part
        did not start it, and whose peak memory counts in any case."""
        if before is not None and not self._starts and self.outcome == "measured":
            return before
        launch = self.launch
        return Contestant(
            self.name, self.entry.engine, self._engine.title, self.outcome, self.why,
            weights=launch.weights if launch else "", verified=self._engine.verified,
            remarks=list(launch.remarks) if launch else [], versions=launch.versions if launch else {},
            earlier=_earlier(before, launch), command=_command(launch) if launch else [],
            ready_s=statistics.median(self._starts) if self._starts else None,
            ready_mb=self._ready_mb, peak_mb=_most(self._peak_mb, None if before is None else before.peak_mb),
            gate=self.gate)

    def weigh(self) -> None:
        """Measures its memory; not during a turn, because the kernel walks all its pages for that. Pages shared by its
        processes count once: otherwise an engine of four processes would count its libraries four times."""
        memory = self.running.memory() if self.running is not None else None
        if memory is not None:
            twice = 0.0 if memory.pss_mb is None else memory.resident_mb - memory.pss_mb
            self._ready_mb = memory.resident_mb - twice if self._ready_mb is None else self._ready_mb
            self._peak_mb = _most(memory.peak_mb - twice, self._peak_mb)


def _earlier(before: Contestant | None, launch: Launch | None) -> list[dict[str, str]]:
    """Returns the versions of earlier parts that differ from the present ones."""
    if before is None:
        return []
    now = {} if launch is None else launch.versions
    return [*before.earlier, before.versions] if before.versions not in ({}, now) else before.earlier


def _most(*values: float | None) -> float | None:
    return max((value for value in values if value is not None), default=None)


def _command(launch: Launch) -> list[str]:
    """Returns the command for a shell, preceded by its environment."""
    return [*(f"{name}={shlex.quote(value)}" for name, value in sorted(launch.env.items())), *launch.argv]
