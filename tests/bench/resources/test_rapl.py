"""Energy counters on a made-up tree of files."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from drut.bench.resources.rapl import Rapl
from drut.errors import UnsupportedError


def domain(root: Path, folder: str, name: str, microjoules: int, most: int = 262_143_328_850) -> Path:
    (root / folder).mkdir()
    (root / folder / "name").write_text(f"{name}\n")
    (root / folder / "max_energy_range_uj").write_text(f"{most}\n")
    (root / folder / "energy_uj").write_text(f"{microjoules}\n")
    return root / folder / "energy_uj"


def test_domains_and_their_parts(tmp_path: Path) -> None:
    package = domain(tmp_path, "intel-rapl:0", "package-0", 5_000_000)
    memory = domain(tmp_path, "intel-rapl:0:1", "dram", 0)
    domain(tmp_path, "intel-rapl:1", "package-1", 7)
    (tmp_path / "intel-rapl").mkdir()  # the controller, which is no domain
    rapl = Rapl(tmp_path)
    package.write_text("35000000\n")
    memory.write_text("4000000\n")
    rapl.sample()
    use = {energy.domain: energy for energy in rapl.use(2.0)}
    assert set(use) == {"package-0", "package-0/dram", "package-1"}
    assert (use["package-0"].joules, use["package-0"].watts) == (30, 15)
    assert (use["package-0/dram"].joules, use["package-1"].joules) == (4, 0)


def test_counters_that_go_round(tmp_path: Path) -> None:
    counter = domain(tmp_path, "intel-rapl:0", "package-0", 9_000_000, most=9_999_999)
    rapl = Rapl(tmp_path)
    for reading in (2_000_000, 8_000_000, 1_000_000):  # round, on, round
        counter.write_text(f"{reading}\n")
        rapl.sample()
    assert rapl.use(1.0)[0].joules == pytest.approx(3 + 6 + 3)


def test_why_nothing_can_be_read(tmp_path: Path) -> None:
    with pytest.raises(UnsupportedError, match="no energy counters"):
        Rapl(tmp_path / "missing")
    with pytest.raises(UnsupportedError, match="no energy counters"):
        Rapl(tmp_path)
    counter = domain(tmp_path, "intel-rapl:0", "package-0", 1)
    counter.write_text("not a number")
    with pytest.raises(UnsupportedError, match="RAPL"):
        Rapl(tmp_path)


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read all")
def test_counters_of_root_alone(tmp_path: Path) -> None:
    domain(tmp_path, "intel-rapl:0", "package-0", 1).chmod(0)
    with pytest.raises(UnsupportedError, match="Permission denied"):
        Rapl(tmp_path)
