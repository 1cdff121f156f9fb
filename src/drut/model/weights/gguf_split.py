"""GGUF models in parts, NAME-00001-of-0000N.gguf: the first has the metadata, each has some of the tensors."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType

import numpy as np
from numpy.typing import NDArray

from drut.errors import ModelFileError
from drut.model.weights.gguf import GGUFFile
from drut.model.weights.mapping import quote
from drut.model.weights.source import TensorInfo

MAX_PARTS = 1000
_NAME = re.compile(r"(.+)-(\d{5})-of-(\d{5})\.gguf")


class SplitGGUF:
    """The parts as one source of tensors. Raises ModelFileError if a part is missing or has another part's number."""

    def __init__(self, first: GGUFFile, paths: list[Path]) -> None:
        self.metadata = first.metadata
        self._parts = [first]
        where: dict[str, GGUFFile] = {}
        try:
            self._parts += [GGUFFile(path) for path in paths[1:]]
            for number, part in enumerate(self._parts):
                if part.metadata.get("split.no") != number or part.metadata.get("split.count") != len(paths):
                    raise ModelFileError(f"{part.path}: its metadata is not that of part {number + 1} of {len(paths)}")
                for name in part.tensors:
                    if name in where:
                        raise ModelFileError(f"{part.path}: tensor {quote(name)} is in another part, too")
                    where[name] = part
            count = self.metadata.get("split.tensors.count", len(where))
            if count != len(where):
                raise ModelFileError(f"{first.path}: the parts have {len(where)} tensors, "
                                     f"split.tensors.count is {count}")
        except BaseException:
            self.close()
            raise
        self._where = where
        self._tensors = MappingProxyType({name: part.tensors[name] for name, part in where.items()})

    @property
    def tensors(self) -> Mapping[str, TensorInfo]:
        """Tensors by name; each offset is relative to the tensor's own part."""
        return self._tensors

    def raw(self, name: str) -> NDArray[np.uint8]:
        return self._part(name).raw(name)

    def columns(self, name: str) -> NDArray[np.int32] | None:
        return None

    def release(self, name: str) -> None:
        self._part(name).release(name)

    def close(self) -> None:
        for part in self._parts:
            part.close()

    def _part(self, name: str) -> GGUFFile:
        if name not in self._where:
            raise ModelFileError(f"tensor {name!r} is in no part of the model")
        return self._where[name]


def open_gguf(path: str | os.PathLike[str]) -> GGUFFile | SplitGGUF:
    """Opens a GGUF file, with the other parts if it is the first of several. Raises ModelFileError for another part."""
    path = Path(path)
    first = GGUFFile(path)
    count = first.metadata.get("split.count", 0)
    if not isinstance(count, int) or count <= 1:
        return first
    paths = part_paths(path)
    if paths[0] != path or len(paths) != count:
        first.close()
        raise ModelFileError(f"{path}: a part of a model in {count}; give the first, NAME-00001-of-{count:05}.gguf")
    return SplitGGUF(first, paths)


def part_paths(path: Path) -> list[Path]:
    """Returns all parts of the model of `path`, by its name; only the file itself if its name is not that of a part."""
    match = _NAME.fullmatch(path.name)
    if match is None or not 1 <= int(match[3]) <= MAX_PARTS:
        return [path]
    return [path.with_name(f"{match[1]}-{i:05}-of-{match[3]}.gguf") for i in range(1, int(match[3]) + 1)]
