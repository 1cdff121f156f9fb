"""`drut bench report` and `drut bench diff`."""

from __future__ import annotations

import json
from pathlib import Path

import msgspec
import pytest

from drut.cli.main import main
from tests.bench.report import samples
from tests.bench.scripted import ScriptedServer, tokens
from tests.cli.test_bench import serve


def put(folder: Path, name: str, document: msgspec.Struct) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / name).write_bytes(msgspec.json.encode(document))
    return folder


def test_a_run_that_was_really_made_becomes_a_page(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with ScriptedServer(tokens(3, 0.05, 0.02)) as server:
        serve(server.url, tmp_path / "run", "--rate", "20", "--slo", "ttft=60s", "--price", "1.20/h@2026-11-01 list")
    capsys.readouterr()
    assert main(["bench", "report", str(tmp_path / "run")]) == 0
    names = [Path(line) for line in capsys.readouterr().out.splitlines()]
    assert [path.name for path in names] == ["report.html", "report.md", "report.csv"]
    page, text, rows = (path.read_text() for path in names)
    assert f"m at {server.url}" in page
    assert page.count("<figure>") >= 3
    assert "| output tokens/s" in text
    assert rows.startswith("source,kind,of,cell,who,round,figure,")
    assert "list" in page


def test_several_files_go_where_they_are_wanted(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    a, b = put(tmp_path / "a", "search.json", samples.a_search()), put(tmp_path / "b", "ablation.json",
                                                                       samples.ablation())
    assert main(["bench", "report", str(a), str(b / "ablation.json"), "--out", str(tmp_path / "new/all.html")]) == 0
    assert {path.name for path in (tmp_path / "new").iterdir()} == {"all.html", "all.md", "all.csv"}
    assert "what each technique buys" in (tmp_path / "new/all.html").read_text()
    capsys.readouterr()
    assert main(["bench", "report", str(a), "--out", str(tmp_path / "x.pdf")]) == 2
    assert "--out must end in .html" in capsys.readouterr().err
    assert main(["bench", "report", str(tmp_path / "new")]) == 2
    assert "has none of" in capsys.readouterr().err


def test_a_folder_of_runs_becomes_one_page_of_curves(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for rate in (1.0, 4.0):
        put(tmp_path / "sweep" / f"rate-{rate:g}", "result.json", samples.result(seconds=12.0, rate=rate))
    assert main(["bench", "report", str(tmp_path / "sweep")]) == 0
    assert capsys.readouterr().out.splitlines()[0] == str(tmp_path / "sweep" / "report.html")
    assert "Sweep of tiny at" in (tmp_path / "sweep" / "report.html").read_text()


def test_the_exit_code_of_a_diff_says_what_came_of_it(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    fast = str(put(tmp_path / "fast", "result.json", samples.result()))
    slow = str(put(tmp_path / "slow", "result.json", samples.result(slow=1.3, seed=1)))
    other = str(put(tmp_path / "other", "result.json", samples.result(rate=7.0)))
    search = str(put(tmp_path / "search", "search.json", samples.a_search()))

    def diff(*args: str) -> tuple[int, str, str]:
        code = main(["bench", "diff", *args])
        said = capsys.readouterr()
        return code, said.out, said.err

    assert diff(fast, fast)[0] == 0
    code, out, _ = diff(fast, slow)
    assert code == 1
    assert "4 worse, 0 better" in out
    assert diff(slow, fast)[0] == 0
    assert diff(fast, slow, "--least", "0.9")[0] == 0
    assert diff(fast, slow, "--figures", "output_tokens_per_s")[0] == 0
    code, out, err = diff(fast, other)
    assert (code, out) == (2, "")
    assert "work, rate: 10.0 in A, 7.0 in B" in err
    code, out, _ = diff(fast, other, "--force")
    assert code == 0
    assert "Compared in spite of" in out
    assert "A is a result, B a search" in diff(fast, search)[2]
    assert diff(fast, search, "--force")[0] == 2  # nothing is in both
    code, out, _ = diff(fast, slow, "--json")
    data = json.loads(out)
    assert (code, data["comparable"], data["reasons"]) == (1, True, [])
    assert {c["verdict"] for c in data["changes"]} == {"worse", "level"}
    assert json.loads(diff(fast, other, "--json")[1])["comparable"] is False


@pytest.mark.parametrize(("args", "words"), [
    (["--figures", "speed"], "--figures: there is no 'speed'; there are "),
    (["--least", "-1"], "--least must be from 0"),
    (["--figures", "tpot_ms_p99"], "no metric has an interval in both")])
def test_what_a_diff_cannot_do_is_told(tmp_path: Path, capsys: pytest.CaptureFixture[str], args: list[str],
                                       words: str) -> None:
    run = str(put(tmp_path, "result.json", samples.result(seconds=12.0, lost=0)))
    assert main(["bench", "diff", run, run, *args]) == 2
    assert words in capsys.readouterr().err


def test_folders_with_two_files_of_a_kind_in_common_need_names(tmp_path: Path, capsys: pytest.CaptureFixture[str]
                                                               ) -> None:
    put(tmp_path, "search.json", samples.a_search())
    put(tmp_path, "ablation.json", samples.ablation())
    assert main(["bench", "diff", str(tmp_path), str(tmp_path)]) == 2
    assert "both have ablation.json and search.json; name one" in capsys.readouterr().err
    name = str(tmp_path / "search.json")
    assert main(["bench", "diff", name, str(tmp_path)]) == 0
