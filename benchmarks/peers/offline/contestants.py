"""The contestants of a comparison of one model: interpreter, worker and file of each, and the base of Drut's ratios."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from benchmarks.peers.build import PEERS, PEERS_DIR, ROOT
from benchmarks.peers.models import W8A8, CannotMakeError, Model, checkpoint, drut_file, openvino_folder
from benchmarks.peers.process import EngineError, EngineProcess

WORKERS = "benchmarks.peers.offline.workers"
LOGS = ROOT / "build" / "compare" / "logs"
NAMES = ("drut", "llamacpp", "openvino", "vllm", "drut-avx2", "llamacpp-avx2")
TITLES = {"drut": "Drut", "llamacpp": "llama.cpp", "openvino": "OpenVINO GenAI", "vllm": "vLLM",
          "drut-avx2": "Drut, `DRUT_ISA=avx2`", "llamacpp-avx2": "llama.cpp without AVX-512"}
AGAINST = {"llamacpp": "drut", "openvino": "drut", "vllm": "drut", "llamacpp-avx2": "drut-avx2"}
"""Engine -> the Drut it is compared with."""


@dataclass(frozen=True)
class Contestant:
    """An engine with a file. `same_file`: it reads the same file as Drut; `settings`: more arguments of its load."""

    name: str
    python: Path
    module: str
    path: Path
    same_file: bool
    env: dict[str, str] = field(default_factory=dict)
    settings: dict[str, str] = field(default_factory=dict)

    def start(self, cpus: list[int]) -> EngineProcess:
        """Starts its process, with nothing loaded."""
        LOGS.mkdir(parents=True, exist_ok=True)
        own = os.environ.get("PYTHONPATH", "") if self.python == Path(sys.executable) else ""
        env = {**self.env, "PYTHONPATH": own}  # Drut may come from a source tree; the others must not see it
        return EngineProcess(python=self.python, module=self.module, log=LOGS / f"{self.name}.log", cwd=ROOT, env=env,
                             cpus=cpus)


def contestants(model: Model, names: list[str], cpus: list[int]) -> tuple[list[Contestant], dict[str, str]]:
    """Returns those of `names` that can run `model`, and the reasons why others cannot, by name."""
    found: list[Contestant] = []
    missing: dict[str, str] = {}
    for name in names:
        peer = PEERS.get(name)
        if peer is not None and not peer.ready():
            missing[name] = "not built (make peers)"
            continue
        make = _MAKERS[name]
        try:
            contestant = make(model, cpus)
        except (CannotMakeError, EngineError) as error:
            missing[name] = str(error)
            continue
        if contestant is not None:
            found.append(contestant)
    return found, missing


def _drut(model: Model, _cpus: list[int], name: str = "drut") -> Contestant:
    env = {"DRUT_ISA": "avx2"} if name == "drut-avx2" else {}
    return Contestant(name=name, python=Path(sys.executable), module=f"{WORKERS}.drut_worker", path=drut_file(model),
                      same_file=True, env=env, settings={"kv_dtype": model.kv_dtype})


def _llamacpp(model: Model, _cpus: list[int], name: str = "llamacpp") -> Contestant | None:
    if model.type == W8A8:
        return None
    return Contestant(name, PEERS[name].python, f"{WORKERS}.llamacpp_worker", drut_file(model), True)


def _openvino(model: Model, _cpus: list[int]) -> Contestant | None:
    if not model.openvino:
        return None
    return Contestant("openvino", PEERS["openvino"].python, f"{WORKERS}.openvino_worker", openvino_folder(model), False)


def _vllm(model: Model, cpus: list[int]) -> Contestant | None:
    """Returns vLLM with all CPUs for its threads (by default it leaves one idle), and its recommended libraries
    preloaded."""
    if not model.vllm:
        return None
    peer = PEERS["vllm"]
    tcmalloc = [*PEERS_DIR.glob("tcmalloc/**/libtcmalloc_minimal.so.4"),
                *Path("/usr/lib").glob("*/libtcmalloc_minimal.so.4")]
    preloaded = [*tcmalloc[:1], *peer.folder.glob("lib/libiomp5.so")]
    env = {"VLLM_CPU_KVCACHE_SPACE": "1", "VLLM_CPU_NUM_OF_RESERVED_CPU": "0",
           "VLLM_CPU_OMP_THREADS_BIND": ",".join(map(str, cpus)), "VLLM_ENABLE_V1_MULTIPROCESSING": "0",
           "OMP_NUM_THREADS": str(len(cpus)), "VLLM_NO_USAGE_STATS": "1",
           "HF_HUB_OFFLINE": "1", "LD_PRELOAD": ":".join(map(str, preloaded))}
    return Contestant(name="vllm", python=peer.python, module=f"{WORKERS}.vllm_worker", path=checkpoint(model),
                      same_file=False, env=env)


_MAKERS: dict[str, Callable[[Model, list[int]], Contestant | None]] = {
    "drut": _drut,
    "drut-avx2": lambda model, cpus: _drut(model, cpus, "drut-avx2"),
    "llamacpp": _llamacpp,
    "llamacpp-avx2": lambda model, cpus: _llamacpp(model, cpus, "llamacpp-avx2"),
    "openvino": _openvino,
    "vllm": _vllm,
}
