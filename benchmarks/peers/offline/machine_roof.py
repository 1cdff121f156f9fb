"""The roof of the machine during a comparison, and the speed of a model at that roof."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from drut.kernels.native.library import load
from drut.machine import usable_cpus
from drut.observe.ledger import Macs, Peaks, summed
from drut.plan.peaks import macs_per_s, peaks
from drut.plan.probe import ISA_BITS, NativeProbe, measure
from drut.plan.roof import OPERANDS, Roof

SECONDS = 0.6  # of each measurement
AVX2 = ISA_BITS["avx2"] | ISA_BITS["avxvnni"]

Costs = Sequence[tuple[int, Sequence[float]]]  # of each operation of a step: bytes, and multiply-adds as Macs


class MachineRoof:
    """The best of several measurements of `drut roof`, with all instruction sets and with AVX2 alone."""

    def __init__(self, threads: int) -> None:
        library = load()
        if library is None:
            raise SystemExit("the roof needs the native library, which is not built (make setup)")
        self._library, self._threads, self._cpus = library, threads, usable_cpus()[:threads]
        self._avx2 = NativeProbe(library, self._cpus, AVX2)
        self._roof: Roof | None = None
        self._avx2_gmacs = dict.fromkeys(OPERANDS, 0.0)

    def measure(self) -> None:
        """Measures once more."""
        roof = measure(self._library, self._cpus, SECONDS)
        self._roof = roof if self._roof is None else roof.best(self._roof)
        now = self._avx2.multiply(self._threads, SECONDS / 12)
        self._avx2_gmacs = {name: max(now[name], before) for name, before in self._avx2_gmacs.items()}

    def peaks(self, avx2: bool) -> Peaks:
        """Returns the peaks for the instruction sets that Drut may use."""
        assert self._roof is not None, "measure first"
        best = peaks(self._roof, self._threads)
        return replace(best, macs=macs_per_s(self._avx2_gmacs)) if avx2 else best

    def to_json(self) -> dict[str, Any]:
        """Returns GB/s by working set, and GMAC/s by operands."""
        assert self._roof is not None, "measure first"
        roof, n = self._roof, self._threads
        return {"isa": roof.isa, "threads": n, "read_gb_per_s": {str(k): v for k, v in roof.read_gb_per_s[n].items()},
                **{f"{name}_gmac_per_s": roof.gmac_per_s[name][n] for name in OPERANDS},
                **{f"avx2_{name}_gmac_per_s": gmac for name, gmac in self._avx2_gmacs.items()}}


def floors(costs: Costs, best: Peaks) -> dict[str, float]:
    """Returns the minimum seconds of a step with these operations, one after the other, by the roof that they are at,
    the longest time first."""
    working_set = sum(nbytes for nbytes, _ in costs)
    return summed(best.floor_by_roof(nbytes, Macs(*macs), working_set) for nbytes, macs in costs)
