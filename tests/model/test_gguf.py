from __future__ import annotations

import os
import resource
import struct

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from drut.errors import DrutError, ModelFileError
from drut.formats.encoding import ENCODINGS
from drut.model.weights.ggml_types import GGML_TYPES
from drut.model.weights.gguf import GGUFFile
from tests.model.fuzz import fuzz, memory_file
from tests.model.gguf_writer import ARRAY, F32, Q4_0, STRING, Tensor, Typed, gguf, string

A = Tensor("a", (4, 2), F32, np.arange(8, dtype="<f4").tobytes())
Q = Tensor("q", (32, 3), Q4_0, bytes(range(54)))


def opened(tmp_path, raw: bytes) -> GGUFFile:
    path = tmp_path / "m.gguf"
    path.write_bytes(raw)
    return GGUFFile(path)


def refused(tmp_path, raw: bytes, *words: str, error: type[DrutError] = ModelFileError) -> None:
    with pytest.raises(error) as caught:
        opened(tmp_path, raw)
    message = str(caught.value)
    assert "m.gguf" in message
    assert "\n" not in message
    for word in words:
        assert word in message


@pytest.mark.parametrize("version", [2, 3])
def test_reads_metadata_and_tensors(tmp_path, version):
    metadata = {
        "u8": Typed(0, 255), "i8": Typed(1, -1), "u16": Typed(2, 65535), "i16": Typed(3, -2), "u32": 7,
        "i32": Typed(5, -3),
        "f32": 0.5, "yes": True, "no": False, "text": "नमस्ते", "u64": Typed(10, 2**64 - 1),
        "i64": Typed(11, -(2**63)), "f64": Typed(12, 0.1), "words": ["", "a", "ह"], "floats": [1.0, -2.0],
        "bools": [True, False], "none": Typed(ARRAY, [], item=STRING),
    }  # fmt: skip
    file = opened(tmp_path, gguf(metadata, [A, Q], version=version))
    expected = {key: value.value if isinstance(value, Typed) else value for key, value in metadata.items()}
    assert dict(file.metadata) == expected
    assert [type(file.metadata[k]) for k in expected] == [type(v) for v in expected.values()]
    a, q = file.tensors["a"], file.tensors["q"]
    assert (a.shape, a.encoding, a.nbytes) == ((2, 4), "F32", 32)
    assert (q.shape, q.encoding, q.nbytes) == ((3, 32), "Q4_0", 54)
    np.testing.assert_array_equal(file.raw("a").view("<f4"), np.arange(8))
    assert file.raw("q").tobytes() == Q.data
    assert not file.raw("q").flags.writeable


def test_reads_what_the_reference_writer_writes(tmp_path):
    reference = pytest.importorskip("gguf")
    path = tmp_path / "m.gguf"
    writer = reference.GGUFWriter(path, "llama")
    writer.add_custom_alignment(64)
    writer.add_token_list(["a", "b"])
    writer.add_rope_freq_base(500000.0)
    weights = np.random.default_rng(0).standard_normal((3, 64)).astype(np.float32)
    writer.add_tensor("plain", weights)
    blocks = reference.quantize(weights, reference.GGMLQuantizationType.Q8_0)
    writer.add_tensor("blocks", blocks, raw_dtype=reference.GGMLQuantizationType.Q8_0)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    file = GGUFFile(path)
    assert file.metadata["general.architecture"] == "llama"
    assert file.metadata["tokenizer.ggml.tokens"] == ["a", "b"]
    assert file.metadata["llama.rope.freq_base"] == 500000.0
    np.testing.assert_array_equal(file.raw("plain").view("<f4").reshape(3, 64), weights)
    assert file.tensors["blocks"].shape == (3, 64)
    assert file.raw("blocks").tobytes() == blocks.tobytes()


def test_sizes_of_types_are_the_reference_s():
    reference = pytest.importorskip("gguf")
    for kind, (block, nbytes) in reference.GGML_QUANT_SIZES.items():
        if kind.value in GGML_TYPES:  # a newer reference may know more
            assert GGML_TYPES[kind.value] == (kind.name, block, nbytes)
    ours = {name: (block, nbytes) for name, block, nbytes in GGML_TYPES.values()}
    assert {e.name: (e.block, e.block_bytes) for e in ENCODINGS.values()}.items() <= ours.items()


def test_a_type_not_computed_with_is_listed(tmp_path):
    file = opened(tmp_path, gguf({}, [Tensor("k", (256, 2), 12, bytes(288))]))
    assert (file.tensors["k"].encoding, file.tensors["k"].nbytes) == ("Q4_K", 288)


def test_alignment_from_the_file(tmp_path):
    file = opened(tmp_path, gguf({"general.alignment": 256}, [A, Q], alignment=256))
    assert all(t.offset % 256 == 0 for t in file.tensors.values())
    assert file.raw("q").tobytes() == Q.data


def aligned(value: object) -> bytes:
    return gguf({"general.alignment": value}, [A])


PREAMBLE = gguf(n_keys=1)[:24]  # one key is to follow

HOSTILE = {
    "wrong magic": (gguf(magic=b"GGML"), ["not a GGUF file"]),
    "too short for a magic": (b"GG", ["not a GGUF file"]),
    "version 1": (gguf(version=1), ["version 1"]),
    "big-endian": (gguf(version=3 << 24), ["big-endian"]),
    "2^60 keys": (gguf(n_keys=1 << 60), ["key count"]),
    "2^60 tensors": (gguf(n_tensors=1 << 60), ["tensor count"]),
    "more keys than there are": (gguf({"a": "text" * 9}, n_keys=2)[:85], ["inside the name of key 1"]),
    "key past the end": (PREAMBLE + struct.pack("<Q", 1 << 63) + bytes(16), ["name of key 0"]),
    "key not UTF-8": (gguf([(b"\xff", 1)]), ["name of key 0", "UTF-8"]),
    "key twice": (gguf([("k", 1), ("k", 2)]), ["'k' occurs twice"]),
    "key with a line end": (gguf([("k\n\x1b", Typed(13, b""))]), [r"'k\n\x1b' has unknown value type 13"]),
    "string past the end": (PREAMBLE + string("k") + struct.pack("<IQ", 8, 1 << 62), ["'k' is a string of"]),
    "string not UTF-8": (gguf({"k": b"\xc3"}), ["'k' is not valid UTF-8"]),
    "boolean 2": (gguf({"k": Typed(7, 2)}), ["'k' has a boolean"]),
    "boolean array with 2": (gguf({"k": Typed(ARRAY, [0, 2], item=7)}), ["'k' has a boolean"]),
    "array of arrays": (gguf({"k": Typed(ARRAY, b"", item=ARRAY)}), ["'k' is an array of arrays"]),
    "array of unknown type": (gguf({"k": Typed(ARRAY, b"", item=77)}), ["'k' is an array of unknown type"]),
    "array of 2^61": (gguf({"k": Typed(ARRAY, b"", item=4, count=1 << 61)}), ["array length of key 'k'"]),
    "strings of 2^60": (gguf({"k": Typed(ARRAY, b"", item=8, count=1 << 60)}), ["array length of key 'k'"]),
    "array longer than the file": (gguf({"k": Typed(ARRAY, [1], count=99)}), ["array length of key 'k'"]),
    "array string past the end": (
        gguf({"k": Typed(ARRAY, string("a") + struct.pack("<Q", 1 << 63), item=8, count=2)}),
        ["string 1 of key 'k'"],
    ),
    "array string not UTF-8": (gguf({"k": ["a", b"\xff"]}), ["string 1 of key 'k'", "UTF-8"]),
    "alignment 0": (aligned(0), ["general.alignment"]),
    "alignment 48": (aligned(48), ["general.alignment"]),
    "alignment 2^31": (aligned(1 << 31), ["general.alignment"]),
    "alignment a string": (aligned("32"), ["general.alignment"]),
    "alignment an int64": (aligned(Typed(11, 32)), ["general.alignment"]),
    "tensor twice": (gguf({}, [A, A]), ["'a' occurs twice"]),
    "tensor of unknown type": (gguf({}, [Tensor("t", (4,), 99, bytes(16))]), ["'t' has unknown type 99"]),
    "no dimensions": (gguf({}, [Tensor("t", (), F32, bytes(32))]), ["'t' has 0 dimensions"]),
    "five dimensions": (gguf({}, [Tensor("t", (1,) * 5, F32, bytes(4))]), ["'t' has 5 dimensions"]),
    "2^32-1 dimensions": (gguf({}, [Tensor("t", (1,), F32, bytes(4), n_dims=2**32 - 1)]), ["dimensions"]),
    "dimension 0": (gguf({}, [Tensor("t", (4, 0), F32, b"")]), ["'t' has the impossible shape (0, 4)"]),
    "llama.cpp#26946: a zero dimension alone": (
        gguf({}, [Tensor("t.weight", (4, 0), F32, b"")]), ["'t.weight' has the impossible shape"]),
    "dimensions that wrap": (gguf({}, [Tensor("t", (2**32, 2**32), F32, b"")]), ["impossible shape"]),
    "not whole blocks": (gguf({}, [Tensor("t", (33,), Q4_0, bytes(36))]), ["'t' has rows of 33", "Q4_0"]),
    "offset not aligned": (gguf({}, [Tensor("t", (4,), F32, bytes(32), offset=4)]), ["'t' has offset 4"]),
    "offset 2^63": (gguf({}, [Tensor("t", (4,), F32, bytes(16), offset=1 << 63)]), ["'t' ends at byte"]),
    "overlap": (gguf({}, [Tensor("s", (16,), F32, bytes(64)), Tensor("t", (8,), F32, b"", offset=32)]),
                ["'s' and 't' overlap"]),
    "same place": (gguf({}, [A, Tensor("t", (4, 2), F32, b"", offset=0)]), ["overlap"]),
    "cut in the last tensor": (gguf({}, [A, Q])[:-33], ["'q' ends at byte", "truncated"]),
    "CVE-2026-7482: 4 bytes past the end": (
        gguf({}, [Tensor("t", (8,), F32, bytes(32))])[:-4], ["'t' ends at byte", "truncated"]),
}  # fmt: skip


@pytest.mark.parametrize("case", HOSTILE)
def test_hostile_files_are_one_line_errors(tmp_path, case):
    raw, words = HOSTILE[case]
    refused(tmp_path, raw, *words)


def test_every_cut_is_noticed(tmp_path):
    """CVE-2026-7482: declared sizes were trusted, and memory behind the file leaked into the weights."""
    whole = gguf({"words": ["a", "b"], "n": 1}, [A])
    assert len(opened(tmp_path, whole).tensors) == 1
    with memory_file() as path:
        for size in range(len(whole)):
            path.write_bytes(whole[:size])
            with pytest.raises(ModelFileError):
                GGUFFile(path)


def test_header_and_arrays_are_bounded(tmp_path, monkeypatch):
    raw = gguf({"a": [1, 2], "b": [3, 4]}, [A])
    with monkeypatch.context() as smaller:
        smaller.setattr("drut.model.weights.gguf.MAX_HEADER_BYTES", 64)
        refused(tmp_path, raw, "the name of key 1 lies past the first 64 bytes")
    monkeypatch.setattr("drut.model.weights.gguf.MAX_ARRAY_ITEMS", 3)  # over all arrays together
    refused(tmp_path, raw, "array length of key 'b' of 2")


@pytest.mark.parametrize("make", [lambda p: None, lambda p: p.mkdir(), lambda p: p.touch(), os.mkfifo],
                         ids=["missing", "directory", "empty", "fifo"])  # fmt: skip
def test_what_is_no_file_is_an_error(tmp_path, make):
    make(tmp_path / "m.gguf")
    with pytest.raises(ModelFileError, match=r"m\.gguf"):
        GGUFFile(tmp_path / "m.gguf")


def test_a_missing_tensor_and_a_shrunk_file(tmp_path):
    file = opened(tmp_path, gguf({}, [A]))
    with pytest.raises(ModelFileError, match="'b' is missing"):
        file.raw("b")
    os.truncate(file.path, 40)
    with pytest.raises(ModelFileError, match="became shorter"):
        file.raw("a")


def test_close_leaves_arrays_valid(tmp_path):
    file = opened(tmp_path, gguf({}, [Q]))
    raw = file.raw("q")
    file.close()
    assert raw.tobytes() == Q.data


def resident_file_kb() -> int:
    with open("/proc/self/status") as status:
        return next(int(line.split()[1]) for line in status if line.startswith("RssFile"))


def test_release_gives_pages_back(tmp_path):
    data = bytes(8 << 20)
    file = opened(tmp_path, gguf({}, [A, Tensor("t", (len(data) // 4,), F32, data)]))
    raw = file.raw("t")
    raw.sum()
    touched = resident_file_kb()
    file.release("t")
    assert touched - resident_file_kb() > 7000
    assert not raw.any()  # still readable


def test_a_large_vocabulary_opens_quickly(tmp_path):
    words = [f"token{i}" for i in range(49152)]
    file = opened(tmp_path, gguf({"tokens": words, "kinds": [1] * len(words), "merges": words}))
    assert file.metadata["tokens"] == words
    path = tmp_path / "m.gguf"

    def cpu() -> float:
        before = resource.getrusage(resource.RUSAGE_SELF).ru_utime
        GGUFFile(path)
        return resource.getrusage(resource.RUSAGE_SELF).ru_utime - before

    assert min(cpu() for _ in range(3)) < 0.15


VALUES = st.one_of(
    st.integers(0, 2**32 - 1), st.booleans(), st.text(max_size=9), st.floats(width=32, allow_nan=False),
    st.lists(st.text(max_size=5), min_size=1, max_size=5),
    st.lists(st.integers(0, 99), min_size=1, max_size=5),
)  # fmt: skip


@settings(max_examples=60, deadline=None)
@given(st.dictionaries(st.text(max_size=20).map("x.".__add__), VALUES, max_size=6))
def test_any_metadata_comes_back(metadata):
    with memory_file() as path:
        path.write_bytes(gguf(metadata))
        assert dict(GGUFFile(path).metadata) == metadata


SEED = gguf(
    {"general.alignment": 32, "general.architecture": "llama", "n": Typed(10, 5), "f": 1.0, "b": True,
     "tokens": ["a", "bc", "ह"], "scores": [0.0, 1.0], "flags": [True, False]},
    [A, Q],
)  # fmt: skip


def test_mutants_raise_only_our_errors():
    fuzz(GGUFFile, SEED, 3000)


@pytest.mark.slow
def test_many_mutants_raise_only_our_errors():
    fuzz(GGUFFile, SEED, 50_000)
