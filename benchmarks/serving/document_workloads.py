"""Writes the table of workloads into docs/workloads.md, from their declarations.

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
    """Returns a table with the meaning and the options of each workload."""
    rows = [f"`{kind.name}` | {kind.help} | " + ", ".join(
        f"`{field.name}={default_of(field)}`" for field in dataclasses.fields(kind)) for kind in WORKLOADS.values()]
    return "\n".join([BEGIN, "", "workload | what it sends | options", "---|---|---", *rows, "", END])


def main():
    page = PAGE.read_text(encoding="utf-8")
    made = re.sub(f"{re.escape(BEGIN)}.*{re.escape(END)}", lambda _: section(), page, flags=re.DOTALL)
    PAGE.write_text(made, encoding="utf-8")


if __name__ == "__main__":
    main()
