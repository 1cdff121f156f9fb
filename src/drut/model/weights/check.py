"""Checks that a stored tensor fits its role."""

from __future__ import annotations

from drut.errors import ModelFileError
from drut.formats.encoding import encoding
from drut.model.weights.source import TensorInfo, TensorSource


def tensor_info(source: TensorSource, name: str, shape: tuple[int, ...], k: int, where: str) -> TensorInfo:
    """Returns the tensor `name` after checking shape and encoding; `k` is the length of its rows. An error names the
    tensor."""
    info = source.tensors.get(name)
    if info is None:
        raise ModelFileError(f"{where}: tensor {name!r} is missing")
    if info.shape not in (shape, (1, *shape)[-2:]):  # one row may be stored as a matrix
        raise ModelFileError(f"{where}: tensor {name!r} has shape {list(info.shape)}, expected {list(shape)}")
    try:
        enc = encoding(info.encoding)
    except Exception as error:
        raise type(error)(f"{where}: tensor {name!r}: {error}") from None
    if len(shape) > 1 and k % enc.block:
        raise ModelFileError(f"{where}: tensor {name!r}: rows of {k} are not whole blocks of {enc.name}")
    return info
