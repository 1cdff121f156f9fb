"""The energy of CPU packages and memory, from the counters under /sys/class/powercap on Linux."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from drut.errors import UnsupportedError

ROOT = Path("/sys/class/powercap")


@dataclass(frozen=True)
class Energy:
    """The energy of one domain over a run: `package-0`, or a part of it such as `package-0/dram`."""

    domain: str
    joules: float
    watts: float


class Rapl:
    """Samples all domains. Assumes that a counter wraps at most once between two samples: at 200 W the counter of a
    usual package takes twenty minutes."""

    def __init__(self, root: Path = ROOT) -> None:
        """Raises UnsupportedError with the reason if no counter is readable."""
        folders = sorted(root.glob("*rapl:*")) if root.is_dir() else []
        if not folders:
            raise UnsupportedError("RAPL: this machine shows no energy counters")
        try:
            names = {folder.name: (folder / "name").read_text().strip() for folder in folders}
            self._domains = {_path(folder.name, names): folder for folder in folders}
            self._ranges = {domain: _number(folder / "max_energy_range_uj")
                            for domain, folder in self._domains.items()}
            self._last = self._read()
        except (OSError, ValueError) as error:
            raise UnsupportedError(f"RAPL: {error}") from None
        self._joules = dict.fromkeys(self._domains, 0.0)

    def sample(self) -> None:
        """Takes a sample. Raises OSError or ValueError if the counters are no longer readable."""
        now = self._read()
        for domain, microjoules in now.items():
            gone = microjoules - self._last[domain]
            if gone < 0:
                gone += self._ranges[domain] + 1
            self._joules[domain] += gone * 1e-6
        self._last = now

    def use(self, seconds: float) -> list[Energy]:
        """Returns the energy over `seconds` from the first sample to the last."""
        return [Energy(domain, joules, joules / seconds if seconds else 0.0)
                for domain, joules in self._joules.items()]

    def _read(self) -> dict[str, int]:
        return {domain: _number(folder / "energy_uj") for domain, folder in self._domains.items()}


def _path(folder: str, names: dict[str, str]) -> str:
    """Returns the name of a domain. `intel-rapl:0:1` is a part of `intel-rapl:0`; parts of several packages may have
    the same name."""
    parts = folder.split(":")
    above = [":".join(parts[:n]) for n in range(2, len(parts))]
    return "/".join(names[name] for name in [*above, folder] if name in names)


def _number(path: Path) -> int:
    return int(path.read_text())
