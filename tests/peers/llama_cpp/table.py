"""Expected outcomes of the suite's cases, and the differences of a run from them."""

from __future__ import annotations

import tomllib
from collections import Counter
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import NamedTuple

PASS, DIFFERS, NOT_APPLICABLE = "pass", "differs", "not applicable"


class Expected(NamedTuple):
    """`outcome`: one of the three above; `reason`: of the last two."""

    outcome: str
    reason: str = ""


class Table:
    """Lines for files, functions and cases. The closest line to a case holds; a case without one passes."""

    def __init__(self, lines: Mapping[str, Mapping[str, str]]) -> None:
        """`lines`: by file, then by function or case, `*` for the file. ValueError for a line without a reason."""
        self._lines = {f"{file}::{name}": _expected(f"{file}::{name}", line)
                       for file, names in lines.items() for name, line in names.items()}
        self._used: set[str] = set()

    @classmethod
    def read(cls, path: Path) -> Table:
        read = tomllib.loads(path.read_text())
        return cls({file: names for file, names in read.items() if isinstance(names, dict)})

    def expected(self, case: str) -> Expected:
        """Of `file::function[parameters]`."""
        file, _, name = case.partition("::")
        for key in (case, f"{file}::{name.partition('[')[0]}", f"{file}::*"):
            if key in self._lines:
                self._used.add(key)
                return self._lines[key]
        return Expected(PASS)

    @property
    def unused(self) -> list[str]:
        """Lines that no case was asked about."""
        return sorted(self._lines.keys() - self._used)


def _expected(key: str, line: str) -> Expected:
    outcome, _, reason = line.partition(": ")
    if line != PASS and (outcome not in (DIFFERS, NOT_APPLICABLE) or not reason):
        raise ValueError(f"{key}: {line!r} must be '{PASS}', '{DIFFERS}: why' or '{NOT_APPLICABLE}: why'")
    return Expected(outcome, reason)


def faults(table: Table, collected: Iterable[str], passed: Mapping[str, bool]) -> list[str]:
    """Returns a line for each case whose outcome is not the expected one. `passed`: of the cases that ran."""
    found = []
    for case in collected:
        expected = table.expected(case)
        if expected.outcome == NOT_APPLICABLE:
            continue
        if case not in passed:
            found.append(f"did not run: {case}")
        elif passed[case] and expected.outcome == DIFFERS:
            found.append(f"passes, though listed as differing: {case} ({expected.reason})")
        elif not passed[case] and expected.outcome == PASS:
            found.append(f"fails: {case}")
    return found


def counts(table: Table, collected: Iterable[str]) -> str:
    """Counts cases by their expected outcome."""
    number = Counter(table.expected(case).outcome for case in collected)
    return (f"{number[PASS]} pass, {number[DIFFERS]} differ for a stated reason, "
            f"{number[NOT_APPLICABLE]} are not applicable")
