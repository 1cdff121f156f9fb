"""docs/metrics.md lists the server's metrics: each of them, and no other."""

from __future__ import annotations

import re
from pathlib import Path

from drut.server.metrics import METRICS

PAGE = Path(__file__).parents[2] / "docs" / "metrics.md"


def test_every_metric_is_listed_and_no_other() -> None:
    section = PAGE.read_text().partition("\n## Of a server\n")[2].partition("\n## ")[0]
    named = re.findall(r"`((?:vllm:|drut_)\w+)`", section)
    assert sorted(named) == sorted(METRICS)
