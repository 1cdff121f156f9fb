from __future__ import annotations

import http.server
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from urllib.parse import urlsplit

import psutil
import pytest

from drut.bench.engines.engine import CannotRunError, EngineFailedError, Launch
from drut.bench.engines.guarded import environment, tail
from drut.bench.engines.process import free_port, start
from tests.bench.engines.fake_engine import Handler

FAKE = str(Path(__file__).with_name("fake_engine.py"))
LONG_S = 60.0  # far more than anything here takes on a busy machine


def launch(*do: str, port: int | None = None, ready: str = "/health") -> Launch:
    port = port or free_port()
    return Launch(f"http://127.0.0.1:{port}", "fake", (sys.executable, FAKE, str(port), *do), ready=ready)


def until(what: Callable[[], bool]) -> None:
    end = time.monotonic() + LONG_S
    while not what():
        assert time.monotonic() < end, "it does not come true"
        time.sleep(0.02)


def gone(pids: set[int]) -> bool:
    return not any(psutil.pid_exists(pid) and psutil.Process(pid).status() != psutil.STATUS_ZOMBIE for pid in pids)


@pytest.fixture
def log(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr("drut.bench.engines.process.CHILDREN_S", 0.1)
    return tmp_path / "logs" / "engine.log"


def test_an_engine_serves_and_ends(log: Path) -> None:
    with start(launch("serve"), log) as running:
        assert running.alive()
        assert running.ready_s > 0
        pids = running.pids()
        assert running.pid in pids
        assert "starting ['serve']" in log.read_text()
    with http.server.HTTPServer(("127.0.0.1", urlsplit(running.url).port or 0), Handler):
        assert not running.alive()  # whatever process has its port now
    assert gone(pids)


def test_ready_is_when_it_answers_200(log: Path) -> None:
    with start(launch("slow"), log) as running:
        assert running.ready_s >= 0.5


def test_ready_may_take_a_completion(log: Path) -> None:
    with start(launch("serve", ready="completion"), log) as running:
        assert running.alive()


def test_all_that_came_of_an_engine_ends_with_it(log: Path) -> None:
    with start(launch("children"), log) as running:
        until(lambda: len(running.pids()) == 4)  # the engine, its child, the deaf one and the adopted one
        pids = running.pids()
    assert gone(pids)


def test_an_engine_that_ignores_sigterm_is_killed(log: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("drut.bench.engines.process.PATIENCE_S", 0.3)
    with start(launch("deaf"), log) as running:
        pids = running.pids()
    assert gone(pids)


def test_an_engine_that_dies_at_once_reports_its_last_lines(log: Path) -> None:
    with pytest.raises(EngineFailedError, match=r"exit code 3; the end of engine\.log:(?s:.*)no such tensor: blk\.7"):
        start(launch("die"), log)


def test_an_engine_that_is_never_ready_is_ended(log: Path) -> None:
    with pytest.raises(EngineFailedError, match=r"not ready within 0\.5 s; .*engine\.log"):
        start(launch("never"), log, timeout_s=0.5)
    assert not [p for p in psutil.Process().children(recursive=True) if FAKE in p.cmdline()]


def test_a_program_that_is_not_there(log: Path) -> None:
    with pytest.raises(CannotRunError, match="No such file or directory: /nowhere/engine"):
        start(Launch(f"http://127.0.0.1:{free_port()}", "m", ("/nowhere/engine",)), log)


def test_a_port_in_use_names_who_has_it(log: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        with pytest.raises(CannotRunError, match=rf"port {port} is in use by PID {os.getpid()} \("):
            start(launch("serve", port=port), log)
    assert not log.exists()


def test_a_port_taken_meanwhile_is_not_the_engine(log: Path, thief: int) -> None:
    with pytest.raises(EngineFailedError, match=rf"port {thief} was taken by PID {os.getpid()} \("):
        start(launch("never", port=thief), log)


@pytest.fixture
def thief(monkeypatch: pytest.MonkeyPatch) -> Iterator[int]:
    """A port that looks free, and is served by this process."""
    monkeypatch.setattr("drut.bench.engines.process.check_free", lambda port: None)
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield server.server_port
        server.shutdown()


def test_one_killed_in_the_middle_is_not_alive(log: Path) -> None:
    with start(launch("serve"), log) as running:
        assert running.pid is not None
        os.kill(running.pid, signal.SIGKILL)
        until(lambda: not running.alive())
        assert running.how_it_ended().startswith("it ended by SIGKILL; the end of engine.log:")


def test_held_processes_take_no_time(log: Path) -> None:
    with start(launch("burn", "children"), log) as running:
        before = running.cpu_s()
        assert before is not None
        until(lambda: (running.cpu_s() or 0) > before + 0.05)
        running.suspend()
        until(lambda: all(psutil.Process(pid).status() == psutil.STATUS_STOPPED for pid in running.pids()))
        held = running.cpu_s()
        assert held is not None
        time.sleep(0.3)
        assert running.cpu_s() == held
        assert running.alive()
        running.resume()
        until(lambda: (running.cpu_s() or 0) > held + 0.05)


def test_a_held_engine_can_be_ended(log: Path) -> None:
    with start(launch("children"), log) as running:
        pids = running.pids()
        running.suspend()
    assert gone(pids)


def test_memory_is_that_of_all_its_processes(log: Path) -> None:
    with start(launch("big", "children"), log) as running:
        memory = running.memory()
        assert memory is not None
        assert 64 * 1.048 < memory.resident_mb < 2000
        assert memory.peak_mb >= memory.resident_mb
        assert memory.pss_mb is None or memory.pss_mb <= memory.resident_mb


def test_the_whole_tree_ends_with_a_benchmark_that_is_killed(tmp_path: Path) -> None:
    code = ("import sys,time; from pathlib import Path; from tests.bench.engines.test_process import launch;"
            "from drut.bench.engines import process; process.CHILDREN_S = 0.1;"
            "r = process.start(launch('children'), Path(sys.argv[1])); r.suspend();"
            "print(*r.pids(), flush=True); time.sleep(600)")
    environ = {**os.environ, "PYTHONPATH": os.pathsep.join(map(os.path.abspath, filter(None, sys.path)))}
    benchmark = subprocess.Popen([sys.executable, "-c", code, tmp_path / "e.log"], stdout=subprocess.PIPE, env=environ)
    assert benchmark.stdout is not None
    with benchmark.stdout:
        pids = set(map(int, benchmark.stdout.readline().split()))
    assert len(pids) == 4
    benchmark.kill()
    benchmark.wait()
    until(lambda: gone(pids))


def test_the_engine_ends_with_a_guard_that_is_killed(log: Path) -> None:
    with start(launch("children"), log) as running:
        pids = running.pids()
        assert running.pid is not None
        psutil.Process(psutil.Process(running.pid).ppid()).kill()
        until(lambda: not running.alive())
    until(lambda: not psutil.pid_exists(running.pid or 0) or gone({running.pid or 0}))
    for pid in pids:  # orphans of a killed guard have no owner
        if psutil.pid_exists(pid):
            psutil.Process(pid).kill()


def test_a_server_that_runs_already_is_left_alone(log: Path, thief: int) -> None:
    with start(Launch(f"http://127.0.0.1:{thief}/v1", "m"), log) as running:
        running.suspend()
        running.resume()
        assert (running.pid, running.memory(), running.cpu_s()) == (None, None, None)
        assert running.alive()
    assert running.alive()


def test_a_server_that_should_run_already_and_does_not(log: Path) -> None:
    port = free_port()
    with pytest.raises(CannotRunError, match=f"no server answers at http://127.0.0.1:{port}/health"):
        start(Launch(f"http://127.0.0.1:{port}/v1", "m"), log)


def test_an_engine_sees_nothing_that_was_set_for_the_benchmark() -> None:
    ours = {"PYTHONPATH": "src", "OMP_NUM_THREADS": "1", "DRUT_ISA": "portable", "HOME": "/h"}
    assert environment(["/peer/bin/python"], {"OMP_NUM_THREADS": "2"}, ours) == {"HOME": "/h", "OMP_NUM_THREADS": "2"}
    assert environment([sys.executable], {}, ours) == {"HOME": "/h", "PYTHONPATH": "src"}


def test_the_end_of_a_log_is_bounded(tmp_path: Path) -> None:
    (tmp_path / "x.log").write_bytes(b"\xff" * 10**6 + b"\n" + b"\n".join(b"line %d" % i for i in range(10**5)))
    assert tail(tmp_path / "x.log").count("\n") == 12
    assert tail(tmp_path / "x.log").endswith("line 99999")
    assert tail(tmp_path / "no.log") == "no.log is empty"


