"""Checks whether two files measure the same work on the same machine."""

from __future__ import annotations

from typing import Any, NamedTuple

import msgspec

from drut.bench.ablate.schema import Ablation
from drut.bench.compare.schema import Comparison
from drut.bench.report.documents import Document, kind
from drut.bench.result.schema import Result

_MACHINE = ("cpu", "cpus")
_WORK = ("model", "workload", "api", "token_ids", "rate", "concurrency", "num_requests", "arrivals", "cv", "ramp_to",
         "body", "no_stream", "slo")
_STATED = ("duration", "warmup", "seed", "timeout")
_MAX_CHARS = 200


class Differences(NamedTuple):
    """The differences. `reasons` forbid a comparison of the files; `notes` are for information."""

    reasons: list[str]
    notes: list[str]


def differences(a: Document, b: Document) -> Differences:
    """Returns the differences of two files. A different version of an engine is a note, because diffs compare
    versions."""
    found = Differences([], [])
    if type(a) is not type(b):
        found.reasons.append(f"A is a {kind(a)}, B a {kind(b)}")
        return found
    _keys("machine", a.environment, b.environment, _MACHINE, found.reasons)
    _keys("work", a.settings, b.settings, _WORK, found.reasons)
    _keys("setting", a.settings, b.settings, _STATED, found.notes)
    _keys("version", a.environment, b.environment, ("drut",), found.notes)
    if isinstance(a, Result) and isinstance(b, Result):
        for name, result in (("A", a), ("B", b)):
            if not result.validity.valid:
                found.reasons.extend(f"{name} is void: {reason}" for reason in result.validity.reasons)
    if isinstance(a, Comparison | Ablation) and isinstance(b, Comparison | Ablation):
        _sides(a, b, found)
    return found


def _keys(what: str, a: dict[str, Any], b: dict[str, Any], names: tuple[str, ...], into: list[str]) -> None:
    """Compares the values of common keys. A key that only one file has does not count, because older versions may lack
    it."""
    into += [f"{what}, {name}: {_text(a[name])} in A, {_text(b[name])} in B" for name in names
             if name in a and name in b and a[name] != b[name]]


def _sides(a: Comparison | Ablation, b: Comparison | Ablation, found: Differences) -> None:
    if a.model != b.model:
        found.reasons.append(f"work, model: {_text(a.model)} in A, {_text(b.model)} in B")
    cells = {c.name: c for c in a.cells}, {c.name: c for c in b.cells}
    found.reasons.extend(f"work, cell {name}: {_text(cells[0][name])} in A, {_text(cells[1][name])} in B"
                         for name in sorted(cells[0].keys() & cells[1].keys()) if cells[0][name] != cells[1][name])
    sides = {c.name: c for c in a.contestants}, {c.name: c for c in b.contestants}
    for what, (in_a, in_b) in (("cell", (set(cells[0]), set(cells[1]))), ("contestant", tuple(map(set, sides)))):
        if not in_a & in_b:
            found.reasons.append(f"no {what} is in both")
        found.notes.extend(f"{what} {name} is in A alone" for name in sorted(in_a - in_b))
        found.notes.extend(f"{what} {name} is in B alone" for name in sorted(in_b - in_a))
    for name in sorted(sides[0].keys() & sides[1].keys()):
        one, other = sides[0][name], sides[1][name]
        if one.weights != other.weights and one.weights and other.weights:
            found.reasons.append(f"{name}, weights: {one.weights} in A, {other.weights} in B")
        if one.outcome != other.outcome:
            found.notes.append(f"{name}: {one.outcome} in A, {other.outcome} in B")
        if one.versions != other.versions:
            found.notes.append(f"{name}, versions: {_text(one.versions)} in A, {_text(other.versions)} in B")
    if isinstance(a, Comparison) and isinstance(b, Comparison) and a.base != b.base:
        found.notes.append(f"ratios are to {a.base} in A, to {b.base} in B")


def _text(value: Any) -> str:
    text = value if isinstance(value, str) else msgspec.json.encode(value).decode()
    return text if len(text) <= _MAX_CHARS else text[:_MAX_CHARS] + " …"
