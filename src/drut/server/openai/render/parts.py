"""Encodes JSON in parts, so that no call for a large reply takes long or holds the interpreter's lock for long."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import islice
from typing import TypeVar, cast

import msgspec

T = TypeVar("T")
BATCH = 128  # items encoded in one call
BUNDLE_BYTES = 64 << 10
MARK = b"\x00"  # never in JSON text, which escapes control characters


class Lazy:
    """A list whose items are made when they are encoded."""

    def __init__(self, items: Iterable[object], *, whole: bool) -> None:
        """`whole`: items are small and encoded whole; else each is encoded in parts."""
        self.items, self.whole = items, whole


def lazily(items: Iterable[T], *, whole: bool = True) -> list[T]:
    """Returns `items` as a list for a field of a struct; only `parts` can encode it."""
    return cast(list[T], Lazy(items, whole=whole))


def parts(value: object) -> Iterator[bytes]:
    """Yields the JSON of a struct that may contain lazy lists."""
    found: list[Lazy] = []

    def put_aside(item: object) -> msgspec.Raw:
        if not isinstance(item, Lazy):
            raise TypeError(f"a reply cannot contain a {type(item).__name__}")
        found.append(item)
        return msgspec.Raw(MARK)

    first, *others = msgspec.json.encode(value, enc_hook=put_aside).split(MARK)
    yield first
    for lazy, after in zip(found, others, strict=True):
        yield b"["
        items, begun = iter(lazy.items), False
        while batch := list(islice(items, BATCH if lazy.whole else 1)):
            yield b"," if begun else b""
            begun = True
            if lazy.whole:
                yield msgspec.json.encode(batch)[1:-1]
            else:
                yield from parts(batch[0])
        yield b"]" + after


def bundles(made: Iterable[bytes]) -> Iterator[bytes]:
    """Joins parts to fewer, of BUNDLE_BYTES or more except for the last."""
    bundle = bytearray()
    for part in made:
        bundle += part
        if len(bundle) >= BUNDLE_BYTES:
            yield bytes(bundle)
            bundle.clear()
    if bundle:
        yield bytes(bundle)
