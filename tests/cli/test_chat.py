from __future__ import annotations

import io
import os
import pty
import select
import signal
import subprocess
import sys
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from drut import LLM, Chunk, Completion, SamplingParams
from drut.cli import chat as command
from drut.cli.chat import Chat
from drut.cli.conversation import Conversation
from drut.cli.main import main
from drut.errors import RequestError
from tests.cli import tiny
from tests.cli.tiny import CONTEXT


class Parrot:
    """Stands for a model: a token is a character, `words` the answer; `before(i)` runs ahead of the ith."""

    def __init__(self, words=("I ", "see."), room=1000):
        self.words, self.room, self.heard = words, room, []
        self.before = lambda i: None

    def encode_chat(self, messages):
        if any(m["content"] == "forbidden" for m in messages):
            raise RequestError("chat template: no such message")
        return [0] * sum(len(m["content"]) for m in messages)

    def stream(self, messages, params):
        self.heard.append(messages)
        for i, word in enumerate(self.words):
            self.before(i)
            yield Chunk(word, [i])
        count = len(self.words)
        text = "".join(self.words)
        yield Chunk("", [], Completion(text=text, token_ids=list(range(count)), finish_reason="stop", prompt_tokens=1,
                                       cached_tokens=0, completion_tokens=count, seed=0, index={"ttft_s": 0.5}))


def say(*pairs, system=None):
    head = [{"role": "system", "content": system}] if system is not None else []
    return head + [{"role": role, "content": text} for role, text in pairs]


def pipe_in(monkeypatch, text: str | bytes) -> None:
    data = text.encode() if isinstance(text, str) else text
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(data)))


PARAMS = SamplingParams(max_tokens=10)


def test_a_turn_is_remembered_and_reset_forgets_all_but_the_system_message(capsys):
    model = Parrot()
    chat = Chat(model, PARAMS, "Be kind.", people=False)
    for line in ("one", "", "  ", "two", "/reset", "three", "/system", "four", "/system Be brief.\n", "five"):
        assert chat.handle(line)
    assert not chat.handle("/quit")
    first, third, fourth = ([("user", q), ("assistant", "I see.")] for q in ("one", "three", "four"))
    assert model.heard == [
        say(("user", "one"), system="Be kind."),
        say(*first, ("user", "two"), system="Be kind."),
        say(("user", "three"), system="Be kind."),
        say(*third, ("user", "four")),
        say(*third, *fourth, ("user", "five"), system="Be brief."),
    ]
    assert capsys.readouterr() == ("I see.\n" * 5, "")


def test_help_lists_the_commands_and_a_path_is_a_message(capsys):
    model = Parrot()
    chat = Chat(model, PARAMS, None, people=False)
    chat.handle("/help")
    out, err = capsys.readouterr()
    assert out == ""
    assert all(name in err for name in ("/reset", "/system TEXT", "/help", "/quit", "Ctrl-C"))
    chat.handle("/etc/hosts is what?")
    assert model.heard == [say(("user", "/etc/hosts is what?"))]


def test_an_error_ends_a_pipe_but_not_a_talk(capsys):
    model = Parrot()
    piped = Chat(model, PARAMS, None, people=False)
    for line in ("/dance", "forbidden", "/system forbidden"):
        with pytest.raises(RequestError):
            piped.handle(line)
    talk = Chat(model, PARAMS, "Be kind.", people=True)
    capsys.readouterr()
    for line in ("/dance", "forbidden", "/system forbidden"):
        assert talk.handle(line)
    errors = capsys.readouterr().err.splitlines()
    assert errors[0] == "error: unknown command /dance (/help lists them)"
    assert errors[1:] == ["error: chat template: no such message"] * 2
    assert talk.conversation == Conversation("Be kind.")  # and none of it is remembered


def test_an_interrupt_stops_the_answer_and_what_was_said_counts(capsys):
    model = Parrot(("I ", "see", " all."))
    chat = Chat(model, PARAMS, None, people=True)
    model.before = lambda i: i == 1 and signal.raise_signal(signal.SIGINT)
    assert chat.handle("one")
    assert capsys.readouterr().out == "I see\n"
    assert chat.conversation.turns == [("one", "I see")]
    model.before = lambda i: None
    assert chat.handle("two")
    assert chat.conversation.turns[1:] == [("two", "I see all.")]
    with pytest.raises(KeyboardInterrupt):  # outside of an answer it is an interrupt again
        signal.raise_signal(signal.SIGINT)


def test_an_answer_stopped_before_its_first_word_is_no_turn(capsys):
    model = Parrot(("", "", "late"))
    chat = Chat(model, PARAMS, None, people=True)
    model.before = lambda i: i == 0 and signal.raise_signal(signal.SIGINT)
    assert chat.handle("one")
    assert capsys.readouterr().out == ""
    assert chat.conversation.turns == []


def test_an_interrupt_ends_a_pipe():
    model = Parrot()
    chat = Chat(model, PARAMS, None, people=False)
    model.before = lambda i: signal.raise_signal(signal.SIGINT)
    with pytest.raises(KeyboardInterrupt):
        chat.handle("one")


def test_what_no_longer_fits_is_forgotten_oldest_first_with_one_notice(capsys):
    model = Parrot(("x" * 10,), room=90)  # 80 for the prompt, of which a turn takes 20
    chat = Chat(model, PARAMS, "s" * 5, people=False)
    for letter in "abcd":
        chat.handle(letter * 10)
    assert capsys.readouterr().err == ""
    chat.handle("e" * 10)
    assert capsys.readouterr().err == ("the oldest 3 turns are forgotten: the conversation no longer fits 90 tokens\n")
    assert model.heard[-1] == say(("user", "d" * 10), ("assistant", "x" * 10), ("user", "e" * 10), system="s" * 5)
    chat.handle("f" * 10)
    assert capsys.readouterr().err == ""


@given(
    turns=st.lists(st.tuples(st.text("q", min_size=1, max_size=30), st.text("a", min_size=1, max_size=30))),
    question=st.text("?", min_size=1, max_size=60),
    room=st.integers(1, 100),
    answer=st.integers(1, 100),
)
def test_what_is_forgotten_leaves_half_the_room_and_is_no_more_than_that_takes(turns, question, room, answer):
    model, most = Parrot(room=room), room - min(answer, room // 4)
    conversation = Conversation("system", list(turns))

    def size(kept):
        return len(model.encode_chat(Conversation("system", kept).messages(question)))

    if size([]) >= room:
        with pytest.raises(RequestError, match=f"has {size([])} tokens; the maximum of {room}"):
            conversation.fit(question, model, answer)
        assert conversation.turns == turns
        return
    forgotten = conversation.fit(question, model, answer)
    assert conversation.turns == turns[forgotten:]
    if forgotten:
        assert size(turns) > most
        assert size(turns[forgotten - 1 :]) > room // 2
        assert size(turns[forgotten:]) <= room // 2 or forgotten == len(turns)
    else:
        assert size(turns) <= most or not turns


def test_a_piped_talk_is_its_answers_a_line_each(tiny, capsys, monkeypatch):
    pipe_in(monkeypatch, "नमस्ते\r\n\n/reset\nhi\nho")
    argv = ["chat", tiny, "--system", "Be kind.", "--max-tokens", "6", "--temperature", "0.9", "--seed", "4"]
    assert main(argv) == 0
    out, err = capsys.readouterr()
    params = SamplingParams(6, temperature=0.9, top_p=command.DEFAULTS.top_p, seed=4)
    with LLM(tiny) as llm:

        def ask(*pairs):
            return llm.chat(say(*pairs, system="Be kind."), params).text

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


def test_a_line_that_is_no_text_is_named(tiny, capsys, monkeypatch):
    pipe_in(monkeypatch, b"hi\n\xff\n")
    assert main(["chat", tiny, "--max-tokens", "1"]) == 2
    assert capsys.readouterr().err.endswith("drut: error: line 2 of standard input is not UTF-8 text\n")


def typed(monkeypatch, *lines):
    """`input` gives these, or raises them, then the end of the file."""
    script = iter([*lines, EOFError])

    def read(prompt):
        line = next(script)
        if isinstance(line, str):
            return line
        raise line

    monkeypatch.setattr("builtins.input", read)
    return list(command._typed_lines())


def test_at_the_prompt_two_interrupts_in_a_row_leave(monkeypatch, capsys):
    assert typed(monkeypatch, "a", KeyboardInterrupt, "b", KeyboardInterrupt, KeyboardInterrupt, "c") == [
        "a",
        "b",
    ]
    assert capsys.readouterr().err == "Ctrl-C again or Ctrl-D leaves\n" * 2
    assert typed(monkeypatch, "a") == ["a"]


def test_defaults_are_told_in_the_help(capsys):
    with pytest.raises(SystemExit):
        main(["chat", "--help"])
    out = " ".join(capsys.readouterr().out.split())
    assert "vary more (default: 0.7)" in out
    assert "of an answer (default: 1024)" in out


class Terminal:
    """A program on a terminal of its own."""

    def __init__(self, *argv: str) -> None:
        self.fd, side = pty.openpty()
        self.process = subprocess.Popen(
            [sys.executable, "-m", "drut", *argv],
            stdin=side,
            stdout=side,
            stderr=side,
            start_new_session=True,
            env={**os.environ, "TERM": "xterm"},
            preexec_fn=lambda: os.close(os.open(os.ttyname(0), os.O_RDWR)),
        )
        os.close(side)
        self.seen = ""

    def until(self, words: str) -> None:
        """Waits until `words` are shown, and drops what is shown up to them."""
        deadline = time.monotonic() + 30
        while words not in self.seen:
            assert time.monotonic() < deadline, self.seen
            if select.select([self.fd], [], [], 0.2)[0]:
                self.seen += os.read(self.fd, 4096).decode(errors="replace")
        self.seen = self.seen.partition(words)[2]

    def type(self, text: str, end: str) -> None:
        """Types `text`, then `end` once readline has shown that it waits for keys: what it does not wait for, be
        it a line end that follows too fast or an interrupt, it may look at only when the next key comes."""
        os.write(self.fd, text.encode())
        self.until(text)
        time.sleep(0.1)
        os.write(self.fd, end.encode())


def test_at_a_terminal(tiny, tmp_path):
    """Prompt, answer with its speed, Ctrl-C at the prompt, leaving, history."""
    terminal = Terminal("chat", tiny, "--max-tokens", "12")
    try:
        terminal.until(">>> ")
        terminal.type("hello", "\r")
        terminal.until("12 tokens, the first after ")
        terminal.until(">>> ")
        terminal.type("half a mess", "\x03")
        terminal.until("Ctrl-C again or Ctrl-D leaves")
        terminal.until(">>> ")
        terminal.type("/quit", "\r")
        assert terminal.process.wait(10) == 0
    finally:
        terminal.process.kill()
        terminal.process.wait()
        os.close(terminal.fd)
    history = tmp_path / "home" / "chat_history"
    assert history.read_text() == "hello\n/quit\n"
    assert history.stat().st_mode & 0o077 == 0


def test_thoughts_are_shown_aside_and_forgotten(tmp_path, monkeypatch):
    path = tmp_path / "thinker.gguf"
    path.write_bytes(tiny.model(tokenizer__chat_template=tiny.TEMPLATE + "{# </think> #}<think>\n"))
    heard, shown = [], io.StringIO()

    def stream(messages, params):
        heard.append(messages)
        for word in ("Hm", "m.\n</th", "ink>\n\nNo", "."):
            yield Chunk(word, [])
        yield Chunk("", [], Completion(text="", token_ids=[], finish_reason="stop", prompt_tokens=1, cached_tokens=0,
                                       completion_tokens=1, seed=0))

    monkeypatch.setattr(sys, "stdout", shown)
    monkeypatch.setattr(shown, "isatty", lambda: True)
    with LLM(path, threads=1) as llm:
        monkeypatch.setattr(llm, "stream", stream)
        chat = Chat(llm, PARAMS, None, people=False)
        chat.handle("one")
        monkeypatch.setattr(shown, "isatty", lambda: False)
        chat.handle("two")
    assert heard[1] == say(("user", "one"), ("assistant", "No."), ("user", "two"))
    assert shown.getvalue() == "\x1b[2mHm\x1b[22m\x1b[2mm.\x1b[22m\x1b[2m\n\n\x1b[22mNo.\nNo.\n"
