"""`drut bench` against servers whose answers are known."""

from __future__ import annotations

import json
import sys
import types
from pathlib import Path
from typing import Any

import pytest

from drut.bench.mock import MockServer
from drut.bench.report import files
from drut.cli.main import main
from drut.errors import DrutError
from tests.bench.scripted import Request, ScriptedServer, tokens


@pytest.fixture(autouse=True)
def _no_key(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)


def hello(folder: Path) -> str:
    """A workload of one's own: a hello each, again and again."""
    path = folder / "hello.jsonl"
    path.write_text('{"messages": [{"role": "user", "content": "hello"}], "max_tokens": 3}\n')
    return f"jsonl:path={path}"


def serve(url: str, out: Path, *flags: str) -> int:
    there = next(folder for folder in out.parents if folder.exists())
    common = ["--url", url, "--model", "m", "--workload", hello(there), "--out", str(out), "--warmup", "0.2",
              "--duration", "1", "--grace", "30", "--max-error-rate", "1"]
    return main(["bench", "serve", *common, *flags])


def lag_alone(reasons: list[str]) -> bool:
    """Whether a run is void for nothing but what others do on this machine."""
    return all("sent late" in reason or "of a CPU" in reason for reason in reasons)


@pytest.mark.usefixtures("virtual_time")
def test_a_run_leaves_its_files_and_says_what_came_of_it(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with ScriptedServer(tokens(3, 0.05, 0.02)) as server:
        code = serve(server.url, tmp_path / "a/b", "--rate", "20", "--arrivals", "constant", "--slo",
                     "ttft=60s,tpot=30s", "--header", "X-Team: red", "--api-key", "sesame", "--seed", "3",
                     "--body", '{"temperature": 0}')
        request = server.requests[-1]
    assert (request.headers["authorization"], request.headers["x-team"]) == ("Bearer sesame", "red")
    assert request.body["temperature"] == 0
    out = capsys.readouterr()
    assert out.out.startswith(f"m at {server.url}\n")
    assert out.err == ""
    assert all(len(line) <= 80 or line.startswith(("files", "report", "jsonl")) for line in out.out.splitlines())
    data = json.loads((tmp_path / "a/b/result.json").read_text())
    assert code == (0 if data["validity"]["valid"] else 3)
    assert lag_alone(data["validity"]["reasons"])
    summary = data["summary"]
    assert summary["requests"] == summary["ttft_ms"]["n"] == 20
    assert summary["ttft_ms"]["p50"] == pytest.approx(50, abs=0.1)
    assert summary["e2e_ms"]["p50"] == pytest.approx(90, abs=0.1)
    assert summary["tpot_ms"]["n"] + summary["tpot_ms"]["unmeasured"] == 20
    assert summary["goodput_per_s"] == summary["requests"] - summary["errors"]["failed"]
    assert sum(q["measured"] for q in data["requests"]) == 20
    assert data["settings"]["seed"] == 3
    assert data["settings"]["headers"] == ["X-Team"]
    assert data["settings"]["work"]["workload"] == "jsonl"
    assert "sesame" not in (tmp_path / "a/b/result.json").read_text()
    assert "red" not in json.dumps(data["settings"]["headers"])
    assert {p.name for p in (tmp_path / "a/b").iterdir()} == {"result.json", "requests.csv", "summary.md"}


@pytest.mark.usefixtures("virtual_time")
def test_a_run_of_failures_is_void_and_exits_3(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """However fast they come: each server's way of ending an answer that is none."""
    async def broken(request: Request) -> None:
        way = len(server.requests) % 4
        if way == 0:
            return await request.json({"error": "out of order"}, 503)
        await request.head()
        if way == 1:
            await request.text("one")
            await request.text(" two", "abort")
            await request.usage(3, 2)
        elif way == 2:
            await request.text("one")
            await request.chunk(b'event: error\ndata: {"code": 422, "details": "upstream failed"}\n\n')
        await request.done()

    with ScriptedServer(broken) as server:
        assert serve(server.url, tmp_path, "--users", "2", "--json", "--quiet") == 3
    out = capsys.readouterr()
    said = json.loads(out.out)
    assert said["validity"]["reasons"][-1].startswith("no request finished, for example: ")
    assert said["summary"]["ttft_ms"]["p50"] == "inf"
    assert said["summary"]["errors"]["rate"] == 1
    asked = json.loads((tmp_path / "result.json").read_text())["requests"]
    ways = {(q["failure"], q["detail"]) for q in asked if q["failure"] != "unfinished"}
    assert ways == {("http", 'status 503: {"error": "out of order"}'), ("server", "finish_reason 'abort'"),
                    ("server", '{"code": 422, "details": "upstream failed"}'),
                    ("cut", "the stream ended without finish_reason")}
    assert out.err == ""


@pytest.mark.usefixtures("virtual_time")
def test_without_streaming_only_e2e_is_told(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    async def whole(request: Request) -> None:
        assert request.body["stream"] is False
        await request.json({"choices": [{"message": {"content": "yes"}, "finish_reason": "stop"}],
                            "usage": {"prompt_tokens": 9, "completion_tokens": 2}})

    with ScriptedServer(whole) as server:
        serve(server.url, tmp_path, "--rate", "20", "--no-stream")
    summary = json.loads((tmp_path / "result.json").read_text())["summary"]
    assert (summary["ttft_ms"]["p50"], summary["itl_ms"]["p50"], summary["tpot_ms"]["p50"]) == (None, None, None)
    assert summary["e2e_ms"]["p50"] > 0
    assert "TTFT" not in capsys.readouterr().out


@pytest.mark.parametrize(("flags", "words"), [
    (["--rate", "1", "--users", "1"], "not allowed with"),
    (["--arrivals", "poisson"], "--arrivals is for an open loop and requires --rate"),
    (["--rate", "0"], "rate must be a positive number"),
    (["--rate", "nan"], "rate must be a positive number"),
    (["--rate", "1,,2"], "--rate must be a positive number such as 4, several such as 1,2,4, or inf, not ''"),
    (["--rate", "1,1.0"], "--rate 1,1.0 has a rate twice"),
    (["--rate", "inf"], "--rate inf sends all requests at once and requires --num-requests"),
    (["--rate", "1,2", "--ramp-to", "3"], "--ramp-to requires a single --rate"),
    (["--users", "0"], "--users must be at least 1"),
    (["--users", "1,many"], "--users must be at least 1, such as 8 or 1,4,16, not '1,many'"),
    (["--users", "2", "--cv", "2"], "--cv is for an open loop"),
    (["--rate", "1", "--cv", "2"], "--cv requires --arrivals gamma"),
    (["--rate", "1", "--arrivals", "trace"], "--rate has no effect with --arrivals trace"),
    (["--rate", "1", "--ramp-to", "-3"], "ramp's last rate"),
    (["--rate", "1", "--duration", "0"], "--duration must be a number of seconds"),
    (["--rate", "1", "--warmup", "-1"], "--warmup must be"),
    (["--rate", "1", "--slo", "speed=3"], "--slo takes each of ttft, tpot, e2e once"),
    (["--rate", "1", "--workers", "0"], "--workers must be auto or a number"),
    (["--rate", "1", "--body", "[1]"], "--body must be a JSON object"),
    (["--rate", "1", "--body", "{"], "--body is not JSON"),
    (["--rate", "1", "--body", '{"stream": false}'], "--body must not set stream"),
    (["--rate", "1", "--body", '{"n": 2}'], "--body must not ask for more than one choice"),
    (["--rate", "1", "--header", "novalue"], "--header must be NAME:VALUE"),
    (["--rate", "1", "--url", "localhost:1"], "the URL must be http://HOST"),
    (["--rate", "1", "--max-error-rate", "2"], "--max-error-rate must be from 0 to 1"),
    (["--rate", "1", "--workload", "nope"], "nope"),
    (["--rate", "1", "--tokenizer", "nope"], "nope"),
    (["--rate", "1", "--url", "https://h", "--ca", "/nope"], "cannot read certificates from /nope"),
    (["--rate", "1", "--server-pid", "99999999"], "process 99999999 does not exist"),
    (["--rate", "1", "--price", "cheap"], "--price: 'cheap' is neither like"),
    (["--rate", "1", "--input-busy-share", "0.5"], "--input-busy-share requires --price"),
    (["--rate", "1"], "cannot connect to 127.0.0.1:9"),
    (["--rate", "1", "--workload", "synthetic"], "(--tokenizer); no tokenizer for model 'm'"),
    (["--rate", "1", "--workload", "synthetic"], "Connection refused"),
    (["--rate", "1", "--model", "~nobody-of-that-name"], "cannot connect to"),
    (["--rate", "1", "--model", "m" * 300], "cannot connect to"),
    (["--rate", "1", "--header", "X: \u20ac"], "'X' is not a valid header"),
    (["--rate", "1", "--url", "http://[::1"], "Invalid IPv6 URL"),
    (["--rate", "1", "--url", "http://me:word@h"], "the URL must not contain user or password"),
    (["--rate", "1", "--metrics-url", "http://me:word@h"], "the URL must not contain user or password"),
    (["--rate", "1", "--arrivals", "gamma", "--cv", "1e-200"], "the coefficient of variation must be"),
])
def test_what_makes_no_sense_is_one_line(tmp_path: Path, capsys: pytest.CaptureFixture[str], flags: list[str],
                                         words: str) -> None:
    assert serve("http://127.0.0.1:9", tmp_path, *flags) == 2
    err = capsys.readouterr().err
    assert err.startswith("drut: error: ")
    assert len(err.splitlines()) == 1
    assert words in err


@pytest.mark.parametrize(("flags", "words"), [
    (["--num-requests", "0"], "--num-requests must be from 1"),
    (["--num-requests", "5", "--warmup", "3"], "--warmup requires --duration; --num-requests measures every request"),
    (["--num-requests", "5", "--duration", "3"], "not allowed with"),
    (["--num-requests", "5", "--rate", "inf", "--arrivals", "gamma"], "--arrivals has no effect with --rate inf"),
    (["--num-requests", "5", "--rate", "1", "--ramp-to", "2"], "--ramp-to requires --duration"),
    (["--dataset", "none.jsonl", "--workload", "chat"], "not allowed with"),
    (["--dataset", "none.jsonl"], "none.jsonl: No such file or directory"),
    (["--num-prompts", "5"], "--num-prompts is a flag of vllm bench serve; here it is --num-requests"),
    (["--request-rate=inf"], "--request-rate is a flag of vllm bench serve; here it is --rate"),
    (["--random-input-len", "5"], "here it is --workload synthetic:input=N,output=N"),
    (["--save-result"], "here it is --out DIR"),
    (["--target", "http://h"], "--target is a flag of guidellm; here it is --url"),
    (["--durat", "3"], "--durat"),
])
def test_flags_of_other_clients_and_flags_that_do_not_fit(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, flags: list[str], words: str
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["bench", "serve", "--url", "http://127.0.0.1:9", "--model", "m", *flags]) == 2
    err = capsys.readouterr().err
    assert words in err
    assert len(err.splitlines()) == 1
    assert not list(tmp_path.rglob("*-*")), "a folder without files is left"


@pytest.mark.usefixtures("virtual_time")
def test_figures_are_told_where_no_file_can_be_written(tmp_path: Path, capsys: pytest.CaptureFixture[str],
                                                       monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object) -> None:
        raise DrutError("cannot write result.json: No space left on device")

    monkeypatch.setattr(files, "write", full)
    with ScriptedServer(tokens(3, 0.01)) as server:
        assert serve(server.url, tmp_path, "--rate", "20", "--quiet") == 2
    out, err = capsys.readouterr()
    assert out.startswith(f"m at {server.url}\n")
    assert "No space left" in err


@pytest.mark.parametrize("port", ["-1", "65536"])
def test_a_port_that_is_none(capsys: pytest.CaptureFixture[str], port: str) -> None:
    assert main(["bench", "mock", "--script", "a.json", "--port", port]) == 2
    assert "--port must be from 0 to 65535" in capsys.readouterr().err


def test_workloads_are_named(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["bench", "workloads"]) == 0
    assert capsys.readouterr().out.startswith("synthetic: ")


def test_the_server_and_the_machine_are_watched_and_billed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The scripted server has metrics under vLLM's names."""
    script = {"ttft": {"kind": "constant", "ms": 20}, "itl": {"kind": "constant", "ms": 5}, "cached_share": 0.5}
    with MockServer(script) as server:
        serve(server.url, tmp_path / "out", "--rate", "20", "--server-pid", str(server.pid), "--price",
              "3.6/h@2026-11-01 list", "--input-busy-share", "0.25", "--quiet")
    out, data = capsys.readouterr().out, json.loads((tmp_path / "out/result.json").read_text())
    summary = (tmp_path / "out/summary.md").read_text()
    watched, cost, requests = data["watched"], data["cost"], data["requests"]
    assert watched["server"]["engine"] == "vllm"
    assert watched["server"]["distributions"]["ttft"]["count"] == len(requests)
    assert watched["server"]["totals"]["generation_tokens"]["total"] == 3 * len(requests)
    assert watched["resources"]["server"]["cpu_s"] > 0
    seconds, served = data["summary"]["window_s"], data["summary"]["requests_per_s"]
    assert cost["run"] == pytest.approx(0.001 * seconds)
    assert cost["per_request"] == pytest.approx(0.001 / served)
    assert cost["per_million_output"] == pytest.approx(0.75 * 1e3 / data["summary"]["output_tokens_per_s"], rel=0.05)
    for words in ("by vllm's own metrics", "resources, ", "USD at 3.60 an hour of 2026-11-01 (list)"):
        assert words in summary
    assert "USD per million output tokens" in out


@pytest.mark.usefixtures("virtual_time")
def test_a_server_without_metrics_says_so(tmp_path: Path) -> None:
    summary = tmp_path / "out/summary.md"
    with ScriptedServer(tokens(3, 0.01, 0.01)) as server:
        serve(server.url, tmp_path / "out", "--rate", "20", "--quiet")
        assert "No metrics of the server; " in summary.read_text()
        serve(server.url, tmp_path / "out", "--rate", "20", "--quiet", "--no-metrics")
        assert "own metrics" not in summary.read_text()


def test_the_mock_is_given_its_script(monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[tuple[Any, ...]] = []
    module = types.ModuleType("drut.bench.mock")
    module.serve_script = lambda *args: calls.append(args)  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, module.__name__, module)
    assert main(["bench", "mock", "--script", "a.json", "--port", "81"]) == 0
    assert calls == [("a.json", "127.0.0.1", 81)]


def test_the_fields_of_a_script_are_printed(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["bench", "mock", "--fields"]) == 0
    assert capsys.readouterr().out.startswith('a script:\n  model = "mock": the model\'s name\n')
