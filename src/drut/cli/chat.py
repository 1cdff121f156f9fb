"""`drut chat`: a conversation on the terminal or through a pipe."""

from __future__ import annotations

import argparse
import contextlib
import re
import sys
from collections.abc import Iterator

from drut.cli import sampling
from drut.cli.conversation import Conversation
from drut.cli.interrupt import Interrupt, deferred
from drut.cli.opening import add_model, open_llm, speed
from drut.cli.terminal import Writer, note, one_line
from drut.config import add_flags, from_flags
from drut.engine.llm import LLM
from drut.engine.output import Completion
from drut.engine.params import SamplingParams
from drut.errors import DrutError, RequestError
from drut.home import home

HELP = """Talk with a model. Each line is a message; /help lists the commands. What is typed at a terminal
can be recalled later: it is kept in DRUT_HOME/chat_history."""
DEFAULTS = SamplingParams(max_tokens=1024, temperature=0.7, top_p=0.9)
COMMANDS = """\
/reset        forget what was said (the system message stays)
/system TEXT  what the model is told before all else, from now on; without TEXT, nothing
/help         this list
/quit         leave, as Ctrl-D does
Ctrl-C        stop the answer; what was said of it counts"""
HISTORY_LINES = 1000


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The model, the system message, then the flags of sampling and engine."""
    add_model(parser)
    parser.add_argument("--system", metavar="TEXT", help="what the model is told before all else")
    sampling.add_flags(parser, DEFAULTS)
    add_flags(parser)


def run(args: argparse.Namespace) -> int:
    """Reads messages to the end of standard input. Errors end it, unless somebody at a terminal can go on."""
    params, config = sampling.from_flags(args), from_flags(args)
    people = sys.stdin.isatty() and sys.stdout.isatty()
    with open_llm(args.model, config) as llm, _editing() if people else contextlib.nullcontext():
        chat = Chat(llm, params, args.system, people=people)
        for line in _typed_lines() if people else _piped_lines():
            if not chat.handle(line):
                break
    return 0


class Chat:
    """A conversation with a model, a line at a time."""

    def __init__(self, llm: LLM, params: SamplingParams, system: str | None, *, people: bool) -> None:
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
        """Shows the answer and collects its pieces in `said`; None where an interrupt stopped it."""
        stream = self._llm.stream(self.conversation.messages(question), self._params)
        with Writer() as out, contextlib.closing(stream) as chunks:
            for chunk in chunks:
                said.append(chunk.text)
                out.write(chunk.text)
                if chunk.completion is not None or interrupt.wanted:
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
