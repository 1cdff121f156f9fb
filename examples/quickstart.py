"""Answers two prompts in one batch: python examples/quickstart.py [MODEL]"""

import sys

from drut import LLM, SamplingParams

MODEL = sys.argv[1] if len(sys.argv) > 1 else "smollm2-135m-instruct"

with LLM(MODEL) as llm:
    prompts = ["The capital of France is", "Water boils at"]
    answers = llm.generate(prompts, SamplingParams(max_tokens=20, temperature=0))
    for prompt, answer in zip(prompts, answers, strict=True):
        speed = answer.timings["decode_tokens_per_s"]
        print(f"{prompt}{answer.text}\n({answer.finish_reason}, {speed:.0f} tokens/s)\n")
