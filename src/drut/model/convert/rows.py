"""Reads a role's stored numbers in canonical order."""

from __future__ import annotations

from drut.formats.decode import decode
from drut.formats.encoding import encoding
from drut.formats.planes import F32
from drut.model.model import ModelFiles


def canonical(files: ModelFiles, role: str, shape: tuple[int, ...]) -> F32:
    """Returns the numbers of a role, float32 of `shape`: rows and columns in canonical order. Its tensor is released.
    """
    stored = files.table[role]
    info = files.source.tensors[stored.name]
    values = decode(encoding(info.encoding), files.source.raw(stored.name), shape[-1]).reshape(shape)
    columns, order = files.source.columns(stored.name), stored.row_order(shape[0])
    if columns is not None:
        values[:, columns] = values.copy()
    files.source.release(stored.name)
    return values if order is None else values[order]
