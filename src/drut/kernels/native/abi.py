"""The structs of csrc/abi.h as ctypes, checked against the library's own sizes when it is loaded."""

from __future__ import annotations

import ctypes
from ctypes import Structure, c_double, c_float, c_int32, c_int64, c_uint8, c_void_p

from drut.kernels import descriptor

ABI_VERSION = 9

KINDS = {"F32": 0, "F16": 1, "BF16": 2, "Q4_0": 3, "Q4_1": 4, "Q8_0": 5, "Q5_0": 6, "Q5_1": 7, "Q2_K": 8,
         "Q3_K": 9, "Q4_K": 10, "Q5_K": 11, "Q6_K": 12, "IQ4_NL": 13, "MXFP4": 14, "IQ4_XS": 15, "int4": 16, "int8": 17,
         "nvfp4": 18, "fp8": 19}
SCALES = {"f16": 0, "bf16": 1, "f32": 2}
(EMBED, ROPE_TABLE, QKV, ATTENTION, PROJECT, GATE_UP, HEAD, SAMPLE, NOP, ADD, ROUTE, EXPERTS_GATE_UP,
 EXPERTS_DOWN, NORMALIZE, STORE_QKV, ACTIVATE) = range(16)
ACTIVATIONS = {"silu": 0, "gelu_tanh": 1, "gelu_erf": 2, "clamped_swiglu": 3}
INT8_FORM, FLOAT_FORM, BRAIN_FORM = 1, 2, 4  # of rows that one operation hands to the next
KV_DTYPES = {"bf16": 0, "fp32": 1, "int8": 2}
STALE = "the native library was built from another version of the sources; install again"


class Matrix(Structure):
    _fields_ = [("data", c_void_p), ("bias", c_void_p), ("order", c_void_p),
                *[(name, c_int32) for name in ("kind", "n", "k", "group", "scale", "zeros")]]


class Op(Structure):
    _fields_ = [("code", c_int32), ("layer", c_int32)]


class Norm(Structure):
    _fields_ = [("weight", c_void_p), ("bias", c_void_p), ("eps", c_float), ("centred", c_int32)]


class Embed(Structure):
    _fields_ = [("op", Op), ("table", c_void_p), ("x", c_void_p), ("stride", c_int32), ("scale", c_float)]


class RopeTable(Structure):
    _fields_ = [("op", Op), ("inv_freq", c_void_p), ("table", c_void_p), ("half", c_int32), ("scale", c_float)]


class Qkv(Structure):
    _fields_ = [("op", Op), ("x", c_void_p), ("norm", Norm), ("q_norm", Norm), ("k_norm", Norm),
                *[(name, c_void_p) for name in ("q_proj", "k_proj", "v_proj", "rope", "q", "k", "v")],
                *[(name, c_int32) for name in ("width", "stride", "q_stride", "kv_stride", "heads", "kv_heads",
                                               "head_dim", "rope_half", "kv_dtype", "wide_norm", "growth_span")],
                ("growth", c_float), ("group", c_int32), ("reserved", c_int32), ("layer_offset", c_int64)]


class Attention(Structure):
    _fields_ = [("op", Op), ("q", c_void_p), ("out", c_void_p), ("sinks", c_void_p),
                *[(name, c_int32) for name in ("q_stride", "out_stride", "heads", "kv_heads", "head_dim", "kv_dtype")],
                ("scale", c_float), ("out_form", c_int32), ("window", c_int32), ("cap", c_float), ("group", c_int32),
                ("reserved", c_int32), ("layer_offset", c_int64)]


class Project(Structure):
    _fields_ = [("op", Op), *[(name, c_void_p) for name in ("source", "weight", "x", "row_scale")],
                *[(name, c_int32) for name in ("in_stride", "stride", "in_form", "add")], ("scale", c_float),
                ("reserved", c_int32)]


class Normalize(Structure):
    _fields_ = [("op", Op), ("x", c_void_p), ("norm", Norm), ("out", c_void_p),
                *[(name, c_int32) for name in ("width", "stride", "out_stride", "reserved")]]


class Activate(Structure):
    _fields_ = [("op", Op), *[(name, c_void_p) for name in ("gate", "up", "out")], ("stride", c_int32),
                ("activation", c_int32)]


class Add(Structure):
    _fields_ = [("op", Op), ("source", c_void_p), ("norm", Norm), ("x", c_void_p), ("width", c_int32),
                ("in_stride", c_int32), ("stride", c_int32), ("scale", c_float)]


class GateUp(Structure):
    _fields_ = [("op", Op), ("x", c_void_p), ("norm", Norm), *[(name, c_void_p) for name in ("gate", "up", "out")],
                *[(name, c_int32) for name in ("width", "stride", "out_stride", "out_form", "activation", "reserved")]]


class Routes(Structure):
    _fields_ = [*[(name, c_void_p) for name in ("expert", "weight", "shared", "first", "used", "row", "place")],
                *[(name, c_int32) for name in ("used_count", "experts", "top_k", "reserved")]]


class Route(Structure):
    _fields_ = [("op", Op),
                ("x", c_void_p), ("norm", Norm),
                *[(name, c_void_p) for name in ("weight", "correction", "shared_gate", "logits", "routes", "loads",
                                                "used_count")],
                *[(name, c_int32) for name in ("width", "stride", "logits_stride", "sigmoid", "normalize", "groups",
                                               "kept_groups")],
                ("scale", c_float), ("reserved", c_int32)]


class ExpertsGateUp(Structure):
    _fields_ = [("op", Op), ("x", c_void_p), ("norm", Norm),
                *[(name, c_void_p) for name in ("gate", "up", "routes", "out")],
                *[(name, c_int32) for name in ("width", "stride", "out_stride", "out_form", "activation", "reserved")]]


class ExpertsDown(Structure):
    _fields_ = [("op", Op), *[(name, c_void_p) for name in ("source", "down", "routes", "x")],
                *[(name, c_int32) for name in ("in_stride", "stride", "in_form", "reserved")]]


class Head(Structure):
    _fields_ = [("op", Op), ("x", c_void_p), ("norm", Norm), ("weight", c_void_p), ("logits", c_void_p),
                ("width", c_int32), ("stride", c_int32), ("logits_stride", c_int32), ("scale", c_float),
                ("cap", c_float), ("reserved", c_int32)]


class Sample(Structure):
    _fields_ = [("op", Op), ("logits", c_void_p), ("logits_stride", c_int32), ("vocab", c_int32)]


class Pages(Structure):
    _fields_ = [("data", c_void_p), ("page_bytes", c_int64)]


class Context(Structure):
    _fields_ = [("step", c_void_p), ("pages", c_void_p), ("acts", c_void_p),
                ("acts_bytes", c_int64), ("scratch", c_void_p), ("scratch_bytes", c_int64),
                *[(name, c_void_p) for name in ("tokens", "status", "logprobs", "ranks", "top_ids", "top_logprobs",
                                                "relay", "op_ns", "chosen")],
                ("chosen_count", c_int32), ("empty", c_int32)]


class Burst(Structure):
    _fields_ = [*[(name, c_int32) for name in ("steps", "progress", "stop", "reserved")], ("end_first", c_void_p),
                ("end_id", c_void_p)]


class StepHeader(Structure):
    _fields_ = [("words", c_int32 * descriptor.HEADER)]


STRUCTS = (Matrix, Embed, RopeTable, Qkv, Attention, Project, GateUp, Head, Sample, Context, Burst,
           StepHeader, Pages, Add, Routes, Route, ExpertsGateUp, ExpertsDown, Normalize, Activate)


def declare(library: ctypes.CDLL) -> None:
    """Sets argument and result types of every function. Raises OSError where the library is of another version."""
    p, i, q = c_void_p, c_int32, c_int64
    signatures: dict[str, tuple[type | None, list[type]]] = {
        "drut_abi_version": (i, []),
        "drut_step_version": (i, []),
        "drut_abi_sizes": (i, [p, i]),
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
    if library.drut_abi_version() != ABI_VERSION:
        raise OSError(STALE)
    for name, (result, arguments) in signatures.items():
        function = getattr(library, name)
        function.restype, function.argtypes = result, arguments
    sizes = (c_int32 * 64)()
    count = library.drut_abi_sizes(sizes, 64)
    expected = [ctypes.sizeof(s) for s in STRUCTS]
    if library.drut_step_version() != descriptor.VERSION or list(sizes[:count]) != expected:
        raise OSError(STALE)


Bytes = c_uint8
