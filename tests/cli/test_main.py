from __future__ import annotations

import os
import subprocess
import sys
from types import ModuleType

import pytest

from drut import __version__
from drut.cli.main import COMMANDS, main
from drut.errors import ModelFileError
from tests.model.gguf_writer import gguf


@pytest.fixture
def command(monkeypatch):
    """Replace the module of `drut roof` by one whose `run` is given."""

    def replace(run):
        module = ModuleType("drut.cli.roof")
        module.HELP = "help"
        module.add_arguments = lambda parser: parser.add_argument("--n", type=int)
        module.run = run
        monkeypatch.setitem(sys.modules, "drut.cli.roof", module)

    return replace


def python(*args: str, **kwargs) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, *args], capture_output=True, text=True, check=False, **kwargs)


def test_help_lists_the_commands_and_stays_light():
    check = "import sys; from drut.cli.main import main\nmain(['--help'])\n"
    done = python("-c", check + "assert 'numpy' not in sys.modules and 'rich' not in sys.modules")
    assert (done.returncode, done.stderr) == (0, "")
    for name, text in COMMANDS:
        assert name in done.stdout
        assert text in done.stdout


def test_python_m_drut_gives_version_and_exit_code():
    done = python("-m", "drut", "--version")
    assert (done.returncode, done.stdout) == (0, f"drut {__version__}\n")
    done = python("-m", "drut", "pull", "gone")
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith("drut: error: no model 'gone'")
    assert done.stderr.count("\n") == 1


@pytest.mark.parametrize(
    ("argv", "words"),
    [
        (["dance"], "no command dance (see drut --help)"),
        (["serv"], "no command serv; did you mean serve? (see drut --help)"),
        (["help", "Serve"], "no command Serve; did you mean serve?"),
        (["pull"], "required: MODEL (see drut pull --help)"),
        (["--versoin"], "no flag --versoin; did you mean --version? (see drut --help)"),
        (["roof", "--m", "x"], "no flag --m; did you mean --n? (see drut roof --help)"),
        (["roof", "--nn=x"], "no flag --nn; did you mean --n? (see drut roof --help)"),
        (["roof", "x", "--n", "3"], "unexpected: x (see drut roof --help)"),
        (["roof", "--n", "x"], "argument --n: invalid int value: 'x'"),
        (["pull", "hf:nothing"], "hf:nothing"),
    ],
)
def test_wrong_use_is_one_line_and_exit_2(command, capsys, argv, words):
    command(lambda args: 0)
    assert main(argv) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert err.startswith("drut: error: ")
    assert err.count("\n") == 1
    assert words in err


@pytest.mark.parametrize("argv", [[], ["help"], ["-h"], ["help", "--help"], ["--help-all"]])
def test_without_a_command_there_is_the_help(capsys, argv):
    assert main(argv) == 0
    out, err = capsys.readouterr()
    assert err == ""
    assert out.startswith(f"Drut {__version__}")
    assert max(map(len, out.splitlines())) <= 90


def test_a_command_s_exit_code_is_returned(command):
    command(lambda args: args.n)
    assert main(["roof", "--n", "3"]) == 3


def test_names_out_of_hostile_files_cannot_break_the_line(command, capsys):
    def run(args):
        raise ModelFileError("file\n\x1b[2J: 'ह' \udcff")

    command(run)
    assert main(["roof"]) == 2
    assert capsys.readouterr().err == "drut: error: file\\n\\x1b[2J: 'ह' \\udcff\n"


def test_an_interrupt_leaves_no_traceback(command, capsys):
    def run(args):
        raise KeyboardInterrupt

    command(run)
    assert main(["roof"]) == 130
    assert capsys.readouterr().err == ""


@pytest.mark.parametrize("unbuffered", ["", "1"])
def test_a_reader_that_went_away_is_no_error(tmp_path, unbuffered):
    (tmp_path / "m.gguf").write_bytes(gguf())
    writer = subprocess.Popen(
        [sys.executable, "-m", "drut", "pull", str(tmp_path / "m.gguf")],
        env={**os.environ, "PYTHONUNBUFFERED": unbuffered},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    writer.stdout.close()
    assert writer.stderr.read() == b""
    writer.stderr.close()
    assert writer.wait() == 141


def test_a_full_disk_is_one_line():
    with open("/dev/full", "w") as full:
        done = subprocess.run([sys.executable, "-m", "drut", "models"], stdout=full, stderr=subprocess.PIPE, text=True)
    assert (done.returncode, done.stderr) == (1, "drut: error: No space left on device\n")


@pytest.mark.parametrize("closed", ["1>&-", "2>&-", "1>&- 2>&-"])
def test_a_closed_stream_is_no_error(closed):
    command = ["/bin/sh", "-c", f'exec "$0" -m drut models {closed}', sys.executable]
    done = subprocess.run(command, capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")


def test_pull_prints_the_path_alone(tmp_path, capsys):
    path = tmp_path / "m.gguf"
    path.write_bytes(gguf())
    assert main(["pull", str(path)]) == 0
    assert capsys.readouterr() == (f"{path}\n", "")
