"""The roof of this machine: the measured maximum of bytes and multiply-adds per second. The best measurement is
kept."""

from __future__ import annotations

import json
import math
import os
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from drut.errors import DrutError

FILE = "roof.json"  # in DRUT_HOME
OPERANDS = ("int4", "int8", "fp32", "bf16")  # in the order of csrc/roof/roof.cpp
_FILE_LIMIT = 1 << 20

Figures = Mapping[int, float]


@dataclass(frozen=True)
class Roof:
    """Upper bounds by number of threads. GB is 10^9 bytes; GMAC is 10^9 multiply-accumulates.

    `isa` names the usable instruction sets, joined by `+`: `portable` if the loops know none of them, `numpy` if
    the native library is missing. `read_gb_per_s` is by threads, then by working set: the bytes that all threads
    together read repeatedly. `gmac_per_s` is by OPERANDS, then by threads: the best instructions for codes of at most 4
    bits with int8, for wider codes with int8, for binary32, and for pairs of bf16. Operands with the same instructions
    have one figure: int4 and int8 with a sum of four products, fp32 and bf16 without a product of pairs. It is empty if
    the native library is missing.
    """

    cpu: str
    isa: str
    read_gb_per_s: Mapping[int, Figures]
    gmac_per_s: Mapping[str, Figures]

    @property
    def key(self) -> str:
        """Equal for roofs of the same machine, measured the same way."""
        return key_of(self.cpu, self.isa, max(self.read_gb_per_s))

    def best(self, other: Roof) -> Roof:
        """Returns a roof with the maximum of each figure; `other` has the same key."""
        return Roof(self.cpu, self.isa, _greatest(self.read_gb_per_s, other.read_gb_per_s),
                    _greatest(self.gmac_per_s, other.gmac_per_s))

    def to_json(self) -> dict[str, Any]:
        """Returns the fields. Numbers of threads and of bytes become decimal strings when JSON is written."""
        return {"cpu": self.cpu, "isa": self.isa, "read_gb_per_s": self.read_gb_per_s,
                **{f"{name}_gmac_per_s": self.gmac_per_s.get(name) for name in OPERANDS}}

    @classmethod
    def from_json(cls, value: Any) -> Roof:
        """Returns the roof that `to_json` wrote. Raises ValueError if the value is anything else."""
        try:
            read = {int(threads): _figures(by_set) for threads, by_set in value["read_gb_per_s"].items()}
            stored = {name: value[f"{name}_gmac_per_s"] for name in OPERANDS}
            gmacs = {name: _figures(figures) for name, figures in stored.items() if figures is not None}
            if not read or len(gmacs) not in (0, len(OPERANDS)):
                raise ValueError("figures are missing")
            return cls(str(value["cpu"]), str(value["isa"]), read, gmacs)
        except (KeyError, TypeError, AttributeError) as error:
            raise ValueError(f"not a roof: {error}") from None


def key_of(cpu: str, isa: str, cpus: int) -> str:
    """Returns the `key` of a roof."""
    return f"{cpu} | {isa} | {cpus} CPUs"


def kept(path: Path, key: str) -> Roof | None:
    """Returns the roof in the file `path` with that key, or None."""
    return _load(path).get(key)


def keep(roof: Roof, path: Path) -> Roof:
    """Merges `roof` with the roof of the same machine in the file `path`, writes the best of both and returns it.

    Entries of other machines stay. A damaged file is replaced, because all of it can be measured again. Raises
    DrutError with the path if the file cannot be written.
    """
    kept = _load(path)
    if roof.key in kept:
        roof = roof.best(kept[roof.key])
    kept[roof.key] = roof
    text = json.dumps({key: entry.to_json() for key, entry in kept.items()}, indent=1)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.NamedTemporaryFile("w", dir=path.parent, prefix=path.name, delete=False) as file:
            try:
                file.write(text)
                file.flush()
                os.replace(file.name, path)
            except BaseException:
                os.unlink(file.name)
                raise
    except OSError as error:
        reason = f"{error.strerror} (DRUT_HOME sets another place)"
        raise DrutError(f"{path}: cannot keep the measurement: {reason}") from None
    return roof


def _load(path: Path) -> dict[str, Roof]:
    """Returns the roofs in a file by key, without damaged entries."""
    try:
        with path.open("rb") as file:
            value = json.loads(file.read(_FILE_LIMIT))
        entries = value.values()
    except (OSError, ValueError, RecursionError, AttributeError):
        return {}
    kept: dict[str, Roof] = {}
    for entry in entries:
        try:
            roof = Roof.from_json(entry)
        except ValueError:
            continue
        kept[roof.key] = roof
    return kept


def _figures(value: Any) -> dict[int, float]:
    figures = {int(key): float(figure) for key, figure in value.items()}
    if not all(math.isfinite(figure) and figure > 0 for figure in figures.values()):
        raise ValueError("a figure is not above 0")
    return figures


def _greatest(one: Mapping[Any, Figures], other: Mapping[Any, Figures]) -> dict[Any, Figures]:
    """Returns the maximum of each figure of either."""
    return {key: _greater(one.get(key, {}), other.get(key, {})) for key in {**other, **one}}


def _greater(one: Figures, other: Figures) -> Figures:
    return {key: max(one.get(key, 0.0), other.get(key, 0.0)) for key in sorted({*one, *other})}
