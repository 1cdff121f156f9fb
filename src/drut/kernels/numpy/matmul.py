"""Matrices of the NumPy oracle. Integer sums are exact, so they do not depend on the blocking of the BLAS library."""

from __future__ import annotations

from dataclasses import dataclass

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
        # Row by row: a library's matrix product adds in another order for another number of rows.
        return np.stack([self.floats @ np.ascontiguousarray(row) for row in x])

    def _scaled(self, x: F32, scales: F32) -> F32:
        assert self.floats is not None
        out, group = np.zeros((len(x), self.n), np.float32), self.encoding.group_of(self.k)
        for i, scale in enumerate(scales):
            part = slice(i * group, (i + 1) * group)
            weights = np.ascontiguousarray(self.floats[:, part])
            out += np.stack([weights @ np.ascontiguousarray(row[part]) for row in x]) * scale
        return out

    def _integer(self, x: F32) -> F32:
        assert self.codes is not None
        assert self.scales is not None
        codes, scale, scaled_sum = quantize(x, self.codes.shape[1])
        dots = np.matmul(codes.transpose(1, 0, 2), self.codes.astype(np.float32))  # (groups, rows, n): exact integers
        terms = dots * scale.T[:, :, None] * self.scales[:, None, :]
        if self.minima is not None:
            terms += scaled_sum.T[:, :, None] * self.minima[:, None, :]
        return np.asarray(np.add.reduce(terms, axis=0)[:, : self.n], np.float32)


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


def make_matrix(enc: Encoding, raw: NDArray[np.uint8], n: int, k: int, rows: NDArray[np.int32] | None,
                bias: F32 | None, columns: NDArray[np.int32] | None = None) -> NumpyMatrix:
    """Returns a matrix of `n` stored rows in the order `rows`. Raises ModelFileError if a scale is not finite."""
    stored = raw.reshape(n, -1)
    if rows is not None:
        stored = stored[rows]
    if enc.is_float and enc.block_bytes:
        return NumpyMatrix(n=n, k=k, encoding=enc, floats=formats.decode(enc, stored, k), bias=bias)
    if enc.is_float:
        floats, scale = split_fp8(enc, stored, k)
        _check(floats, scale)
        return NumpyMatrix(n=n, k=k, encoding=enc, floats=floats, scales=np.ascontiguousarray(scale.T), bias=bias)
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
                       columns=columns)


def _check(*parts: F32 | None) -> None:
    if not all(part is None or np.isfinite(part).all() for part in parts):
        raise ModelFileError("a scale is not finite")


def _pad(x: NDArray) -> NDArray:  # type: ignore[type-arg]
    """Returns an array with its last axis padded to whole panels: NumPy reduces a single column in another order."""
    width = padded(x.shape[-1])
    assert width % PAD == 0
    return np.ascontiguousarray(np.pad(x, [(0, 0)] * (x.ndim - 1) + [(0, width - x.shape[-1])]))
