// Float numerics of Drut, scalar form. Everything is defined by IEEE binary32 and binary64 operations in a written
// order (docs/numerics.md), so every instruction set gives the same bits. No libm, no estimates.
#pragma once
#include <cstdint>
#include <cstring>

namespace {
namespace num {

inline uint32_t bits(float x) { uint32_t u; memcpy(&u, &x, 4); return u; }
inline float from_bits(uint32_t u) { float x; memcpy(&x, &u, 4); return x; }

// Fused multiply-add with one rounding, from binary64 operations alone. The product of two binary32 is exact in
// binary64. The sum is rounded to odd, so that the final rounding to binary32 is not a second rounding.
inline float soft_fma(float a, float b, float c) {
  double p = double(a) * double(b), s = p + double(c);
  double bb = s - p, err = (p - (s - bb)) + (double(c) - bb);
  uint64_t u;
  memcpy(&u, &s, 8);
  // err is NaN if s is not finite: both comparisons are then false and s is kept.
  if ((err > 0 || err < 0) && !(u & 1)) {
    u += ((err > 0) == (s > 0)) ? 1 : uint64_t(-1);
    memcpy(&s, &u, 8);
  }
  return float(s);
}

inline float fma(float a, float b, float c) {
#if defined(__FMA__) || defined(__aarch64__)
  return __builtin_fmaf(a, b, c);
#else
  return soft_fma(a, b, c);
#endif
}

inline float half_to_float(uint16_t h) {
  uint32_t sign = uint32_t(h & 0x8000) << 16, exponent = (h >> 10) & 31, mantissa = h & 1023;
  if (exponent == 31) return from_bits(sign | 0x7f800000 | (mantissa ? (mantissa << 13) | 0x400000 : 0));
  if (exponent) return from_bits(sign | ((exponent + 112) << 23) | (mantissa << 13));
  float magnitude = float(int(mantissa)) * 0x1p-24f;  // subnormal halves are normal in binary32
  return sign ? -magnitude : magnitude;
}

// Returns 2^-8 times the E4M3 value, exactly. NaNs (all bits but the sign set) are rejected when weights are packed.
inline float e4m3_to_float(uint8_t b) { return half_to_float(uint16_t((b & 0x80) << 8 | (b & 0x7f) << 7)); }

// Rounds to nearest even. A NaN keeps its sign and becomes quiet.
inline uint16_t float_to_bf16(float x) {
  uint32_t u = bits(x);
  if ((u & 0x7fffffff) > 0x7f800000) return uint16_t((u >> 16) | 0x40);
  return uint16_t((u + 0x7fff + ((u >> 16) & 1)) >> 16);
}
inline float bf16_to_float(uint16_t b) { return from_bits(uint32_t(b) << 16); }

// Constants of exp and log. The vector functions in simd.h use the same ones in the same order.
constexpr float kLog2e = 1.44269504088896341f, kLn2Hi = 0.693359375f, kLn2Lo = -2.12194440e-4f;
constexpr float kExpMin = -87.0f, kExpMax = 88.0f, kRound = 12582912.0f;  // 1.5 * 2^23: adding it rounds to integer
constexpr float kExp[6] = {1.9875691500e-4f, 1.3981999507e-3f, 8.3334519073e-3f,
                           4.1665795894e-2f, 1.6666665459e-1f, 5.0000001201e-1f};
constexpr float kLog[9] = {7.0376836292e-2f,  -1.1514610310e-1f, 1.1676998740e-1f, -1.2420140846e-1f, 1.4249322787e-1f,
                           -1.6668057665e-1f, 2.0000714765e-1f,  -2.4999993993e-1f, 3.3333331174e-1f};

constexpr float kTanh[5] = {-5.70498872745e-3f, 2.06390887954e-2f, -5.37397155531e-2f, 1.33314422036e-1f, -3.33332819422e-1f};

constexpr float kErfScale = 0.3275911f, kSqrtHalf = 0.70710678118f, kGeluTwice = 1.5957691216f;  // 2 * sqrt(2/pi)
constexpr float kErf[5] = {1.061405429f, -1.453152027f, 1.421413741f, -0.284496736f, 0.254829592f};

// log of a positive normal binary32.
inline float log(float x) {
  uint32_t u = bits(x);
  int e = int(u >> 23) - 126;
  float m = from_bits((u & 0x7fffff) | 0x3f000000);  // in [0.5, 1)
  if (m < 0.70710678118f) { m = m + m; e -= 1; }
  float t = m - 1.0f, z = t * t, y = kLog[0];
  for (int i = 1; i < 9; ++i) y = fma(y, t, kLog[i]);
  y = (t * y) * z;
  y = fma(float(e), kLn2Lo, y);
  y = fma(z, -0.5f, y);
  return fma(float(e), kLn2Hi, t + y);
}

// sin and cos in binary64 for 0 <= x < 2^21, each within 2e-15; used for rope, rounded once to binary32 by the caller.
inline void sincos(double x, double* s, double* c) {
  // pi/2 in three parts of 33, 33 and 53 bits: n * part is exact for n < 2^20.
  constexpr double p1 = 1.5707963267341256e+00, p2 = 6.0771005063039660e-11, p3 = 2.0222662487959506e-21;
  double n = double(int64_t(x * 0.63661977236758134 + 0.5));
  double r = ((x - n * p1) - n * p2) - n * p3, z = r * r;
  // Series to r^15 and r^16; |r| <= pi/4 leaves less than 1e-16.
  constexpr double S[7] = {-1.0 / 1307674368000.0, 1.0 / 6227020800.0, -1.0 / 39916800.0, 1.0 / 362880.0,
                           -1.0 / 5040.0, 1.0 / 120.0, -1.0 / 6.0};
  constexpr double C[8] = {1.0 / 20922789888000.0, -1.0 / 87178291200.0, 1.0 / 479001600.0, -1.0 / 3628800.0,
                           1.0 / 40320.0, -1.0 / 720.0, 1.0 / 24.0, -0.5};
  double ps = S[0];
  for (int i = 1; i < 7; ++i) ps = ps * z + S[i];
  double pc = C[0];
  for (int i = 1; i < 8; ++i) pc = pc * z + C[i];
  double sine = r + r * z * ps, cosine = 1.0 + z * pc;
  int q = int(int64_t(n) & 3);
  *s = (q == 0) ? sine : (q == 1) ? cosine : (q == 2) ? -sine : -cosine;
  *c = (q == 0) ? cosine : (q == 1) ? -sine : (q == 2) ? -cosine : sine;
}

// Philox4x32-10 (Salmon et al., SC'11). Key: two words; counter: four words, replaced by the output.
inline void philox(uint32_t k0, uint32_t k1, uint32_t c[4]) {
  for (int round = 0; round < 10; ++round) {
    uint64_t a = uint64_t(0xD2511F53u) * c[0], b = uint64_t(0xCD9E8D57u) * c[2];
    uint32_t n0 = uint32_t(b >> 32) ^ c[1] ^ k0, n2 = uint32_t(a >> 32) ^ c[3] ^ k1;
    c[1] = uint32_t(b);
    c[3] = uint32_t(a);
    c[0] = n0;
    c[2] = n2;
    k0 += 0x9E3779B9u;
    k1 += 0xBB67AE85u;
  }
}

// Standard Gumbel noise of one token id at one (position, choice, purpose). u has 23 bits and is never 0 or 1.
inline float gumbel(uint64_t seed, uint32_t position, uint32_t choice, uint32_t token, uint32_t purpose) {
  uint32_t c[4] = {position, choice, token, purpose};
  philox(uint32_t(seed), uint32_t(seed >> 32), c);
  float u = (float(int(c[0] >> 9)) + 0.5f) * 0x1p-23f;
  return -log(-log(u));
}

}  // namespace num
}  // namespace
