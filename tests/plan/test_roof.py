from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from drut.errors import DrutError, UnsupportedError
from drut.kernels.native.library import load
from drut.kernels.native.memory import reserve
from drut.machine import usable_cpus
from drut.observe.ledger import Macs
from drut.plan.peaks import peaks
from drut.plan.probe import ISA_BITS, WORKING_SETS, NativeProbe, measure, thread_counts
from drut.plan.roof import OPERANDS, Roof, keep, kept

figure = st.floats(0.01, 1e6)
figures = st.dictionaries(st.integers(1, 64), figure, min_size=1)
by_threads = st.dictionaries(st.integers(1, 64), figures, min_size=1)
by_operands = st.just({}) | st.fixed_dictionaries(dict.fromkeys(OPERANDS, figures))
roofs = st.builds(Roof, st.just("cpu"), st.just("isa"), by_threads, by_operands)


def through_json(roof: Roof) -> Roof:
    return Roof.from_json(json.loads(json.dumps(roof.to_json())))


@given(roofs)
def test_json_keeps_all(roof: Roof) -> None:
    assert through_json(roof) == roof


@given(roofs, roofs)
def test_best_takes_the_greater_of_each_figure(one: Roof, other: Roof) -> None:
    best = one.best(other)
    assert best == other.best(one)
    assert best.best(one) == best
    for threads, by_set in one.read_gb_per_s.items():
        for size, value in by_set.items():
            assert best.read_gb_per_s[threads][size] >= value
    for name, gmacs in one.gmac_per_s.items():
        assert all(best.gmac_per_s[name][key] >= value for key, value in gmacs.items())


def roof(read: float, cpu: str = "cpu") -> Roof:
    return Roof(cpu, "isa", {1: {256: read}}, {name: {1: 10 / read} for name in OPERANDS})


def test_keep_merges_the_same_machine_and_leaves_others(tmp_path: Path) -> None:
    path = tmp_path / "new" / "roof.json"
    keep(roof(5.0, "other"), path)
    assert keep(roof(2.0), path) == roof(2.0)
    best = keep(roof(4.0), path)
    assert best == Roof("cpu", "isa", {1: {256: 4.0}}, {name: {1: 5.0} for name in OPERANDS})
    assert keep(roof(1.0, "other"), path).read_gb_per_s == {1: {256: 5.0}}
    assert [p.name for p in path.parent.iterdir()] == ["roof.json"]
    assert kept(path, roof(1.0).key) == best
    assert kept(path, "another | isa | 1 CPUs") is None


def test_an_entry_with_other_peaks_is_not_used_and_is_replaced(tmp_path: Path) -> None:
    path, entry = tmp_path / "roof.json", roof(9.0).to_json()
    for name in ("int4", "fp32"):
        del entry[f"{name}_gmac_per_s"]
    path.write_text(json.dumps({roof(9.0).key: entry, "b": roof(9.0, "other").to_json()}))
    assert kept(path, roof(9.0).key) is None
    assert keep(roof(3.0), path) == roof(3.0)
    assert kept(path, roof(9.0, "other").key) == roof(9.0, "other")


def test_peaks_are_those_of_the_threads_and_floats_have_the_faster_instruction() -> None:
    gmacs = {name: {1: rate, 4: 4 * rate} for name, rate in zip(OPERANDS, (8.0, 4.0, 2.0, 1.0), strict=True)}
    slow = Roof("cpu", "isa", {1: {256: 10.0}, 4: {256: 30.0}}, gmacs)
    assert peaks(slow, 1).macs == Macs(int4=8e9, int8=4e9, floats=2e9)
    assert peaks(slow, 5).macs == Macs(int4=32e9, int8=16e9, floats=8e9)
    assert peaks(slow, 3).bandwidth(1 << 20) == 10e9
    fast = replace(slow, gmac_per_s={**gmacs, "bf16": {1: 3.0, 4: 12.0}})
    assert peaks(fast, 1).macs == Macs(int4=8e9, int8=4e9, floats=3e9)
    with pytest.raises(UnsupportedError, match="no multiply peaks"):
        peaks(replace(slow, gmac_per_s={}), 1)


@pytest.mark.parametrize("text", [
    "", "[]", "null", "{", "[" * 100_000, '{"a": 1}', '{"a": {"cpu": "cpu"}}',
    json.dumps({"a": {**roof(9.0).to_json(), "read_gb_per_s": {}}}),
    json.dumps({"a": {**roof(9.0).to_json(), "read_gb_per_s": {"1": {"256": -1}}}}),
    json.dumps({"a": {**roof(9.0).to_json(), "bf16_gmac_per_s": {"1": float("inf")}}}),
    json.dumps({"a": {**roof(9.0).to_json(), "bf16_gmac_per_s": {"one": 1.0}}}),
    json.dumps({"a": {**roof(9.0).to_json(), "int4_gmac_per_s": None}}),
])
def test_a_damaged_file_is_replaced(tmp_path: Path, text: str) -> None:
    path = tmp_path / "roof.json"
    path.write_text(text)
    assert keep(roof(3.0), path) == roof(3.0)
    assert keep(roof(2.0), path).read_gb_per_s == {1: {256: 3.0}}


def test_where_nothing_can_be_written_the_error_names_the_file(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(DrutError, match=r"file.roof\.json"):
        keep(roof(1.0), tmp_path / "file" / "roof.json")


@pytest.mark.parametrize(("cpus", "counts"), [(1, [1]), (2, [1, 2]), (6, [1, 2, 4, 6]), (8, [1, 2, 4, 8])])
def test_thread_counts(cpus: int, counts: list[int]) -> None:
    assert thread_counts(cpus) == counts


def test_numpy_tells_only_what_it_can(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("drut.plan.probe.WORKING_SETS", WORKING_SETS[:3])
    measured = measure(None, seconds=0.01)
    assert (measured.isa, measured.gmac_per_s) == ("numpy", {})
    assert all(list(by_set) == [WORKING_SETS[2]] for by_set in measured.read_gb_per_s.values())


native = pytest.mark.skipif(load() is None, reason="the native library is not built")


@native
def test_native_measures_all_figures(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("drut.plan.probe.WORKING_SETS", WORKING_SETS[:2])
    measured = through_json(measure(load(), seconds=0.1))
    for by_set in measured.read_gb_per_s.values():
        assert set(by_set) == set(WORKING_SETS[:2])
        # A loop that the compiler removed would read at no cost; no core reads 10 TB/s.
        assert all(0 < value < 10_000 for value in by_set.values())
    assert tuple(measured.gmac_per_s) == OPERANDS
    for by_threads in measured.gmac_per_s.values():
        assert by_threads.keys() == measured.read_gb_per_s.keys()
        assert all(0 < value < 4096 * threads for threads, value in by_threads.items())


@native
def test_the_memory_that_is_read_is_asked_for_in_huge_pages(monkeypatch: pytest.MonkeyPatch) -> None:
    """The faults of small pages took a third of the whole time."""
    asked: list[tuple[int, bool]] = []

    def record(nbytes: int, *, huge: bool = False) -> NDArray[np.uint8]:
        asked.append((nbytes, huge))
        return reserve(nbytes, huge=huge)

    monkeypatch.setattr("drut.plan.probe.WORKING_SETS", WORKING_SETS[:2])
    monkeypatch.setattr("drut.plan.probe.reserve", record)
    measure(load(), seconds=0.01)
    assert asked == [(WORKING_SETS[1], True)]


@native
@pytest.mark.parametrize("mask", [0, *ISA_BITS.values(), -1])
def test_every_instruction_set_measures(mask: int) -> None:
    library = load()
    assert library is not None
    probe = NativeProbe(library, usable_cpus()[:1], mask)
    buffer = reserve(1 << 16)
    buffer.fill(1)
    assert probe.read(buffer, 1, 0.002) > 0
    rates = probe.multiply(1, 0.002)
    assert all(rate > 0 for rate in rates.values())
    names = set(probe.isa.split("+"))
    if names & {"avxvnni", "avx512vnni", "dotprod", "i8mm", "portable"}:
        assert rates["int4"] == rates["int8"], "one instruction, measured once"
    if "avx512bf16" not in names:
        assert rates["fp32"] == rates["bf16"]
