"""Computes three requests of an asyncio program together: python examples/async_engine.py [MODEL]"""

import asyncio
import sys

from drut import AsyncEngine, SamplingParams

MODEL = sys.argv[1] if len(sys.argv) > 1 else "smollm2-135m-instruct"


async def answer(engine: AsyncEngine, prompt: str) -> str:
    text = ""
    async for chunk in engine.generate(prompt, SamplingParams(max_tokens=20)):
        text += chunk.text
    return prompt + text


async def main() -> None:
    async with AsyncEngine(MODEL) as engine:  # process=True has the engine in a process of its own
        prompts = ["Once upon a time", "The sky is", "2 + 2 ="]
        for text in await asyncio.gather(*(answer(engine, prompt) for prompt in prompts)):
            print(text, end="\n\n")


if __name__ == "__main__":
    asyncio.run(main())
