"""A report as CSV: one row for each figure, for all kinds of file."""

from __future__ import annotations

import csv
from collections.abc import Iterator, Sequence
from typing import TextIO

from drut.bench.ablate.schema import Ablation
from drut.bench.compare.schema import Comparison
from drut.bench.report.documents import Document, DocumentSource, kind
from drut.bench.report.estimates import estimates, load_key
from drut.bench.result.figures import FIGURES
from drut.bench.search.schema import Point, Search

HEAD = ("source", "kind", "of", "cell", "who", "round", "figure", "unit", "better", "value", "low", "high", "draws",
        "valid")


def write_csv(sources: Sequence[DocumentSource], file: TextIO) -> None:
    """Writes the rows. `of` is the kind of row: a value (over rounds, if there are several), a ratio, a result of a
    search; a block or a run of a search as it was measured."""
    rows = csv.writer(file)
    rows.writerow(HEAD)
    for source in sources:
        for row in _rows(source.document):
            rows.writerow([_safe(source.label), kind(source.document), *map(_safe, row)])


def _rows(document: Document) -> Iterator[tuple[object, ...]]:
    for e in estimates(document):
        yield e.of, e.cell, e.who, "", e.figure, e.unit, e.better, e.value, e.low, e.high, e.draws or "", ""
    if isinstance(document, Comparison | Ablation):
        for b in document.blocks:
            for name, value in b.figures.items():
                if name in FIGURES:
                    unit, better = FIGURES[name].unit, FIGURES[name].better
                    yield "block", b.cell, b.contestant, b.round, name, unit, better, value, "", "", "", b.valid


    if isinstance(document, Search):
        for number, point in enumerate(document.points):
            yield from _run(point, number)


def _run(p: Point, number: int) -> Iterator[tuple[object, ...]]:
    """Yields the figures of a run of a search, with its phase as `who`; of void runs, too."""
    figures = [(name, FIGURES[name].unit, FIGURES[name].better, value, None, None)
               for name, value in p.figures.items() if name in FIGURES and value is not None]
    own = [("served_per_s", "1/s", "more", p.served_per_s, None, None),
           ("e2e_ms_mean", "ms", "less", p.e2e_ms_mean, None, None),
           ("good_share", "share", "more", p.good_share, p.good_low, p.good_high)]
    for name, unit, better, value, low, high in [*figures, *own]:
        if value is not None:
            yield "run", load_key(p), p.phase, number, name, unit, better, value, low, high, p.offered, p.valid


def _safe(value: object) -> object:
    """Quotes text that a spreadsheet would evaluate as a formula."""
    if value is None:
        return ""
    return "'" + value if isinstance(value, str) and value[:1] in ("=", "+", "-", "@", "\t", "\r") else value
