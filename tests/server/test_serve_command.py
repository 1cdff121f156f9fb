"""`drut serve` as it is called: settings from flags, variables and a file, and a process that answers and ends."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from drut.cli.main import main
from tests.server.rig import PATIENCE_S, Client, until


@pytest.fixture(autouse=True)
def _no_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("DRUT_THREADS", raising=False)


def dry_run(capsys: pytest.CaptureFixture[str], *args: str) -> tuple[int, str, str]:
    code = main(["serve", *args, "--dry-run"])
    out, err = capsys.readouterr()
    return code, out, err


def written(folder: Path, name: str, text: str) -> str:
    path = folder / name
    path.write_text(text)
    return str(path)


def test_a_dry_run_prints_what_would_be_used(model_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    secret = "a-secret-key-123"
    code, out, err = dry_run(capsys, str(model_path), "--port", "0", "--api-key", secret, "--max-model-len", "100",
                             "--max-stop", "7")
    assert (code, err) == (0, "")
    for line in ("listen on   127.0.0.1:0", "keys        1", "names       bytes", "context     100 tokens",
                 "in a process", "weights     0.000 GB", "template    good", "max_stop           7"):
        assert line in out
    assert secret not in out


def test_a_file_sets_what_flags_and_variables_do_not(
    model_path: Path, capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    values = {"port": 0, "max_stop": 9, "threads": 1, "max_model_len": 64, "keep_alive_s": 3, "strict_fields": True}
    toml = "".join(f"{k} = {json.dumps(v)}\n" for k, v in values.items())
    for name, text in (("c.toml", toml), ("c.json", json.dumps(values))):
        file = written(tmp_path, name, text)
        _, out, _ = dry_run(capsys, str(model_path), "--config", file)
        assert "max_stop           9" in out
        assert "context     64 tokens" in out
        assert "keep_alive_s       3.0" in out
        assert "1 thread," in out
        _, out, _ = dry_run(capsys, str(model_path), "--config", file, "--max-stop", "5", "--no-strict-fields")
        assert "max_stop           5" in out
        assert "strict_fields      False" in out
        monkeypatch.setenv("DRUT_THREADS", "2")
        assert "2 threads," in dry_run(capsys, str(model_path), "--config", file)[1]
        monkeypatch.delenv("DRUT_THREADS")


@pytest.mark.parametrize(("name", "text", "message"), [
    ("c.toml", "prot = 1", "unknown setting 'prot'; did you mean port?"),
    ("c.toml", "nothing_like_it = 1", "unknown setting"),
    ("c.toml", "port = '80'", "port must be an integer"),
    ("c.toml", "port = 70000", "port must be from 0 to 65535"),
    ("c.toml", "port = true", "port must be an integer"), ("c.toml", "port = ", "Invalid"),
    ("c.toml", "engine = 'moon'", "engine must be one of thread, process"), ("c.json", "[1]", "no table"),
    ("c.json", "{", "c.json"), ("c.toml", "threads = 0", "threads must be from 1"),
    ("c.json", '{"host": null}', "host"),
    ("c.toml", "max_body_mb = nan", "max_body_mb"),
])  # fmt: skip
def test_a_wrong_file_is_one_clear_error(
    model_path: Path, capsys: pytest.CaptureFixture[str], tmp_path: Path, name: str, text: str, message: str
) -> None:
    code, out, err = dry_run(capsys, str(model_path), "--config", written(tmp_path, name, text))
    assert (code, out) == (2, "")
    assert message in err
    assert len(err.splitlines()) == 1


def test_what_would_fail_fails_the_dry_run(
    model_path: Path, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        for args, message in (
            ([str(model_path), "--port", port], "cannot listen on"),
            ([str(model_path), "--host", "0.0.0.0", "--port", "0"], "--allow-keyless"),
            ([str(model_path), "--host", "0.0.0.0", "--port", "0", "--api-key", "short"], "at least 8"),
            ([str(model_path), "--port", "0", "--allowed-hosts", "*"], "--allowed-hosts: '*'"),
            ([str(model_path), "--port", "0", "--max-model-len", "1000"], "the model's context of 160"),
            ([str(tmp_path / "missing.gguf"), "--port", "0"], "missing.gguf"),
            ([str(model_path), "--config", str(tmp_path / "none.toml")], "No such file"),
        ):
            code, _, err = dry_run(capsys, *args)
            assert code == 2
            assert message in err
            assert len(err.splitlines()) == 1


def start(*args: str, **env: str) -> subprocess.Popen[str]:
    return subprocess.Popen([sys.executable, "-m", "drut", "serve", *args], stdout=subprocess.PIPE,
                            stderr=subprocess.PIPE, text=True, env=os.environ | env)


@pytest.mark.slow
def test_the_process_prints_its_address_replies_and_ends(
    model_path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setenv("DRUT_HOME", str(tmp_path))
    process = start(str(model_path), "--port", "0", "--threads", "1", DRUT_API_KEY="the-key-12345")
    try:
        assert process.stderr is not None
        url = process.stderr.readline().split()[2].rstrip(",")
        client = Client(url, "the-key-12345")
        until(lambda: client.get("/ready").status == 200)
        assert process.stderr.readline().startswith("ready after ")
        block = list(iter(process.stderr.readline, "try, with a key in DRUT_API_KEY:\n"))
        assert [line.split()[0] for line in block] == ["model", "context", "numerics", "API"]
        assert " weights in " in block[0]
        assert f"{url}/docs" in block[3]
        example = "".join(process.stderr.readline() for _ in range(4))
        pasted = subprocess.run(["bash", "-c", example], capture_output=True, text=True, check=True,
                                env=os.environ | {"DRUT_API_KEY": "the-key-12345"})
        assert json.loads(pasted.stdout)["choices"], example
        assert client.complete("a secret", stop=["a secret", ""]).status == 400
        Client(url, "wrong-key-1").get("/v1/models")
        assert client.get("/health").status == 200
        assert client.complete(ignore_eos=True).status == 200
        assert client.get("/version").json["numerics_id"] == client.complete(ignore_eos=True).json["system_fingerprint"]
        assert main(["ps"]) == 0
        assert "needs its key" in capsys.readouterr().out
        monkeypatch.setenv("DRUT_API_KEY", "the-key-12345")
        assert main(["ps", "--json"]) == 0
        [shown] = json.loads(capsys.readouterr().out)
        assert (shown["pid"], shown["url"], shown["model"]) == (process.pid, url, model_path.stem)
        assert (shown["state"], shown["running"], shown["waiting"]) == ("ready", 0, 0)
        process.send_signal(signal.SIGTERM)
        assert process.wait(PATIENCE_S) == 0
        assert list((tmp_path / "run").iterdir()) == []
        logged = [json.loads(line) for line in process.stdout or ()]
        assert [line["finish_reason"] for line in logged[1:]] == ["length", "length"]
        assert not any("prompt" in line for line in logged)
    finally:
        process.kill()
    rest = process.stderr.read()
    assert "Traceback" not in rest
    assert "drut: 400 POST /v1/completions invalid_request_error stop, " in rest
    assert "drut: 401 GET /v1/models invalid_api_key: " in rest
    assert "secret" not in rest


def test_a_model_that_cannot_be_loaded_ends_the_server(tmp_path: Path, model_path: Path) -> None:
    broken = tmp_path / "broken.gguf"
    broken.write_bytes(model_path.read_bytes()[:50_000])
    process = start(str(broken), "--port", "0")
    try:
        assert process.stderr is not None
        assert process.wait(PATIENCE_S) == 2
        assert "broken.gguf" in process.stderr.read().splitlines()[-1]
    finally:
        process.kill()



def test_a_name_that_could_write_to_the_terminal_is_refused(
        model_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, _, err = dry_run(capsys, str(model_path), "--port", "0", "--served-model-name", "a\x1b[2J")
    assert (code, err) == (2, "drut: error: served_model_name must have printable characters only, not "
                              "'a\\x1b[2J'\n")


def test_a_dry_run_prints_reasoning_marks_and_tool_format(model_path: Path, caller_path: Path,
                                                       capsys: pytest.CaptureFixture[str]) -> None:
    def lines(path: Path, *flags: str) -> list[str]:
        code, out, _ = dry_run(capsys, str(path), "--port", "0", *flags)
        assert code == 0
        return [line for line in out.splitlines() if line.startswith(("reasoning  ", "tools"))]

    assert lines(model_path) == ["reasoning   none", "tools       calls as json"]
    assert lines(caller_path, "--reasoning-parser", "tag:plan") == [
        "reasoning   between <plan> and </plan>", "tools       calls as hermes"]
    code, _, err = dry_run(capsys, str(model_path), "--port", "0", "--reasoning-parser", "magic")
    assert (code, "reasoning_parser" in err) == (2, True)
