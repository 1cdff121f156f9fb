from __future__ import annotations

import io
import json
import os
import re
import subprocess
import sys

import pytest

from drut.cli import run as run_command
from drut.cli.main import main
from tests.cli.tiny import model


@pytest.fixture
def stdin(monkeypatch):
    """Sets standard input: a text through a pipe, or None for a terminal."""

    def give(text: str | bytes | None) -> None:
        raw = text.encode() if isinstance(text, str) else text or b""
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(raw)))
        monkeypatch.setattr(sys.stdin, "isatty", lambda: text is None, raising=False)

    give(None)
    return give


def answered(capsys, *argv: str) -> str:
    """The answer; whatever else there is to report is on standard error."""
    assert main(["run", *argv, "-n", "6", "--temperature", "0"]) == 0
    out, err = capsys.readouterr()
    assert "native kernels" in err or "NumPy" in err
    assert "tokens/s" in err
    return out


def test_a_prompt_is_a_message(tiny, stdin, capsys):
    assert main(["generate", tiny, "--chat", "-p", "hello", "-n", "6", "--temperature", "0"]) == 0
    expected = capsys.readouterr().out
    assert answered(capsys, tiny, "hello") == expected
    assert answered(capsys, tiny, "-p", "hello") == expected
    assert answered(capsys, "-m", tiny, "hello") == expected
    assert answered(capsys, "--model", tiny, "--prompt", "hello") == expected
    stdin("hello\n")
    assert answered(capsys, tiny) == expected


def test_raw_continues_the_text(tiny, stdin, capsys):
    assert main(["generate", tiny, "-p", "hello", "-n", "6", "--temperature", "0"]) == 0
    expected = capsys.readouterr().out
    assert answered(capsys, tiny, "hello", "--raw") == expected
    assert answered(capsys, tiny, "hello") != expected


def test_prompt_and_text_are_one_message(tiny, stdin, capsys):
    expected = answered(capsys, tiny, "sum up:\n\nabc\ndef")
    stdin("abc\ndef\n")
    assert answered(capsys, tiny, "sum up:") == expected


def test_a_system_message_counts(tiny, stdin, capsys):
    assert answered(capsys, tiny, "hello", "--system", "be brief") != answered(capsys, tiny, "hello")


def test_a_model_without_a_template_continues_the_text(tiny, stdin, capsys, tmp_path):
    path = tmp_path / "plain.gguf"
    path.write_bytes(model(tokenizer__chat_template=None))
    assert main(["run", str(path), "hello", "-n", "6", "--temperature", "0"]) == 0
    out, err = capsys.readouterr()
    assert out == answered(capsys, tiny, "hello", "--raw")
    assert "plain.gguf has no chat template: it continues the prompt as text" in err


def test_json_is_one_object(tiny, stdin, capsys):
    assert main(["run", tiny, "hello", "--json", "-n", "3"]) == 0
    assert json.loads(capsys.readouterr().out)["completion_tokens"] == 3


def test_a_constraint_holds(tiny, stdin, capsys):
    assert main(["run", tiny, "hello", "--regex", "[0-9]{3}"]) == 0
    assert capsys.readouterr().out.strip().isdigit()


def test_on_a_terminal_without_a_prompt_it_chats(tiny, stdin, monkeypatch):
    chats = []
    monkeypatch.setattr(run_command, "_chat", lambda args: chats.append(args.model) or 7)
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True, raising=False)
    assert main(["run", tiny]) == 7
    assert chats == [tiny]


@pytest.mark.parametrize(
    ("text", "argv", "words"),
    [
        (None, ["{tiny}"], "a prompt is needed"),
        ("", ["{tiny}"], "a prompt is needed"),
        (" \n", ["{tiny}", ""], "a prompt is needed"),
        (b"caf\xe9", ["{tiny}"], "standard input is not UTF-8 text (byte 3)"),
        (None, ["{tiny}", "a", "-p", "b"], "two prompts"),
        (None, ["-m", "{tiny}", "-p", "a", "-p", "b"], "two prompts"),
        (None, ["{tiny}", "a", "-m", "{tiny}"], "two models"),
        (None, ["{tiny}", "a", "--raw", "--system", "b"], "not with --raw"),
        (None, ["{tiny}", "a", "--regex", "("], "regex"),
        (None, ["-p", "a"], "a MODEL is needed"),
        (None, ["smollm2:135m-instruct", "a"], "did you mean smollm2-135m-instruct?"),
    ],
)
def test_what_cannot_be_answered(tiny, stdin, capsys, text, argv, words):
    stdin(text)
    assert main(["run", *(word.format(tiny=tiny) for word in argv)]) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert words in err.splitlines()[-1]
    assert "Traceback" not in err


def test_with_a_default_model_an_argument_that_names_none_is_the_prompt(tiny, stdin, capsys, monkeypatch):
    given = answered(capsys, tiny, "hello there")
    monkeypatch.setenv("DRUT_MODEL", tiny)
    assert answered(capsys, "hello there") == given
    for text, words in (("smolm2-135m-instruct", "did you mean smollm2"), ("missing.gguf", "no model")):
        stdin("hello")
        assert main(["run", text]) == 2
        assert words in capsys.readouterr().err


def test_on_a_terminal_the_answer_is_rendered(tiny_file, tmp_path):
    command = [sys.executable, "-m", "drut", "run", str(tiny_file), "hello", "-n", "8", "--temperature", "0"]
    main_end, terminal = os.openpty()
    done = subprocess.run(command, stdin=terminal, stdout=terminal, stderr=subprocess.PIPE, text=True, check=False,
                          env={**os.environ, "DRUT_HOME": str(tmp_path), "TERM": "xterm"})
    os.close(terminal)
    shown = os.read(main_end, 1 << 16).decode()
    os.close(main_end)
    assert done.returncode == 0, done.stderr
    assert re.search("[a-z]{3}", re.sub("\x1b[^a-zA-Z]*[a-zA-Z]", "", shown))
    assert "tokens/s" in done.stderr
    assert "\x1b" not in done.stderr
