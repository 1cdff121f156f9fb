"""Files of packed weights, and the folder of them: what is damaged or foreign is never taken for weights."""

from __future__ import annotations

import fcntl
import os
import subprocess
import sys
import warnings
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from drut.model.packs import PackCache
from drut.model.packs import file as pack_file
from drut.model.packs.file import DATA_AT, PackError, PackForm, map_pack, write_pack

KEY = "k" * 64
FORMS = [PackForm("embed", "Q8_0", 33, 64, 1000), PackForm("layers.0.q", "F32", 2, 32, 64),
         PackForm("head", "Q4_0", 1, 32, 4096)]
WHOLE = DATA_AT + 1024 + 64 + 4096


def data(seed: int = 0) -> list[pack_file.Bytes]:
    rng = np.random.default_rng(seed)
    return [rng.integers(0, 256, form.nbytes, np.uint8) for form in FORMS]


def written(folder: Path) -> Path:
    path = folder / f"{KEY}.pack"
    write_pack(path, KEY, "m.gguf", zip(FORMS, data(), strict=True))
    return path


def same(found: list[pack_file.Bytes] | None, seed: int = 0) -> bool:
    return found is not None and all(np.array_equal(a, b) for a, b in zip(found, data(seed), strict=True))


def cache(folder: Path, most_bytes: int = 1 << 20) -> PackCache:
    made = PackCache(folder, most_bytes)
    assert made.ready()
    return made


def put(packs: PackCache, key: str = KEY, seed: int = 0) -> None:
    packs.put(key, "m.gguf", list(zip(FORMS, data(seed), strict=True)))


def names(folder: Path) -> list[str]:
    return sorted(p.name for p in folder.iterdir() if p.name != ".lock")


@pytest.fixture(autouse=True)
def no_warnings():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        yield


@pytest.fixture(params=[pack_file.BLOCK, 300])
def block(request, monkeypatch) -> None:
    monkeypatch.setattr(pack_file, "BLOCK", request.param)
    monkeypatch.setattr(pack_file, "HUGE", 7 * request.param // 4)


@pytest.mark.usefixtures("block")
def test_what_was_written_is_read(tmp_path):
    found = map_pack(written(tmp_path), KEY, FORMS)
    assert same(found)
    assert (tmp_path / f"{KEY}.pack").read_bytes()[DATA_AT:][:1000] == data()[0].tobytes()


@pytest.mark.parametrize("size", [0, 7, 63, DATA_AT, DATA_AT + 500, WHOLE, -1])
def test_a_file_cut_short(tmp_path, size):
    path = written(tmp_path)
    os.truncate(path, size if size >= 0 else path.stat().st_size - 1)
    with pytest.raises(PackError):
        map_pack(path, KEY, FORMS)


def test_a_write_that_was_cut_off_has_no_head(tmp_path, monkeypatch):
    def broken(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(pack_file, "HUGE", 4096)
    monkeypatch.setattr(pack_file, "_Table", broken)
    with pytest.raises(KeyboardInterrupt):
        written(tmp_path)
    with pytest.raises(PackError, match="does not have this format"):
        map_pack(tmp_path / f"{KEY}.pack", KEY, FORMS)


@pytest.mark.parametrize(
    ("at", "words"),
    [
        (0, "does not have this format"),  # magic
        (8, "does not have this format"),  # version
        (16, "bytes instead of"),  # where the table is
        (13, "checksum of its table"),
        (40, "checksum of its table"),
        (WHOLE + 9, "checksum of its table"),
    ],
)
def test_a_damaged_head(tmp_path, at, words):
    path = flipped(written(tmp_path), at)
    with pytest.raises(PackError, match=words):
        map_pack(path, KEY, FORMS)


@pytest.mark.usefixtures("block")
@pytest.mark.parametrize("at", [DATA_AT, DATA_AT + 999, DATA_AT + 1024, WHOLE - 1])
def test_damaged_weights(tmp_path, at):
    with pytest.raises(PackError, match="the checksum of bytes"):
        map_pack(flipped(written(tmp_path), at), KEY, FORMS)


def flipped(path: Path, at: int) -> Path:
    raw = bytearray(path.read_bytes())
    raw[at] ^= 0x10
    path.write_bytes(raw)
    return path


@pytest.mark.parametrize("raw", [b"", b"GGUF" * 2000, bytes(1 << 16)])
def test_another_kind_of_file(tmp_path, raw):
    (tmp_path / "x.pack").write_bytes(raw)
    with pytest.raises(PackError):
        map_pack(tmp_path / "x.pack", KEY, FORMS)


def test_other_weights(tmp_path):
    path = written(tmp_path)
    for key, forms in [("x", FORMS), (KEY, FORMS[:2]), (KEY, [FORMS[0]._replace(n=34), *FORMS[1:]])]:
        with pytest.raises(PackError, match="other weights"):
            map_pack(path, key, forms)


@pytest.mark.parametrize("nbytes", [-64, 1 << 40, 1 << 62, WHOLE])
def test_a_table_that_points_elsewhere(tmp_path, nbytes):
    """With the right checksum, as only someone who means it makes one."""
    entry = pack_file._Entry
    forms = [FORMS[0]._replace(nbytes=nbytes)]

    def lying(form: PackForm, offset: int, sums: list[int]) -> object:
        return entry(forms[0], offset, sums)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(pack_file, "_Entry", lying)
        write_pack(tmp_path / "x.pack", KEY, "m", [(FORMS[0], data()[0])])
    with pytest.raises(PackError, match="its table"):
        map_pack(tmp_path / "x.pack", KEY, forms)


def test_the_cache_keeps(tmp_path):
    packs = cache(tmp_path / "home" / "packs")
    assert packs.get(KEY, FORMS) is None
    put(packs)
    assert same(cache(packs.folder).get(KEY, FORMS))
    assert names(packs.folder) == [f"{KEY}.pack"]


@pytest.mark.parametrize("at", [0, DATA_AT + 5])
def test_a_damaged_pack_is_made_again(tmp_path, at):
    packs = cache(tmp_path)
    put(packs)
    flipped(tmp_path / f"{KEY}.pack", at)
    with pytest.warns(UserWarning, match=r"kkk\.pack: .*; the weights are packed again"):
        assert packs.get(KEY, FORMS) is None
    put(packs)
    assert same(packs.get(KEY, FORMS))


def test_the_least_recently_used_go_first(tmp_path):
    packs = cache(tmp_path, 25_000)  # of about 9,600 each
    for i, key in enumerate("ab"):
        put(packs, key, i)
        os.utime(tmp_path / f"{key}.pack", (i, i))
    assert same(packs.get("a", FORMS), 0)
    put(packs, "c", 2)
    assert names(tmp_path) == ["a.pack", "c.pack"]


def test_what_is_above_the_bound_is_not_kept(tmp_path):
    packs = cache(tmp_path, 9000)
    with pytest.warns(UserWarning, match="0.0 GB are more than pack_cache_gb"):
        put(packs)
    assert names(tmp_path) == []


def test_what_a_killed_writer_left_goes(tmp_path):
    (tmp_path / ".old.partial").write_bytes(b"x")
    put(cache(tmp_path))
    assert names(tmp_path) == [f"{KEY}.pack"]


def test_while_another_process_writes_nothing_is_written(tmp_path):
    packs = cache(tmp_path)
    with (tmp_path / ".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        put(packs)
        assert names(tmp_path) == []
    put(packs)
    assert names(tmp_path) == [f"{KEY}.pack"]


@pytest.mark.slow
def test_processes_at_once(tmp_path):
    code = f"from pathlib import Path; from tests.model.test_packs import *\nrepeat(Path({str(tmp_path)!r}))"
    runs = [subprocess.Popen([sys.executable, "-c", code]) for _ in range(3)]
    assert [run.wait(60) for run in runs] == [0] * 3
    assert set(names(tmp_path)) <= {"a.pack", "b.pack"}


def repeat(folder: Path) -> None:
    """Reads, writes and removes packs for a while; whatever is found is whole."""
    packs = cache(folder, 15_000)  # room for one
    for i in range(60):
        key, seed = ("a", 1) if i % 2 else ("b", 2)
        found = packs.get(key, FORMS)
        assert found is None or same(found, seed)
        if found is None:
            put(packs, key, seed)


def test_a_full_disk(tmp_path, monkeypatch):
    packs = cache(tmp_path)
    monkeypatch.setattr("shutil.disk_usage", lambda path: SimpleNamespace(free=5000))
    with pytest.warns(UserWarning, match="not kept in .*: No space left on device"):
        put(packs)
    monkeypatch.undo()

    def full(path: Path, *rest: object) -> None:
        path.write_bytes(b"half")
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("drut.model.packs.cache.write_pack", full)
    with pytest.warns(UserWarning, match="not kept in .*: No space left on device"):
        put(packs)
    assert names(tmp_path) == []


def test_a_folder_that_cannot_be(tmp_path):
    (tmp_path / "file").write_text("")
    packs = PackCache(tmp_path / "file" / "packs", 1 << 20)
    with pytest.warns(UserWarning, match="not kept in .*packs: Not a directory") as caught:
        assert not packs.ready()
    assert "\n" not in str(caught[0].message)
