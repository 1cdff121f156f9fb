"""`drut list` and `drut rm`, over a home with models of every kind."""

from __future__ import annotations

import io
import json
import re
import sys
from pathlib import Path
from urllib.parse import quote

import pytest

from drut.cli.main import main
from drut.cli.table import age, size, table
from drut.model.store import disk, find
from drut.model.store.known import KNOWN, KnownModel
from tests.cli.tiny import model

QWEN = "bc640142c66e1fdd12af0bd68f40445458f3869b"
COMMIT = "a" * 40


@pytest.fixture
def home(tmp_path, monkeypatch) -> Path:
    """Has a wheel's model, one of the catalogue, a repository at main, a file of a branch, and a pull that stopped."""
    home = tmp_path / "home"
    monkeypatch.setenv("DRUT_HOME", str(home))
    monkeypatch.setitem(KNOWN, "smollm2-135m-instruct", KnownModel(
        "smollm2-135m-instruct", "x==1", 1, "0", "x/tiny.gguf", len(model()), "0", "Apache-2.0"))
    put(home / "models/smollm2-135m-instruct/tiny.gguf", model())
    hub = home / "models/hf"
    put(hub / f"Qwen--Qwen3-4B-GGUF/commits/{QWEN}+Qwen3-4B-Q4_K_M.gguf/Qwen3-4B-Q4_K_M.gguf", b"GGUF")
    put(hub / f"org--tiny/commits/{COMMIT}/config.json", b"{}")
    put(hub / "org--tiny/refs/main", COMMIT.encode())
    part = quote("sub/a+b.gguf", safe="+")
    put(hub / f"org--tiny/commits/{COMMIT}+{part}/sub/a+b.gguf", model())
    put(hub / f"org--tiny/refs/dev+{part}", COMMIT.encode())
    put(hub / f"org--half/commits/{'b' * 40}.partial/model.safetensors", b"1234")
    return home


def put(path: Path, data: bytes) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(data)


NAMES = [f"hf:org/half@{'b' * 40}", "hf:org/tiny", "hf:org/tiny@dev:sub/a+b.gguf", "qwen3-4b", "smollm2-135m-instruct"]


def test_every_stored_model_has_the_name_that_finds_it(home, capsys):
    assert main(["list", "--json"]) == 0
    models = json.loads(capsys.readouterr().out)
    assert [m["name"] for m in models] == NAMES
    assert [m["partial"] for m in models] == [True, False, False, False, False]
    assert [m["quantization"] for m in models] == ["partial download", "unknown", "F32", "Q4_K_M", "Q4_1"]
    assert models[0]["bytes"] == 4
    for m in models[2:]:
        assert find(m["name"]) == Path(m["path"])
    assert main(["list"]) == 0
    assert [line.split("  ")[0] for line in capsys.readouterr().out.splitlines()] == ["NAME", *NAMES]
    assert main(["list", "-v"]) == 0
    assert str(home) in capsys.readouterr().out


def test_an_empty_home_says_how_to_fill_it(tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("DRUT_HOME", str(tmp_path))
    assert main(["list"]) == 0
    out, err = capsys.readouterr()
    assert out == ""
    assert "drut pull smollm2-135m-instruct" in err
    assert main(["list", "--json"]) == 0
    assert capsys.readouterr().out == "[]\n"


def test_the_catalogue_fits_a_terminal(home, capsys):
    (home / "models.toml").write_text('[mine]\nrepo = "org/tiny"\n')
    assert main(["list", "--catalogue"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == 14
    assert max(map(len, lines)) <= 90
    assert next(line for line in lines if line.startswith("qwen3-4b")).endswith("not verified here, on disk")
    assert lines[-1].startswith("mine")
    assert main(["list", "--catalogue", "-v"]) == 0
    assert re.search(r"temperature 0\.2, top_p 0\.9 +https://", capsys.readouterr().out)
    assert main(["list", "--catalogue", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)[0]["sampling"] == {"temperature": 0.2, "top_p": 0.9}


def test_rm_frees_what_it_removes(home, capsys):
    before = {m.name: m.nbytes for m in disk.stored()}
    assert main(["rm", "-y", "hf:org/tiny@dev:sub/a+b.gguf", "smollm2-135m-instruct", "smollm2-135m-instruct"]) == 0
    out = capsys.readouterr().out
    assert out.splitlines() == [f"removed hf:org/tiny@dev:sub/a+b.gguf, {size(before[NAMES[2]])} freed",
                                f"removed smollm2-135m-instruct, {size(before[NAMES[4]])} freed"]
    assert [m.name for m in disk.stored()] == [NAMES[0], NAMES[1], NAMES[3]]
    assert [p.name for p in (home / "models/hf/org--tiny/refs").iterdir()] == ["main"]
    assert main(["rm", "-y", "hf:Qwen/Qwen3-4B-GGUF@" + QWEN + ":Qwen3-4B-Q4_K_M.gguf", "hf:org/tiny", NAMES[0]]) == 0
    assert disk.stored() == []
    assert list((home / "models/hf").iterdir()) == []


@pytest.mark.parametrize(("answer", "code", "left"), [("y\n", 0, 4), ("yes\n", 0, 4), ("\n", 1, 5), ("", 1, 5)])
def test_rm_asks_on_a_terminal(home, capsys, monkeypatch, answer, code, left):
    monkeypatch.setattr(sys, "stdin", io.StringIO(answer))
    monkeypatch.setattr(sys.stdin, "isatty", lambda: True)
    assert main(["rm", "qwen3-4b"]) == code
    assert "remove? [y/N]" in capsys.readouterr().err
    assert len(disk.stored()) == left


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("{tmp}/mine.gguf", "mine.gguf is a file of yours: drut removes only models that it has fetched"),
        ("qwen3-5b", "no fetched model 'qwen3-5b'; did you mean qwen3-4b? (drut list)"),
        ("llama-3.2-3b", "no fetched model 'llama-3.2-3b' (drut list)"),
        ("", "no fetched model ''"),
    ],
)
def test_rm_touches_nothing_else(home, tmp_path, capsys, name, words):
    (tmp_path / "mine.gguf").write_bytes(model())
    assert main(["rm", "-y", "qwen3-4b", name.format(tmp=tmp_path)]) == 2
    assert words in capsys.readouterr().err
    assert (tmp_path / "mine.gguf").exists()
    assert len(disk.stored()) == 5, "a wrong name stops before the first removal"


def test_rm_without_a_terminal_needs_yes(home, capsys, monkeypatch):
    monkeypatch.setattr(sys, "stdin", io.StringIO("y\n"))
    assert main(["rm", "qwen3-4b"]) == 2
    assert "give -y" in capsys.readouterr().err
    assert len(disk.stored()) == 5


def test_tables_and_units():
    assert table(["A", "B"], [["x\x1b", "1"], ["y", "22"]], right=[1]) == "A       B\nx\\x1b   1\ny      22"
    assert [size(n) for n in (None, 0, 999, 1500, 98_362_432, 5_027_783_488, 2e13)] == [
        "-", "0 B", "999 B", "1.5 kB", "98.4 MB", "5.0 GB", "20.0 TB"]
    assert [age(s) for s in (-1, 59, 61, 3700, 90_000)] == ["0 s", "59 s", "1 min 1 s", "1 h 1 min", "1 d 1 h"]
