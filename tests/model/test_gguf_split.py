"""GGUF models in parts: read as one, and refused where the parts do not belong together."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from drut.errors import ModelFileError
from drut.model.store import model_digest
from drut.model.weights.gguf_split import SplitGGUF, open_gguf
from tests.model.gguf_writer import F32, Tensor, Typed, gguf


def part(folder: Path, number: int, parts: int, tensors: list[str], **said: Any) -> Path:
    keys = {"split.no": Typed(2, said.get("no", number)), "split.count": Typed(2, said.get("count", parts)),
            "split.tensors.count": Typed(5, said.get("tensors", 3))}
    items = [Tensor(name, (4,), F32, np.full(4, ord(name), "<f4").tobytes()) for name in tensors]
    path = folder / f"m-{number + 1:05}-of-{parts:05}.gguf"
    path.write_bytes(gguf(({"general.name": "m"} if number == 0 else {}) | keys, items))
    return path


def test_parts_are_one_model(tmp_path: Path) -> None:
    first = part(tmp_path, 0, 2, ["a"])
    part(tmp_path, 1, 2, ["b", "c"])
    file = open_gguf(first)
    assert isinstance(file, SplitGGUF)
    assert (list(file.tensors), file.metadata["general.name"]) == (["a", "b", "c"], "m")
    for name in "abc":
        assert file.raw(name).view(np.float32).tolist() == [ord(name)] * 4
        file.release(name)
    with pytest.raises(ModelFileError, match="'d' is in no part"):
        file.raw("d")
    before = model_digest(first)
    part(tmp_path, 1, 2, ["b", "d"])
    assert model_digest(first) != before


@pytest.mark.parametrize(("second", "why"), [
    ({"no": 0}, "is not that of part 2 of 2"), ({"count": 3}, "is not that of part"), (None, "No such file"),
    ({"names": ["a", "b"]}, "'a' is in another part, too"),
    ({"names": ["b"]}, r"have 2 tensors, split.tensors.count is 3")])
def test_parts_that_do_not_fit(tmp_path: Path, second: dict[str, Any] | None, why: str) -> None:
    first = part(tmp_path, 0, 2, ["a"])
    if second is not None:
        part(tmp_path, 1, 2, second.pop("names", ["b", "c"]), **second)
    with pytest.raises(ModelFileError, match=why):
        open_gguf(first)


def test_another_part_than_the_first(tmp_path: Path) -> None:
    part(tmp_path, 0, 2, ["a"])
    with pytest.raises(ModelFileError, match=r"give the first, NAME-00001-of-00002\.gguf"):
        open_gguf(part(tmp_path, 1, 2, ["b", "c"]))
    renamed = tmp_path / "other.gguf"
    part(tmp_path, 0, 2, ["a"]).rename(renamed)
    with pytest.raises(ModelFileError, match="a part of a model in 2"):
        open_gguf(renamed)
