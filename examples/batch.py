"""Answers every line of a file, with a progress bar: python examples/batch.py [MODEL] [FILE] > answers.jsonl"""

import json
import sys
from pathlib import Path

from drut import LLM, AnswerError, SamplingParams

MODEL = sys.argv[1] if len(sys.argv) > 1 else "smollm2-135m-instruct"
LINES = Path(sys.argv[2]).read_text().splitlines() if len(sys.argv) > 2 else [f"{n} + {n} =" for n in range(1, 33)]

with LLM(MODEL, max_seqs=64) as llm:
    try:
        answers = llm.generate(LINES, SamplingParams(max_tokens=8, temperature=0))
    except AnswerError as error:  # some prompts failed; the others are complete
        print(error, file=sys.stderr)
        answers = error.completions
for line, answer in zip(LINES, answers, strict=True):
    print(json.dumps({"prompt": line, "answer": answer.text, "finish_reason": answer.finish_reason}))
