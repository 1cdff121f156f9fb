"""A conversation of two questions: python examples/chat.py [MODEL]"""

import sys

from drut import LLM, SamplingParams

MODEL = sys.argv[1] if len(sys.argv) > 1 else "smollm2-135m-instruct"
QUESTIONS = ["Name the capital of India.", "What is it known for? One sentence."]

with LLM(MODEL) as llm:
    messages = [{"role": "system", "content": "You answer briefly."}]
    for question in QUESTIONS:
        messages.append({"role": "user", "content": question})
        (answer,) = llm.chat(messages, SamplingParams(max_tokens=60, seed=1))
        messages.append({"role": "assistant", "content": answer.text})
        print(f"> {question}\n{answer.text}\n({answer.cached_tokens} of {answer.prompt_tokens} prompt tokens cached)\n")
