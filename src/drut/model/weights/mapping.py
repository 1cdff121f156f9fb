"""A regular file mapped read-only, and one with named tensors in it: what is behind every weight container."""

from __future__ import annotations

import contextlib
import mmap
import os
import stat
from abc import ABC, abstractmethod
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType

import numpy as np
from numpy.typing import NDArray

from drut.errors import ModelFileError
from drut.model.weights.source import TensorInfo


class MappedFile:
    """The bytes of one file. Arrays handed out stay valid after `close`: the mapping ends with the last one.

    Raises ModelFileError, naming the file, where it is missing, unreadable, empty or not a regular file.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = Path(path)
        try:
            # O_NONBLOCK: opening a FIFO must not wait for a writer.
            fd = os.open(self.path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
            try:
                status = os.fstat(fd)
                if not stat.S_ISREG(status.st_mode):
                    raise ModelFileError(f"{self.path}: not a regular file")
                if status.st_size == 0:
                    raise ModelFileError(f"{self.path}: the file is empty")
                self.size = status.st_size
                self.buffer = mmap.mmap(fd, self.size, access=mmap.ACCESS_READ)
            finally:
                os.close(fd)
        except (OSError, ValueError) as error:
            raise ModelFileError(f"{self.path}: {getattr(error, 'strerror', None) or error}") from None

    def view(self, offset: int, nbytes: int) -> NDArray[np.uint8]:
        """`nbytes` bytes at `offset`, read-only, shape (nbytes,). ModelFileError if the file shrank.

        To read a page that is no longer in the file would end the process with SIGBUS.
        """
        if self.buffer.size() < self.size:
            raise ModelFileError(f"{self.path}: the file became shorter while it was open")
        return np.frombuffer(self.buffer, np.uint8, nbytes, offset)

    def release(self, offset: int, nbytes: int) -> None:
        """Give back the whole pages inside the range; a later touch reads them from the file again."""
        page = mmap.PAGESIZE
        start = -(-offset // page) * page
        end = (offset + nbytes) // page * page
        if end > start:
            self.buffer.madvise(mmap.MADV_DONTNEED, start, end - start)

    def close(self) -> None:
        """End the mapping, at once or with the last array that looks at it."""
        with contextlib.suppress(BufferError):
            self.buffer.close()


class TensorFile(ABC):
    """An open file of named tensors, in the file's order, and its `metadata`: what every container has.

    Raises ModelFileError where the file is damaged.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self._file = MappedFile(path)
        self.path = self._file.path
        try:
            metadata, tensors = self._read()
        except BaseException:
            self._file.close()
            raise
        self.metadata: Mapping[str, object] = MappingProxyType(dict(metadata))
        self._tensors = MappingProxyType(dict(tensors))

    @abstractmethod
    def _read(self) -> tuple[Mapping[str, object], Mapping[str, TensorInfo]]:
        """Metadata and tensors as the header tells them, checked."""

    @property
    def tensors(self) -> Mapping[str, TensorInfo]:
        """Tensors by name, in the file's order."""
        return self._tensors

    def raw(self, name: str) -> NDArray[np.uint8]:
        """The tensor's bytes, read-only, shape (nbytes,). ModelFileError if it is missing or cut off."""
        info = self._info(name)
        return self._file.view(info.offset, info.nbytes)

    def columns(self, name: str) -> NDArray[np.int32] | None:
        """None: only quantized checkpoints reorder columns."""
        return None

    def release(self, name: str) -> None:
        """Let the tensor's pages leave memory."""
        info = self._info(name)
        self._file.release(info.offset, info.nbytes)

    def close(self) -> None:
        """End the mapping; arrays from `raw` stay valid."""
        self._file.close()

    def _info(self, name: str) -> TensorInfo:
        try:
            return self._tensors[name]
        except KeyError:
            raise ModelFileError(f"{self.path}: tensor {name!r} is missing") from None


def quote(name: str) -> str:
    """A name as it stands in an error: quoted, on one line, of bounded length."""
    return repr(name if len(name) <= 80 else name[:77] + "...")
