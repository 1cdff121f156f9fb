"""Finds and loads the native library, and lists its instruction sets."""

from __future__ import annotations

import ctypes
from functools import cache
from pathlib import Path
from typing import NamedTuple

from drut.errors import UnsupportedError
from drut.kernels.native import layout
from drut.kernels.native.compile.table import STRUCTS


class Isa(NamedTuple):
    name: str
    supported: bool


@cache
def load() -> ctypes.CDLL | None:
    """Returns the library in this folder, or None if the package was built without a compiler.

    Raises OSError if it was built from other sources.
    """
    path = Path(__file__).with_name("libdrut_native.so")
    if not path.exists():
        return None
    library = ctypes.CDLL(str(path))
    layout.check(library, STRUCTS)
    return library


def isas(library: ctypes.CDLL) -> list[Isa]:
    """Returns the instruction sets of this build, best first."""
    found: list[Isa] = []
    supported = ctypes.c_int32()
    while (name := library.drut_isa_name(len(found), ctypes.byref(supported))) is not None:
        found.append(Isa(name.decode(), bool(supported.value)))
    return found


def choose_isa(library: ctypes.CDLL, wanted: str) -> str:
    """Returns the best instruction set of this CPU, or `wanted` if the CPU has it. Raises UnsupportedError."""
    known = isas(library)
    usable = [isa.name for isa in known if isa.supported]
    if wanted == "auto":
        return usable[0]
    if wanted in usable:
        return wanted
    if wanted in {isa.name for isa in known}:
        raise UnsupportedError(f"instruction set {wanted!r} is not on this CPU (usable: {', '.join(usable)})")
    raise UnsupportedError(f"instruction set {wanted!r} is unknown (usable: {', '.join(usable)})")
