// What every instruction set derives from its lanes: exp, tanh, erf, activations, bf16 rounding. Include one simd_*.h
// first: it defines V, I and their operations.
#pragma once

namespace {

// exp(x) = y * 2^n for -87 <= x <= 88; a NaN makes y one. t: n as an integer in its low bits.
struct ExpParts { V y, n, t; };
inline ExpParts exp_parts(V x) {
  V t = vfma(x, vset(num::kLog2e), vset(num::kRound)), n = vsub(t, vset(num::kRound));
  V r = vfma(n, vset(-num::kLn2Hi), x);
  r = vfma(n, vset(-num::kLn2Lo), r);
  V y = vset(num::kExp[0]);
  for (int i = 1; i < 6; ++i) y = vfma(y, r, vset(num::kExp[i]));
  return {vadd(vfma(y, vmul(r, r), r), vset(1.0f)), n, t};
}

// exp(x) from the parts of x or of its nearest value in range: 0 below -87.
inline V exp_of_parts(ExpParts e, V x) {
  const V low = vset(num::kExpMin);
#if defined(DRUT_SCALE_BY_POWER)
  return vscale_unless_less(x, low, e.y, e.n);
#else
  const V y = as_float(iadd(as_int(e.y), ishl(as_int(e.t), 23)));
  return vselect_nan(x, x, vselect_lt(x, low, vset(0.0f), y));
#endif
}

// exp: 0 below -87, saturates above 88; NaN stays NaN.
inline V vexp(V x) { return exp_of_parts(exp_parts(vmin(vset(num::kExpMax), vmax(vset(num::kExpMin), x))), x); }

// The same for x <= 0 or NaN.
inline V vexp_of_negative(V x) { return exp_of_parts(exp_parts(x), x); }

inline float sexp(float x) {
  float f[16];
  vstore(f, vexp(vset(x)));
  return f[0];
}

// tanh: an odd polynomial below 0.625; above, 1 - 2 / (exp(2|x|) + 1) with the sign of x. NaN stays NaN.
inline V vtanh(V x) {
  const V a = vabs(x), z = vmul(x, x);
  V p = vset(num::kTanh[0]);
  for (int i = 1; i < 5; ++i) p = vfma(p, z, vset(num::kTanh[i]));
  const V small = vfma(vmul(p, z), x, x);
  const V large = vsub(vset(1.0f), vdiv(vset(2.0f), vadd(vexp(vadd(a, a)), vset(1.0f))));
  const V y = vselect_lt(x, vset(0.0f), vsub(vset(0.0f), large), large);
  return vselect_lt(a, vset(0.625f), small, y);
}

// cap * tanh(x / cap), or x if cap is 0 (logit softcapping).
inline V softcap(V x, float cap) { return cap > 0 ? vmul(vset(cap), vtanh(vdiv(x, vset(cap)))) : x; }

// erf by Abramowitz and Stegun 7.1.26, error below 1.5e-7.
inline V verf(V x) {
  const V a = vabs(x), one = vset(1.0f), t = vdiv(one, vfma(vset(num::kErfScale), a, one));
  V p = vset(num::kErf[0]);
  for (int i = 1; i < 5; ++i) p = vfma(p, t, vset(num::kErf[i]));
  const V y = vsub(one, vmul(vmul(p, t), vexp(vsub(vset(0.0f), vmul(x, x)))));
  return vselect_lt(x, vset(0.0f), vsub(vset(0.0f), y), y);
}

// GELU: x / (1 + exp(-2y)) with y = sqrt(2/pi) * (x + 0.044715 x^3), the tanh approximation; or x * Phi(x) with erf.
inline V vgelu_tanh(V x) {
  const V cube = vmul(vmul(x, x), x), y2 = vmul(vset(num::kGeluTwice), vfma(vset(0.044715f), cube, x));
  return vdiv(x, vadd(vset(1.0f), vexp(vsub(vset(0.0f), y2))));
}
inline V vgelu_erf(V x) {
  return vmul(vmul(vset(0.5f), x), vadd(vset(1.0f), verf(vmul(x, vset(num::kSqrtHalf)))));
}

inline V vsilu(V x) { return vdiv(x, vadd(vset(1.0f), vexp(vsub(vset(0.0f), x)))); }

// Nearest bf16, ties to even, as a float whose low 16 bits are zero. NaN stays NaN.
inline V vround_bf16(V x) {
  I u = as_int(x), odd = iand(ishr(u, 16), iset(1));
  I r = iand(iadd(iadd(u, iset(0x7fff)), odd), iset(int32_t(0xffff0000)));
  return vselect_nan(x, as_float(iset(0x7fc00000)), as_float(r));
}

// A 32-bit lane holds the bf16 of an even element (low half) and of the odd element after it (high half). The dot
// product of such pairs is fma(odd), then fma(even), which is what VDPBF16PS computes with FTZ and DAZ. The other
// operand is a row in the format of the instruction set, in the same memory: floats rounded to bf16, or packed bf16
// pairs.
struct FloatPair { V odd, even; };
inline FloatPair bf16_floats(const void* p) {
  I pair = iload(p);
  return {as_float(iand(pair, iset(int32_t(0xffff0000)))), as_float(ishl(pair, 16))};
}
#if defined(DRUT_NATIVE_BF16)
struct Bf16Pair { I pair; };
inline Bf16Pair bf16_pair_load(const void* p) { return {iload(p)}; }
inline Bf16Pair bf16_pair_even(Bf16Pair b) { return {iand(b.pair, iset(0xffff))}; }
inline Bf16Pair bf16_pair_odd(Bf16Pair b) { return {iand(b.pair, iset(int32_t(0xffff0000)))}; }
inline V bf16_pair_dot(V acc, Bf16Pair b, const float* row, int pair) { return vdot_bf16(acc, b.pair, row + pair); }
inline void store_bf16(float* row, int i, V rounded) { vstore_bf16(reinterpret_cast<uint16_t*>(row) + i, rounded); }
// Rounds x, whose lanes are no subnormal numbers, and stores it. Returns the rounded values.
inline V round_and_store_bf16(float* row, int i, V x) { return vround_and_store_bf16(reinterpret_cast<uint16_t*>(row) + i, x); }
inline V load_stored_bf16(const float* row, int i) { return vload_bf16(reinterpret_cast<const uint16_t*>(row) + i); }
#else
using Bf16Pair = FloatPair;
inline Bf16Pair bf16_pair_load(const void* p) { return bf16_floats(p); }
inline Bf16Pair bf16_pair_even(Bf16Pair b) { return {vset(0.0f), b.even}; }
inline Bf16Pair bf16_pair_odd(Bf16Pair b) { return {b.odd, vset(0.0f)}; }
inline V bf16_pair_dot(V acc, Bf16Pair b, const float* row, int pair) {
  return vfma(vset(row[2 * pair]), b.even, vfma(vset(row[2 * pair + 1]), b.odd, acc));
}
inline void store_bf16(float* row, int i, V rounded) { vstore(row + i, rounded); }
inline V round_and_store_bf16(float* row, int i, V x) {
  const V rounded = vround_bf16(x);
  vstore(row + i, rounded);
  return rounded;
}
inline V load_stored_bf16(const float* row, int i) { return vload(row + i); }
#endif

}  // namespace
