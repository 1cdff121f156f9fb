"""Help and errors of all commands, and the commands as data."""

from __future__ import annotations

import io
import re

import pytest

from drut.cli.commands import COMMANDS, parser_of
from drut.cli.describe import describe
from drut.cli.main import main
from drut.cli.parser import Parser, example_lines, show
from drut.config import INTERNALS, EngineConfig, add_flags
from drut.errors import RequestError, did_you_mean

NAMES = [name for name, _ in COMMANDS if name != "help"]


def printed(capsys, *argv: str) -> str:
    with pytest.raises(SystemExit) as ended:
        main(list(argv))
    assert ended.value.code == 0
    return capsys.readouterr().out


@pytest.mark.parametrize("name", NAMES)
def test_help_of_a_command_fits_a_terminal(capsys, monkeypatch, name):
    monkeypatch.setenv("COLUMNS", "72")
    text = printed(capsys, "help", name)
    assert text.startswith(f"usage: drut {name}")
    prose = text.partition("\nexamples:\n")[0]
    wide = [line for line in prose.splitlines() if len(line) > 72]
    assert not [line for line in wide if len(line.split()) > 3], "a list of choices may be wider, prose not"
    assert printed(capsys, name, "-h") == text


def test_internals_are_only_in_the_whole_help(capsys):
    short, whole = (printed(capsys, "generate", flag) for flag in ("--help", "--help-all"))
    assert "--threads" in short
    assert "--multi-step" not in short
    assert "--multi-step" in whole
    assert "engine internals:" in whole
    parser = Parser()
    add_flags(parser)
    assert parser.parse_args(["--multi-step", "3", "-t", "2"]).multi_step == 3


def test_every_command_has_examples_that_its_parser_knows():
    for command in describe():
        flags = {name for argument in command.arguments for name in argument.names}
        for line, text in command.examples:
            assert command.name in line or "drut.toml" in line, line
            assert text
            assert flags.issuperset(re.findall(r" (--?[a-z][a-z-]*)", line)), line


def test_the_commands_as_data():
    commands = {command.name: command for command in describe()}
    assert {f"drut {name}" for name in NAMES} | {"drut bench serve"} <= commands.keys()
    generate = commands["drut generate"]
    assert generate.usage == "drut generate [MODEL] [flags]"
    arguments = {argument.names[-1] if argument.names else argument.values: argument for argument in generate.arguments}
    assert arguments["MODEL"].names == ()
    dtype = arguments["--kv-dtype"]
    assert (dtype.values, dtype.default, dtype.group) == ("bf16|int8|fp32", "bf16", "engine")
    assert arguments["--[no-]overlap"].internal
    assert arguments["--max-tokens"].names == ("-n", "--max-tokens")
    assert arguments["--threads"].default == "the CPUs this process may use"
    assert "(default" not in arguments["--threads"].help
    internal = {a.names[-1] for a in generate.arguments if a.internal}
    assert len(internal) == sum(EngineConfig.__dataclass_fields__[n].metadata["internal"] for n in EngineConfig.names())
    assert commands["drut bench serve"].summary


def test_flags_are_never_abbreviated():
    def parsers(parser):
        yield parser
        for action in parser._actions:
            for below in (action.choices or {}).values() if isinstance(action.choices, dict) else ():
                yield from parsers(below)

    for name in NAMES:
        for parser in parsers(parser_of(name)):
            assert isinstance(parser, Parser)
            assert not parser.allow_abbrev


@pytest.mark.parametrize(
    ("argv", "words"),
    [
        (["generate", "m", "--promt", "x"], "no flag --promt; did you mean --prompt? (see drut generate --help)"),
        (["generate", "m", "--kv-dtype", "int3"], "'int3' is not one of bf16, int8, fp32; did you mean int8?"),
        (["bench", "serv"], "did you mean serve? (see drut bench --help)"),
        (["bench", "serve", "--ratee", "3"], "no flag --ratee; did you mean --rate? (see drut bench serve --help)"),
        (["bench", "report", "--o", "x"], "no flag --o"),
        (["generate", "m"], "a prompt is needed"),
    ],
)
def test_what_is_almost_right_is_named(capsys, argv, words):
    assert main(argv) == 2
    out, err = capsys.readouterr()
    assert (out, err.count("\n")) == ("", 1)
    assert words in err


def test_after_two_dashes_there_is_no_flag():
    parser = Parser()
    parser.add_argument("words", nargs="*")
    assert parser.parse_args(["--", "--x"]).words == ["--x"]
    with pytest.raises(RequestError, match="no flag --x"):
        parser.parse_args(["--x"])


@pytest.mark.parametrize("argv", [["m", "p", "-n", "3"], ["m", "-n", "3", "p"], ["-n", "3", "m", "p"]])
def test_arguments_may_follow_flags(argv):
    parsed = parser_of("run").parse_args(argv)
    assert (parsed.model, parsed.prompt, parsed.max_tokens) == ("m", "p", 3)
    assert parser_of("run").parse_args(["m", "--raw"]).prompt is None
    with pytest.raises(RequestError, match="unexpected: q"):
        parser_of("run").parse_args([*argv, "q"])


def test_titles_are_bold_on_a_terminal_only(monkeypatch):
    class Terminal(io.StringIO):
        def isatty(self):
            return True

    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.delenv("NO_COLOR", raising=False)
    for file, bold in ((Terminal(), True), (io.StringIO(), False)):
        show("usage: x\n\nflags:\n  --x  y: z\n", file)
        assert ("\x1b[1mflags:\x1b[0m" in file.getvalue()) == bold
        assert "\x1b" not in file.getvalue().partition("--x")[2]
    monkeypatch.setenv("NO_COLOR", "1")
    show("flags:\n", plain := Terminal())
    assert plain.getvalue() == "flags:\n"


def test_long_examples_have_their_text_above():
    assert example_lines([("drut a", "b")]) == "\nexamples:\n  drut a  # b\n"
    assert example_lines([("drut " + "a" * 70, "b" * 20)]).splitlines()[2] == "  # " + "b" * 20
    assert example_lines([]) == ""


def test_did_you_mean():
    assert did_you_mean("Serve", ["serve", "show"]) == "; did you mean serve?"
    assert did_you_mean("qwen3:4b", ["qwen3-4b"]) == "; did you mean qwen3-4b?"
    assert did_you_mean("x", ["serve"]) == ""
    assert did_you_mean("--temp", ["--system", "--temperature"]) == "; did you mean --temperature?"
    assert did_you_mean("SmolLM2", ["smollm3-3b", "smollm2-135m-instruct"]) == "; did you mean smollm2-135m-instruct?"
    assert INTERNALS
