"""`drut bench serve`: its loads, datasets, defaults and tables, against a scripted server in virtual time."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from drut.bench.sweep.files import read
from drut.cli.bench.folder import name_of
from drut.cli.main import main
from tests.bench.scripted import Request, ScriptedServer, tokens

pytestmark = pytest.mark.usefixtures("virtual_time", "_here")
Output = pytest.CaptureFixture[str]


@pytest.fixture
def _here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Runs in an empty folder with a data set of three lines, of which one is a conversation of two turns."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    talk = [{"from": "human", "value": "b"}, {"from": "gpt", "value": "c"}, {"from": "human", "value": "d"}]
    Path("my, own.jsonl").write_text("\n".join([
        '{"prompt": "a", "output_tokens": 3}', json.dumps({"conversations": talk}),
        '{"messages": [{"role": "user", "content": "e"}], "max_tokens": 3}']))


def serve(url: str, *flags: str) -> int:
    return main(["bench", "serve", "--url", url, "--max-error-rate", "1", "--no-metrics", "--dataset", "my, own.jsonl",
                 *flags])


def named(*models: str, status: int = 200) -> Any:
    """A server with these models."""
    answer = tokens(3, 0.05, 0.02)

    async def handler(request: Request) -> None:
        if request.path == "/v1/models":
            return await request.json({"object": "list", "data": [{"id": model} for model in models]}, status)
        return await answer(request)

    return handler


def result(folder: str) -> dict[str, Any]:
    data: dict[str, Any] = json.loads((Path(folder) / "result.json").read_text())
    return data


def test_a_number_of_requests_is_measured_from_the_first_to_the_last(capsys: Output) -> None:
    with ScriptedServer(named("the-model")) as server:
        assert serve(server.url, "--num-requests", "7", "--users", "2", "--out", "out") in (0, 3)
        asked = [request.body for request in server.requests if request.path == "/v1/chat/completions"]
    assert len(asked) == 7
    assert {body["model"] for body in asked} == {"the-model"}
    sent = [tuple(message["content"] for message in body["messages"]) for body in asked]
    assert sorted(sent) == sorted([("a",), ("b",), ("b", "c", "d"), ("e",), ("a",), ("b",), ("b", "c", "d")])
    data = result("out")
    summary = data["summary"]
    assert summary["requests"] == summary["errors"]["offered"] == 7
    last = max(q["scheduled_ms"] + q["ended_ms"] for q in data["requests"])
    assert summary["window_s"] == pytest.approx(last / 1e3, abs=1e-6)
    assert summary["requests_per_s"] == pytest.approx(7 / summary["window_s"])
    assert (data["settings"]["concurrency"], data["settings"]["num_requests"], data["settings"]["model"]) == (
        2, 7, "the-model")
    out = capsys.readouterr().out
    assert out.startswith(f"the-model at {server.url}\njsonl:path=my, own.jsonl, 2 users\n")
    assert "7 of 7 succeeded, 0 failed" in out
    assert "report  drut bench report out\n" in out


def test_all_at_once(capsys: Output) -> None:
    with ScriptedServer(named("m")) as server:
        assert serve(server.url, "--num-requests", "9", "--rate", "inf", "--out", "out", "--json") in (0, 3)
    data = result("out")
    assert [q["scheduled_ms"] for q in data["requests"] if q["turn"] == 0] == [0.0] * 7
    assert data["settings"]["rate"] == "inf"
    assert data["summary"]["concurrency_max"] == 7
    printed = json.loads(capsys.readouterr().out)
    assert printed["out"] == "out"
    assert printed["summary"] == data["summary"]


def test_a_sweep_has_a_folder_for_each_load_and_a_summary(capsys: Output) -> None:
    with ScriptedServer(named("m")) as server:
        assert serve(server.url, "--users", "1,3", "--duration", "2", "--warmup", "0", "--slo", "ttft=40",
                     "--out", "out") in (0, 3)
    sweep = read(Path("out/summary.json"))
    assert [(point.users, point.folder) for point in sweep.points] == [(1, "users-1"), (3, "users-3")]
    for point in sweep.points:
        data = result(f"out/{point.folder}")
        assert data["settings"]["concurrency"] == point.users
        assert data["summary"]["output_tokens_per_s"] == point.figures["output_tokens_per_s"]
    one, three = (point.figures["output_tokens_per_s"] for point in sweep.points)
    assert isinstance(one, float)
    assert three == pytest.approx(3 * one, rel=0.1)
    assert [result(f"out/users-{n}")["settings"]["seed"] for n in (1, 3)] == [0, 7919]
    out = capsys.readouterr().out
    head = next(line for line in out.splitlines() if "req/s" in line)
    assert head.split() == ["req/s", "tokens/s", "good/s", "TTFT", "p50", "p99", "TPOT", "p50", "p99", "failed"]
    assert [line.split()[:2] for line in out.splitlines() if line.startswith(("1 user", "3 users"))] == [
        ["1", "user"], ["3", "users"]]


def test_a_sweep_over_rates_as_json(capsys: Output) -> None:
    with ScriptedServer(named("m")) as server:
        serve(server.url, "--rate", "5,20", "--arrivals", "constant", "--duration", "1", "--warmup", "0", "--json",
              "--out", "out")
    data = json.loads(capsys.readouterr().out)
    assert (data["schema"], data["by"], [point["rate"] for point in data["points"]]) == (
        "drut.sweep/1", "rate", [5, 20])
    assert [point["folder"] for point in data["points"]] == ["rate-5", "rate-20"]


def test_folders_are_new_and_the_next_command_compares(capsys: Output) -> None:
    with ScriptedServer(named("m")) as server:
        for _ in range(2):
            assert serve(server.url, "--num-requests", "40", "--users", "1") == 0
    first, second = sorted(Path("runs").iterdir(), key=lambda path: len(path.name))
    assert second.name == f"{first.name}-2"
    assert first.name.endswith("-my-own")
    assert f"compare  drut bench diff {first} {second}\n" in capsys.readouterr().out


def test_marks_compare_each_percentile_with_the_slo(capsys: Output) -> None:
    slow = tokens(3, 0.3)
    fast = tokens(3, 0.05)

    async def mixed(request: Request) -> None:
        await (slow if len(server.requests) % 4 == 0 else fast)(request)

    with ScriptedServer(mixed) as server:
        serve(server.url, "--model", "m", "--num-requests", "20", "--users", "1", "--slo", "ttft=100", "--out", "out")
    out = capsys.readouterr().out
    ttft = next(line.split() for line in out.splitlines() if line.startswith("TTFT"))
    assert [ttft[2], ttft[4], ttft[6], ttft[7]] == ["✓", "✗", "✗", "100"]
    assert "75.0% of the requests meet the SLO" in out


@pytest.mark.parametrize(("models", "status", "words"), [
    (("a", "b"), 200, "has 2 models: a, b"), ((), 200, "has 0 models"), (("a",), 404, "/v1/models answered 404"),
    ((3,), 200, "does not name its models: Expected `str`")])
def test_a_model_that_is_not_known_must_be_given(capsys: Output, models: Any, status: int, words: str) -> None:
    with ScriptedServer(named(*models, status=status)) as server:
        assert serve(server.url, "--duration", "1") == 2
    error = capsys.readouterr().err
    assert error.startswith("drut: error: --model is needed: ")
    assert words in error
    assert not Path("runs").exists()


def test_no_server_no_model(capsys: Output) -> None:
    assert serve("http://127.0.0.1:9") == 2
    assert "cannot read the model's name from the server (give --model?): http://127.0.0.1:9: " in (
        capsys.readouterr().err)


@pytest.mark.parametrize(("workload", "name"), [
    ("chat", "chat"), ("synthetic:input=5,output=3", "synthetic"), ("jsonl:path=a/My file.jsonl", "My-file"),
    ("jsonl:path=..", "jsonl")])
def test_a_folder_is_named_after_the_work(workload: str, name: str) -> None:
    assert name_of(workload) == name


def test_a_data_set_shorter_than_the_requests_makes_a_run_void() -> None:
    with ScriptedServer(named("m")) as server:
        main(["bench", "serve", "--url", server.url, "--no-metrics", "--workload", "gsm8k:repeat=off", "--out", "out",
              "--num-requests", "1400", "--rate", "inf", "--quiet", "--no-arrivals"])
    assert "the workload has 81 requests less than --num-requests" in result("out")["validity"]["reasons"]
