"""Atomic writing of files and folders, and the lock that protects it."""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import IO

from drut.errors import DownloadError
from drut.model.store.progress import DownloadProgress, Report

CHUNK = 1 << 20


@contextlib.contextmanager
def locked(folder: Path, progress: DownloadProgress) -> Iterator[None]:
    """Creates `folder` and holds its lock; other processes wait. Raises DownloadError if it is not writable."""
    with writing(folder):
        folder.mkdir(parents=True, exist_ok=True)
        lock = os.open(folder / ".lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
    try:
        _acquire(lock, folder, progress)
        yield
    finally:
        os.close(lock)


@contextlib.contextmanager
def scratch_in(folder: Path) -> Iterator[Path]:
    """Yields an empty folder inside `folder` and removes it afterwards, as well as one that a killed process left. The
    caller must hold the lock."""
    scratch = folder / ".partial"
    shutil.rmtree(scratch, ignore_errors=True)
    with writing(folder):
        scratch.mkdir()
    try:
        yield scratch
    finally:
        shutil.rmtree(scratch, ignore_errors=True)


def _acquire(lock: int, folder: Path, progress: DownloadProgress) -> None:
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        with progress(f"waiting for another process that is fetching into {folder}", None):
            fcntl.flock(lock, fcntl.LOCK_EX)


@contextlib.contextmanager
def writing(path: Path) -> Iterator[None]:
    """Turns an error of the file system into a DownloadError that names `path`."""
    try:
        yield
    except OSError as error:
        why = error.strerror or error
        raise DownloadError(f"cannot write {path}: {why} (DRUT_HOME sets another place)") from None


def sha256_of(file: IO[bytes], report: Report, out: IO[bytes] | None = None) -> str:
    """Returns the SHA-256 in hex of the rest of `file`, and copies the bytes to `out`."""
    digest, done = hashlib.sha256(), 0
    while chunk := file.read(CHUNK):
        digest.update(chunk)
        if out is not None:
            out.write(chunk)
        done += len(chunk)
        report(done)
    return digest.hexdigest()


def publish(finished: Path, target: Path) -> None:
    """Gives a finished file or folder its final name, durably. Order: the bytes reach the disk before the name."""
    for path in [finished, *finished.rglob("*")] if finished.is_dir() else [finished]:
        _sync(path)
    os.replace(finished, target)
    _sync(target.parent)


def write_atomically(target: Path, text: str) -> None:
    """Replaces the file `target` by one with `text`; readers see either the old file or the new one."""
    finished = target.with_name(f".{target.name}.{os.getpid()}")
    finished.write_text(text, encoding="utf-8")
    publish(finished, target)


def _sync(path: Path) -> None:
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)
