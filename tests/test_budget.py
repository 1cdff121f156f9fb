"""A run over its budget fails; serial tests run alone."""

from __future__ import annotations

import os
import subprocess
import sys
from itertools import pairwise
from pathlib import Path

import pytest

from tests.budget import FILE, Budget, Clocks, Spent, folder_of

ROOT = FILE.parent.parent


def lines(idle: float = 60, **seconds: Spent) -> list[str]:
    spent = {f"tests/{name}": took for name, took in seconds.items()}
    return list(Budget({"tests/a": 10, "tests/b": 20}, idle, {"check": 120}).faults(spent))


def test_folders_within_their_budgets_pass() -> None:
    assert lines(a=Spent(9, 1), b=Spent(0, 20)) == []


def test_each_folder_over_its_budget_is_one_line() -> None:
    assert lines(a=Spent(9, 2), b=Spent(30, 1)) == ["tests/a took 11 s of 10 (9 s of CPU, 2 s idle)",
                                                    "tests/b took 31 s of 20 (30 s of CPU, 1 s idle)"]


def test_a_folder_without_a_budget_is_named() -> None:
    assert lines(c=Spent()) == ["tests/c has no budget in tests/budget.toml"]


def test_idle_seconds_have_a_budget_of_their_own() -> None:
    assert lines(5, a=Spent(1, 3), b=Spent(1, 3)) == ["the tests were idle for 6 s of 5"]


def test_a_whole_run_has_a_budget() -> None:
    budget = Budget({}, 60, {"check": 120})
    assert budget.run_fault("check", 119) is None
    assert budget.run_fault("check", 121) == "check took 121 s of 120"


def test_waiting_for_a_cpu_or_for_what_others_compute_is_not_idle() -> None:
    assert Clocks(wall=10, cpu=2, main=2, queued=3, free=20).idle == 5
    assert Clocks(wall=10, cpu=6, main=2, queued=3, free=20).idle == 1
    assert Clocks(wall=10, cpu=18, main=2, queued=0, free=20).idle == 0
    assert Clocks(wall=10, cpu=2, main=2, queued=0, free=20, children=7).idle == 1
    assert Clocks(wall=10, cpu=9, main=2, queued=0, free=20, children=-5).idle == 6  # what ended had run 5 s before
    assert Clocks(wall=10, cpu=2, main=2, queued=0, free=0.5).idle == 0.5


def test_what_a_running_child_computes_is_not_idle() -> None:
    before = Clocks.read().children
    spin = "import time\nwhile time.process_time() < 0.3: pass\nprint(flush=True)\ninput()"
    with subprocess.Popen([sys.executable, "-c", spin], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as child:
        assert child.stdout
        child.stdout.readline()
        assert Clocks.read().children - before >= 0.25
        child.communicate(b"\n")


@pytest.mark.parametrize(("nodeid", "folder"), [
    ("tests/test_home.py::test_home[a/b]", "tests"), ("tests/cli/test_chat.py::test_a", "tests/cli"),
    ("tests/bench/load/test_sse.py::test_a", "tests/bench")])
def test_a_test_draws_on_its_folder(nodeid: str, folder: str) -> None:
    assert folder_of(nodeid) == folder
    file = nodeid.split("::")[0]
    assert folder_of(nodeid, {file}) == file


def test_every_folder_with_tests_has_a_budget() -> None:
    folders = {folder_of(str(path.relative_to(ROOT))) for path in (ROOT / "tests").rglob("test_*.py")}
    assert folders == {name for name in Budget.load().folders if not name.endswith(".py")}


QUICK = ["-p", "no:cacheprovider", "-p", "no:schemathesis", "-p", "no:hypothesispytest", "-p", "no:anyio"]
BODY = """
import time, pytest
def log(name, seconds):
    begun = time.time()
    time.sleep(seconds)
    with open("log", "a") as file:
        file.write(f"{begun} {time.time()} {name}\\n")
"""


def run(folder: Path, files: dict[str, str], *args: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """pytest over `files`, with this repository's plugin and small budgets."""
    (folder / "conftest.py").write_text("""
import tests.budget
tests.budget.Budget.load = classmethod(lambda cls: cls({"a": 0.01, "b": 10}, 60, {"check": 120}))
from tests.conftest import *
""")
    (folder / "pytest.ini").write_text("[pytest]\nmarkers = serial: alone\n")
    for name, text in files.items():
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_text(BODY + text)
    ours = {k: v for k, v in os.environ.items() if not k.startswith(("PYTEST_", "DRUT_"))} | {"PYTHONPATH": str(ROOT)}
    return subprocess.run([sys.executable, "-m", "pytest", "-q", *QUICK, *args], cwd=folder, text=True,
                          env=ours | environment, capture_output=True, timeout=120)


@pytest.mark.slow
@pytest.mark.parametrize("workers", ["0", "2"])
def test_a_run_over_its_budget_fails_in_its_closing_line(tmp_path: Path, workers: str) -> None:
    slow = """
def test_slow():
    begun = time.process_time()
    while time.process_time() < begun + 0.5: pass
"""
    files = {"a/test_slow.py": slow, "b/test_quick.py": "def test_quick(): pass\n"}
    done = run(tmp_path, files, "-n", workers)
    assert done.returncode == 1
    assert "FAILED tests/budget.toml - a took " in done.stdout
    assert " s of 0 (" in done.stdout
    assert "1 failed, 2 passed" in done.stdout.splitlines()[-1]


@pytest.mark.slow
def test_serial_tests_run_alone_and_with_all_cpus(tmp_path: Path) -> None:
    count = "def test_{0}_{1}(): log('beside', 0.05)\n"
    threads = "import os\n    assert os.environ.get('DRUT_THREADS') == {}\n"
    files = {f"b/test_{name}.py": "".join(count.format(name, i) for i in range(4)) for name in "abc"}
    files["b/test_a.py"] += f"def test_threads():\n    {threads.format(repr('1'))}"
    files["b/test_b.py"] += f"""
@pytest.mark.serial
@pytest.mark.parametrize("i", range(3))
def test_alone(i):
    log("alone", 0.05)
    {threads.format(None)}"""
    done = run(tmp_path, files, "-n", "2", "-vv")
    assert done.returncode == 0, done.stdout
    assert "16 passed" in done.stdout.splitlines()[-1]
    assert "@serial" not in done.stdout
    spans = sorted((float(begun), float(ended), name) for begun, ended, name in
                   (line.split() for line in (tmp_path / "log").read_text().splitlines()))
    assert [name for _, _, name in spans] == ["beside"] * 12 + ["alone"] * 3
    alone = spans[-4:]
    assert all(before[1] <= after[0] for before, after in pairwise(alone))


@pytest.mark.slow
def test_serial_tests_alone_are_run(tmp_path: Path) -> None:
    done = run(tmp_path, {"b/test_a.py": "pytestmark = pytest.mark.serial\ndef test_a(): pass\ndef test_b(): pass\n"},
               "-n", "2")
    assert "2 passed" in done.stdout.splitlines()[-1]


@pytest.mark.slow
def test_of_a_large_product_a_part_is_run_and_another_for_another_commit(tmp_path: Path) -> None:
    files = {"b/test_a.py": """
@pytest.mark.parametrize("a", range(4))
@pytest.mark.parametrize("b", range(4))
@pytest.mark.parametrize(("c", "d"), [(1, 2), (3, 4), (5, 6)])
def test_product(a, b, c, d): pass

@pytest.mark.parametrize("a", range(30))
@pytest.mark.parametrize(("b", "c"), [(1, 2), (3, 4)])
def test_pairs(a, b, c): pass
"""}
    whole, first, again, other, few = (run(tmp_path, files, "-vv", "-n", "0", *more, DRUT_ROWS=rows).stdout
                                       for rows, *more in (["all", "--rows", "5"], "0", "0", "1", ["0", "--rows", "5"]))
    assert "108 passed" in whole.splitlines()[-1]
    names = [{line.split()[0] for line in out.splitlines() if "PASSED" in line} for out in (first, again, other)]
    assert names[0] == names[1] != names[2]
    assert 16 <= sum("product" in name for name in names[0]) < 32
    assert sum("pairs" in name for name in names[0]) == 60
    assert "DRUT_ROWS=0" in first
    assert "deselected" in first.splitlines()[-1]
    assert "10 passed" in few.splitlines()[-1]
    assert "at most 5 rows of a test" in few
