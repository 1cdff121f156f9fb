"""vLLM on the CPU for the comparison: its engine in this process, driven step by step."""

from __future__ import annotations

import time
from typing import Any

from benchmarks.peers.offline.workers.engine import Stepwise, answer_for
from benchmarks.worker import Answer

CONTEXT, SEQUENCES, STEP_TOKENS = 1024, 32, 4096


class Engine(Stepwise):
    """One model in bf16; prompts share nothing, and no text is generated."""

    def load(self, model: str, threads: int) -> Answer:
        start = time.perf_counter()
        import vllm  # takes seconds, which are part of the time to load

        self._version, self._threads = vllm.__version__, threads
        llm = vllm.LLM(model=model, dtype="bfloat16", max_model_len=CONTEXT, max_num_seqs=SEQUENCES,
                       max_num_batched_tokens=STEP_TOKENS, enable_prefix_caching=False, skip_tokenizer_init=True,
                       disable_log_stats=True, seed=0)
        self._engine: Any = llm.llm_engine
        self._requests = 0
        return {"load_s": time.perf_counter() - start}

    def about(self) -> Answer:
        import torch

        return {"engine": f"vLLM {self._version}, torch {torch.__version__}, bf16, compiled, {self._threads} threads; "
                          f"CPU capability {torch.backends.cpu.get_cpu_capability()}"}

    def run(self, prompts: list[list[int]], new_tokens: int) -> tuple[list[list[float]], list[int]]:
        from vllm import SamplingParams

        params = SamplingParams(temperature=0, max_tokens=new_tokens, ignore_eos=True, detokenize=False)
        names = [str(self._requests + i) for i in range(len(prompts))]
        self._requests += len(prompts)
        times: dict[str, list[float]] = {name: [] for name in names}
        first = dict.fromkeys(names, -1)
        for name, prompt in zip(names, prompts, strict=True):
            self._engine.add_request(name, {"prompt_token_ids": prompt}, params)
        while self._engine.has_unfinished_requests():
            outputs = self._engine.step()
            now = time.perf_counter()
            for output in outputs:
                name, ids = output.request_id, output.outputs[0].token_ids
                first[name] = int(ids[0])
                times[name] += [now] * (len(ids) - len(times[name]))
        return list(times.values()), [first[name] for name in names]


def main() -> None:
    answer_for(Engine())


if __name__ == "__main__":
    main()
