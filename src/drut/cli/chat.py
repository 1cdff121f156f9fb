"""`drut chat`: a conversation on the terminal or through a pipe."""

from __future__ import annotations

import argparse
import contextlib
import dataclasses
import os
import re
import sys
from collections.abc import Iterator

from drut.cli import sampling, thoughts
from drut.cli.conversation import Conversation, Talker
from drut.cli.interrupt import Interrupt, deferred
from drut.cli.opening import add_model, open_llm, speed
from drut.cli.remote import RemoteModel
from drut.cli.terminal import Writer, note, one_line
from drut.config import EngineConfig, add_flags, from_flags
from drut.engine.output import Completion
from drut.engine.params import SamplingParams
from drut.errors import DrutError, RequestError
from drut.home import home

HELP = """Talk with a model. Each line is a message; /help lists the commands. What is typed at a terminal
can be recalled later: it is kept in DRUT_HOME/chat_history. With --url it talks with a server's model."""
DEFAULTS = SamplingParams(max_tokens=1024, temperature=0.7, top_p=0.9)
COMMANDS = """\
/reset        forget what was said (the system message stays)
/system TEXT  what the model is told before all else, from now on; without TEXT, nothing
/help         this list
/quit         leave, as Ctrl-D does
Ctrl-C        stop the answer; what was said of it counts"""
HISTORY_LINES = 1000
KEY = "DRUT_API_KEY"  # the variable that also holds the server's key


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The model, the system message, then the flags of sampling and engine."""
    add_model(parser, optional=True)
    server = parser.add_argument_group("instead of MODEL")
    server.add_argument("--url", metavar="U", help="talk with the model of a server, drut's or another that speaks "
                                                   "OpenAI's language, as http://localhost:8000")
    server.add_argument("--model", metavar="M", dest="served", help="its name there (default: the first it lists)")
    server.add_argument("--api-key", metavar="K", help=f"the server's key [{KEY}]")
    parser.add_argument("--system", metavar="TEXT", help="what the model is told before all else")
    sampling.add_flags(parser, DEFAULTS)
    add_flags(parser)


def run(args: argparse.Namespace) -> int:
    """Reads messages to the end of standard input. Errors end it, unless somebody at a terminal can go on."""
    params = sampling.from_flags(args)
    people = sys.stdin.isatty() and sys.stdout.isatty()
    with _talker(args) as talker, _editing() if people else contextlib.nullcontext():
        chat = Chat(talker, params, args.system, people=people)
        for line in _typed_lines() if people else _piped_lines():
            if not chat.handle(line):
                break
    return 0


def _talker(args: argparse.Namespace) -> contextlib.AbstractContextManager[Talker]:
    """The model to talk with. RequestError where the flags name none, or one here and one there."""
    if args.url is None:
        if args.model is None:
            raise RequestError("a MODEL or --url is needed")
        for flag in ("served", "api_key"):
            if getattr(args, flag) is not None:
                raise RequestError(f"--{'model' if flag == 'served' else 'api-key'} goes with --url")
        return open_llm(args.model, from_flags(args))
    if args.model is not None:
        raise RequestError(f"MODEL {args.model!r} is loaded here, --url asks a server: give one (--model names the "
                           "server's)")
    for field in dataclasses.fields(EngineConfig):
        if getattr(args, field.name, None) is not None:
            raise RequestError(f"--{field.name.replace('_', '-')} is the server's own affair: not with --url")
    remote = RemoteModel(args.url, args.served, args.api_key or os.environ.get(KEY))
    note(f"{remote.model} at {remote.url}")
    return contextlib.nullcontext(remote)


class Chat:
    """A conversation with a model, a line at a time."""

    def __init__(self, llm: Talker, params: SamplingParams, system: str | None, *, people: bool) -> None:
        """`people`: at a terminal, where speeds are told, Ctrl-C stops an answer, and errors end nothing.

        UnsupportedError or RequestError at once where the model cannot chat, or not with a system message.
        """
        self._llm, self._params, self._people = llm, params, people
        self.conversation = Conversation()
        self._instruct(system)
        if people:
            note("/help lists the commands")

    def handle(self, line: str) -> bool:
        """A command or a message; False where it was the last."""
        command = re.fullmatch(r"/([a-z]+)(?:\s+(.*))?", line.strip(), re.DOTALL)
        with deferred() if self._people else contextlib.nullcontext(Interrupt()) as interrupt:
            try:
                if command:
                    return self._command(command[1], command[2])
                if line.strip():
                    self._answer(line, interrupt)
            except DrutError as error:
                if not self._people:
                    raise
                note(f"error: {one_line(str(error))}")
        return True

    def _command(self, name: str, text: str | None) -> bool:
        match name:
            case "reset":
                self.conversation.turns.clear()
            case "system":
                self._instruct(text)
            case "help":
                note(COMMANDS)
            case "quit":
                return False
            case _:
                raise RequestError(f"unknown command /{name} (/help lists them)")
        return True

    def _instruct(self, system: str | None) -> None:
        """Sets the system message, unless the chat template does not take it."""
        self._llm.encode_chat(Conversation(system).messages("?"))
        self.conversation.system = system

    def _answer(self, question: str, interrupt: Interrupt) -> None:
        forgotten = self.conversation.fit(question, self._llm, self._params.max_tokens)
        if forgotten:
            turns = "turn is" if forgotten == 1 else f"{forgotten} turns are"
            note(f"the oldest {turns} forgotten: the conversation no longer fits {self._llm.room} tokens")
        said: list[str] = []
        done = self._stream(question, said, interrupt)
        self.conversation.add(question, "".join(said))
        if done is not None and self._people:
            cut = " (cut at --max-tokens or the end of the context)" if done.finish_reason == "length" else ""
            note(speed(done) + cut)

    def _stream(self, question: str, said: list[str], interrupt: Interrupt) -> Completion | None:
        """Shows the answer and collects its pieces, but for its thought, in `said`; None where an interrupt stopped
        it."""
        messages = self.conversation.messages(question)
        parser = thoughts.parser(self._llm, messages)
        stream = self._llm.stream(messages, self._params)
        with Writer() as out, contextlib.closing(stream) as chunks:
            for chunk in chunks:
                ended = chunk.completion is not None or interrupt.wanted
                for delta in [*parser.push(chunk.text), *(parser.finish() if ended else ())]:
                    thoughts.show(delta, out, said)
                if ended:
                    break
        return chunk.completion


def _piped_lines() -> Iterator[str]:
    """The lines of standard input as they are."""
    for number, line in enumerate(sys.stdin.buffer, 1):
        try:
            yield line.decode().rstrip("\r\n")
        except UnicodeDecodeError:
            raise RequestError(f"line {number} of standard input is not UTF-8 text") from None


def _typed_lines() -> Iterator[str]:
    """Lines typed at a prompt, to Ctrl-D or the second Ctrl-C in a row."""
    leaving = False
    while True:
        try:
            line = input(">>> ")
        except EOFError:
            print()
            return
        except KeyboardInterrupt:
            print()
            if leaving:
                return
            leaving = True
            note("Ctrl-C again or Ctrl-D leaves")
            continue
        except UnicodeDecodeError:
            note("error: the line is not UTF-8 text")
            continue
        leaving = False
        yield line


@contextlib.contextmanager
def _editing() -> Iterator[None]:
    """Line editing, with a history that outlives the chat where the home can be written."""
    try:
        import readline
    except ImportError:  # a Python built without it
        yield
        return
    file = home() / "chat_history"
    readline.set_history_length(HISTORY_LINES)
    with contextlib.suppress(OSError):
        readline.read_history_file(file)
    try:
        yield
    finally:
        with contextlib.suppress(OSError):
            file.parent.mkdir(parents=True, exist_ok=True)
            readline.write_history_file(file)
