"""The structs of csrc/base/abi.h as ctypes. `compile` has the structs of operations; `layout` checks all at load."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from ctypes import Structure, c_double, c_float, c_int32, c_int64, c_void_p
from typing import Any

from drut.kernels import descriptor

ABI_VERSION = 12

KINDS = {"F32": 0, "F16": 1, "BF16": 2, "Q4_0": 3, "Q4_1": 4, "Q8_0": 5, "Q5_0": 6, "Q5_1": 7, "Q2_K": 8,
         "Q3_K": 9, "Q4_K": 10, "Q5_K": 11, "Q6_K": 12, "IQ4_NL": 13, "MXFP4": 14, "IQ4_XS": 15, "int4": 16, "int8": 17,
         "nvfp4": 18, "fp8": 19}
SCALES = {"f16": 0, "bf16": 1, "f32": 2}
ACTIVATIONS = {"silu": 0, "gelu_tanh": 1, "gelu_erf": 2, "clamped_swiglu": 3}
INT8_FORMAT, FLOAT_FORMAT, BF16_FORMAT, WIDE_FORMAT = 1, 2, 4, 8  # activation formats between operations
KV_DTYPES = {"bf16": 0, "fp32": 1, "int8": 2}
RESERVED = "reserved"  # a field that only fills a struct to its alignment

Fields = Sequence[tuple[str, Any]]


def pointers(*names: str) -> Fields:
    return [(name, c_void_p) for name in names]


def int32s(*names: str) -> Fields:
    return [(name, c_int32) for name in names]


def floats(*names: str) -> Fields:
    return [(name, c_float) for name in names]


def int64s(*names: str) -> Fields:
    return [(name, c_int64) for name in names]


class Struct(Structure):
    """A struct whose constructor takes all fields by name. TypeError names missing or unknown fields."""

    def __init__(self, **fields: Any) -> None:
        names = {field[0] for field in self._fields_}
        wrong = (names - {RESERVED}) ^ (fields.keys() - {RESERVED})
        if wrong:
            raise TypeError(f"{type(self).__name__}: missing or unknown fields: {', '.join(sorted(wrong))}")
        super().__init__(**fields)


class MatrixArgs(Struct):
    _fields_ = (*pointers("data", "bias", "order"),
                *int32s("kind", "n", "k", "slices", "group", "scale", "zeros", RESERVED))


class OpArgs(Struct):
    _fields_ = int32s("code", "layer")


class NormArgs(Struct):
    _fields_ = (*pointers("weight", "bias"), *floats("eps"), *int32s("subtract_mean"))


class RoutesArgs(Struct):
    _fields_ = (*pointers("expert", "weight", "shared", "first", "used", "row", "pair_index"),
                *int32s("used_count", "experts", "top_k", RESERVED))


class PagesArgs(Struct):
    _fields_ = (*pointers("data"), *int64s("page_bytes"))


class ContextArgs(Struct):
    _fields_ = (*pointers("step", "pages", "acts"), *int64s("acts_bytes"), *pointers("scratch"),
                *int64s("scratch_bytes"),
                *pointers("tokens", "status", "logprobs", "ranks", "top_ids", "top_logprobs", "relay", "op_ns",
                          "chosen"),
                *int32s("chosen_count", "barriers_only"))


class BurstArgs(Struct):
    _fields_ = (*int32s("steps", "progress", "stop", RESERVED), *pointers("end_first", "end_id"))


class StepHeader(Struct):
    _fields_ = int32s(*descriptor.HEADER_FIELDS)


SHARED: tuple[type[Struct], ...] = (MatrixArgs, OpArgs, NormArgs, RoutesArgs, PagesArgs, ContextArgs, BurstArgs,
                                    StepHeader)


def declare(library: ctypes.CDLL) -> None:
    """Sets argument and result types of every function."""
    p, i, q = c_void_p, c_int32, c_int64
    signatures: dict[str, tuple[type | None, list[type]]] = {
        "drut_abi_version": (i, []),
        "drut_step_version": (i, []),
        "drut_layout": (p, [i]),
        "drut_op_name": (ctypes.c_char_p, [i]),
        "drut_isa_name": (ctypes.c_char_p, [i, p]),
        "drut_isa": (p, [ctypes.c_char_p]),
        "drut_pool_create": (p, [i, p, i]),
        "drut_pool_destroy": (None, [p]),
        "drut_scratch_bytes": (q, [p, i, i, i, i]),
        "drut_act_row_bytes": (q, [p, i]),
        "drut_run": (None, [p, p, p, i, p]),
        "drut_run_burst": (None, [p, p, p, i, p, p]),
        "drut_burst_wait": (None, [p, i, q]),
        "drut_burst_abandon": (None, [p]),
        "drut_packed_bytes": (q, [p]),
        "drut_pack": (q, [p, p, i, q, p, p, p]),
        "drut_gumbel": (c_float, [ctypes.c_uint64, ctypes.c_uint32, ctypes.c_uint32, ctypes.c_uint32, ctypes.c_uint32]),
        "drut_philox": (None, [ctypes.c_uint32, ctypes.c_uint32, p]),
        "drut_soft_fma": (c_float, [c_float, c_float, c_float]),
        "drut_log": (c_float, [c_float]),
        "drut_sincos": (None, [c_double, p, p]),
    }
    for name, (result, arguments) in signatures.items():
        function = getattr(library, name)
        function.restype, function.argtypes = result, arguments
