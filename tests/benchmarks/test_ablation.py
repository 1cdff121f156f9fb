"""The page of the ablation and its data."""

from __future__ import annotations

import csv

from benchmarks.peers.environment import ROOT

PAGE = ROOT / "docs" / "ablation.md"


def test_the_page_has_the_ratios_of_its_data() -> None:
    page = PAGE.read_text()
    with (ROOT / "docs" / "results" / "ablation.csv").open(newline="") as file:
        effects = list(csv.DictReader(file))
    assert len(effects) > 20
    shown = [e for e in effects if e["expected"] != "no effect" or e["verdict"] != "none"]
    ratios = [f"**{float(e['ratio']):.2f}** ({float(e['low']):.2f}–{float(e['high']):.2f})" for e in shown]
    assert [text for text in ratios if text not in page] == []
    assert page.count("**") == 2 * len(ratios)
