"""OpenVINO GenAI for the comparison: its continuous batching pipeline, driven step by step."""

from __future__ import annotations

import time

import numpy as np
import openvino as ov
import openvino_genai as genai
from benchmarks.peers.offline.workers.engine import Stepwise, answer_for
from benchmarks.worker import Answer

CACHE_GB = 1
STEP_TOKENS = 8192  # maximum prompt tokens of a comparison's step, so that prompts are not split


class Engine(Stepwise):
    """One converted model; prompts share nothing."""

    def load(self, model: str, threads: int) -> Answer:
        start = time.perf_counter()
        scheduler = genai.SchedulerConfig()
        scheduler.cache_size, scheduler.max_num_seqs = CACHE_GB, 64
        scheduler.max_num_batched_tokens = STEP_TOKENS
        scheduler.enable_prefix_caching = False
        self._properties = {"INFERENCE_NUM_THREADS": threads}
        self._pipeline = genai.ContinuousBatchingPipeline(model, scheduler, "CPU", self._properties)
        self._requests = 0
        return {"load_s": time.perf_counter() - start}

    def about(self) -> Answer:
        return {"engine": f"OpenVINO GenAI {genai.__version__}, continuous batching, {self._properties}"}

    def run(self, prompts: list[list[int]], new_tokens: int) -> tuple[list[list[float]], list[int]]:
        config = genai.GenerationConfig()
        config.max_new_tokens, config.ignore_eos, config.do_sample = new_tokens, True, False
        handles = [self._pipeline.add_request(self._requests + i, ov.Tensor(np.array([prompt], np.int64)), config)
                   for i, prompt in enumerate(prompts)]
        self._requests += len(prompts)
        times: list[list[float]] = [[] for _ in prompts]
        first = [-1] * len(prompts)
        while self._pipeline.has_non_finished_requests():
            self._pipeline.step()
            now = time.perf_counter()
            for i, handle in enumerate(handles):
                while handle.can_read():
                    ids = next(iter(handle.read().values())).generated_ids
                    first[i] = int(ids[0]) if not times[i] else first[i]
                    times[i] += [now] * len(ids)
        return times, first


def main() -> None:
    answer_for(Engine())


if __name__ == "__main__":
    main()
