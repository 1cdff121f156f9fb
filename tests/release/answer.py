"""Prints one answer of a model, a line for each token: the likeliest ids with the bits of their logprobs.

    python tests/release/answer.py MODEL [ISA]

`answer.txt` has what the default model answers on every machine and instruction set. A change of numerics rewrites it.
"""

from __future__ import annotations

import sys

from drut import LLM, SamplingParams

PROMPT = "The capital of France is"


def main(model: str, isa: str = "auto") -> None:
    with LLM(model, isa=isa, backend="native") as llm:
        (answer,) = llm.generate([PROMPT], SamplingParams(max_tokens=6, temperature=0, logprobs=3))
    for token, likeliest in zip(answer.token_ids, answer.logprobs or (), strict=True):
        print(token, *(f"{other}={found.logprob.hex()}" for other, found in likeliest.items()))


if __name__ == "__main__":
    main(*sys.argv[1:])
