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
_FILE_LIMIT = 1 << 20

Figures = Mapping[int, float]


@dataclass(frozen=True)
class Roof:
    """Upper bounds by number of threads. GB is 10^9 bytes; GMAC is 10^9 multiply-accumulates.

    `isa` names the usable instruction sets, joined by `+`: `portable` if the loops know none of them, `numpy` if
    the native library is missing. `read_gb_per_s` is by threads, then by working set: the bytes that all threads
    together read repeatedly. bf16 counts fused multiply-adds if the CPU has no product of bf16 pairs. The last two are
    None if the native library is missing.
    """

    cpu: str
    isa: str
    read_gb_per_s: Mapping[int, Figures]
    int8_gmac_per_s: Figures | None
    bf16_gmac_per_s: Figures | None

    @property
    def key(self) -> str:
        """Equal for roofs of the same machine, measured the same way."""
        return key_of(self.cpu, self.isa, max(self.read_gb_per_s))

    def best(self, other: Roof) -> Roof:
        """Returns a roof with the maximum of each figure; `other` has the same key."""
        read = {threads: _greater(figures, other.read_gb_per_s.get(threads, {}))
                for threads, figures in {**other.read_gb_per_s, **self.read_gb_per_s}.items()}
        return Roof(self.cpu, self.isa, read, _greater(self.int8_gmac_per_s, other.int8_gmac_per_s),
                    _greater(self.bf16_gmac_per_s, other.bf16_gmac_per_s))

    def to_json(self) -> dict[str, Any]:
        """Returns the fields. Numbers of threads and of bytes become decimal strings when JSON is written."""
        return {"cpu": self.cpu, "isa": self.isa, "read_gb_per_s": self.read_gb_per_s,
                "int8_gmac_per_s": self.int8_gmac_per_s, "bf16_gmac_per_s": self.bf16_gmac_per_s}

    @classmethod
    def from_json(cls, value: Any) -> Roof:
        """Returns the roof that `to_json` wrote. Raises ValueError if the value is anything else."""
        try:
            read = {int(threads): _figures(by_set) for threads, by_set in value["read_gb_per_s"].items()}
            int8, bf16 = (None if value[name] is None else _figures(value[name])
                          for name in ("int8_gmac_per_s", "bf16_gmac_per_s"))
            if not read:
                raise ValueError("no figures")
            return cls(str(value["cpu"]), str(value["isa"]), read, int8, bf16)
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


def _greater(one: Figures | None, other: Figures | None) -> Any:
    if one is None or other is None:
        return one or other
    return {key: max(one.get(key, 0.0), other.get(key, 0.0)) for key in sorted({*one, *other})}
