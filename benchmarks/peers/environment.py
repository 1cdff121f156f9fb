"""An environment under build/peers/ with one other engine: created if missing, and again when its recipe has
changed."""

from __future__ import annotations

import os
import subprocess
import venv
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO

ROOT = Path(__file__).parents[2]
PEERS_DIR = ROOT / "build" / "peers"


@dataclass(frozen=True)
class Peer:
    """An engine: the pip installation steps, and the modules that must import afterwards."""

    name: str
    title: str
    steps: tuple[tuple[str, ...], ...]  # arguments of `pip install`
    imports: str
    env: Mapping[str, str] = field(default_factory=dict)
    without: tuple[str, ...] = ()  # installed packages that do not load here and are removed
    # A script that prints requirements, the requirements it omits, and packages to install with them, after the steps.
    listed: tuple[str, tuple[str, ...], tuple[str, ...]] | None = None
    files: Mapping[str, str] = field(default_factory=dict)  # written to its site-packages
    links: Mapping[str, str] = field(default_factory=dict)  # name in its folder -> pattern of the target
    # Debian packages that are unpacked, not installed: folder, packages, the required library.
    libraries: tuple[tuple[str, tuple[str, ...], str], ...] = ()

    @property
    def folder(self) -> Path:
        return PEERS_DIR / self.name

    @property
    def python(self) -> Path:
        return self.folder / "bin" / "python"

    @property
    def log(self) -> Path:
        return PEERS_DIR / f"{self.name}.log"

    @property
    def recipe(self) -> str:
        """Returns a text that changes when the environment must be created again."""
        listed = self.listed and (self.listed[2][1:], self.listed[1])
        more = [dict(given) for given in (self.files, self.links) if given]
        return repr((self.steps, self.imports, dict(self.env), self.without, listed, *more))

    def ready(self) -> bool:
        stamp = self.folder / "ready"
        return stamp.exists() and stamp.read_text() == self.recipe


def build(peer: Peer) -> str | None:
    """Creates the environment of `peer` if it is missing or stale. Returns the reason of a failure, None on success."""
    if peer.ready():
        return None
    print(f"{peer.name}: {peer.title}; building into {peer.folder.relative_to(ROOT)}", flush=True)
    PEERS_DIR.mkdir(parents=True, exist_ok=True)
    with peer.log.open("w") as log:
        try:
            venv.create(peer.folder, with_pip=True, clear=True)
            finish(peer, log)
        except (OSError, subprocess.CalledProcessError) as error:
            return f"{error}\n{tail(peer.log)}"
    return None


def finish(peer: Peer, log: IO[str]) -> None:
    """Completes an existing environment by its recipe; steps that are done already take no time."""
    environ = {**os.environ, "CMAKE_BUILD_PARALLEL_LEVEL": "1", "MAKEFLAGS": "-j1", **peer.env}

    def run(*command: str) -> None:
        print("$", *command, file=log, flush=True)
        subprocess.run(["nice", "-n", "19", peer.python, *command], check=True, stdout=log, stderr=log, env=environ,
                       stdin=subprocess.DEVNULL)

    for step in peer.steps:
        run("-m", "pip", "install", "--quiet", *step)
    if peer.listed:
        script, without, extra = peer.listed
        found = subprocess.run([peer.python, "-c", script, *without], check=True, capture_output=True, text=True).stdout
        run("-m", "pip", "install", *extra, *filter(None, found.split("\n")))
    if peer.without:
        run("-m", "pip", "uninstall", "--yes", *peer.without)
    packages = next(peer.folder.glob("lib/python3.*/site-packages"))
    for name, text in peer.files.items():
        (packages / name).parent.mkdir(exist_ok=True)
        (packages / name).write_text(text)
    run("-c", f"import {peer.imports}")
    for name, pattern in peer.links.items():
        link = peer.folder / name
        link.unlink(missing_ok=True)
        link.symlink_to(os.path.relpath(next(peer.folder.glob(pattern)), link.parent))
    (peer.folder / "ready").write_text(peer.recipe)


def fetch_libraries(peer: Peer) -> str | None:
    """Unpacks Debian packages under build/peers/ for preloading, without installing them. Returns the reason of a
    failure, None on success."""
    for name, packages, wanted in peer.libraries:
        folder = PEERS_DIR / name
        if any(folder.glob(f"usr/**/{wanted}")):
            continue
        folder.mkdir(parents=True, exist_ok=True)
        try:
            subprocess.run(["apt-get", "download", *packages], cwd=folder, check=True, capture_output=True)
            for package in folder.glob("*.deb"):
                subprocess.run(["dpkg", "-x", package, folder], check=True, capture_output=True)
        except (OSError, subprocess.CalledProcessError) as error:
            return f"{name}: {error}"
    return None


def tail(log: Path, lines: int = 8) -> str:
    """Returns the end of a log, indented."""
    found = log.read_text(errors="replace").strip().splitlines()[-lines:] if log.exists() else []
    return "\n".join(f"    {line[:300]}" for line in found)
