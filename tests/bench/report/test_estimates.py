"""Figures with intervals, out of each kind of file, and as CSV."""

from __future__ import annotations

import csv
import io
from pathlib import Path

import msgspec
import numpy as np
import pytest

from drut.bench.report.documents import DocumentSource
from drut.bench.report.estimates import estimates
from drut.bench.report.rows import HEAD, write_csv
from drut.bench.stats.rounds import over_rounds
from tests.bench.report import samples
from tests.bench.report.hostile import BAD, hostile


def test_the_interval_over_rounds_is_students() -> None:
    value, low, high = over_rounds([8.0, 9.0, 10.0, 11.0, 12.0], logarithmic=False)
    assert value == pytest.approx(10)
    half = 2.776 * 2.5**0.5 / 5**0.5
    assert (low, high) == (pytest.approx(10 - half, rel=1e-3), pytest.approx(10 + half, rel=1e-3))
    value, low, high = over_rounds([1.0, 2.0, 4.0], logarithmic=True)
    assert value == pytest.approx(2)
    assert low * high == pytest.approx(4)  # type: ignore[operator]


def test_what_has_no_interval() -> None:
    assert over_rounds([1.0, 2.0], logarithmic=False) == (1.5, None, None)
    assert over_rounds([1.0, "inf", "inf"], logarithmic=True) == ("inf", None, None)
    assert over_rounds([1.0, 3.0, "inf"], logarithmic=True) == (3.0, None, None)
    assert over_rounds([0.0, 0.0, 0.0], logarithmic=True) == (0.0, 0.0, 0.0)


def test_the_interval_covers_as_often_as_it_states() -> None:
    rng = np.random.default_rng(1)
    draws = rng.normal(5.0, 1.0, (2000, 4))
    bounds = [over_rounds(list(map(float, row)), logarithmic=False) for row in draws]
    covered = np.mean([low <= 5.0 <= high for _, low, high in bounds])  # type: ignore[operator]
    assert covered == pytest.approx(0.95, abs=0.02)


def test_void_blocks_are_in_no_figure() -> None:
    c = samples.comparison()
    mine = [b for b in c.blocks if b.contestant == "llama.cpp" and b.cell == "chat, 4 users"]
    absurd = [msgspec.structs.replace(b, figures=dict.fromkeys(b.figures, 1e9)) if not b.valid else b
              for b in c.blocks]
    assert sum(not b.valid for b in mine) == 1
    both = [estimates(msgspec.structs.replace(c, blocks=blocks)) for blocks in (c.blocks, absurd)]
    assert both[0] == both[1]
    assert next(e.draws for e in both[0] if (e.cell, e.who) == ("chat, 4 users", "llama.cpp")) == 5


def test_every_kind_of_file_gives_its_figures() -> None:
    result = {e.figure: e for e in estimates(samples.result())}
    assert result["ttft_ms_p50"].low < result["ttft_ms_p50"].value < result["ttft_ms_p50"].high  # type: ignore
    assert result["error_rate"].value == pytest.approx(2 / 602)
    assert result["error_rate"].high == pytest.approx(0.0121, rel=0.02)  # type: ignore[arg-type]  # Wilson
    search = {(e.of, e.cell, e.figure): e for e in estimates(samples.a_search())}
    assert search["answer", "", "knee"].value == pytest.approx(5.6)
    assert search["value", "rate 0.8", "requests_per_s"].value == pytest.approx(0.8)
    assert search["value", "concurrency 16", "requests_per_s"].value > 0  # type: ignore[operator]
    assert search["answer", "saturation", "output_tokens_per_s"].value == 512
    assert search["value", "concurrency 64", "output_tokens_per_s"].value == pytest.approx(
        64 * 8 * 64 / 67 * (1 + 0.97 + 0.99) / 3)  # a load has one row, of all runs at it
    assert len({e.key for e in estimates(samples.a_search())}) == len(estimates(samples.a_search()))
    ratio = next(e for e in estimates(samples.ablation()) if e.of == "ratio")
    assert (ratio.who, ratio.value) == ("prefix: on / off", 2.4)


def test_the_csv_has_every_figure_and_no_formula() -> None:
    documents = [hostile(samples.comparison()), samples.a_search(), samples.ablation(), samples.result(seconds=12)]
    odd = msgspec.structs.replace(documents[0], contestants=[
        msgspec.structs.replace(c, name=f"=cmd|{c.name}") for c in documents[0].contestants], blocks=[
        msgspec.structs.replace(b, contestant=f"=cmd|{b.contestant}") for b in documents[0].blocks])
    out = io.StringIO(newline="")
    sources = [DocumentSource(f"@run {i}", Path(), d) for i, d in enumerate([odd, *documents[1:]])]
    write_csv(sources, out)
    rows = list(csv.DictReader(io.StringIO(out.getvalue(), newline="")))
    assert set(rows[0]) == set(HEAD)
    assert sum(r["of"] not in ("block", "run") for r in rows) == sum(len(estimates(s.document)) for s in sources)
    blocks = [r for r in rows if r["of"] == "block"]
    assert len(blocks) == sum(len(b.figures) for d in (odd, documents[2]) for b in d.blocks)
    assert {r["valid"] for r in blocks} == {"True", "False"}
    runs = [r for r in rows if r["of"] == "run"]
    points = documents[1].points
    assert {int(r["round"]) for r in runs} == set(range(len(points)))
    assert [(r["valid"], r["who"], float(r["value"])) for r in runs if r["figure"] == "served_per_s"] == [
        (str(p.valid), p.phase, p.served_per_s) for p in points]
    share = next(r for r in runs if r["figure"] == "good_share")
    assert [float(share[name]) for name in ("value", "low", "high")] == [1.0, 0.97, 1.0]
    assert not any(value.startswith(("=", "@", "+")) for r in rows for value in r.values())
    assert any(BAD in r["who"] for r in rows)
