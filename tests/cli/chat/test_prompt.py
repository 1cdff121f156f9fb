from __future__ import annotations

import pytest
from prompt_toolkit.application import create_app_session
from prompt_toolkit.document import Document
from prompt_toolkit.history import InMemoryHistory
from prompt_toolkit.input import create_pipe_input
from prompt_toolkit.output import DummyOutput

from drut.cli.chat import prompt
from drut.cli.chat.completion import CommandCompleter
from drut.cli.chat.prompt import ChatPrompt, Typed, history, is_open, unquoted
from tests.cli.chat.parrot import Parrot, Parrots

PASTE = "\x1b[200~{}\x1b[201~"


def typed(keys: str, kept=None) -> list[Typed]:
    """The messages that `keys` make, to a Ctrl-D at their end."""
    with create_pipe_input() as pipe, create_app_session(input=pipe, output=DummyOutput()):
        pipe.send_text(keys + "\x04")
        return list(ChatPrompt(CommandCompleter(Parrots()), kept or InMemoryHistory()).messages())


@pytest.mark.parametrize(("keys", "messages"), [
    ("one\rtwo\r", ["one", "two"]),
    ("one\n", ["one"]),  # typed ahead
    (PASTE.format("a\n\n\tb\r\nc") + "\r", ["a\n\n\tb\nc"]),
    ("see " + PASTE.format("a\nb\n") + "\rnext\r", ["see a\nb", "next"]),
    ("one\x1b\rtwo\r", ["one\ntwo"]),
    ("half\x03whole\r", ["whole"]),
    ("\r", [""]),
])
def test_what_is_typed_and_pasted(keys, messages):
    assert typed(keys) == [Typed(text) for text in messages]


@pytest.mark.parametrize(("keys", "text"), [
    ('"""one\rtwo\r"""\r', "one\ntwo"), ('"""\r/save x\r\rend"""\r', "/save x\n\nend"), ('"""one"""\r', "one"),
    ('  """a\r "b" \r"""\r', 'a\n "b" ')])
def test_triple_quotes_hold_several_lines_and_no_command(keys, text):
    assert typed(keys) == [Typed(text, quoted=True)]


def test_quotes_are_open_until_they_are_closed():
    assert [is_open(text) for text in ('"""', '"""a', '""""', '"""a""', '"""a\n"""', '""""""', 'a """')] == [
        True, True, True, True, False, False, False]
    assert unquoted('a """b"""') == Typed('a """b"""')


def test_two_interrupts_in_a_row_on_an_empty_line_leave(capsys):
    assert typed("\x03a\r\x03b\x03c\r\x03\x03d\r") == [Typed("a"), Typed("c")]
    assert capsys.readouterr().err == "Ctrl-C again, Ctrl-D or /bye leaves\n" * 3


def test_the_history_is_private_and_has_whole_messages(tmp_path, monkeypatch):
    monkeypatch.setattr(prompt, "KEPT_CHARACTERS", 5)
    file = tmp_path / "home" / "chat_history"
    typed(PASTE.format("a\nb") + "\rc\rtoo long\r", history(file))
    assert list(history(file).load_history_strings()) == ["c", "a\nb"]
    assert file.stat().st_mode & 0o777 == 0o600
    assert "too long" not in file.read_text()


def test_a_history_that_cannot_be_written_is_in_memory(tmp_path):
    (tmp_path / "home").write_text("a file")
    kept = history(tmp_path / "home" / "chat_history")
    assert typed("a\r", kept) == [Typed("a")]
    assert kept.get_strings() == ["a"]


@pytest.mark.parametrize(("begun", "words"), [
    ("/s", ["set", "system", "save"]), ("/q", ["quit"]), ("/set t", ["temperature", "top_k", "top_p"]),
    ("/set reasoning ", ["show", "hide"]), ("/set seed n", ["none"]), ("/model se", ["second"]), ("s", []), ("", []),
    ("a /s", []), ("/save\n/s", []), ("/nothing s", []), ("/load {}/ch", ["at.json"])])
def test_tab_completes_commands_and_their_arguments(tmp_path, begun, words):
    (tmp_path / "chat.json").write_text("")
    completer = CommandCompleter(Parrots(first=Parrot(), second=Parrot()))
    found = completer.get_completions(Document(begun.format(tmp_path)), None)
    assert sorted(c.text for c in found) == sorted(words)
