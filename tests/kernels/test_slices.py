"""Sums along K in slices that a binary tree joins: each slice is the plain sum of its own activations."""

from __future__ import annotations

import numpy as np
import pytest

from drut.formats.encoding import encoding
from drut.kernels.numpy.backend import NumpyBackend
from drut.kernels.numpy.matmul import joined, slice_ranges
from drut.kernels.weight import slices_of
from tests.kernels.conftest import Native
from tests.kernels.rig import F32, FLOATS, Stored, assert_same_bits, floats, project
from tests.kernels.test_encodings import FP8, QUANTS, random_file

K = 1536  # 48 groups: cuts of 4 and 8 slices are not at super-blocks of 8 groups


def weight_of(name: str) -> Stored:
    if name in FLOATS:
        return floats(np.random.default_rng(4).standard_normal((33, K)), name)
    # One scale per row multiplies the whole sum: with scales of one, a slice's plain product is the slice's sum.
    return random_file(name, 33, K, unit=encoding(name).scaled_by_row)


def by_definition(native: Native, isa: str, weight: Stored, source: F32, slices: int) -> F32:
    """Activations of zero add nothing, so a plain product of one slice's activations is the slice's sum."""
    sums = []
    for cut in slice_ranges(K, slices, 64 if weight.encoding.scaled_by_row else 32):
        only = np.zeros_like(source)
        only[:, cut] = source[:, cut]
        sums.append(project(native(isa), weight, only))
    return joined(sums)


@pytest.mark.parametrize("name", [*FLOATS, *QUANTS, *FP8])
@pytest.mark.parametrize("slices", [2, 4, 8])
def test_slices_are_joined_by_a_tree(native: Native, isa: str, name: str, slices: int) -> None:
    source = np.random.default_rng(3).standard_normal((67, K)).astype(np.float32)
    weight = weight_of(name)
    expected = by_definition(native, isa, weight, source, slices)
    sliced = weight._replace(slices=slices)
    for rows in (67, 9, 4, 1):  # with unpacked weights, in several passes, in one
        assert_same_bits(project(native(isa), sliced, source[:rows]), expected[:rows], f"{rows} rows")
    close = project(NumpyBackend(), sliced, source)
    assert np.abs(close - expected).max() <= 1e-4 * np.abs(expected).max()


@pytest.mark.parametrize(("k", "slices"), [(32, 1), (480, 1), (512, 2), (576, 2), (1024, 4), (1536, 4), (2016, 4),
                                           (2048, 8), (4096, 8), (14336, 8), (500, 2), (480 - 1, 1)])
def test_slices_of_a_row_parallel_matrix(k: int, slices: int) -> None:
    """Each has 8 groups of 32 or more."""
    assert slices_of(k) == slices
    assert min(cut.stop - cut.start for cut in slice_ranges(-(-k // 32) * 32, slices)) >= (256 if slices > 1 else 0)
