"""Drut for the comparison. Besides the usual actions:

{"do": "costs", "shapes": [[rows, samples, kv_tokens, row_tokens], ...]}
    -> {"costs": [[[bytes, macs by class], ...], ...]}   of each operation of such a step
"""

from __future__ import annotations

import time

from benchmarks.peers.offline.workers.engine import Stepwise, answer_for
from benchmarks.worker import Answer

import drut
from drut.engine.output_processor import OutputProcessor as Stream
from drut.kernels.cost import StepShape

KV_GB = 0.6  # 32 sequences of 320 tokens of a 1B model, and some more


class Engine(Stepwise):
    """One model; prompts are computed whole and share nothing."""

    def __init__(self) -> None:
        self._llm: drut.LLM | None = None

    @property
    def llm(self) -> drut.LLM:
        assert self._llm is not None, "load first"
        return self._llm

    def load(self, model: str, threads: int, kv_dtype: str) -> Answer:
        start = time.perf_counter()
        self._llm = drut.LLM(model, threads=threads, kv_cache_gb=KV_GB, prefix_cache=False, chunk_tokens=0,
                             kv_dtype=kv_dtype)
        return {"load_s": time.perf_counter() - start}

    def about(self) -> Answer:
        return {"engine": f"drut {drut.__version__}, {self.llm.backend.describe()}"}

    def costs(self, shapes: list[list[int]]) -> Answer:
        ops = self.llm.engine.runner.plan.ops
        steps = [[op.cost(StepShape(*shape)) for op in ops] for shape in shapes]
        return {"costs": [[[c.bytes, c.macs] for c in step] for step in steps]}

    def run(self, prompts: list[list[int]], new_tokens: int) -> tuple[list[list[float]], list[int]]:
        params = drut.SamplingParams(max_tokens=new_tokens, temperature=0, ignore_eos=True)
        streams: list[Stream] = [self.llm.submit(prompt, params)[0] for prompt in prompts]
        times: dict[object, list[float]] = {stream.request: [] for stream in streams}
        while self.llm.engine.busy:
            updates = self.llm.engine.step()
            now = time.perf_counter()
            for update in updates:
                if update.token is not None:
                    times[update.request].append(now)
        return list(times.values()), [stream.request.output_ids[0] for stream in streams]


def main() -> None:
    engine = Engine()
    answer_for(engine, costs=engine.costs)


if __name__ == "__main__":
    main()
