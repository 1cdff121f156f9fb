"""Feed-forwards: what a layer makes of each position by itself. Each kind is one file with `record`."""

from __future__ import annotations

from collections.abc import Callable

from drut.kernels.ops import Buffer
from drut.kernels.plan import Recorder
from drut.model.ffns import gated, moe
from drut.model.spec import LayerSpec, ModelSpec
from drut.model.weights.loader import Weights

RecordFfn = Callable[[Recorder, ModelSpec, LayerSpec, int, Weights, Buffer], None]

FFNS: dict[str, RecordFfn] = {"gated": gated.record, "moe": moe.record}
