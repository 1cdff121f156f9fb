"""llama.cpp for the comparison, through the C API of `llama-cpp-python`. Besides the usual actions:

{"do": "quantize", "source": PATH, "target": PATH, "type": "Q4_0"}   -> {}   by llama.cpp's own quantizer
"""

from __future__ import annotations

import ctypes
import os
import time
from typing import Any

import llama_cpp
import numpy as np
from benchmarks.peers.offline.window import full_batch
from benchmarks.peers.offline.workers.engine import answer_for
from benchmarks.worker import Answer

ROOM = 256  # maximum tokens of each sequence of a batch
TYPES = {"Q4_0": llama_cpp.LLAMA_FTYPE_MOSTLY_Q4_0, "Q8_0": llama_cpp.LLAMA_FTYPE_MOSTLY_Q8_0,
         "Q4_K_M": llama_cpp.LLAMA_FTYPE_MOSTLY_Q4_K_M}


class Context:
    """A context for `sequences` of `room` tokens, each with a cache of its own, and greedy decoding of all at once."""

    def __init__(self, model: Any, vocab: int, threads: int, sequences: int, room: int) -> None:
        params = llama_cpp.llama_context_default_params()
        params.n_ctx, params.n_seq_max = sequences * room, sequences
        params.n_batch, params.n_ubatch = max(sequences * room, 512), 512
        params.n_threads = params.n_threads_batch = threads
        self._context = llama_cpp.llama_init_from_model(model, params)
        if not self._context:
            raise SystemExit(f"llama.cpp makes no context for {sequences} sequences")
        self._vocab = vocab
        self._batch = llama_cpp.llama_batch_init(sequences * room, 0, 1)

    def clear(self) -> None:
        """Forgets all tokens."""
        llama_cpp.llama_memory_clear(llama_cpp.llama_get_memory(self._context), True)

    def step(self, tokens: list[list[int]], start: int) -> list[int]:
        """Feeds each sequence its `tokens`, at positions from `start` on; returns the best next id of each."""
        batch, row = self._batch, 0
        for sequence, ids in enumerate(tokens):
            for position, token in enumerate(ids, start):
                batch.token[row], batch.pos[row] = token, position
                batch.n_seq_id[row], batch.seq_id[row][0] = 1, sequence
                batch.logits[row] = position == start + len(ids) - 1
                row += 1
        batch.n_tokens = row
        if llama_cpp.llama_decode(self._context, batch):
            raise SystemExit("llama_decode failed")
        # The rows of logits lie side by side in the order of the batch. An argmax over them in place is cheaper
        # than llama.cpp's own greedy sampler, which copies the whole vocabulary into candidates first.
        logits = llama_cpp.llama_get_logits(self._context)
        rows = np.ctypeslib.as_array(logits, (len(tokens), self._vocab))
        return [int(best) for best in rows.argmax(axis=1)]


class Engine:
    """A model, and a context for each requested batch size."""

    def load(self, model: str, threads: int) -> Answer:
        start = time.perf_counter()
        defaults = llama_cpp.llama_model_default_params()
        self._model = llama_cpp.llama_model_load_from_file(model.encode(), defaults)
        if not self._model:
            raise SystemExit(f"{model}: llama.cpp cannot load it")
        self._vocab = llama_cpp.llama_vocab_n_tokens(llama_cpp.llama_model_get_vocab(self._model))
        self._threads, self._contexts = threads, dict[int, Context]()
        self._context(1)
        return {"load_s": time.perf_counter() - start}

    def about(self) -> Answer:
        features = llama_cpp.llama_print_system_info().decode()
        return {"engine": f"llama.cpp of llama-cpp-python {llama_cpp.__version__}, {features}"}

    def prefill(self, prompts: list[list[int]]) -> Answer:
        context, seconds, ids = self._context(1), [], []
        for prompt in prompts:
            context.clear()
            start = time.perf_counter()
            ids += context.step([prompt], 0)
            seconds.append(time.perf_counter() - start)
        return {"seconds": seconds, "ids": ids}

    def decode(self, prompts: list[list[int]], new_tokens: int) -> Answer:
        context = self._context(len(prompts))
        context.clear()
        length = len(prompts[0])
        assert all(len(prompt) == length for prompt in prompts)
        tokens = first = context.step(prompts, 0)
        moments = [time.perf_counter()]
        for i in range(new_tokens - 1):
            tokens = context.step([[token] for token in tokens], length + i)
            moments.append(time.perf_counter())
        return {**full_batch([moments] * len(prompts))._asdict(), "ids": first}

    def _context(self, sequences: int) -> Context:
        if sequences not in self._contexts:
            room = 1024 if sequences == 1 else ROOM
            self._contexts[sequences] = Context(self._model, self._vocab, self._threads, sequences, room)
        return self._contexts[sequences]


def quantize(source: str, target: str, type: str) -> Answer:
    """Writes `target`, complete or not at all."""
    params = llama_cpp.llama_model_quantize_default_params()
    params.ftype, params.allow_requantize = TYPES[type], True
    params.nthread = 1
    partial = f"{target}.partial"
    if llama_cpp.llama_model_quantize(source.encode(), partial.encode(), ctypes.byref(params)):
        raise SystemExit(f"{source}: llama.cpp cannot requantize it")
    os.replace(partial, target)
    return {}


def main() -> None:
    llama_cpp.llama_backend_init()
    answer_for(Engine(), quantize=quantize)


if __name__ == "__main__":
    main()
