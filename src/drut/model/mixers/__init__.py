"""Mixers: how a layer moves information between positions. Each kind is one file with `record`,
which returns what the layer's `o` projects back."""

from __future__ import annotations

from collections.abc import Callable

from drut.kernels.kv import KvLayout
from drut.kernels.ops import Buffer
from drut.kernels.plan import Recorder
from drut.model.mixers import attention
from drut.model.spec import LayerSpec, ModelSpec
from drut.model.weights.loader import Weights

RecordMixer = Callable[[Recorder, ModelSpec, LayerSpec, int, Weights, Buffer, KvLayout], Buffer]

MIXERS: dict[str, RecordMixer] = {"attention": attention.record}
