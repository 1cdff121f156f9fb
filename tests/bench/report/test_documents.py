"""Files are found and distinguished."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from drut.bench.report.documents import find, kind, read_document
from drut.errors import DrutError
from tests.bench.report import samples


def put(folder: Path, name: str, document: msgspec.Struct) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / name).write_bytes(msgspec.json.encode(document))
    return folder / name


def test_each_file_states_what_it_is(tmp_path: Path) -> None:
    for name, document in (("result", samples.result(seconds=12.0)), ("comparison", samples.comparison(rounds=1)),
                           ("search", samples.a_search()), ("ablation", samples.ablation())):
        path = put(tmp_path, "any-name.json", document)
        assert read_document(path) == document
        assert kind(read_document(path)) == name


def test_a_folder_stands_for_the_files_in_it(tmp_path: Path) -> None:
    put(tmp_path / "a", "search.json", samples.a_search())
    put(tmp_path / "a", "ablation.json", samples.ablation())
    put(tmp_path / "x/b", "search.json", samples.a_search())
    put(tmp_path / "y/b", "search.json", samples.a_search())
    found = find([tmp_path / "a", tmp_path / "x/b", tmp_path / "y/b", tmp_path / "a/search.json"])
    assert [s.path.name for s in found] == ["search.json", "ablation.json", "search.json", "search.json"]
    assert len({s.label for s in found}) == 4
    assert found[2].label == "x/b"
    assert find([tmp_path / "a/search.json"])[0].label == "a"


@pytest.mark.parametrize(("text", "words"), [
    (None, "cannot read"), ("{", "is not a file of drut bench"), ("[]", "is not a file of drut bench"),
    ('{"schema": "drut.other/1"}', "of the schema 'drut.other/1'"), ('{"schema": "drut.search/1"}', "is not a file"),
    ("\xff", "is not a file"), ("[" * 100_000, "is not a file")])
def test_files_that_are_none_of_them(tmp_path: Path, text: str | None, words: str) -> None:
    path = tmp_path / "search.json"
    if text is not None:
        path.write_bytes(text.encode("latin-1"))
    with pytest.raises(DrutError, match=words):
        read_document(path)


def test_a_file_too_large_is_not_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = put(tmp_path, "search.json", samples.a_search())
    monkeypatch.setattr("drut.bench.files.MAX_BYTES", path.stat().st_size)
    read_document(path)
    monkeypatch.setattr("drut.bench.files.MAX_BYTES", path.stat().st_size - 1)
    with pytest.raises(DrutError, match="is larger than"):
        read_document(path)


def test_an_empty_folder_is_reported(tmp_path: Path) -> None:
    with pytest.raises(DrutError, match="has none of comparison"):
        find([tmp_path])
