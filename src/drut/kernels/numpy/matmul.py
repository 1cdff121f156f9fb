"""Matrices of the NumPy oracle. Integer sums are exact, so they do not depend on the blocking of the BLAS library."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from drut.errors import ModelFileError
from drut.formats import decode as formats
from drut.formats.encoding import Encoding
from drut.formats.planes import split_fp8
from drut.kernels.numpy.numbers import GROUP, quantize, round_bf16
from drut.kernels.ops import F32
from drut.kernels.weight import PAD, padded


@dataclass(frozen=True, eq=False, kw_only=True)
class NumpyMatrix:
    """Quantized: codes (parts, 16 or 32, n padded), scales and minima (parts, n padded). Float: (n, k).

    FP8: floats (n, k) as codes say, and scales (groups, n). `columns[i]` is the element of a row that column i takes.
    K is summed in `slices`.
    """

    n: int
    k: int
    encoding: Encoding
    floats: F32 | None = None
    codes: NDArray[np.int8] | NDArray[np.int16] | None = None
    scales: F32 | None = None
    minima: F32 | None = None
    bias: F32 | None = None
    columns: NDArray[np.int32] | None = None
    slices: int = 1

    @property
    def nbytes(self) -> int:
        parts = (self.floats, self.codes, self.scales, self.minima)
        return sum(part.nbytes for part in parts if part is not None)

    def rows(self, ids: NDArray[np.int32]) -> F32:
        """Returns the rows `ids` as stored numbers."""
        if self.floats is not None:
            if self.scales is None:
                return self.floats[ids]
            scales = np.repeat(self.scales[:, ids].T, self.encoding.group_of(self.k), axis=1)
            return self.floats[ids] * scales[:, : self.k]
        assert self.columns is None, "a table's columns lie in their order"
        assert self.codes is not None
        assert self.scales is not None
        values = self.codes[:, :, ids].astype(np.float32) * self.scales[:, None, ids]
        if self.minima is not None:
            values += self.minima[:, None, ids]
        return np.ascontiguousarray(values.transpose(2, 0, 1)).reshape(len(ids), self.k)

    def multiply(self, x: F32) -> F32:
        """Returns the products of x (rows, k) and all outputs, (rows, n)."""
        if self.columns is not None:
            x = np.ascontiguousarray(x[:, self.columns])
        out = self._float(x) if self.floats is not None else self._integer(x)
        return out if self.bias is None else out + self.bias

    def _float(self, x: F32) -> F32:
        assert self.floats is not None
        if self.encoding.name == "BF16":
            x = round_bf16(x)
        if self.scales is not None:
            return self._scaled(x, self.scales)
        return joined([self._plain(x, part) for part in slice_ranges(self.k, self.slices)])

    def _plain(self, x: F32, part: slice) -> F32:
        """Returns the products with a slice of K, row by row: a library's matrix product adds in another order for
        another number of rows."""
        assert self.floats is not None
        weights = np.ascontiguousarray(self.floats[:, part])
        return np.stack([weights @ np.ascontiguousarray(row[part]) for row in x])

    def _scaled(self, x: F32, scales: F32) -> F32:
        group, sums = self.encoding.group_of(self.k), []
        for whole in slice_ranges(self.k, self.slices):
            out = np.zeros((len(x), self.n), np.float32)
            for i in range(whole.start // group, -(-whole.stop // group)):
                part = slice(max(whole.start, i * group), min(whole.stop, (i + 1) * group))
                out += self._plain(x, part) * scales[i]
            sums.append(out)
        return joined(sums)

    def _integer(self, x: F32) -> F32:
        assert self.codes is not None
        assert self.scales is not None
        part, unit = self.codes.shape[1], 2 * GROUP if self.encoding.scaled_by_row else GROUP
        codes, scale, scaled_sum = quantize(x, part, scaled=unit)
        dots = np.matmul(codes.transpose(1, 0, 2), self.codes.astype(np.float32))  # (groups, rows, n): exact integers
        terms = dots * scale.T[:, :, None] * self.scales[:, None, :]
        if self.minima is not None:
            terms += scaled_sum.T[:, :, None] * self.minima[:, None, :]
        sums = [np.add.reduce(terms[cut.start // part : cut.stop // part], axis=0)
                for cut in slice_ranges(padded(self.k), self.slices, unit)]
        return np.asarray(joined(sums)[:, : self.n], np.float32)


@dataclass(frozen=True, eq=False)
class NumpyStack:
    """A stack of matrices of one shape and encoding."""

    matrices: tuple[NumpyMatrix, ...]

    @property
    def count(self) -> int:
        return len(self.matrices)

    @property
    def n(self) -> int:
        return self.matrices[0].n

    @property
    def k(self) -> int:
        return self.matrices[0].k

    @property
    def encoding(self) -> Encoding:
        return self.matrices[0].encoding

    @property
    def nbytes(self) -> int:
        return sum(m.nbytes for m in self.matrices)


def slice_ranges(k: int, slices: int, group: int = GROUP) -> list[slice]:
    """Returns the slices of K, cut at groups of activations of `group` elements."""
    groups = -(-k // group)
    cuts = [min(k, i * groups // slices * group) for i in range(slices + 1)]
    return [slice(*pair) for pair in pairwise(cuts)]


def joined(sums: list[F32]) -> F32:
    """Returns the sum of a power of two of arrays, by one binary tree."""
    while len(sums) > 1:
        sums = [left + right for left, right in zip(sums[::2], sums[1::2], strict=True)]
    return sums[0]


def make_matrix(enc: Encoding, raw: NDArray[np.uint8], n: int, k: int, rows: NDArray[np.int32] | None,
                bias: F32 | None, columns: NDArray[np.int32] | None = None, slices: int = 1) -> NumpyMatrix:
    """Returns a matrix of `n` stored rows in the order `rows`. Raises ModelFileError if a scale is not finite."""
    stored = raw.reshape(n, -1)
    if rows is not None:
        stored = stored[rows]
    if enc.is_float and enc.block_bytes:
        return NumpyMatrix(n=n, k=k, encoding=enc, floats=formats.decode(enc, stored, k), bias=bias, slices=slices)
    if enc.is_float:
        floats, scale = split_fp8(enc, stored, k)
        _check(floats, scale)
        return NumpyMatrix(n=n, k=k, encoding=enc, floats=floats, scales=np.ascontiguousarray(scale.T), bias=bias,
                           slices=slices)
    codes, scale, minimum = formats.split(enc, stored, k)
    _check(scale, minimum)
    if enc.name == "MXFP4" and (scale == np.float32(2.0**127)).any():  # all ones: E8M0's NaN
        raise ModelFileError("a scale is not finite")
    group = enc.group_of(k)
    part = min(group, GROUP)  # of larger groups every part has the same scale
    by_part = codes.reshape(n, k // part, part).transpose(1, 2, 0)

    def of_parts(x: F32) -> F32:
        return np.repeat(_pad(x.T), group // part, axis=0)[: k // part]

    minima = None if minimum is None else of_parts(minimum)
    return NumpyMatrix(n=n, k=k, encoding=enc, codes=_pad(by_part), scales=of_parts(scale), minima=minima, bias=bias,
                       columns=columns, slices=slices)


def _check(*parts: F32 | None) -> None:
    if not all(part is None or np.isfinite(part).all() for part in parts):
        raise ModelFileError("a scale is not finite")


def _pad(x: NDArray) -> NDArray:  # type: ignore[type-arg]
    """Returns an array with its last axis padded to whole panels: NumPy reduces a single column in another order."""
    width = padded(x.shape[-1])
    assert width % PAD == 0
    return np.ascontiguousarray(np.pad(x, [(0, 0)] * (x.ndim - 1) + [(0, width - x.shape[-1])]))
