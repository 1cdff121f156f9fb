"""`drut chat` through a pipe, and at a terminal."""

from __future__ import annotations

import io
import os
import pty
import re
import select
import signal
import subprocess
import sys
import termios
import time

import pytest

from drut import LLM, SamplingParams
from drut.cli.chat.interrupt import deferred
from drut.cli.main import main
from tests.cli import tiny as tiny_model
from tests.cli.chat.parrot import say
from tests.cli.tiny import CONTEXT


def pipe_in(monkeypatch, text: str | bytes) -> None:
    data = text.encode() if isinstance(text, str) else text
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(data)))


def test_a_piped_talk_is_its_answers_a_line_each(tiny, capsys, monkeypatch):
    pipe_in(monkeypatch, "नमस्ते\r\n\n/clear\nhi\nho")
    argv = ["chat", tiny, "--system", "Be kind.", "--max-tokens", "6", "--temperature", "0.9", "--seed", "4"]
    assert main(argv) == 0
    out, err = capsys.readouterr()
    params = SamplingParams(6, temperature=0.9, seed=4)
    with LLM(tiny) as llm:

        def ask(*pairs):
            return llm.chat(say(*pairs, system="Be kind."), params)[0].text

        greeting, second = ask(("user", "नमस्ते")), ask(("user", "hi"))
        third = ask(("user", "hi"), ("assistant", second), ("user", "ho"))
    assert out == f"{greeting}\n{second}\n{third}\n"
    assert len(err.splitlines()) == 1  # what computes


def test_a_long_talk_and_a_message_that_never_fits(tiny, capsys, monkeypatch):
    pipe_in(monkeypatch, ("y" * 40 + "\n") * 4 + "z" * CONTEXT + "\n")
    assert main(["chat", tiny, "--max-tokens", "20", "--temperature", "0"]) == 2
    out, err = capsys.readouterr()
    assert len(out.splitlines()) == 4
    assert f"forgotten: the conversation no longer fits {CONTEXT} tokens\n" in err
    assert err.splitlines()[-1].startswith("drut: error: the message has ")


@pytest.mark.parametrize(("line", "words"), [
    (b"hi\n\xff\n", "line 2 of standard input is not UTF-8 text"), (b"/dance\n", "no command /dance"),
    (b"/save .\n", "exists and stays as it is"), (b"/model no/such.gguf\nhi\n", "no/such.gguf")])
def test_an_error_ends_a_pipe(tiny, capsys, monkeypatch, line, words):
    pipe_in(monkeypatch, line)
    assert main(["chat", tiny, "--max-tokens", "1"]) == 2
    last = capsys.readouterr().err.splitlines()[-1]
    assert last.startswith("drut: error: ")
    assert words in last


def test_another_local_model_continues_the_talk(tiny, tmp_path, capsys, monkeypatch):
    broken, other = tmp_path / "broken.gguf", tmp_path / "other.gguf"
    broken.write_bytes(b"GGUF")
    other.write_bytes(tiny_model.model(llama__context_length=100))
    pipe_in(monkeypatch, f"hi\n/model {other}\nho\n/save {tmp_path}/chat.json\n/model {broken}")
    assert main(["chat", tiny, "--max-tokens", "4", "--temperature", "0"]) == 2
    out, err = capsys.readouterr()
    assert len(out.splitlines()) == 2
    assert f"{other}, context of 100 tokens" in err
    assert err.splitlines()[-1].startswith(f"drut: error: {broken}: the file ends")
    assert f'"model": "{other}"' in (tmp_path / "chat.json").read_text()


def test_defaults_are_in_the_help(capsys):
    with pytest.raises(SystemExit):
        main(["chat", "--help"])
    out = " ".join(capsys.readouterr().out.split())
    assert "vary more (default: the model's, else 1)" in out
    assert "of an answer (default: 256; in a chat to the end of the context)" in out


class Terminal:
    """A program on a terminal of its own, which answers no questions about the cursor. No line wraps."""

    def __init__(self, *argv: str, **environ: str) -> None:
        self.fd, side = pty.openpty()
        termios.tcsetwinsize(side, (24, 400))
        self.process = subprocess.Popen(
            [sys.executable, "-m", "drut", *argv], stdin=side, stdout=side, stderr=side, start_new_session=True,
            env={**os.environ, "TERM": "xterm", "PROMPT_TOOLKIT_NO_CPR": "1", **environ},
            preexec_fn=lambda: os.close(os.open(os.ttyname(0), os.O_RDWR)))
        os.close(side)
        self.seen = ""

    def until(self, words: str) -> str:
        """Waits until `words` are shown, and removes and returns what is shown up to them."""
        deadline = time.monotonic() + 60
        while words not in self.seen:
            assert time.monotonic() < deadline, self.seen
            if select.select([self.fd], [], [], 0.2)[0]:
                self.seen += os.read(self.fd, 4096).decode(errors="replace")
        shown, _, self.seen = self.seen.partition(words)
        return shown

    def type(self, text: str) -> None:
        os.write(self.fd, text.encode())

    def __enter__(self) -> Terminal:
        return self

    def __exit__(self, *_: object) -> None:
        self.process.kill()
        self.process.wait()
        os.close(self.fd)


def test_at_a_terminal(tiny, tmp_path):
    """Banner, a pasted message of two lines, answer with its speed, completion, Ctrl-C at the prompt, history."""
    with Terminal("chat", tiny, "--max-tokens", "12") as terminal:
        terminal.until("/help lists")  # the path before it may be so long that the line wraps
        terminal.until(">>>")
        terminal.type("\x1b[200~hello\nworld\x1b[201~\r")
        terminal.until("12 tokens, the first after ")
        terminal.until(">>>")
        terminal.type("/dance\r")
        terminal.until("error: no command /dance")
        terminal.until(">>>")
        for end in ("\r", "\ry\r"):
            terminal.type(f"/save {tmp_path}/c.json{end}")
            terminal.until("saved to")
            terminal.until(">>>")
        terminal.type("\x03")
        terminal.until("Ctrl-C again, Ctrl-D or /bye leaves")
        terminal.until(">>>")
        terminal.type("/by\t")
        terminal.until("/by")
        terminal.until("e")
        terminal.type("\r")
        assert terminal.process.wait(30) == 0
    history = tmp_path / "home" / "chat_history"
    kept = [line[1:] for line in history.read_text().splitlines() if line[:1] == "+"]
    assert kept == ["hello", "world", "/dance", f"/save {tmp_path}/c.json", "/bye"]
    assert history.stat().st_mode & 0o077 == 0


def test_an_interrupt_waits_for_the_end_of_a_step():
    with deferred() as interrupt:
        signal.raise_signal(signal.SIGINT)
        assert interrupt.wanted
    with pytest.raises(KeyboardInterrupt):
        signal.raise_signal(signal.SIGINT)


def test_a_terminal_without_escape_codes_gets_none(tiny):
    with Terminal("chat", tiny, "--max-tokens", "5", TERM="dumb") as terminal:
        terminal.until("/help lists")  # the path before it may be so long that the line wraps
        terminal.until(">>>")
        terminal.type("hello\r")
        shown = terminal.until("5 tokens")
        assert not re.search(r"\x1b\[\d*m", shown)
        terminal.type("/bye\r")
        assert terminal.process.wait(30) == 0
