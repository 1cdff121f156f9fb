"""The float numerics every kernel is built on, against exact arithmetic and published vectors."""

from __future__ import annotations

import ctypes
import math
import struct
from decimal import Decimal, localcontext
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from drut.kernels.native import library
from drut.kernels.numpy import sampling as twin
from tests.kernels.rig import F32

lib = library.load()
needs_library = pytest.mark.skipif(lib is None, reason="the native kernels are not built")

# ctr, key, out: the known answers published with Random123.
PHILOX = [
    ("00000000 00000000 00000000 00000000", "00000000 00000000", "6627e8d5 e169c58d bc57ac4c 9b00dbd8"),
    ("ffffffff ffffffff ffffffff ffffffff", "ffffffff ffffffff", "408f276d 41c83b0e a20bc7c6 6d5451fd"),
    ("243f6a88 85a308d3 13198a2e 03707344", "a4093822 299f31d0", "d16cfe09 94fdcceb 5001e420 24126ea1"),
]
PI = Decimal("3.14159265358979323846264338327950288419716939937510582097494459230781640628620899862803482534211706798")


def float_of(bits: int) -> float:
    return struct.unpack("<f", struct.pack("<I", bits))[0]


def bits_of(x: float) -> int:
    return struct.unpack("<I", struct.pack("<f", x))[0]


def nearest_float(x: Fraction) -> float:
    """`x` rounded once to binary32, ties to even, with subnormals; infinity past the largest."""
    if x == 0:
        return 0.0
    magnitude = abs(x)
    exponent = magnitude.numerator.bit_length() - magnitude.denominator.bit_length()
    if Fraction(2) ** exponent > magnitude:
        exponent -= 1
    step = Fraction(2) ** (max(exponent, -126) - 23)
    rounded = round(magnitude / step) * step  # round() takes ties to even
    if rounded >= Fraction(2) ** 128:
        return math.copysign(math.inf, x)
    return math.copysign(float(rounded), x)


def exact_fma(a: float, b: float, c: float) -> float:
    """a * b + c of finite numbers with one rounding; a zero sum has the sign IEEE 754 gives it."""
    total = Fraction(a) * Fraction(b) + Fraction(c)
    if total:
        return nearest_float(total)
    product_sign = math.copysign(1, a) * math.copysign(1, b)
    both_zero = (a == 0 or b == 0) and c == 0
    return math.copysign(0.0, c) if both_zero and product_sign == math.copysign(1, c) else 0.0


any_float = st.integers(0, 2**32 - 1).map(float_of)
# Few significant bits, so that products are short and their sums with c are ties or close to ties.
MANTISSAS = [1, 3, 2**11 + 1, 2**12 - 1, 2**23 + 1, 2**24 - 1]
short_float = st.builds(lambda m, e, s: s * m * 2.0**e, st.sampled_from(MANTISSAS), st.integers(-60, 40),
                        st.sampled_from([-1.0, 1.0]))


@needs_library
@settings(max_examples=500, deadline=None)
@given(st.one_of(st.tuples(any_float, any_float, any_float), st.tuples(short_float, short_float, short_float)))
@example((1 + 2.0**-12, 1 + 2.0**-12, 2.0**-60))  # just above a tie of binary32; binary64 rounds it to the tie
@example((1 + 2.0**-12, 1 + 2.0**-12, -(2.0**-60)))
@example((-1 - 2.0**-12, 1 + 2.0**-12, 2.0**-60))
@example((-1 - 2.0**-12, 1 + 2.0**-12, 0.0))  # the tie itself
@example((2.0**-75, 2.0**-75, 2.0**-149))  # the middle of two subnormals
@example((2.0**-75, 2.0**-75, 0.0))
@example((2.0**127, 2.0, -(2.0**104)))  # the largest float's neighbour and back
@example((2.0**64, 2.0**64, -(2.0**103)))  # half way past the largest
@example((0.0, -5.0, -0.0))
@example((-0.0, 5.0, 0.0))
@example((3.0, -5.0, 15.0))
def test_soft_fma_rounds_once(abc: tuple[float, float, float]) -> None:
    got = lib.drut_soft_fma(*abc)
    if all(math.isfinite(x) for x in abc):
        assert bits_of(got) == bits_of(exact_fma(*abc))
    else:
        with np.errstate(all="ignore"):
            wanted = float(np.float64(abc[0]) * np.float64(abc[1]) + np.float64(abc[2]))
        assert got == wanted or (math.isnan(got) and math.isnan(wanted))


@needs_library
def test_soft_fma_just_beside_ties() -> None:
    """Sums half way between two floats, and sums that differ from that by less than binary64 resolves."""
    rng = np.random.default_rng(0)
    halves = [(0.5, 1.0), (0.5 + 2.0**-24, 1 - 2.0**-23), (641.0, 6700417 * 2.0**-33)]  # 1/2; - 2^-47; + 2^-33
    for _ in range(500):
        scale, whole = 2.0 ** int(rng.integers(-60, 60)), float(rng.integers(2**23, 2**24)) * rng.choice([-1, 1])
        for a, b in halves:
            for sign in (-1, 1):
                abc = sign * a * scale, b, whole * scale
                assert lib.drut_soft_fma(*abc) == exact_fma(*abc), abc


def sine_and_cosine(x: float) -> tuple[Decimal, Decimal]:
    """To some forty digits, by reduction with pi itself and Taylor's series."""
    with localcontext() as context:
        context.prec = 60
        quarter = int(Decimal(x) * 2 / PI + Decimal("0.5"))
        r = Decimal(x) - quarter * PI / 2
        sine = cosine = Decimal(0)
        term = Decimal(1)
        for i in range(0, 50, 2):
            cosine += term
            sine += term * r / (i + 1)
            term *= -r * r / ((i + 1) * (i + 2))
        return [(sine, cosine), (cosine, -sine), (-sine, -cosine), (-cosine, sine)][quarter % 4]


@needs_library
def test_sincos() -> None:
    """Of angles up to 2^20.6, positions of a million included, within 2e-15; then of the worst multiples of pi / 4."""
    rng = np.random.default_rng(0)
    positions = [0, 1, 2, 3, 255, 256, 8191, 131071, 999_999, 1_000_000]
    angles = [p * 10000.0 ** (-i / 32) for p in positions for i in (0, 1, 5, 16, 31)]
    angles += [float(x) for x in 2.0 ** rng.uniform(-30, 20.6, 1000)]
    angles += [math.nextafter(n * math.pi / 4, towards) for n in (1, 2, 3, 4, 5, 1000, 77777, 1_270_000)
               for towards in (0.0, 1e9)]
    s, c = ctypes.c_double(), ctypes.c_double()
    for x in angles:
        lib.drut_sincos(x, ctypes.byref(s), ctypes.byref(c))
        sine, cosine = sine_and_cosine(x)
        assert abs(Decimal(s.value) - sine) < Decimal("2e-15"), x
        assert abs(Decimal(c.value) - cosine) < Decimal("2e-15"), x


@needs_library
def test_log() -> None:
    """Within one unit in the last place, from the smallest normal float to the largest, and near 1."""
    rng = np.random.default_rng(0)
    bits = np.concatenate([rng.integers(0x00800000, 0x7F800000, 20000), np.arange(0x3F800000 - 500, 0x3F800000 + 500),
                           [0x00800000, 0x7F7FFFFF, 0x3F3504F3, 0x3F3504F4]])  # and both sides of sqrt(1/2)
    x = bits.astype(np.uint32).view(np.float32)
    got = np.array([lib.drut_log(float(v)) for v in x])
    exact = np.log(x.astype(np.float64))
    assert (np.abs(got - exact) <= np.spacing(np.abs(exact.astype(np.float32)))).all()


def philox(key: list[int], counter: list[int]) -> list[int]:
    words = (ctypes.c_uint32 * 4)(*counter)
    lib.drut_philox(key[0], key[1], words)
    return list(words)


def philox_twin(key: list[int], counter: list[int]) -> list[int]:
    return [int(c[0]) for c in twin.philox(key[0] | key[1] << 32, [np.array([w], np.uint64) for w in counter])]


@pytest.mark.parametrize("implementation", [pytest.param(philox, marks=needs_library), philox_twin])
@pytest.mark.parametrize(("counter", "key", "out"), PHILOX)
def test_philox_known_answers(implementation, counter: str, key: str, out: str) -> None:
    words = [[int(word, 16) for word in text.split()] for text in (key, counter)]
    assert " ".join(f"{word:08x}" for word in implementation(*words)) == out


word = st.integers(0, 2**32 - 1)


@needs_library
@settings(max_examples=200, deadline=None)
@given(st.lists(word, min_size=2, max_size=2), st.lists(word, min_size=4, max_size=4))
def test_philox_is_its_twin(key: list[int], counter: list[int]) -> None:
    assert philox(key, counter) == philox_twin(key, counter)


def native_gumbel(seed: int, position: int, choice: int, ids: np.ndarray, purpose: int = 0) -> F32:
    return np.array([lib.drut_gumbel(seed, position, choice, int(i), purpose) for i in ids], np.float32)


@needs_library
@settings(max_examples=50, deadline=None)
@given(st.integers(0, 2**64 - 1), word, word, word, word)
def test_gumbel_is_its_twin(seed: int, position: int, choice: int, token: int, purpose: int) -> None:
    """To the roundings of two logarithms; each of the five keys takes part."""
    ids = np.array([token])
    got = native_gumbel(seed, position, choice, ids, purpose)
    np.testing.assert_allclose(got, twin.gumbel(seed, position, choice, ids, purpose), rtol=3e-7, atol=3e-7)


@pytest.mark.parametrize("implementation", [pytest.param(native_gumbel, marks=needs_library), twin.gumbel])
def test_gumbel_is_distributed_as_it_should(implementation) -> None:
    """Kolmogorov-Smirnov against exp(-exp(-x)), over token ids and again over seeds."""
    n = 20000
    by_token = implementation(7, 3, 0, np.arange(n))
    by_seed = np.array([implementation(seed << 31, 3, 0, np.array([5]))[0] for seed in range(n // 10)])
    for sample in (by_token, by_seed):
        assert sample.min() > -2.82
        assert sample.max() < 16.64
        x, m = np.sort(sample.astype(np.float64)), len(sample)
        distance = np.abs(np.exp(-np.exp(-x)) - (np.arange(m) + 0.5) / m).max() + 0.5 / m
        assert distance < 1.95 / math.sqrt(m)  # one in a thousand sets is farther off
