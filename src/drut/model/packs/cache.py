"""The folder of packs, with a maximum of bytes; the least recently used packs are removed first."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import shutil
import warnings
from collections.abc import Iterator, Sequence
from pathlib import Path

from drut.model.packs.file import Bytes, PackError, PackForm, map_pack, pack_bytes, write_pack
from drut.model.store.files import publish

SUFFIX, PARTIAL = ".pack", ".partial"


class PackCache:
    """Packs under `folder`, each a file `KEY.pack`. Processes may share it. A failure is only a warning of one line."""

    def __init__(self, folder: Path, max_bytes: int) -> None:
        self.folder, self.max_bytes = folder, max_bytes

    def ready(self) -> bool:
        """Whether the folder exists; creates it if it is missing."""
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            self._not_kept(error)
            return False
        return True

    def get(self, key: str, forms: Sequence[PackForm]) -> list[Bytes] | None:
        """Returns the bytes of each of `forms` under `key`, read-only; None if there is no pack or it is damaged."""
        path = self._path(key)
        try:
            found = map_pack(path, key, forms)
        except FileNotFoundError:
            return None
        except (PackError, OSError) as error:
            why = error.strerror if isinstance(error, OSError) else error
            warnings.warn(f"drut: {path}: {why}; the weights are packed again", stacklevel=2)
            with contextlib.suppress(OSError):
                path.unlink()
            return None
        with contextlib.suppress(OSError):
            os.utime(path)  # when it was last used
        return found

    def put(self, key: str, model: str, matrices: Sequence[tuple[PackForm, Bytes]]) -> None:
        """Writes `matrices` under `key`, durably, unless another process is writing here."""
        try:
            with self._locked() as mine:
                if mine and not self._path(key).exists():
                    self._make_room(pack_bytes(form for form, _ in matrices))
                    partial = self.folder / f".{key}{PARTIAL}"
                    try:
                        write_pack(partial, key, model, matrices)
                        publish(partial, self._path(key))
                    finally:
                        partial.unlink(missing_ok=True)
        except OSError as error:
            self._not_kept(error)

    def _path(self, key: str) -> Path:
        return self.folder / f"{key}{SUFFIX}"

    @contextlib.contextmanager
    def _locked(self) -> Iterator[bool]:
        """Yields whether this process got the lock."""
        lock = os.open(self.folder / ".lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
        try:
            yield _acquired(lock)
        finally:
            os.close(lock)

    def _make_room(self, nbytes: int) -> None:
        """Removes files of killed writers, and old packs until `nbytes` more fit. The caller must hold the lock."""
        for left in self.folder.glob(f".*{PARTIAL}"):
            left.unlink(missing_ok=True)
        if nbytes > self.max_bytes:
            raise OSError(errno.EFBIG, f"{nbytes / 1e9:.1f} GB are more than pack_cache_gb")
        others = sorted((s.st_mtime_ns, s.st_size, p) for p, s in self._packs())
        excess = nbytes + sum(size for _, size, _ in others) - self.max_bytes
        victims, freed = [], 0
        for _, size, other in others:
            if freed >= excess:
                break
            victims.append(other)
            freed += size
        if shutil.disk_usage(self.folder).free + freed < 2 * nbytes:  # leaves as much again for other programs
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        for victim in victims:
            victim.unlink(missing_ok=True)

    def _packs(self) -> Iterator[tuple[Path, os.stat_result]]:
        for path in self.folder.glob(f"*{SUFFIX}"):
            with contextlib.suppress(OSError):
                yield path, path.stat()

    def _not_kept(self, error: OSError) -> None:
        warnings.warn(f"drut: packed weights are not kept in {self.folder}: {error.strerror or error} "
                      "(pack_cache=False turns this off)", stacklevel=3)


def _acquired(lock: int) -> bool:
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True
