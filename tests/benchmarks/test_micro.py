"""The gate over kernels, and the kernels' clock where the native library is built."""

from __future__ import annotations

import pytest
from benchmarks.kernels.micro import HERE, THERE, Measured, cases, compare, fallen

from drut.formats.encoding import ENCODINGS, encoding
from drut.kernels.native import library
from drut.observe.ledger import Macs, Peaks

needs_native = pytest.mark.skipif(library.load() is None, reason="the native library is not built")


def test_cases_leave_out_what_has_no_whole_blocks() -> None:
    names = [case.name for case in cases(["Q4_0", "Q4_K"], [])]
    assert "gemm Q4_0 576x576 rows 1" in names
    assert "gemm Q4_K 576x576 rows 1" not in names
    assert "gemm Q4_K 576x1536 rows 512" in names
    assert len(names) == len(set(names))
    assert [case.name for case in cases(["Q4_0"], ["1B bf16 context 4096 rows 1", "1B int8 context 512 rows 128"])] == [
        "attention 1B bf16 context 4096 rows 1", "attention 1B bf16 context 4096 rows 128",
        "attention 1B int8 context 512 rows 128"]


def test_a_kernel_falls_by_its_ratio_alone() -> None:
    assert fallen({"a": [0.94], "b": [0.96], "c": [0.5, 0.6], "d": [2.0]}, 0.05) == ["c", "a"]
    assert fallen({"noise": [0.5, 0.6, 1.0]}, 0.05) == []
    assert fallen({}, 0.05) == []


def test_ratios_within_rounds_or_of_a_files_shares() -> None:
    cost = {"bytes": 100, "macs": [10, 0, 0], "working_set": 7}
    both = Measured(cost, {HERE: [1.0, 2.0, 4.0], THERE: [2.0, 2.0, 6.0]})
    alone = Measured(cost, {HERE: [4.0], THERE: []})
    assert compare({"x": both, "y": alone}, {"x": 0.5, "y": 0.5}, None) == {"x": [2.0, 1.0, 1.5]}
    assert compare({"x": both, "y": alone}, {"x": 0.5, "y": 0.5}, {"x": 0.25}) == {"x": [2.0]}
    assert both.share(Peaks(lambda _: 100.0, Macs(100.0, 1.0, 1.0))) == 0.5
    assert both.floors(Peaks(lambda _: 100.0, Macs(100.0, 1.0, 1.0))) == {"read": 1.0}
    assert both.floors(Peaks(lambda _: 100.0, Macs(5.0, 1.0, 1.0))) == {"int4": 2.0}


@needs_native
@pytest.mark.parametrize("kind", ENCODINGS)
def test_random_blocks_have_values(kind: str) -> None:
    import numpy as np
    from benchmarks.kernels.micro_kernels import random_blocks

    from drut.formats.decode import decode

    enc = encoding(kind)
    raw = random_blocks(enc, 3, 512)
    assert raw.shape == (3, enc.row_bytes(512))
    assert np.isfinite(decode(enc, raw, 512)).all()


@needs_native
def test_a_kernel_is_timed() -> None:
    from benchmarks.kernels.micro_kernels import Kernels

    kernels = Kernels()
    kernels.load(threads=1, isa="auto")
    gemm = kernels.gemm("Q8_0", 64, 64, rows=20, seconds=0.0)
    assert gemm["seconds"] > 0
    assert (gemm["bytes"], gemm["macs"]) == (64 * 68, (0, 20 * 64 * 64, 0))
    attention = kernels.attention(4, 2, 16, "int8", context=40, rows=8, seconds=0.0)
    assert attention["seconds"] > 0
    assert attention["macs"] == (0, sum(range(33, 41)) * 3 * 4 * 16, 0)
