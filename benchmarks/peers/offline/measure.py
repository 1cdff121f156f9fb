"""Measures one model: loads every contestant, then runs their turns, with all others suspended."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from benchmarks.machine_load import OthersLoad
from benchmarks.peers.offline.columns import Column
from benchmarks.peers.offline.contestants import AGAINST, Contestant
from benchmarks.peers.offline.machine_roof import Costs, MachineRoof, floors
from benchmarks.peers.process import EngineError, EngineProcess

from drut.bench.compare.order import order

LOAD_S, TURN_S = 900.0, 600.0  # a longer duration is treated as a hang

Record = dict[str, Any]
Show = Callable[[str], None]


def show(text: str) -> None:
    """Prints a line of progress."""
    print(f"{time.strftime('%H:%M:%S')} {text}", file=sys.stderr, flush=True)


class Match:
    """The contestants of one model with their processes, all of them suspended between calls."""

    def __init__(self, contestants: Sequence[Contestant], vocab: int, cpus: Sequence[int]) -> None:
        self.missing: dict[str, str] = {}
        self.engines: dict[str, Record] = {}
        self._vocab, self._cpus = vocab, list(cpus)
        self._contestants = {c.name: c for c in contestants}
        self._processes: dict[str, EngineProcess] = {}

    @property
    def names(self) -> list[str]:
        """Returns the remaining contestants."""
        return list(self._processes)

    def start(self, columns: Sequence[Column]) -> None:
        """Loads, warms up and pins each, one after the other."""
        for name, contestant in self._contestants.items():
            show(f"  {name}: loading {contestant.path.name}")
            _read_all(contestant.path)
            process = self._processes[name] = contestant.start(self._cpus)
            began = time.perf_counter()
            try:
                loaded = process.ask("load", LOAD_S, model=str(contestant.path), threads=len(self._cpus),
                                     **contestant.settings)
                ready_s = time.perf_counter() - began
                threads = process.thread_s()
                for column in columns:
                    self._ask(process, column.warm_up(), "warm-up")
                self.engines[name] = {
                    "engine": process.ask("about", TURN_S)["engine"], "file": contestant.path.name,
                    "same_file": contestant.same_file, "load_s": loaded["load_s"], "ready_s": ready_s,
                    "pinned_by": process.pin(threads), "memory_mb": process.tree.memory().resident_mb}
                process.pause()
            except EngineError as error:
                self._drop(name, error)

    def costs(self, columns: Sequence[Column]) -> dict[str, Costs]:
        """Returns by column the costs of the operations of a step, by Drut's plan of the file; empty without Drut."""
        name = next((n for n in self.names if n in AGAINST.values()), None)
        if name is None:
            return {}
        process = self._processes[name]
        process.resume()
        try:
            answer = process.ask("costs", TURN_S, shapes=[column.shape() for column in columns])
            process.pause()
        except EngineError as error:
            self._drop(name, error)
            return {}
        return {column.name: costs for column, costs in zip(columns, answer["costs"], strict=True)}

    def turn(self, column: Column, number: int) -> Record:
        """Runs one round of one column: returns each engine's speed and CPU use, and the CPU use of other processes."""
        names = order(self.names, number)
        record: Record = {"round": number, "order": names, "speed": {}, "cpus": {}, "ids": {}}
        load = OthersLoad([pid for process in self._processes.values() for pid in process.tree.pids()])
        for name in names:
            process = self._processes[name]
            process.resume()
            try:
                cpu_s, began = process.tree.cpu_s(), time.perf_counter()
                answers = self._ask(process, column, str(number))
                record["cpus"][name] = (process.tree.cpu_s() - cpu_s) / (time.perf_counter() - began)
                process.pause()
            except EngineError as error:
                self._drop(name, error)
                continue
            record["speed"][name] = column.speed(answers)
            record["ids"][name] = [token for answer in answers for token in answer["ids"]]
        record["others_cpus"] = load.cpus() if set(names) == set(self.names) else None
        return record

    def close(self) -> None:
        for process in self._processes.values():
            process.close()
        self._processes.clear()

    def _ask(self, process: EngineProcess, column: Column, round_name: str) -> list[Record]:
        prompts = column.prompts(round_name, self._vocab)
        return [process.ask(do, TURN_S, **arguments) for do, arguments in column.questions(prompts)]

    def _drop(self, name: str, error: EngineError) -> None:
        show(f"  {name}: OUT: {error}")
        self.missing[name] = str(error).splitlines()[0]
        self._processes.pop(name).kill()


def run(match: Match, columns: Sequence[Column], rounds: int, roof: MachineRoof) -> list[Record]:
    """Runs all rounds of all columns; returns one result for each column."""
    costs = match.costs(columns)
    records: dict[str, list[Record]] = {column.name: [] for column in columns}
    for number in range(rounds):
        roof.measure()
        for column in columns:
            record = match.turn(column, number)
            records[column.name].append(record)
            speeds = ", ".join(f"{name} {speed:.0f}" for name, speed in sorted(record["speed"].items()))
            show(f"  round {number + 1}/{rounds}, {column.title}: {speeds} tokens/s")
    results = []
    for column in columns:
        results.append({"column": column.name, "title": column.title, "rounds": records[column.name],
                        **_at_roof(column, costs.get(column.name), roof)})
    return results


def _at_roof(column: Column, costs: Costs | None, roof: MachineRoof) -> Record:
    """Returns by instruction sets the tokens/s at the roof, and the name of the roof that takes most of the time."""
    found = {} if costs is None else {kind: floors(costs, roof.peaks(kind == "avx2")) for kind in ("best", "avx2")}
    return {"roof_tokens_per_s": {kind: column.tokens_a_step() / sum(f.values()) for kind, f in found.items()},
            "bound_by": {kind: next(iter(f)) for kind, f in found.items()}}


def _read_all(path: Path) -> None:
    """Reads files into the page cache, so that loading does not wait for the disk."""
    for file in [path] if path.is_file() else [p for p in path.rglob("*") if p.is_file()]:
        with file.open("rb") as data:
            while data.read(1 << 24):
                pass
