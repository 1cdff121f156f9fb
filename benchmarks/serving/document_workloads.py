"""Writes the list of workloads into docs/workloads.md, from their declarations.

    python -m benchmarks.serving.document_workloads
"""

import dataclasses
import re
from pathlib import Path

from drut.bench.workloads import WORKLOADS
from drut.bench.workloads.registry import default_of

PAGE = Path(__file__).parents[2] / "docs/workloads.md"
BEGIN, END = "<!-- made by benchmarks/serving/document_workloads.py -->", "<!-- end -->"


def section():
    """Returns a heading, a line and a table of options for each workload."""
    parts = [BEGIN]
    for kind in WORKLOADS.values():
        lines = [f"### {kind.name}", "", kind.help[0].upper() + kind.help[1:] + "."]
        if kind.source:
            lines += ["", f"Source: {kind.source.title}, {kind.source.url}, {kind.source.licence}."]
        lines += ["", "| option | default | |", "|---|---|---|"]
        for field in dataclasses.fields(kind):
            lines.append(f"| `{field.name}` | {default_of(field)} | {field.metadata['help']} |")
        parts.append("\n".join(lines))
    return "\n\n".join([*parts, END])


def main():
    page = PAGE.read_text(encoding="utf-8")
    made = re.sub(f"{re.escape(BEGIN)}.*{re.escape(END)}", lambda _: section(), page, flags=re.DOTALL)
    PAGE.write_text(made, encoding="utf-8")


if __name__ == "__main__":
    main()
