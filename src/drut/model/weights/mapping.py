"""A regular file mapped read-only: the bytes behind every weight container."""

from __future__ import annotations

import contextlib
import mmap
import os
import stat
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from drut.errors import ModelFileError


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


def quote(name: str) -> str:
    """A name as it stands in an error: quoted, on one line, of bounded length."""
    return repr(name if len(name) <= 80 else name[:77] + "...")
