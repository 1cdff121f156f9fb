"""The packed data matches its sources."""

import importlib.util
from importlib.resources import files
from pathlib import Path

import numpy as np
import pytest

from drut.bench.workloads.azure import read_azure
from drut.bench.workloads.mooncake import ideal_hit_rate, read_mooncake
from drut.bench.workloads.packed import read_jsonl, read_text

ROOT = Path(__file__).parents[3]


@pytest.mark.parametrize(("name", "rows", "cv", "p50", "p99", "rate"), [
    ("azure-code", 8819, 13.2, (1469, 13), (7436, 252), 2.57),
    ("azure-conv", 19366, 1.09, (1020, 129), (4142, 601), 5.53),
])
def test_azure(name, rows, cv, p50, p99, rate):
    trace = read_azure(name)
    at = np.array([row.at_s for row in trace])
    lengths = np.array([(row.input, row.output) for row in trace])
    gaps = np.diff(at)
    assert len(trace) == rows
    assert at[0] == 0
    assert (gaps >= 0).all()
    assert gaps.std() / gaps.mean() == pytest.approx(cv, abs=0.05)
    assert tuple(np.percentile(lengths, 50, axis=0)) == p50
    assert tuple(np.percentile(lengths, 99, axis=0).round()) == pytest.approx(p99, abs=1)
    assert rows / at[-1] == pytest.approx(rate, abs=0.01)


@pytest.mark.parametrize(("name", "rows", "hit", "p50"), [
    ("mooncake-conversation", 12031, 0.366, (6909, 350)),
    ("mooncake-synthetic", 3993, 0.640, None),
])
def test_mooncake(name, rows, hit, p50):
    trace = read_mooncake(name)
    assert len(trace) == rows
    assert ideal_hit_rate(trace) == pytest.approx(hit, abs=0.0005)
    assert all(len(row.blocks) == -(-row.input // 512) for row in trace)
    if p50:
        assert tuple(np.percentile([(r.input, r.output) for r in trace], 50, axis=0)) == p50


@pytest.mark.parametrize("name", ["mooncake-conversation", "mooncake-synthetic"])
def test_a_block_stands_for_all_before_it(name):
    """What the making of prompts rests on: a block has one predecessor, and one length."""
    before, filled = {}, {}
    for row in read_mooncake(name):
        for place, block in enumerate(row.blocks):
            assert before.setdefault(block, row.blocks[place - 1] if place else None) == (
                row.blocks[place - 1] if place else None)
            length = min(512, row.input - 512 * place)
            assert filled.setdefault(block, length) == length


def test_servegen():
    rows = read_jsonl("servegen-r1-lengths")
    assert [row["hour"] for row in rows] == [0, 6, 12, 18]
    means = {}
    for row in rows:
        for key in ("input", "output"):
            lengths, shares = np.array(row[key]).T
            assert shares.sum() == pytest.approx(1, abs=1e-4)
            assert (np.diff(lengths) > 0).all()
            means[row["hour"], key] = lengths @ shares
    assert means[0, "input"] == pytest.approx(1617.9, abs=0.1)
    assert means[12, "output"] == pytest.approx(1357.5, abs=0.1)


@pytest.mark.parametrize(("name", "rows"), [
    ("mt-bench", 80), ("gsm8k", 1319), ("bfcl", 1298), ("tau-bench", 69), ("otel-agents", 27),
])
def test_rows(name, rows):
    assert len(read_jsonl(name)) == rows


def test_all_is_small_and_named_in_the_sources():
    folder = files("drut.bench.workloads").joinpath("data")
    packed = [entry for entry in folder.iterdir() if entry.name.endswith(".gz")]
    sources = folder.joinpath("SOURCES.md").read_text(encoding="utf-8")
    assert sum(len(entry.read_bytes()) for entry in packed) < 2_000_000
    assert all(entry.name in sources for entry in packed)
    assert all(entry.read_bytes()[3:8] == bytes(5) for entry in packed)  # no name and no time in the header
    assert read_text("shakespeare.txt").startswith("First Citizen:")


def _packer():
    spec = importlib.util.spec_from_file_location("pack_data", ROOT / "benchmarks/data/pack_data.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_packing():
    pack = _packer()
    assert pack.runs([5, 6, 7, 9, 1, 2]) == [5, 3, 9, 1, 1, 2]
    assert pack.schema({"type": "dict", "properties": {"type": {"type": "float", "optional": True}, "a": {
        "type": "tuple", "items": {"type": "any"}}}}) == {
            "type": "object", "properties": {"type": {"type": "number"}, "a": {"type": "array", "items": {}}}}


def test_tau_bench_is_cut_where_speakers_change(tmp_path):
    path = tmp_path / "t.jsonl"
    path.write_text('{"messages_display": "user: a\\nb: c\\nassistant: None\\ntool: {}\\nassistant: d\\n"}\n')
    assert _packer().tau_bench(path) == '[["user","a\\nb: c"],["assistant","None"],["tool","{}"],["assistant","d"]]\n'
