"""A program of a user, for mypy --strict. The code after `# E` is that of the line's error."""

from __future__ import annotations

import asyncio
from pathlib import Path

from drut import (
    LLM,
    AnswerError,
    AsyncEngine,
    Completion,
    Constraint,
    DownloadError,
    DrutError,
    EngineConfig,
    EngineDeadError,
    ModelFileError,
    RequestError,
    SamplingParams,
    UnsupportedError,
)

MODEL = "smollm2-135m-instruct"
GREEDY = SamplingParams(max_tokens=20, temperature=0, stop="\n")
NAMES = Constraint.regex("[A-Z][a-z]+")


def texts(answers: list[Completion]) -> list[str]:
    return [f"{answer.text} {answer.finish_reason} {answer.completion_tokens}" for answer in answers]


def offline(path: Path) -> list[str]:
    config = EngineConfig(max_seqs=4, kv_dtype="int8", threads=None)
    found: list[str] = []
    with LLM(path, config=config) as llm:
        found += texts(llm.generate("Hi", GREEDY, progress=False))
        found += texts(llm.generate(["Hi", "Ho"], [GREEDY, SamplingParams(n=2, constraint=NAMES)]))
        found += texts(llm.generate([[1, 2, 3], [4]]))
        question = [{"role": "user", "content": "Hi"}]
        found += texts(llm.chat(question, GREEDY))
        found += texts(llm.chat([question, question]))
        found += texts(llm.chat([{"role": "user", "content": [{"type": "text", "text": "Hi"}]}]))
        found += [chunk.text for chunk in llm.stream(question)]
    with LLM(MODEL, max_seqs=8, max_model_len=512, threads=2, prefix_cache=False, generation_config="none") as llm:
        found.append(str(llm.room))
    return found


async def online() -> int:
    tokens = 0
    try:
        async with AsyncEngine(MODEL, process=True, max_batch_tokens=256) as engine:
            async for chunk in engine.generate("Hi", SamplingParams(temperature=0.5, seed=1), priority=1):
                tokens += len(chunk.token_ids)
                if chunk.completion is not None:
                    print(chunk.completion.text)
    except (EngineDeadError, DownloadError, ModelFileError, UnsupportedError) as error:
        print(error)
    return tokens


def failures(llm: LLM) -> str | None:
    try:
        llm.generate(["a", "b"])
    except AnswerError as error:
        return error.completions[0].text
    except RequestError as error:
        return error.field
    except DrutError as error:
        return str(error)
    return None


def wrong(llm: LLM, engine: AsyncEngine) -> None:
    LLM(MODEL, max_num_seqs=8)  # E: call-arg
    LLM(MODEL, max_seqs="8")  # E: arg-type
    LLM(MODEL, threads=1.5)  # E: arg-type
    AsyncEngine(MODEL, prefix_caching=True)  # E: call-arg
    AsyncEngine(MODEL, kv_dtype=8)  # E: arg-type
    EngineConfig(max_seqs=None)  # E: arg-type
    SamplingParams(max_new_tokens=5)  # E: call-arg
    SamplingParams(temperature="hot")  # E: arg-type
    llm.generate("Hi", {"temperature": 0})  # E: arg-type
    llm.generate("Hi", sampling_params=GREEDY)  # E: call-arg
    llm.generate(5)  # E: arg-type
    llm.chat("Hi")  # E: arg-type
    print(llm.generate("Hi").text)  # E: attr-defined
    print(llm.generate("Hi")[0].outputs)  # E: attr-defined
    engine.generate("Hi", max_tokens=5)  # E: call-arg
    GREEDY.temperature = 1.0  # E: misc
    llm.config.max_seqs = 1  # E: misc


if __name__ == "__main__":
    print(offline(Path("model.gguf")), asyncio.run(online()))
