"""The JSON Schema test suite (draft 2020-12) against constraints, and the table of it in docs/structured.md.

`python -m tests.constrain.suite` writes the table.
"""

from __future__ import annotations

import gzip
import json
import tempfile
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from drut.constrain import Constraint
from drut.errors import RequestError
from drut.model.model import open_model
from tests.constrain.pack_suite import PACKED
from tests.constrain.walking import Walker
from tests.engine.models import write_bytes_model

DOCS = Path(__file__).parents[2] / "docs" / "structured.md"
BEGIN, END = "<!-- suite: begin -->\n", "<!-- suite: end -->\n"
SUITE: dict[str, list[dict[str, Any]]] = json.loads(gzip.decompress(PACKED.read_bytes()))
VERDICTS = (("valid", "accepted"), ("valid", "refused"), ("invalid", "accepted"))
REMOTE = ("localhost:1234", "json-schema.org/draft/2020-12/schema")  # what a schema would have to be fetched from


@dataclass
class Verdict:
    """Of one file: schemas taken and refused, instances judged, and those judged wrongly."""

    taken: list[dict[str, Any]] = field(default_factory=list)
    refused: list[tuple[dict[str, Any], str]] = field(default_factory=list)
    counts: Counter[str] = field(default_factory=Counter)
    wrong: list[str] = field(default_factory=list)


def judge(walker: Walker, name: str) -> Verdict:
    """Instances are written as Python writes JSON, in their own order."""
    verdict = Verdict()
    for group in SUITE[name]:
        try:
            constraint = Constraint.json_schema(group["schema"])
            walker.grammars.check(constraint)
        except RequestError as error:
            verdict.refused.append((group["schema"], str(error)))
            continue
        verdict.taken.append(group["schema"])
        for test in group["tests"]:
            accepted = walker.accepts(constraint, json.dumps(test["data"], ensure_ascii=False))
            verdict.counts[f"{'valid' if test['valid'] else 'invalid'} {'accepted' if accepted else 'refused'}"] += 1
            if accepted and not test["valid"]:
                verdict.wrong.append(f"{name}: {group['description']}: {test['description']}")
    return verdict


def table(verdicts: dict[str, Verdict]) -> str:
    """The totals over all files, in Markdown."""
    total = sum((v.counts for v in verdicts.values()), Counter())
    cells = (sum(len(v.taken) for v in verdicts.values()), sum(len(v.refused) for v in verdicts.values()),
             *(total[f"{kind} {how}"] for kind, how in VERDICTS))
    return ("schemas accepted | refused by name | valid instances accepted | refused | invalid instances accepted\n"
            "---|---|---|---|---\n" + " | ".join(map(str, cells)) + "\n\n")


def main() -> None:
    with tempfile.TemporaryDirectory() as directory:
        files = open_model(write_bytes_model(Path(directory)))
        tokenizer = files.tokenizer()
        assert tokenizer is not None
        walker = Walker(tokenizer, files.spec.vocab)
    head, _, rest = DOCS.read_text().partition(BEGIN)
    made = table({name: judge(walker, name) for name in SUITE})
    DOCS.write_text(head + BEGIN + made + END + rest.partition(END)[2])
    walker.grammars.close()


if __name__ == "__main__":
    main()
