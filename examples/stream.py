"""Shows an answer while it is written: python examples/stream.py [MODEL]"""

import sys

from drut import LLM, SamplingParams

MODEL = sys.argv[1] if len(sys.argv) > 1 else "smollm2-135m-instruct"

with LLM(MODEL) as llm:
    messages = [{"role": "user", "content": "Write two sentences about the sea."}]
    for chunk in llm.stream(messages, SamplingParams(max_tokens=60)):
        print(chunk.text, end="", flush=True)
        if chunk.completion is not None:  # of the last chunk
            print(f"\n({chunk.completion.completion_tokens} tokens, seed {chunk.completion.seed})")
