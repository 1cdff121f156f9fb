"""The share of this machine's roof, from a file that has it or from one measurement."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest
from prometheus_client.parser import text_string_to_metric_families

from drut.engine.service.messages import SetRoof, Stats
from drut.errors import DrutError
from drut.kernels.native.library import load
from drut.plan import roof as roofs
from drut.plan.probe import machine_key
from drut.server.life import Health
from drut.server.life import roof as server_roof
from drut.server.life.roof import compare_with_roof, measure_apart
from tests.server.rig import serving, until
from tests.server.virtual import run

native = pytest.mark.skipif(load() is None, reason="the native library is not built")


def known() -> roofs.Roof:
    """Of this machine; such a one that no step comes near."""
    cpu, isa, cpus = machine_key(load()).split(" | ")
    count = int(cpus.split()[0])
    return roofs.Roof(cpu, isa, {count: {1 << 20: 1e3}}, {name: {count: 1e6} for name in roofs.OPERANDS})


class Told:
    """An engine that records the roof it gets."""

    def __init__(self) -> None:
        self.roofs: list[SetRoof] = []

    def compare_with(self, roof: SetRoof) -> None:
        self.roofs.append(roof)


def stats(steps: int, running: int = 0) -> Stats:
    return Stats(pages=1, free_pages=1, cached_pages=0, evictable_pages=0, running=running, waiting={}, preemptions={},
                 expected_tokens=0, queried_tokens=0, hit_tokens=0, evicted_miss_tokens=0, evicted_pages=0, steps=steps,
                 rows=0, failed_steps=0, idle_s=0.0, step_bounds=[], step_counts=[0], step_seconds=0.0)


@native
def test_a_kept_roof_makes_the_share_known(tmp_path: Path, model_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DRUT_HOME", str(tmp_path))
    roofs.keep(known(), tmp_path / roofs.FILE)
    with serving(model_path) as server:
        def scraped() -> dict[str, float]:
            text = server.get("/metrics").raw.decode()
            return {s.name: s.value for f in text_string_to_metric_families(text) for s in f.samples}

        until(lambda: "drut_step_floor_seconds_total" in scraped(), 60)
        assert server.complete("some work", max_tokens=20).status == 200
        until(lambda: "drut_roof_share" in scraped(), 60)
        values = scraped()
        assert 0 < values["drut_step_floor_seconds_total"] < values["drut_step_seconds_sum"]
        assert 0 < values["drut_roof_share"] < 1


@native
def test_it_is_measured_once_nothing_is_asked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DRUT_HOME", str(tmp_path))
    engine, health, measured = Told(), Health(), []

    async def measure() -> roofs.Roof:
        measured.append(asyncio.get_running_loop().time())
        return known()

    async def main() -> None:
        monkeypatch.setattr(server_roof, "measure_apart", measure)
        asked = asyncio.create_task(compare_with_roof(engine, health, 1, quiet_s=10))  # type: ignore[arg-type]
        for second in range(60):
            health.stats = stats(steps=min(second, 30), running=int(35 < second < 40))
            await asyncio.sleep(1)
        await asked

    run(main())
    assert measured == [pytest.approx(50, abs=1)]
    assert [r.macs for r in engine.roofs] == [(1e15, 1e15, 1e15)]


@native
@pytest.mark.slow
def test_measuring_apart_keeps_what_it_finds(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DRUT_HOME", str(tmp_path / "home"))
    roof = asyncio.run(measure_apart())
    assert roofs.kept(tmp_path / "home" / roofs.FILE, machine_key(load())) == roof


@native
@pytest.mark.parametrize("error", [DrutError("no room"), OSError(24, "no room")])
def test_a_failed_measurement_is_logged_with_its_reason(tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
                                                  caplog: pytest.LogCaptureFixture, error: Exception) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setenv("DRUT_HOME", str(tmp_path / "file" / "home"))

    async def fails() -> Any:
        raise error

    monkeypatch.setattr(server_roof, "measure_apart", fails)
    health = Health()
    health.stats = stats(steps=0)
    engine = Told()
    run(compare_with_roof(engine, health, 1, quiet_s=1))  # type: ignore[arg-type]
    assert engine.roofs == []
    assert "no room" in caplog.text
