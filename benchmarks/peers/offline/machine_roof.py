"""The roof of the machine during a comparison, and the speed of a model at that roof."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from drut.kernels.native.library import load
from drut.machine import usable_cpus
from drut.observe.ledger import Peaks
from drut.plan.peaks import peaks
from drut.plan.probe import ISA_BITS, NativeProbe, measure
from drut.plan.roof import Roof

SECONDS = 0.6  # of each measurement
AVX2 = ISA_BITS["avx2"] | ISA_BITS["avxvnni"]

Costs = Sequence[Sequence[int]]  # bytes, multiply-adds, float multiply-adds of each operation of a step


class MachineRoof:
    """The best of several measurements of `drut roof`, with all instruction sets and with AVX2 alone."""

    def __init__(self, threads: int) -> None:
        library = load()
        if library is None:
            raise SystemExit("the roof needs the native library, which is not built (make setup)")
        self._library, self._threads, self._cpus = library, threads, usable_cpus()[:threads]
        self._avx2 = NativeProbe(library, self._cpus, AVX2)
        self._roof: Roof | None = None
        self._avx2_macs = (0.0, 0.0)

    def measure(self) -> None:
        """Measures once more."""
        roof = measure(self._library, self._cpus, SECONDS)
        self._roof = roof if self._roof is None else roof.best(self._roof)
        each = SECONDS / 6
        now = (self._avx2.int8(self._threads, each), self._avx2.bf16(self._threads, each))
        self._avx2_macs = (max(self._avx2_macs[0], now[0]), max(self._avx2_macs[1], now[1]))

    def peaks(self, avx2: bool) -> Peaks:
        """Returns the peaks for the instruction sets that Drut may use."""
        assert self._roof is not None, "measure first"
        best = peaks(self._roof, self._threads)
        if not avx2:
            return best
        return replace(best, int8_macs=1e9 * self._avx2_macs[0], float_macs=1e9 * self._avx2_macs[1])

    def to_json(self) -> dict[str, Any]:
        """Returns GB/s by working set, and GMAC/s."""
        assert self._roof is not None, "measure first"
        roof, n = self._roof, self._threads
        assert roof.int8_gmac_per_s is not None
        assert roof.bf16_gmac_per_s is not None
        return {"isa": roof.isa, "threads": n, "read_gb_per_s": {str(k): v for k, v in roof.read_gb_per_s[n].items()},
                "int8_gmac_per_s": roof.int8_gmac_per_s[n], "bf16_gmac_per_s": roof.bf16_gmac_per_s[n],
                "avx2_int8_gmac_per_s": self._avx2_macs[0], "avx2_bf16_gmac_per_s": self._avx2_macs[1]}


def floor_s(costs: Costs, best: Peaks) -> float:
    """Returns the minimum seconds of a step with these operations, one after the other."""
    working_set = sum(nbytes for nbytes, _, _ in costs)
    return sum(best.floor_s(nbytes, macs, floats, working_set) for nbytes, macs, floats in costs)
