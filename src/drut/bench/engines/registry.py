"""The engines by name."""

from __future__ import annotations

import difflib

from drut.bench.engines.drut import Drut
from drut.bench.engines.engine import BenchEngine
from drut.bench.engines.llamacpp import LlamaCppPython, LlamaServer
from drut.bench.engines.lmdeploy import LmDeploy
from drut.bench.engines.mlx import Mlx
from drut.bench.engines.mock import MockEngine
from drut.bench.engines.ollama import Ollama
from drut.bench.engines.openvino import OpenVino
from drut.bench.engines.sglang import Sglang
from drut.bench.engines.tensorrt_llm import TensorRtLlm
from drut.bench.engines.url import Url
from drut.bench.engines.vllm import Vllm
from drut.errors import RequestError

_ALL: tuple[BenchEngine, ...] = (Drut(), LlamaServer(), LlamaCppPython(), Vllm(), Sglang(), TensorRtLlm(), OpenVino(),
                                 Mlx(),
                                 LmDeploy(), Ollama(), Url(), MockEngine())
ENGINES: dict[str, BenchEngine] = {engine.name: engine for engine in _ALL}


def find(name: str) -> BenchEngine:
    """Returns the engine of that name; a URL is a server that already runs. Raises RequestError if there is none."""
    if name in ENGINES:
        return ENGINES[name]
    if name.startswith(("http://", "https://")):
        return Url(name)
    near = difflib.get_close_matches(name, ENGINES, 1)
    raise RequestError(f"unknown engine {name!r}" + (f"; did you mean {near[0]!r}?" if near else "")
                       + f". Engines are {', '.join(ENGINES)}, and any http:// URL")
