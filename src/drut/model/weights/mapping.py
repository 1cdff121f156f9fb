"""Read-only mappings of files, and files of named tensors: the base of every weight container."""

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
    """The bytes of one file.

    Lifetime: arrays from `view` stay valid after `close`; the mapping ends with the last of them. Raises
    ModelFileError, which names the file, if it is missing, unreadable, empty or not a regular file.
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
        """Returns `nbytes` bytes at `offset`, read-only, shape (nbytes,). Raises ModelFileError if the file shrank.

        Hazard: reading a page past the end of the file ends the process with SIGBUS.
        """
        if self.buffer.size() < self.size:
            raise ModelFileError(f"{self.path}: the file became shorter while it was open")
        return np.frombuffer(self.buffer, np.uint8, nbytes, offset)

    def release(self, offset: int, nbytes: int) -> None:
        """Releases the whole pages inside the range; a later access reads them from the file again."""
        page = mmap.PAGESIZE
        start = -(-offset // page) * page
        end = (offset + nbytes) // page * page
        if end > start:
            self.buffer.madvise(mmap.MADV_DONTNEED, start, end - start)

    def close(self) -> None:
        """Ends the mapping, at once or with the last array that uses it."""
        with contextlib.suppress(BufferError):
            self.buffer.close()


class TensorFile(ABC):
    """An open file of named tensors, in the file's order, with its `metadata`.

    Raises ModelFileError if the file is damaged.
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
        """Returns metadata and tensors of the header, checked."""

    @property
    def tensors(self) -> Mapping[str, TensorInfo]:
        """Tensors by name, in the file's order."""
        return self._tensors

    def raw(self, name: str) -> NDArray[np.uint8]:
        """Returns the tensor's bytes, read-only, (nbytes,). Raises ModelFileError if it is missing or truncated."""
        info = self._info(name)
        return self._file.view(info.offset, info.nbytes)

    def columns(self, name: str) -> NDArray[np.int32] | None:
        """Returns None, because only quantized checkpoints reorder columns."""
        return None

    def release(self, name: str) -> None:
        """Lets the system drop the tensor's pages from memory."""
        info = self._info(name)
        self._file.release(info.offset, info.nbytes)

    def close(self) -> None:
        """Ends the mapping; arrays from `raw` stay valid."""
        self._file.close()

    def _info(self, name: str) -> TensorInfo:
        try:
            return self._tensors[name]
        except KeyError:
            raise ModelFileError(f"{self.path}: tensor {name!r} is missing") from None


def quote(name: str) -> str:
    """Returns a name for an error message: quoted, on one line, of bounded length."""
    return repr(name if len(name) <= 80 else name[:77] + "...")
