"""The structs that Python writes are those the native library reads, and every operation is in both tables."""

from __future__ import annotations

import ctypes

import pytest

from drut.kernels.native import abi, layout, library
from drut.kernels.native.compile import ends, table

LIBRARY = library.load()
needs_library = pytest.mark.skipif(LIBRARY is None, reason="the native kernels are not built")


def like(struct: type[abi.Struct], fields: list[tuple[str, object]]) -> type[abi.Struct]:
    """A struct of the same name with other fields."""
    return type(struct.__name__, (abi.Struct,), {"_fields_": fields})


@needs_library
def test_the_library_has_these_structs_and_no_other() -> None:
    assert layout.exported(LIBRARY) == layout.described(table.STRUCTS)
    assert "DrutContext" in layout.exported(LIBRARY)


@needs_library
@pytest.mark.parametrize("struct", table.STRUCTS, ids=lambda s: s.__name__)
def test_any_two_fields_that_change_places_are_found(struct: type[abi.Struct]) -> None:
    """Sizes are the same then. The error names the first field that differs."""
    fields = list(struct._fields_)
    for i in range(len(fields) - 1):
        swapped = [*fields[:i], fields[i + 1], fields[i], *fields[i + 2 :]]
        others = [s for s in table.STRUCTS if s is not struct]
        with pytest.raises(OSError, match=rf"another version .*\({layout.c_name(struct)}\.{fields[i][0]} is at offset"):
            layout.check(LIBRARY, [*others, like(struct, swapped)])


@needs_library
def test_missing_fields_sizes_and_structs_are_named() -> None:
    def difference(struct: type[abi.Struct]) -> str:
        others = [s for s in table.STRUCTS if s is not ends.SampleArgs]
        return next(layout.differences(layout.described([*others, struct]), layout.exported(LIBRARY)))

    fields = list(ends.SampleArgs._fields_)
    assert difference(like(ends.SampleArgs, fields[:-1])) == \
        "DrutSample.vocab is at offset 20 of 4 bytes, expected at no place"
    assert difference(like(ends.SampleArgs, [*fields, ("more", ctypes.c_int64)])) == \
        "DrutSample.more is at no place, expected at offset 24 of 8 bytes"
    assert difference(like(ends.SampleArgs, [*fields[:-1], ("vocab", ctypes.c_int16)])) == \
        "DrutSample.vocab is at offset 20 of 4 bytes, expected at offset 20 of 2 bytes"
    assert difference(like(abi.BurstArgs, [])).startswith("DrutBurst.")
    few = {name: fields for name, fields in layout.exported(LIBRARY).items() if name != "DrutAdd"}
    assert list(layout.differences(layout.exported(LIBRARY), few)) == ["struct DrutAdd is not in the library"]
    assert list(layout.differences(few, layout.exported(LIBRARY))) == ["struct DrutAdd is unknown here"]


@needs_library
def test_every_operation_is_in_both_tables() -> None:
    rows = table.ROWS.values()
    assert sorted(table.codes(LIBRARY)) == sorted(row.name for row in rows)
    assert sorted(table.codes(LIBRARY).values()) == list(range(len(rows)))


def test_a_struct_is_made_of_all_its_fields_by_name() -> None:
    made = ends.SampleArgs(op=abi.OpArgs(code=3, layer=1), logits=None, logits_stride=64, vocab=50)
    assert (made.op.code, made.op.layer, made.logits, made.logits_stride, made.vocab) == (3, 1, None, 64, 50)
    with pytest.raises(TypeError, match="SampleArgs: missing or unknown fields: vocab, vocabulary"):
        ends.SampleArgs(op=abi.OpArgs(code=3, layer=1), logits=None, logits_stride=64, vocabulary=50)
    with pytest.raises(TypeError):
        abi.OpArgs(3, 1)  # type: ignore[call-arg]
    assert abi.BurstArgs(steps=2, progress=0, stop=0, end_first=None, end_id=None).reserved == 0
