"""`drut generate`: completes prompts, as text or as JSON."""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Sequence
from dataclasses import replace

from drut.cli import constraint, sampling
from drut.cli.opening import add_choice, open_llm, speed
from drut.cli.settings import engine_config, model_of
from drut.cli.stdin import read_text
from drut.cli.terminal import Writer, note
from drut.config import add_flags
from drut.engine.llm import LLM
from drut.engine.request.arguments import Prompt
from drut.engine.request.output import AnswerError, Completion
from drut.engine.request.params import MAX_TOKENS, SamplingParams
from drut.errors import RequestError

HELP = "Continue each prompt, or answer it as a chat message."
EXAMPLES = (
    ('drut generate smollm2-135m-instruct -p "Once upon a time"', "continue a text"),
    ('drut generate smollm2-135m-instruct -p "A:" -p "B:" --json', "two prompts in one batch, as JSON lines"),
    ("drut generate smollm2-135m-instruct --chat -p - < question.txt", "a question, through the chat template"),
    ('drut generate smollm2-135m-instruct -p "A date: " --regex "[0-9]{4}-[0-9]{2}-[0-9]{2}"', "text of a form"),
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the model, the prompts, and the flags of sampling and engine."""
    add_choice(parser)
    parser.add_argument("-p", "--prompt", action="append", default=[], metavar="TEXT",
                        help="the text to continue; '-' is standard input without its last line end; several prompts "
                             "run in one batch")
    parser.add_argument("--chat", action="store_true", help="render each prompt with the model's chat template")
    parser.add_argument("--json", action="store_true", help="print a JSON object per prompt, one per line")
    sampling.add_flags(parser)
    constraint.add_flags(parser)
    add_flags(parser)


def run(args: argparse.Namespace) -> int:
    """Writes answers to standard output, and backend and speed to standard error."""
    params = replace(sampling.from_flags(args), constraint=constraint.from_flags(args))
    config = engine_config(args)
    if not args.prompt:
        raise RequestError("a prompt is needed: --prompt TEXT, or --prompt - for standard input")
    texts = [read_text("--prompt -: standard input") if text == "-" else text for text in args.prompt]
    with open_llm(model_of(args), config) as llm:
        prompts: list[Prompt] = list(texts)
        if args.chat:
            params = params if params.max_tokens is not None else replace(params, max_tokens=MAX_TOKENS)
            prompts = [llm.encode_chat([{"role": "user", "content": text}]) for text in texts]
        if args.json:
            answers, failure = _answers(llm, prompts, params)
            for answer in answers:
                print(json.dumps(answer.to_json()))
            if failure:
                raise failure
        elif len(prompts) == 1:
            note(_stream(llm, prompts[0], params))
        else:
            note(_batch(llm, texts, prompts, params))
    return 0


def _stream(llm: LLM, prompt: Prompt, params: SamplingParams) -> str:
    """Shows the answer as it comes; returns the closing line."""
    answer = None
    with Writer() as out:
        for chunk in llm.stream(prompt, params):
            out.write(chunk.text)
            answer = chunk.completion
    assert answer is not None, "the last chunk of a stream has the completion"
    return f"{speed(answer)} (ended by {answer.finish_reason})"


def _batch(llm: LLM, texts: Sequence[str], prompts: Sequence[Prompt], params: SamplingParams) -> str:
    """Shows the answers in the order of the prompts; returns the closing line."""
    started = time.monotonic()
    answers, failure = _answers(llm, prompts, params)
    seconds = time.monotonic() - started
    for i, (text, answer) in enumerate(zip(texts, answers, strict=True), 1):
        with Writer() as out:
            out.write("\n" if i > 1 else "")
            out.write(f"[{i}] {' '.join(text.split())[:100]}\n{answer.text}")
    if failure:
        raise failure
    total = sum(answer.completion_tokens for answer in answers)
    return f"{len(answers)} answers, {total} tokens in {seconds:.2f} s, {total / seconds:.1f} tokens/s"


def _answers(
    llm: LLM, prompts: Sequence[Prompt], params: SamplingParams
) -> tuple[list[Completion], AnswerError | None]:
    """Returns the answers and, if some failed, the error to raise after the others were shown."""
    try:
        return llm.generate(prompts, params), None
    except AnswerError as error:
        return error.completions, error
