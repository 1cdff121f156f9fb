from __future__ import annotations

import json
import os
import socket
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import psutil
import pytest

from drut.cli.main import main
from drut.cli.ps import load
from drut.server.life.run_file import announced, running

METRICS = b"""\
# HELP vllm:num_requests_running sequences
vllm:num_requests_running{model_name="m"} 3.0
vllm:num_requests_waiting{model_name="m"} 2.0
vllm:num_requests_waiting_by_reason{reason="x"} 9.0
"""


@pytest.fixture(autouse=True)
def home(tmp_path, monkeypatch) -> Path:
    monkeypatch.setenv("DRUT_HOME", str(tmp_path))
    monkeypatch.delenv("DRUT_API_KEY", raising=False)
    return tmp_path


@pytest.fixture
def serving():
    """Serves /metrics with a given status and body; yields the function that starts it."""
    servers = []

    def start(body: bytes, status: int = 200) -> str:
        class Handler(BaseHTTPRequestHandler):
            def do_GET(self):
                self.send_response(status if self.path == "/metrics" else 404)
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *_):
                pass

        server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        servers.append(server)
        threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True).start()
        return f"http://0.0.0.0:{server.server_address[1]}"

    yield start
    for server in servers:
        server.shutdown()
        server.server_close()


def test_a_server_is_listed_while_it_runs(home, serving, capsys):
    with announced("m", url := serving(METRICS)):
        assert main(["ps"]) == 0
        titles, row = capsys.readouterr().out.splitlines()
        assert titles.split() == ["PID", "MODEL", "URL", "UPTIME", "RUNNING", "WAITING"]
        assert row.split()[:3] == [str(os.getpid()), "m", url]
        assert row.split()[-2:] == ["3", "2"]
        assert main(["ps", "--json"]) == 0
        [shown] = json.loads(capsys.readouterr().out)
        assert abs(shown.pop("uptime_s") - (time.time() - psutil.Process().create_time())) < 5
        assert shown == {"pid": os.getpid(), "model": "m", "url": url, "state": "ready", "running": 3, "waiting": 2}
    assert main(["ps"]) == 0
    out, err = capsys.readouterr()
    assert out == ""
    assert "no server is running" in err
    assert list((home / "run").iterdir()) == []


def test_why_a_server_reports_no_load(serving):
    assert load(serving(b"", 401)) == "needs its key"
    assert load(serving(b"", 503)) == "status 503"
    assert load(serving(b"nothing")) == "no metrics"
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        assert load(f"http://127.0.0.1:{unused.getsockname()[1]}") == "no answer"


@pytest.mark.parametrize(
    ("change", "left"),
    [
        ({"pid": 1 << 22}, False),  # above every pid
        ({"started": 1.0}, False),  # another process got the number
        ({"host": "another container"}, True),
        ({"pid": "x"}, True),
    ],
)
def test_files_of_processes_that_are_gone_are_removed(home, change, left):
    with announced("m", "http://127.0.0.1:1"):
        [file] = (home / "run").iterdir()
        stale = home / "run" / "1.json"
        stale.write_text(json.dumps(json.loads(file.read_text()) | change))
        assert [server.pid for server in running()] == [os.getpid()]
        assert stale.exists() == left


def test_a_home_that_cannot_be_written_keeps_no_server_from_running(tmp_path, monkeypatch):
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("DRUT_HOME", str(tmp_path / "file"))
    with announced("m", "http://127.0.0.1:1"):
        assert running() == []
