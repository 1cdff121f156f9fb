"""Hostile programs meet their bounds, and only a program that comes to its end passes.

A program here that passes found the bound: it caught what the bound raises. Times to end by are long where a program
ends of itself, so that a slow machine changes nothing.
"""

from __future__ import annotations

import os
import socket
import tempfile
from pathlib import Path

import psutil
import pytest

from drut.errors import UnsupportedError
from drut.quality import sandbox
from drut.quality.sandbox import Bounds, run

PATIENT = Bounds(cpu_s=20, wall_s=300)
SHORT = Bounds(cpu_s=1, wall_s=300)
CAUGHT = "\nexcept {error}:\n    pass\nelse:\n    raise SystemExit('no bound')\n"


@pytest.fixture(scope="module")
def lacking() -> tuple[str, ...]:
    try:
        return sandbox.trial(PATIENT)
    except UnsupportedError as error:
        pytest.skip(str(error))


def need(bound: str, lacking: tuple[str, ...]) -> None:
    if bound in lacking:
        pytest.skip(f"{bound} cannot be bounded on this machine")


def attempt(code: str, error: str = "OSError") -> str:
    return "import os, resource, socket\ntry:\n    " + code + CAUGHT.format(error=error)


@pytest.mark.usefixtures("lacking")
@pytest.mark.parametrize("program", [
    "raise SystemExit(0)", "import sys\nsys.exit()", "import os\nos._exit(0)", "assert 1 == 2", "def f(:", "1 / 0",
    "import os, signal\nos.abort()", "x = '''", "\ud800",
    "import os\nfor fd in range(3, 64):\n    try:\n        os.write(fd, b'x' * 16)\n    except OSError:\n        pass"])
def test_only_the_end_passes(program: str) -> None:
    outcome = run(program, PATIENT)
    assert (outcome.passed, outcome.timed_out) == (False, False)


@pytest.mark.usefixtures("lacking")
@pytest.mark.parametrize("program", [
    "", "x = 'ड्रुत'", "print('x' * 10_000_000)", "import sys\nassert sys.stdin.read() == ''",
    "import os\nassert set(os.environ) <= {'LC_CTYPE'}, os.environ", "import os\nassert os.listdir() == ['program.py']",
    "import collections, heapq, itertools, math, re, string, typing, hashlib",
    attempt("import msgspec", "ImportError"), attempt("bytearray(10 << 30)", "MemoryError"),
    attempt("open('big', 'wb').write(b'x' * (2 << 20))"), attempt("os.ftruncate(os.memfd_create('big'), 10 << 20)"),
    attempt("[os.dup(1) for _ in range(1000)]"),
    attempt("resource.setrlimit(resource.RLIMIT_CPU, (1000, 1000))", "(OSError, ValueError)")])
def test_bounds_are_met(program: str) -> None:
    assert run(program, PATIENT).passed


@pytest.mark.slow
@pytest.mark.usefixtures("lacking")
@pytest.mark.parametrize("program", ["while True:\n    pass", "while True:\n    print('x' * 1000)"])
def test_what_computes_for_ever_runs_out_of_time(program: str) -> None:
    outcome = run(program, SHORT)
    assert (outcome.passed, outcome.timed_out) == (False, False), "the kernel ends it, not the clock"


def test_a_fork_bomb(lacking: tuple[str, ...]) -> None:
    need("processes", lacking)
    assert run(attempt("os.fork()"), PATIENT).passed
    assert not run("import os\nwhile True:\n    os.fork()", PATIENT).passed


def test_the_engine_cannot_be_killed(lacking: tuple[str, ...]) -> None:
    need("signals", lacking)
    assert run(f"import os\nassert os.getppid() == 0\n{attempt(f'os.kill({os.getpid()}, 0)')}", PATIENT).passed
    assert not run("import os\nos.kill(os.getppid(), 9)\nraise SystemExit", PATIENT).passed


def test_there_is_no_network(lacking: tuple[str, ...]) -> None:
    need("network", lacking)
    with socket.create_server(("127.0.0.1", 0)) as server:
        assert run(attempt(f"socket.create_connection(('127.0.0.1', {server.getsockname()[1]}))"), PATIENT).passed


def test_files_are_read_only(lacking: tuple[str, ...], tmp_path: Path) -> None:
    need("files", lacking)
    kept = tmp_path / "kept"
    kept.write_text("here")
    for code in (f"open({str(kept)!r}, 'w')", f"os.remove({str(kept)!r})", "open('/tmp/drut-new', 'w')"):
        assert run(attempt(code), PATIENT).passed
    assert kept.read_text() == "here"


@pytest.mark.usefixtures("lacking")
def test_what_waits_for_ever_is_ended_and_nothing_is_left(monkeypatch: pytest.MonkeyPatch) -> None:
    folder = Path(tempfile.mkdtemp(prefix="drut-test-"))
    folder.chmod(0o755)  # the program may be another user's
    monkeypatch.setattr("tempfile.tempdir", str(folder))
    program = ("import os, signal, time\nsignal.signal(signal.SIGTERM, signal.SIG_IGN)\n"
               "try:\n    os.setsid()\nexcept OSError:\n    pass\ntime.sleep(1e6)")
    outcome = run(program, Bounds(wall_s=1))
    assert (outcome.passed, outcome.timed_out) == (False, True)
    assert [p for p in psutil.process_iter(["cwd"]) if (p.info["cwd"] or "").startswith(str(folder))] == []
    folder.rmdir()  # which is empty


def test_what_cannot_be_bounded_is_not_run(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    refusing = tmp_path / "refusing.py"
    refusing.write_text("import os, sys\nos.write(int(sys.argv[1]), b'!no room\\n')")
    monkeypatch.setattr(sandbox.confine, "__file__", str(refusing))
    with pytest.raises(UnsupportedError, match="cannot be bounded here: no room"):
        run("", PATIENT)


def test_a_python_that_does_not_start(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.executable", "/bin/false")
    with pytest.raises(UnsupportedError, match=r"an empty one does not end well under /bin/false"):
        sandbox.trial(PATIENT)
