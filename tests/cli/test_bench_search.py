"""`drut bench search` over HTTP, against a scripted server whose truth is known."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from drut.bench.mock.script import parse_script
from drut.bench.search.files import read
from drut.cli.main import main
from tests.bench.search.queues import Server, constant
from tests.bench.virtual import Clock, VirtualMock

SCRIPT = {"slots": 4, "ttft": {"kind": "constant", "ms": 20}, "itl": {"kind": "constant", "ms": 20}}
TRUTH = Server(4, constant(0.02), constant(0.08), constant=True)


def search(url: str, out: Path, *flags: str) -> int:
    path = out.parent / "hello.jsonl"
    path.write_text('{"messages": [{"role": "user", "content": "hello"}], "max_tokens": 5}\n')
    return main(["bench", "search", "--url", url, "--model", "m", "--workload", f"jsonl:path={path}", "--out", str(out),
                 *flags])


@pytest.mark.parametrize(("flags", "words"), [
    (["--budget", "soon"], "--budget must be a time such as 90s"),
    (["--budget", "1s"], "--budget must be at least 20 s"),
    (["--users", "1,x"], "--users must be numbers"),
    (["--users", "4,1"], "--users must be ascending"),
    (["--slo", "speed=3"], "--slo takes each of"),
    (["--cv", "2"], "--cv requires --arrivals gamma"),
    (["--workers", "0"], "--workers must be auto or a number"),
    ([], "cannot connect to 127.0.0.1:9"),
])
def test_what_makes_no_sense_is_one_line(tmp_path: Path, capsys: pytest.CaptureFixture[str], flags: list[str],
                                         words: str) -> None:
    assert search("http://127.0.0.1:9", tmp_path / "out", "--quiet", *flags) == 2
    error = capsys.readouterr().err
    assert words in error
    assert len(error.strip().splitlines()) == 1


@pytest.mark.slow
def test_a_search_over_http_finds_the_truth_of_the_server(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], virtual_time: Clock
) -> None:
    began = virtual_time.now
    with VirtualMock(parse_script(SCRIPT)) as server:
        code = search(server.url, tmp_path / "out", "--slo", "ttft=80", "--budget", "150s", "--json")
    found = read(tmp_path / "out/search.json")
    out = capsys.readouterr()
    assert json.loads(out.out)["saturation"]["value"] == found.saturation.value
    assert "a pilot, one at a time" in out.err
    assert code == 0
    assert virtual_time.now - began <= 150
    assert all(p.valid for p in found.points)
    assert found.saturation.value == pytest.approx(TRUTH.saturation(), rel=0.05)
    assert found.knee.value == pytest.approx(TRUTH.knee(), rel=0.1)
    assert found.slo_rate.value == pytest.approx(TRUTH.slo_rate(0.08, 0.95), rel=0.1)
