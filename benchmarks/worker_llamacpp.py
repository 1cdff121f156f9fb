"""llama.cpp as a benchmark worker, through the C API of `llama-cpp-python`: see worker.py for the protocol.

{"do": "quantize", "source": PATH, "target": PATH}   -> {}   Q4_0 by llama.cpp's own quantizer
"""

from __future__ import annotations

import ctypes
import os
import time
from typing import Any

import llama_cpp
import numpy as np
from worker import Answer, serve

CONTEXT = 1024


class Engine:
    """A model with a context for one sequence, and greedy decoding."""

    def __init__(self, path: str, threads: int) -> None:
        defaults = llama_cpp.llama_model_default_params()
        self.model = llama_cpp.llama_model_load_from_file(path.encode(), defaults)
        if not self.model:
            raise SystemExit(f"{path}: llama.cpp cannot load it")
        params = llama_cpp.llama_context_default_params()
        params.n_ctx, params.n_batch, params.n_ubatch = CONTEXT, CONTEXT, 512
        params.n_threads, params.n_threads_batch = threads, threads
        self.context = llama_cpp.llama_init_from_model(self.model, params)
        self.vocab = llama_cpp.llama_vocab_n_tokens(llama_cpp.llama_model_get_vocab(self.model))

    def step(self, tokens: ctypes.Array[Any]) -> int:
        """Decode `tokens`; the best next id."""
        batch = llama_cpp.llama_batch_get_one(tokens, len(tokens))
        if llama_cpp.llama_decode(self.context, batch):
            raise SystemExit("llama_decode failed")
        # An argmax over the logits in place takes microseconds; llama.cpp's greedy sampler copies the whole
        # vocabulary into candidates first.
        logits = llama_cpp.llama_get_logits_ith(self.context, -1)
        return int(np.ctypeslib.as_array(logits, (self.vocab,)).argmax())

    def run(self, prompt: list[int], new_tokens: int) -> Answer:
        """Speeds of one prompt and its continuation, in tokens a second."""
        llama_cpp.llama_memory_clear(llama_cpp.llama_get_memory(self.context), False)
        start = time.perf_counter()
        token = (llama_cpp.llama_token * 1)(self.step((llama_cpp.llama_token * len(prompt))(*prompt)))
        first = time.perf_counter()
        for _ in range(new_tokens - 1):
            token[0] = self.step(token)
        end = time.perf_counter()
        return {
            "prefill_tokens_per_s": len(prompt) / (first - start),
            "decode_tokens_per_s": (new_tokens - 1) / (end - first) if new_tokens > 1 else None,
        }


def quantize(source: str, target: str) -> Answer:
    """Write `target`, whole or not at all."""
    params = llama_cpp.llama_model_quantize_default_params()
    params.ftype, params.allow_requantize = llama_cpp.LLAMA_FTYPE_MOSTLY_Q4_0, True
    partial = f"{target}.partial"
    if llama_cpp.llama_model_quantize(source.encode(), partial.encode(), ctypes.byref(params)):
        raise SystemExit(f"{source}: llama.cpp cannot requantize it")
    os.replace(partial, target)
    return {}


def main() -> None:
    llama_cpp.llama_backend_init()
    engines: dict[str, Engine] = {}

    def load(model: str, threads: int) -> Answer:
        start = time.perf_counter()
        engines[model] = Engine(model, threads)
        return {"load_s": time.perf_counter() - start, "vocab": engines[model].vocab}

    def run(model: str, prompt: list[int], new_tokens: int) -> Answer:
        return engines[model].run(prompt, new_tokens)

    def about() -> Answer:
        features = llama_cpp.llama_print_system_info().decode()
        return {"engine": f"llama.cpp of llama-cpp-python {llama_cpp.__version__}, {features}"}

    serve({"load": load, "run": run, "quantize": quantize, "about": about})


if __name__ == "__main__":
    main()
