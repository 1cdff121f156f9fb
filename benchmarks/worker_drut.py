"""Drut as a benchmark worker: see worker.py for the protocol."""

from __future__ import annotations

import time

from worker import Answer, serve

import drut


def main() -> None:
    engines: dict[str, drut.LLM] = {}

    def load(model: str, threads: int) -> Answer:
        start = time.perf_counter()
        engines[model] = drut.LLM(model, threads=threads, kv_cache_gb=0.25)
        return {"load_s": time.perf_counter() - start}

    def run(model: str, prompt: list[int], new_tokens: int) -> Answer:
        params = drut.SamplingParams(max_tokens=new_tokens, temperature=0, ignore_eos=True)
        timings = engines[model].generate([prompt], params)[0].timings
        return {
            "prefill_tokens_per_s": timings["prefill_tokens_per_s"],
            "decode_tokens_per_s": timings["decode_tokens_per_s"] if new_tokens > 1 else None,
        }

    def about() -> Answer:
        return {"engine": f"drut {drut.__version__}"}

    serve({"load": load, "run": run, "about": about})


if __name__ == "__main__":
    main()
