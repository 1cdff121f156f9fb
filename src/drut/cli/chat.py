"""`drut chat`: a conversation on the terminal or through a pipe."""

from __future__ import annotations

import argparse
import contextlib
import dataclasses
import os
import re
import sys
from collections.abc import Iterator

from drut.cli import reasoning as thoughts
from drut.cli import sampling
from drut.cli.conversation import Conversation, Talker
from drut.cli.interrupt import Interrupt, deferred
from drut.cli.opening import add_model, open_llm, speed
from drut.cli.remote import RemoteModel
from drut.cli.terminal import Writer, note, one_line
from drut.config import EngineConfig, add_flags, from_flags
from drut.engine.request.output import Completion
from drut.engine.request.params import SamplingParams
from drut.errors import DrutError, RequestError
from drut.home import home

HELP = """Chat with a model. Each line is a message; /help lists the commands. DRUT_HOME/chat_history keeps the lines
typed at a terminal, for later recall. With --url the model is a server's."""
DEFAULTS = SamplingParams(max_tokens=1024, temperature=0.7, top_p=0.9)
COMMANDS = """\
/reset        forget the conversation (the system message stays)
/system TEXT  set the system message; without TEXT, remove it
/help         this list
/quit         leave, as Ctrl-D does
Ctrl-C        stop the answer; its text so far stays in the conversation"""
HISTORY_LINES = 1000
KEY = "DRUT_API_KEY"  # the environment variable of the server's key


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the model, the system message, and the flags of sampling and engine."""
    add_model(parser, optional=True)
    server = parser.add_argument_group("instead of MODEL")
    server.add_argument("--url", metavar="U", help="chat with the model of a server with OpenAI's API, drut's or "
                                                   "another, such as http://localhost:8000")
    server.add_argument("--model", metavar="M", dest="served", help="its name on the server (default: the first model)")
    server.add_argument("--api-key", metavar="K", help=f"the server's key [{KEY}]")
    parser.add_argument("--system", metavar="TEXT", help="the system message")
    sampling.add_flags(parser, DEFAULTS)
    add_flags(parser)


def run(args: argparse.Namespace) -> int:
    """Reads messages to the end of standard input. An error ends the chat, except at a terminal."""
    params = sampling.from_flags(args)
    people = sys.stdin.isatty() and sys.stdout.isatty()
    with _talker(args) as talker, _editing() if people else contextlib.nullcontext():
        chat = Chat(talker, params, args.system, people=people)
        for line in _typed_lines() if people else _piped_lines():
            if not chat.handle(line):
                break
    return 0


def _talker(args: argparse.Namespace) -> contextlib.AbstractContextManager[Talker]:
    """Returns the model to talk with. Raises RequestError if the flags name none, or a local and a server's model."""
    if args.url is None:
        if args.model is None:
            raise RequestError("a MODEL or --url is needed")
        for flag in ("served", "api_key"):
            if getattr(args, flag) is not None:
                raise RequestError(f"--{'model' if flag == 'served' else 'api-key'} requires --url")
        return open_llm(args.model, from_flags(args))
    if args.model is not None:
        raise RequestError(f"MODEL {args.model!r} is loaded here, --url asks a server: give one (--model names the "
                           "server's)")
    for field in dataclasses.fields(EngineConfig):
        if getattr(args, field.name, None) is not None:
            raise RequestError(f"--{field.name.replace('_', '-')} is a setting of the server: not with --url")
    remote = RemoteModel(args.url, args.served, args.api_key or os.environ.get(KEY))
    note(f"{remote.model} at {remote.url}")
    return contextlib.nullcontext(remote)


class Chat:
    """A conversation with a model, line by line."""

    def __init__(self, llm: Talker, params: SamplingParams, system: str | None, *, people: bool) -> None:
        """`people`: at a terminal, where speeds are shown, Ctrl-C stops an answer, and errors do not end the chat.

        Raises UnsupportedError or RequestError if the model cannot chat, or not with a system message.
        """
        self._llm, self._params, self._people = llm, params, people
        self.conversation = Conversation()
        self._instruct(system)
        if people:
            note("/help lists the commands")

    def handle(self, line: str) -> bool:
        """Handles a command or a message; returns False after the last one."""
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
        """Sets the system message, unless the chat template refuses it."""
        self._llm.encode_chat(Conversation(system).messages("?"))
        self.conversation.system = system

    def _answer(self, question: str, interrupt: Interrupt) -> None:
        forgotten = self.conversation.fit(question, self._llm, self._params.max_tokens)
        if forgotten:
            turns = "turn is" if forgotten == 1 else f"{forgotten} turns are"
            note(f"the oldest {turns} forgotten: the conversation no longer fits {self._llm.room} tokens")
        shown: list[str] = []
        done = self._stream(question, shown, interrupt)
        self.conversation.add(question, "".join(shown))
        if done is not None and self._people:
            cut = " (truncated at --max-tokens or the end of the context)" if done.finish_reason == "length" else ""
            note(speed(done) + cut)

    def _stream(self, question: str, shown: list[str], interrupt: Interrupt) -> Completion | None:
        """Shows the answer and collects its pieces, without reasoning, in `shown`; returns None if an interrupt stopped
        it."""
        messages = self.conversation.messages(question)
        parser = thoughts.parser(self._llm, messages)
        stream = self._llm.stream(messages, self._params)
        with Writer() as out, contextlib.closing(stream) as chunks:
            for chunk in chunks:
                ended = chunk.completion is not None or interrupt.wanted
                for delta in [*parser.push(chunk.text), *(parser.finish() if ended else ())]:
                    thoughts.show(delta, out, shown)
                if ended:
                    break
        return chunk.completion


def _piped_lines() -> Iterator[str]:
    """Yields the lines of standard input unchanged."""
    for number, line in enumerate(sys.stdin.buffer, 1):
        try:
            yield line.decode().rstrip("\r\n")
        except UnicodeDecodeError:
            raise RequestError(f"line {number} of standard input is not UTF-8 text") from None


def _typed_lines() -> Iterator[str]:
    """Yields lines typed at a prompt, to Ctrl-D or the second Ctrl-C in a row."""
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
    """Enables line editing, with a history that is stored in the home folder if that is writable."""
    try:
        import readline
    except ImportError:  # this Python has no readline
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
