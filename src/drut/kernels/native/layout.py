"""Compares the structs that Python writes with the structs that the native library reads, field by field."""

from __future__ import annotations

import ctypes
from collections.abc import Iterable, Iterator
from ctypes import Structure, c_char_p, c_int32

from drut.kernels import descriptor
from drut.kernels.native import abi

STALE = "the native library was built from another version of the sources; install again"


class Field(Structure):
    _fields_ = [("name", c_char_p), ("offset", c_int32), ("size", c_int32)]


class StructLayout(Structure):
    _fields_ = [("name", c_char_p), ("fields", ctypes.POINTER(Field)), ("count", c_int32), ("size", c_int32)]


Described = dict[str, dict[str, tuple[int, int]]]  # offset and size of each field of each struct


def check(library: ctypes.CDLL, structs: Iterable[type[abi.Struct]]) -> None:
    """Raises OSError if the library has another version, or a struct that differs from `structs`. The error names the
    first field that differs."""
    if (library.drut_abi_version(), library.drut_step_version()) != (abi.ABI_VERSION, descriptor.VERSION):
        raise OSError(STALE)
    abi.declare(library)
    expected, found = described(structs), exported(library)
    for difference in differences(expected, found):
        raise OSError(f"{STALE} ({difference})")


def described(structs: Iterable[type[abi.Struct]]) -> Described:
    """Returns the layouts of `structs` in ctypes, by their names in C."""
    return {c_name(s): {name: (getattr(s, name).offset, getattr(s, name).size)
                        for name in (field[0] for field in s._fields_)} for s in structs}


def c_name(struct: type[abi.Struct]) -> str:
    """Returns the name in C: that of `AddArgs` is `DrutAdd`."""
    return f"Drut{struct.__name__.removesuffix('Args')}"


def exported(library: ctypes.CDLL) -> Described:
    """Returns the layouts with which the library was compiled."""
    found: Described = {}
    i = 0
    while address := library.drut_layout(i):
        layout = StructLayout.from_address(address)
        found[layout.name.decode()] = {f.name.decode(): (f.offset, f.size) for f in layout.fields[: layout.count]}
        i += 1
    return found


def differences(expected: Described, found: Described) -> Iterator[str]:
    """Yields a phrase for each difference, fields in the order of their offsets."""
    for name in sorted(expected.keys() | found.keys()):
        ours, theirs = expected.get(name), found.get(name)
        if ours is None or theirs is None:
            yield f"struct {name} is {'unknown here' if ours is None else 'not in the library'}"
            continue
        both = (ours | theirs).items()
        for field, _ in sorted(both, key=lambda item: item[1]):
            if ours.get(field) != theirs.get(field):
                yield f"{name}.{field} is at {_place(theirs.get(field))}, expected at {_place(ours.get(field))}"


def _place(place: tuple[int, int] | None) -> str:
    return "no place" if place is None else f"offset {place[0]} of {place[1]} bytes"
