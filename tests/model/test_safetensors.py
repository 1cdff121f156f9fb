from __future__ import annotations

import json
import struct
from pathlib import Path

import numpy as np
import pytest

from drut.errors import ModelFileError
from drut.model.weights.json_file import MAX_JSON_ITEMS, read_json
from drut.model.weights.safetensors import SafetensorsFile, open_safetensors
from tests.model.fuzz import fuzz

F32 = np.arange(6, dtype="<f4").tobytes()


def packed(header: object, data: bytes = b"", *, length: int | None = None) -> bytes:
    raw = header if isinstance(header, bytes) else json.dumps(header).encode()
    return struct.pack("<Q", len(raw) if length is None else length) + raw + data


def entry(dtype: object = "F32", shape: object = (2, 3), span: object = (0, 24)) -> dict[str, object]:
    return {"dtype": dtype, "shape": shape, "data_offsets": span}


def save(path: Path, tensors: dict[str, tuple[str, list[int], bytes]]) -> Path:
    header, data = {}, b""
    for name, (dtype, shape, raw) in tensors.items():
        header[name] = entry(dtype, shape, [len(data), len(data) + len(raw)])
        data += raw
    path.write_bytes(packed(header, data))
    return path


def test_reads_tensors_of_every_kind(tmp_path):
    tensors = {
        "f32": ("F32", [2, 3], F32),
        "f16": ("F16", [4], bytes(8)),
        "bf16": ("BF16", [1, 2, 1], b"abcd"),
        "scalar": ("I64", [], bytes(8)),
        "none": ("F32", [0, 5], b""),
        "codes": ("F4", [3, 2], b"xyz"),
    }
    file = SafetensorsFile(save(tmp_path / "m.safetensors", tensors))
    assert {n: (t.encoding, list(t.shape), file.raw(n).tobytes()) for n, t in file.tensors.items()} == tensors
    np.testing.assert_array_equal(file.raw("f32").view("<f4"), np.arange(6))
    assert not file.raw("f32").flags.writeable
    with pytest.raises(ModelFileError, match="'x' is missing"):
        file.raw("x")


def test_metadata_and_padding_of_the_header(tmp_path):
    path = tmp_path / "m.safetensors"
    header = json.dumps({"__metadata__": {"format": "pt"}, "a": entry()})
    path.write_bytes(packed(header.encode() + b"   ", F32))
    file = SafetensorsFile(path)
    assert dict(file.metadata) == {"format": "pt"}
    assert list(file.tensors) == ["a"]


def one(**changes: object) -> bytes:
    return packed({"t": entry(**changes)}, F32)


TWICE = b'{"t":' + json.dumps(entry()).encode() + b', "t":' + json.dumps(entry()).encode() + b"}"
HOSTILE = {
    "short": (b"abc", "too short"),
    "no header": (packed(b""), "not a JSON object"),
    "header length 2^63": (packed({}, length=1 << 63), "bytes is longer than"),
    "CVE-2026-7482: header length 2^62": (packed({}, length=1 << 62), "bytes is longer than"),
    "CVE-2026-7482: offsets past the end": (packed({"t": entry(span=[24, 48])}, F32), "'t' starts at byte"),
    "header past the end": (packed({}, length=99), "99 bytes in a file of 10"),
    "a list": (packed(b"[1]"), "not a JSON object"),
    "not JSON": (packed(b"{'a'}"), "not valid JSON"),
    "not UTF-8": (packed(b'{"\xff": 1}'), "not valid JSON"),
    "deep": (packed(b'{"a":' + b"[" * 100_000), "nested too deeply"),
    "many items": (packed(b"{" + b"," * MAX_JSON_ITEMS), "JSON items"),
    "an integer of 5000 digits": (packed(b'{"t":' + b"9" * 5000 + b"}"), "not valid JSON"),
    "name twice": (packed(TWICE, F32), "'t' occurs twice"),
    "metadata of numbers": (packed({"__metadata__": {"a": 1}}), "__metadata__"),
    "entry a list": (packed({"t": []}), "'t' is not described"),
    "dtype unknown": (one(dtype="F31"), "'t' has unknown dtype 'F31'"),
    "dtype missing": (packed({"t": {"shape": [6], "data_offsets": [0, 24]}}, F32), "'t' has unknown dtype"),
    "dtype a list": (one(dtype=["F32"]), "'t' has unknown dtype"),
    "shape missing": (one(shape=None), "'t' has no valid shape"),
    "shape negative": (one(shape=[-2, -3]), "'t' has no valid shape"),
    "shape of booleans": (one(shape=[True, 6]), "'t' has no valid shape"),
    "shape of floats": (one(shape=[2.0, 3]), "'t' has no valid shape"),
    "nine dimensions": (one(shape=[1] * 8 + [6]), "'t' has no valid shape"),
    "shape that wraps": (one(shape=[2**32, 2**32]), "'t' has more than"),
    "three offsets": (one(span=[0, 24, 24]), "'t' has no valid data_offsets"),
    "span too short": (one(span=[0, 20]), "24 bytes by shape and dtype, but 20"),
    "span backwards": (one(span=[24, 0]), "24 bytes by shape and dtype, but -24"),
    "half a byte": (packed({"t": entry("F4", [3], [0, 1])}, b"a"), "1.5 bytes"),
    "gap before": (packed({"t": entry(span=[4, 28])}, bytes(4) + F32), "'t' starts at byte"),
    "overlap": (packed({"s": entry(), "t": entry(span=[12, 36])}, bytes(36)), "'t' starts at byte"),
    "bytes left over": (packed({"t": entry()}, F32 + b"x"), "the tensors end at byte"),
    "cut": (packed({"t": entry()}, F32[:-1]), "truncated"),
}


@pytest.mark.parametrize("case", HOSTILE)
def test_hostile_files_are_one_line_errors(tmp_path, case):
    raw, words = HOSTILE[case]
    path = tmp_path / "m.safetensors"
    path.write_bytes(raw)
    with pytest.raises(ModelFileError) as caught:
        SafetensorsFile(path)
    assert "m.safetensors" in str(caught.value)
    assert words in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_directory_with_one_file(tmp_path):
    save(tmp_path / "model.safetensors", {"a": ("F32", [6], F32)})
    assert list(open_safetensors(tmp_path).tensors) == ["a"]


def index(folder: Path, weight_map: object) -> Path:
    (folder / "model.safetensors.index.json").write_text(json.dumps({"weight_map": weight_map}))
    return folder


def test_shards_behind_an_index(tmp_path):
    save(tmp_path / "m-1.safetensors", {"a": ("F32", [6], F32)})
    save(tmp_path / "m-2.safetensors", {"b": ("BF16", [2], b"abcd")})
    source = open_safetensors(index(tmp_path, {"a": "m-1.safetensors", "b": "m-2.safetensors"}))
    assert list(source.tensors) == ["a", "b"]
    assert source.raw("a").tobytes() == F32
    assert source.raw("b").tobytes() == b"abcd"
    source.release("b")
    with pytest.raises(ModelFileError, match="'c'"):
        source.raw("c")
    source.close()


def test_a_tensor_that_an_index_leaves_out_is_read(tmp_path):
    save(tmp_path / "m.safetensors", {"a": ("F32", [6], F32), "unlisted": ("F32", [1], b"abcd")})
    source = open_safetensors(index(tmp_path, {"a": "m.safetensors"}))
    assert list(source.tensors) == ["a", "unlisted"]
    assert source.raw("unlisted").tobytes() == b"abcd"


@pytest.mark.parametrize("listed", ["m-1.safetensors", "m-2.safetensors", None])
def test_a_tensor_in_two_shards_must_be_one(tmp_path, listed):
    weight_map = {"x": "m-1.safetensors", "y": "m-2.safetensors"} | ({"a": listed} if listed else {})
    for values, same in ((bytes(24), False), (F32, True)):
        save(tmp_path / "m-1.safetensors", {"a": ("F32", [6], F32), "x": ("F32", [1], bytes(4))})
        save(tmp_path / "m-2.safetensors", {"a": ("F32", [6], values), "y": ("F32", [1], bytes(4))})
        folder = index(tmp_path, weight_map)
        if same:
            assert open_safetensors(folder).raw("a").tobytes() == F32
        else:
            with pytest.raises(ModelFileError, match=r"'a' differs between the shards 'm-\d"):
                open_safetensors(folder)


OUTSIDE = ["../m.safetensors", "/m.safetensors", "sub/m.safetensors", "m.bin", "model.safetensors.index.json",
           "a\0.safetensors", 7, None, ["m.safetensors"]]  # fmt: skip


@pytest.mark.parametrize("file", OUTSIDE)
def test_an_index_names_only_files_beside_it(tmp_path, file):
    (tmp_path / "sub").mkdir()
    for folder in (tmp_path, tmp_path / "sub"):
        save(folder / "m.safetensors", {"a": ("F32", [6], F32)})
    with pytest.raises(ModelFileError, match=r"index\.json: tensor 'a' is not in a file next to"):
        open_safetensors(index(tmp_path / "sub", {"a": file}))


def test_an_index_that_lies(tmp_path):
    save(tmp_path / "m.safetensors", {"a": ("F32", [6], F32)})
    with pytest.raises(ModelFileError, match=r"index\.json: tensor 'b' is not in the shard 'm\.safetensors'"):
        open_safetensors(index(tmp_path, {"a": "m.safetensors", "b": "m.safetensors"}))
    with pytest.raises(ModelFileError, match=r"gone\.safetensors: No such file"):
        open_safetensors(index(tmp_path, {"a": "gone.safetensors"}))
    with pytest.raises(ModelFileError, match="more than 1000 shards"):
        open_safetensors(index(tmp_path, {str(i): f"{i}.safetensors" for i in range(1001)}))
    for weight_map in (None, {}, ["a"]):
        with pytest.raises(ModelFileError, match="weight_map"):
            open_safetensors(index(tmp_path, weight_map))


def test_a_directory_without_weights(tmp_path):
    with pytest.raises(ModelFileError, match=r"neither model\.safetensors nor"):
        open_safetensors(tmp_path)


def test_json_files_that_are_none(tmp_path):
    with pytest.raises(ModelFileError, match=r"gone\.json: no such file"):
        read_json(tmp_path / "gone.json")
    with pytest.raises(ModelFileError, match="not a regular file"):
        read_json(tmp_path)
    (tmp_path / "big.json").write_bytes(b"")
    with (tmp_path / "big.json").open("r+b") as file:
        file.truncate(200_000_000)
    with pytest.raises(ModelFileError, match="longer than"):
        read_json(tmp_path / "big.json")


SEED = packed(
    {"__metadata__": {"format": "pt"}, "a": entry(), "b": entry("BF16", [2, 2], [24, 32])}, F32 + b"abcdefgh"
)


def test_mutants_raise_only_our_errors():
    fuzz(SafetensorsFile, SEED, 3000)


@pytest.mark.slow
def test_many_mutants_raise_only_our_errors():
    fuzz(SafetensorsFile, SEED, 50_000)
