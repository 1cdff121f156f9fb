from __future__ import annotations

import argparse
import json
from pathlib import Path

import pytest

from drut.cli import settings
from drut.cli.main import main
from drut.cli.opening import add_choice
from drut.cli.parser import Parser
from drut.config import add_flags
from drut.errors import RequestError


@pytest.fixture
def file(tmp_path, monkeypatch) -> Path:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    return tmp_path / "drut.toml"


def parsed(*argv: str) -> argparse.Namespace:
    parser = Parser()
    add_choice(parser)
    add_flags(parser)
    return parser.parse_args(argv)


def test_flag_then_environment_then_file_then_default(file, monkeypatch):
    def threads(*argv: str):
        return settings.engine_config(parsed(*argv)).threads

    monkeypatch.delenv("DRUT_THREADS", raising=False)
    assert threads() is None
    file.write_text("threads = 2\nmodel = 'of the file'\n")
    assert threads() == 2
    monkeypatch.setenv("DRUT_THREADS", "3")
    assert threads() == 3
    assert threads("-t", "4") == 4
    assert settings.model_of(parsed()) == "of the file"
    monkeypatch.setenv("DRUT_MODEL", "of the variable")
    assert settings.model_of(parsed()) == "of the variable"
    assert settings.model_of(parsed("-m", "of the flag")) == "of the flag"
    assert settings.model_of(parsed("of the argument")) == "of the argument"
    with pytest.raises(RequestError, match="two models: 'a' and --model 'b'"):
        settings.model_of(parsed("a", "-m", "b"))


def test_the_variable_names_another_file(file, tmp_path, monkeypatch):
    file.write_text("threads = 2\n")
    monkeypatch.setenv("DRUT_CONFIG", str(tmp_path / "other.json"))
    with pytest.raises(RequestError, match=r"other\.json: No such file"):
        settings.read()
    (tmp_path / "other.json").write_text('{"threads": 5}')
    assert settings.read() == {"threads": 5}


def test_without_a_file_there_are_no_settings(file, monkeypatch, tmp_path):
    assert settings.read() == {}
    monkeypatch.setenv("XDG_CONFIG_HOME", "relative")  # which does not count
    monkeypatch.setenv("HOME", str(tmp_path))
    assert settings.file_name() == tmp_path / ".config" / "drut.toml"
    with pytest.raises(RequestError, match="a MODEL is needed"):
        settings.model_of(parsed())


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("prot = 1", "drut.toml: unknown setting 'prot'; did you mean port?"),
        ("a b", "drut.toml: "),
        ("model = 3", "drut.toml: model must be a string, not 3"),
        ("threads = 'many'", "drut.toml: threads must be an integer, not 'many'"),
        ("port = 70000", "drut.toml: port must be from 0 to 65535, not 70000"),
    ],
)
def test_a_mistake_in_the_file_is_named(file, capsys, text, words):
    file.write_text(text)
    assert main(["config"]) == 2
    out, err = capsys.readouterr()
    assert words in err.splitlines()[-1]
    assert out == ""


def test_config_names_the_source_of_each_value(file, capsys, monkeypatch):
    monkeypatch.delenv("DRUT_THREADS", raising=False)
    file.write_text("port = 9000\nmodel = 'm'\napi_key = 'secret-key'\n")
    monkeypatch.setenv("DRUT_HOST", "127.0.0.2")
    assert main(["config"]) == 0
    out, err = capsys.readouterr()
    assert err == f"file: {file}\n"
    assert [line.split() for line in out.splitlines()[1:]] == [
        ["model", "m", str(file)], ["host", "127.0.0.2", "DRUT_HOST"], ["port", "9000", str(file)],
        ["api_key", "(not", "shown)", str(file)]]
    assert main(["config", "--all"]) == 0
    assert "kv_dtype" in (out := capsys.readouterr().out)
    assert "secret" not in out
    assert main(["config", "--json"]) == 0
    values = json.loads(capsys.readouterr().out)
    assert values["port"] == {"value": 9000, "source": str(file)}
    assert values["threads"] == {"value": None, "source": "default"}


def test_generate_takes_model_and_settings_from_the_file(file, tiny, capsys):
    file.write_text(f"model = '{tiny}'\nmax_model_len = 16\n")
    assert main(["generate", "-p", "x" * 40]) == 2
    assert "the context of 16" in capsys.readouterr().err
