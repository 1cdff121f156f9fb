"""Assembles the sections of a report from files."""

from __future__ import annotations

from collections.abc import Sequence

from drut.bench.ablate.schema import Ablation
from drut.bench.compare.schema import Comparison
from drut.bench.render.section import Section
from drut.bench.report.documents import Document, DocumentSource, kind
from drut.bench.report.sections import ablation, comparison, result, search, sweep
from drut.bench.result.schema import Result


def sections(sources: Sequence[DocumentSource]) -> list[Section]:
    """Returns one section for each file, in order, preceded by a comparison if there are several runs."""
    results = [(s.label, s.document) for s in sources if isinstance(s.document, Result)]
    kinds = [kind(s.document) for s in sources]
    found = [section_of(s.document, s.label if kinds.count(kind(s.document)) > 1 else "") for s in sources]
    if len(results) > 1:
        found.insert(kinds.index("result"), sweep.several(results))
    return found


def section_of(document: Document, label: str = "") -> Section:
    """Returns the section of a file of any kind."""
    if isinstance(document, Comparison):
        return comparison.section(document, label)
    if isinstance(document, Ablation):
        return ablation.section(document, label)
    return result.section(document, label) if isinstance(document, Result) else search.section(document, label)
