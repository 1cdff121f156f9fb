"""What is done to a valid model: its bytes, its JSON values, or the fields of its GGUF header."""

from __future__ import annotations

import json
import random
import struct
from dataclasses import replace
from typing import Any

from tests.fuzz.seeds import Seed, seeds
from tests.model.gguf_writer import ARRAY, SCALARS, STRING, Tensor, Typed, gguf

HUGE = [0, 1, -1, 2, 31, 2**16, 2**31 - 1, 2**31, 2**32 - 1, 2**32, 2**40, 2**53, 2**62, 2**63 - 1, 2**63, 2**64 - 1]
TEXTS = ["", "\0", "a" * 70_000, "é", "../../etc/passwd", "/dev/zero", "{{ 1 / 0 }}", "<0x-1>", "\ufffd", "Ġ", "nan",
         "{% for i in range(10**9) %}{% endfor %}", "(a+)+$", "llama", "qwen2", "F32", "BPE", "default", "yarn",
         "9" * 5000]
VALUES: list[Any] = [None, True, False, 0.0, -0.5, 1e308, 1e-320, float("nan"), float("inf"), [], {}, [[]], [None],
                     {"a": {}}, *TEXTS, *HUGE, [0] * 3, ["a"] * 3, [2**63], [-1], {"content": 5}, {"type": "Sequence"}]
EDGES = [b"\x00", b"\x01", b"\x7f", b"\x80", b"\xff", b"9", b'"', b"[", b"{", b"\\", b"-", b",", b":"]


def mutant(run: int, number: int) -> tuple[Seed, dict[str, bytes]]:
    """Mutant `number` of run `run`: its seed, and the files of it that changed."""
    dice = random.Random(f"{run}/{number}")
    seed = dice.choice(seeds())
    if seed.metadata is not None:
        return seed, {"model.gguf": _gguf(dice, seed)}
    name = dice.choice(sorted(seed.files))
    raw = seed.files[name]
    if dice.random() < 0.4:
        return seed, {name: bent(dice, raw, len(raw) if name.endswith(".json") else _header(raw))}
    if name.endswith(".json"):
        return seed, {name: _dumped(dice, _changed(dice, json.loads(raw)))}
    header = _dumped(dice, _changed(dice, json.loads(raw[8 : _header(raw)])))
    return seed, {name: struct.pack("<Q", len(header)) + header + raw[_header(raw) :]}


def _header(raw: bytes) -> int:
    return 8 + int.from_bytes(raw[:8], "little")


def bent(dice: random.Random, seed: bytes, header: int) -> bytes:
    """Bytes, most of them of the header, replaced, flipped, removed, repeated, or made numbers that overflow."""
    raw = bytearray(seed)
    for _ in range(dice.randint(1, 4)):
        at = dice.randrange(max(1, min(len(raw), header if dice.random() < 0.95 else len(raw))))
        match dice.randrange(6):
            case 0:
                raw[at : at + 1] = dice.choice(EDGES)
            case 1:
                raw[at : at + 1] = bytes([seed[at % len(seed)] ^ 1 << dice.randrange(8)])
            case 2:
                raw[at : at + 8] = struct.pack("<Q", dice.choice(HUGE) % 2**64)
            case 3:
                del raw[at : at + dice.randint(1, 9)]
            case 4:
                raw[at:at] = raw[at : at + dice.randint(1, 40)] * dice.choice([1, 1, 1, 200])
            case 5 if dice.random() < 0.3:
                del raw[at:]
    return bytes(raw)


def _changed(dice: random.Random, value: Any) -> Any:
    """A JSON value with one or two of its parts, at any depth, replaced, removed, doubled or put inside another."""
    for _ in range(dice.choice([1, 1, 2])):
        holder, key = _somewhere(dice, value)
        if holder is None:
            return dice.choice(VALUES)
        old = holder[key]
        match dice.randrange(8):
            case 0 | 1 | 2:
                holder[key] = dice.choice(VALUES)
            case 3:
                del holder[key]
            case 4:
                holder[key] = [old] * dice.choice([1, 2, 500])
            case 5:
                holder[key] = {"type": "Sequence", "normalizers": [old, old], "pretokenizers": [old], "x": old}
            case 6:
                holder[key] = _near(dice, old)
            case 7:
                other, name = _somewhere(dice, value)
                if other is not None:
                    holder[key] = other[name]
    return value


def _near(dice: random.Random, old: Any) -> Any:
    """A value of the same type."""
    if isinstance(old, bool):
        return not old
    if isinstance(old, int):
        return old + dice.choice([-1, 1, old, 2**31, 2**63])
    if isinstance(old, float):
        return old * dice.choice([-1, 0, 1e300, 1e-300])
    if isinstance(old, str):
        return bent(dice, old.encode() or b"a", 1 << 20).decode(errors="ignore")
    return old


def _somewhere(dice: random.Random, value: Any) -> tuple[Any, Any]:
    """A container within `value`, or itself, and a key of it; (None, None) where there is none."""
    found: tuple[Any, Any] = (None, None)
    while isinstance(value, (dict, list)) and value:
        key = dice.choice(list(value)) if isinstance(value, dict) else dice.randrange(len(value))
        found, value = (value, key), value[key]
        if dice.random() < 0.25:
            break
    return found


def _dumped(dice: random.Random, value: Any) -> bytes:
    try:
        text = json.dumps(value, ensure_ascii=dice.random() < 0.5)
    except (ValueError, RecursionError):  # a part was put inside itself
        text = "[" * 100_000
    if dice.random() < 0.02:
        text = text.replace(":", ":" + "[" * dice.choice([100, 100_000]), 1)
    return text.encode(errors="surrogatepass")


def _gguf(dice: random.Random, seed: Seed) -> bytes:
    raw = seed.files["model.gguf"]
    if dice.random() < 0.4:
        return bent(dice, raw, raw.rindex(b"ffn_down") + 64)
    assert seed.metadata is not None
    pairs: list[tuple[str | bytes, object]] = list(seed.metadata.items())
    tensors = list(seed.tensors)
    options: dict[str, Any] = {}
    for _ in range(dice.choice([1, 1, 2, 3])):
        match dice.randrange(10):
            case 0 | 1 | 2 | 3:
                i = dice.randrange(len(pairs))
                pairs[i] = (pairs[i][0], _gguf_value(dice, pairs[i][1]))
            case 4:
                del pairs[dice.randrange(len(pairs))]
            case 5:
                pairs.append(dice.choice([*pairs, (b"\xff", 1), ("", 1), ("split.count", 2)]))
            case 6 | 7:
                i = dice.randrange(len(tensors))
                tensors[i] = _tensor(dice, tensors[i])
            case 8:
                tensors.append(dice.choice(tensors))
            case 9:
                name = dice.choice(["n_keys", "n_tensors", "version", "alignment", "magic"])
                options[name] = b"GGML" if name == "magic" else dice.choice([1, 2, 8, 64, 2**20, 2**31]) \
                    if name in ("version", "alignment") else dice.choice(HUGE) % 2**64
    if options.get("alignment", 1) > 64:
        del options["alignment"]  # it would only make the file long
    options["version"] = options.get("version", 3) % 2**32
    return gguf(pairs, tensors, **options)


def _gguf_value(dice: random.Random, old: object) -> object:
    kinds = list(SCALARS)
    match dice.randrange(6):
        case 0:
            return Typed(STRING, dice.choice(TEXTS))
        case 1:
            return _number(dice, dice.choice(kinds))
        case 2:
            return Typed(dice.choice([13, 99, 2**32 - 1, ARRAY]), bytes(dice.randrange(20)))
        case 3 if isinstance(old, list):
            items = [*old]
            at = dice.randrange(len(items))
            items[at] = dice.choice(TEXTS) if isinstance(old[0], str) else dice.choice([0, 3, 6, 7, 2**31])
            return items[: dice.choice([at, len(items), len(items), len(items)])] or Typed(ARRAY, [], item=STRING)
        case 4 if isinstance(old, list):
            return Typed(ARRAY, old, item=STRING if isinstance(old[0], str) else 4,
                         count=dice.choice([0, 1, len(old) - 1, len(old) + 1, 2**32, 2**63, 2**64 - 1]))
        case 5:
            kind = dice.choice(kinds)
            return Typed(ARRAY, [_number(dice, kind).value for _ in range(dice.choice([0, 1, 260]))], item=kind)
    return _number(dice, 4)


def _number(dice: random.Random, kind: int) -> Typed:
    code = SCALARS[kind]
    if code in "fd":
        return Typed(kind, dice.choice([0.0, -1.0, float("nan"), float("inf"), 3e38]))
    bits = 8 * struct.calcsize(code)
    number = dice.choice([*HUGE, 3, 4, 5, 255, 257]) % 2**bits
    return Typed(kind, number - 2**bits if code.islower() and number >= 2 ** (bits - 1) else number)


def _tensor(dice: random.Random, t: Tensor) -> Tensor:
    def unsigned() -> int:
        return dice.choice(HUGE) % 2**64

    match dice.randrange(7):
        case 0:
            return replace(t, dims=tuple(unsigned() if dice.random() < 0.5 else d for d in t.dims))
        case 1:
            return replace(t, kind=dice.choice([*range(42), 2**32 - 1]))
        case 2:
            return replace(t, offset=dice.choice([unsigned(), 32, 64, 31]))
        case 3:
            return replace(t, n_dims=dice.choice([0, 1, 2, 3, 4, 5, 2**32 - 1]))
        case 4:
            return replace(t, dims=t.dims + (1,) * dice.choice([1, 2, 3, 9]))
        case 5:
            return replace(t, name=dice.choice([b"\xff", "", "a" * 70_000, "output.weight", "blk.0.attn_q.bias",
                                                "rope_freqs.weight", "\0"]))
    return replace(t, data=t.data[: dice.randrange(len(t.data))])
