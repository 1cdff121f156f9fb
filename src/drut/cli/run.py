"""`drut run`: answers one prompt, or opens a chat on a terminal."""

from __future__ import annotations

import argparse
import contextlib
import json
import sys
from collections.abc import Iterator
from dataclasses import replace

from drut.cli import constraint, sampling
from drut.cli.chat.conversation import AnswerPart, Message
from drut.cli.chat.interrupt import Interrupt
from drut.cli.chat.local import LocalModel
from drut.cli.chat.screens import plain_answer
from drut.cli.chat.session import AnswerView
from drut.cli.chat.settings import ChatSettings
from drut.cli.opening import add_choice, open_llm, speed
from drut.cli.settings import default_model, engine_config, model_of
from drut.cli.stdin import read_text
from drut.cli.terminal import note
from drut.config import add_flags
from drut.engine.llm import LLM
from drut.engine.request.output import Completion
from drut.engine.request.params import SamplingParams
from drut.errors import RequestError, UnsupportedError
from drut.model.store import near_model
from drut.parse.deltas import Content, Reasoning

HELP = """Answer PROMPT, or the text of standard input, or both: the prompt, an empty line, the text. Without either, on
a terminal, it opens a chat. The prompt is a message to the model; --raw continues it as text, as does a model
without a chat template. The answer goes to standard output, everything else to standard error."""
EXAMPLES = (
    ("drut run smollm2-135m-instruct", "chat"),
    ('drut run smollm2-135m-instruct "Why is the sky blue?"', "one answer"),
    ("drut run smollm2-135m-instruct Summarize: < report.txt", "a prompt and a text"),
    ('drut run smollm2-135m-instruct --raw "Once upon a" -n 40', "a continuation"),
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the model, the prompt, and the flags of sampling and engine."""
    add_choice(parser)
    parser.add_argument("prompt", metavar="PROMPT", nargs="?",
                        help="the message; the first argument if flags or settings have the model")
    parser.add_argument("-p", "--prompt", dest="prompt_flag", action="append", metavar="TEXT",
                        help="the same as a flag")
    parser.add_argument("--system", metavar="TEXT", help="the system message")
    parser.add_argument("--raw", action="store_true", help="continue the prompt, without the chat template")
    parser.add_argument("--json", action="store_true", help="print one JSON object: text, token ids, times")
    parser.add_argument("--no-markdown", dest="markdown", action="store_false",
                        help="on a terminal, show the answer as the model writes it")
    sampling.add_flags(parser)
    constraint.add_flags(parser)
    add_flags(parser)


def run(args: argparse.Namespace) -> int:
    """Answers once if there is a prompt or a text, else chats."""
    prompt = prompt_of(args)
    if prompt is None and sys.stdin.isatty() and sys.stdout.isatty() and not (args.raw or args.json):
        return _chat(args)
    question = with_input(prompt)
    if args.raw and args.system is not None:
        raise RequestError("--system needs the chat template: not with --raw")
    params = replace(sampling.from_flags(args), constraint=constraint.from_flags(args))
    with open_llm(model_of(args), engine_config(args)) as llm:
        messages = _messages(llm, question, args)
        answer = _answer(llm, messages, question, params, _view(args, params, message=messages is not None))
    if args.json:
        print(json.dumps(answer.to_json()))
    else:
        note(f"{speed(answer)} (ended by {answer.finish_reason})")
    return 0


def prompt_of(args: argparse.Namespace) -> str | None:
    """Returns the prompt of the arguments or None. A single argument is the prompt with --model, or if there is a
    default model and the argument names none.

    Raises RequestError if there are two.
    """
    if args.model_flag is not None and args.model is not None:
        if args.prompt is not None:
            raise RequestError(f"two models: {args.model!r} and --model {args.model_flag!r}")
        args.model, args.prompt = None, args.model
    flags = args.prompt_flag or []
    if args.model is not None and args.prompt is None and not flags and default_model() and not near_model(args.model):
        args.model, args.prompt = None, args.model
    given = [text for text in (args.prompt, *flags) if text is not None]
    if len(given) > 1:
        raise RequestError(f"two prompts: {given[0]!r} and {given[1]!r}")
    return given[0] if given else None


def with_input(prompt: str | None) -> str:
    """Returns the prompt with the text of standard input, if that is not a terminal. RequestError if both are empty."""
    text = "" if sys.stdin is None or sys.stdin.isatty() else read_text("standard input")
    both = "\n\n".join(part for part in (prompt, text) if part)
    if not both.strip():
        raise RequestError("a prompt is needed: PROMPT, or a text on standard input")
    return both


def _messages(llm: LLM, question: str, args: argparse.Namespace) -> list[Message] | None:
    """Returns the conversation, or None for a plain completion."""
    if args.raw:
        return None
    try:
        assert llm.templates
    except UnsupportedError:
        if args.system is not None:
            raise
        note(f"{llm.files.path.name} has no chat template: it continues the prompt as text")
        return None
    system = [{"role": "system", "content": args.system}] if args.system is not None else []
    return [*system, {"role": "user", "content": question}]


def _answer(llm: LLM, messages: list[Message] | None, question: str, params: SamplingParams,
            view: contextlib.AbstractContextManager[AnswerView | None]) -> Completion:
    """Returns the answer; shows it in `view` as it comes, if there is one."""
    done = None
    with view as shown:
        for part in _parts(llm, messages, question, params):
            done = part.completion
            if shown is None:
                continue
            for delta in part.deltas:
                if isinstance(delta, Reasoning):
                    shown.reasoning(delta.text)
                elif isinstance(delta, Content):
                    shown.content(delta.text)
            shown.refresh()
    assert done is not None, "the last part has the completion"
    return done


def _view(args: argparse.Namespace, params: SamplingParams, *,
          message: bool) -> contextlib.AbstractContextManager[AnswerView | None]:
    """Returns the view of an answer: none with --json, Markdown for a message on a terminal, else its text."""
    settings = ChatSettings(params, markdown=args.markdown)
    if args.json:
        return contextlib.nullcontext()
    if message and params.constraint is None and sys.stdout.isatty():
        from drut.cli.chat.terminal import TerminalScreen

        return TerminalScreen().answer(settings)
    return plain_answer(settings)


def _parts(llm: LLM, messages: list[Message] | None, question: str, params: SamplingParams) -> Iterator[AnswerPart]:
    if messages is not None:
        yield from LocalModel(llm).stream(messages, params, Interrupt())
        return
    for chunk in llm.stream(question, params):
        yield AnswerPart([Content(chunk.text)], chunk.completion)


def _chat(args: argparse.Namespace) -> int:
    from drut.cli.chat import talk
    from drut.cli.chat.models import LocalModels

    if args.json_schema is not None or args.regex is not None:
        raise RequestError("a constraint is for one answer: give a PROMPT")
    settings = ChatSettings(sampling.from_flags(args), markdown=args.markdown)
    with LocalModels(model_of(args), engine_config(args)) as models:
        talk(models, settings, system=args.system)
    return 0
