"""Whether llama.cpp reads the tests' tiny GGUF files correctly.

    python -m benchmarks.peers.gguf_parity

Needs llama-cpp-python and NumPy, not drut. Prints for each checkpoint, for a short and a long prompt, the largest
difference from the logits of `transformers`, relative to the largest logit, and whether every likeliest token is the
same. About 1e-6 is expected; 2e-4 to 5e-4 if llama.cpp computes GELU with a table of half floats. For the architectures
`llama` and `phi3` it ignores the window, whatever their keys are: there it differs beyond the window.
"""

from __future__ import annotations

import tempfile
from pathlib import Path

import numpy as np
from llama_cpp import Llama
from tests.golden import as_gguf
from tests.golden.weights import HERE, config
from tests.model.gguf_writer import Tensor, gguf

F32_CACHE = 0
CONTEXT = 512


def write(name: str, path: Path) -> Path:
    """Writes the checkpoint's file, with a merge and two special tokens, without which llama.cpp does not load it."""
    cfg = config(name)
    keys = as_gguf.metadata(name) | {"tokenizer.ggml.merges": ["t 1"]}
    keys |= {f"tokenizer.ggml.{kind}_token_id": cfg[f"{kind}_token_id"] for kind in ("bos", "eos")}
    items = [Tensor(n, v.shape[::-1], 0, v.astype("<f4").tobytes()) for n, v in as_gguf.stored(name)]
    path.write_bytes(gguf(keys, items))
    return path


def difference(model: Llama, ids: list[int], wanted: np.ndarray) -> tuple[float, bool]:
    """Compares the last logits of a prompt."""
    model.reset()
    model.eval(ids)
    logits = np.array(model.scores[len(ids) - len(wanted) : len(ids)])
    same = bool((logits.argmax(axis=1) == wanted.argmax(axis=1)).all())
    return float(np.abs(logits - wanted).max() / np.abs(wanted).max()), same


def main() -> None:
    with tempfile.TemporaryDirectory() as scratch:
        for name in as_gguf.GGUF_NAMES:
            path = write(name, Path(scratch) / f"{name}.gguf")
            model = Llama(str(path), n_ctx=CONTEXT, n_threads=1, verbose=False, logits_all=True, type_k=F32_CACHE,
                          type_v=F32_CACHE)
            with np.load(HERE / f"{name}.npz") as golden:
                found = [difference(model, golden[f"{prompt}_ids"].tolist(), golden[f"{prompt}_logits"])
                         for prompt in ("short", "long")]
            print(f"{name:<18}", "  ".join(f"{error:.1e} {'same' if same else 'OTHER'}" for error, same in found))


if __name__ == "__main__":
    main()
