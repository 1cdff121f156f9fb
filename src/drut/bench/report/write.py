"""Writes a report: a page, Markdown and CSV of the same name."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from drut.bench.files import write_file
from drut.bench.render.markdown import report
from drut.bench.render.page.render import page
from drut.bench.report.assemble import sections
from drut.bench.report.documents import DocumentSource
from drut.bench.report.rows import write_csv


def write_report(sources: Sequence[DocumentSource], out: Path) -> list[Path]:
    """`out` ends in .html. Returns the paths. Raises DrutError."""
    made = sections(sources)
    html, text = page(made), report(made)
    paths = [out, out.with_suffix(".md"), out.with_suffix(".csv")]
    write_file(paths[0], lambda file: file.write(html))
    write_file(paths[1], lambda file: print(text, file=file))
    write_file(paths[2], lambda file: write_csv(sources, file))
    return paths
