// The 16 logical lanes as one AVX-512 register.
#pragma once
#include <immintrin.h>
#include "simd/numerics.h"

#define DRUT_UNROLL _Pragma("GCC unroll 12")

namespace {

constexpr int kTile = 12;        // (row, head) pairs of attention per load of K or V: 8 or 12
constexpr int kHalves = 2;        // halves of a panel's outputs per kernel call
constexpr int kMaxRows = 8;       // maximum of activation rows per kernel call
constexpr int kRegisterRows = 6;  // maximum of rows whose accumulators stay in registers
constexpr int kBlockRows = 12, kBlockVectors = 2;  // tile of attention for many rows, in registers
// Vectors of keys or values per tile of `rows` rows, limited by registers.
constexpr int vectors_at_once(int rows) { return rows <= 3 ? 4 : 2; }

struct V { __m512 v; };
struct I { __m512i v; };

inline V vset(float x) { return {_mm512_set1_ps(x)}; }
inline V vload(const float* p) { return {_mm512_loadu_ps(p)}; }
inline void vstore(float* p, V a) { _mm512_storeu_ps(p, a.v); }
inline V vadd(V a, V b) { return {_mm512_add_ps(a.v, b.v)}; }
inline V vsub(V a, V b) { return {_mm512_sub_ps(a.v, b.v)}; }
inline V vmul(V a, V b) { return {_mm512_mul_ps(a.v, b.v)}; }
inline V vdiv(V a, V b) { return {_mm512_div_ps(a.v, b.v)}; }
inline V vfma(V a, V b, V c) { return {_mm512_fmadd_ps(a.v, b.v, c.v)}; }
inline V vmax(V a, V b) { return {_mm512_max_ps(a.v, b.v)}; }
inline V vmin(V a, V b) { return {_mm512_min_ps(a.v, b.v)}; }
inline V vabs(V a) { return {_mm512_castsi512_ps(_mm512_and_si512(_mm512_castps_si512(a.v), _mm512_set1_epi32(0x7fffffff)))}; }
inline V vselect_lt(V a, V b, V yes, V no) { return {_mm512_mask_blend_ps(_mm512_cmp_ps_mask(a.v, b.v, _CMP_LT_OQ), no.v, yes.v)}; }
inline V vselect_nan(V a, V yes, V no) { return {_mm512_mask_blend_ps(_mm512_cmp_ps_mask(a.v, a.v, _CMP_UNORD_Q), no.v, yes.v)}; }
inline V vselect_first(int count, V yes, V no) {
  __mmask16 m = count >= 16 ? __mmask16(0xffff) : count <= 0 ? __mmask16(0) : __mmask16((1u << count) - 1);
  return {_mm512_mask_blend_ps(m, no.v, yes.v)};
}
// y times 2^n, or 0 if x < low.
#define DRUT_SCALE_BY_POWER
inline V vscale_unless_less(V x, V low, V y, V n) {
  return {_mm512_maskz_scalef_ps(_mm512_cmp_ps_mask(x.v, low.v, _CMP_NLT_UQ), y.v, n.v)};
}
inline V vload_half(const uint16_t* p) { return {_mm512_cvtph_ps(_mm256_loadu_si256((const __m256i*)p))}; }
inline V vload_bf16(const uint16_t* p) {
  return {_mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(_mm256_loadu_si256((const __m256i*)p)), 16))};
}
// 16 E4M3 values times 2^-8, by way of halves, whose exponent is one bit wider.
inline V vload_e4m3(const uint8_t* p) {
  __m256i h = _mm256_slli_epi16(_mm256_cvtepi8_epi16(_mm_loadu_si128((const __m128i*)p)), 7);
  return {_mm512_cvtph_ps(_mm256_and_si256(h, _mm256_set1_epi16(int16_t(0xbfff))))};
}

// E4M3 values of 32 outputs times 2^-8: even[h] and odd[h] are the two elements of each output of half h. The halves go
// through memory, because a load spreads them over the lanes for free, and a shuffle would need the port that converts.
inline void vload_e4m3_pairs(const uint8_t* p, V (&even)[2], V (&odd)[2]) {
  const __m512i two = _mm512_loadu_si512(p), bits = _mm512_set1_epi16(int16_t(0xbf80));
  alignas(64) uint16_t h[2][32];
  _mm512_store_si512(h[0], _mm512_and_si512(_mm512_srai_epi16(_mm512_slli_epi16(two, 8), 1), bits));
  _mm512_store_si512(h[1], _mm512_and_si512(_mm512_srai_epi16(two, 1), bits));
  asm("" : "+m"(h));
  for (int i = 0; i < 2; ++i) {
    even[i] = vload_half(h[0] + 16 * i);
    odd[i] = vload_half(h[1] + 16 * i);
  }
}

// Sum of the lanes: lane n + lane n+8, then +4, +2, +1.
inline float vsum(V x) {
  __m256 h = _mm256_add_ps(_mm512_castps512_ps256(x.v), _mm512_extractf32x8_ps(x.v, 1));
  __m128 q = _mm_add_ps(_mm256_castps256_ps128(h), _mm256_extractf128_ps(h, 1));
  q = _mm_add_ps(q, _mm_movehl_ps(q, q));
  return _mm_cvtss_f32(_mm_add_ss(q, _mm_movehdup_ps(q)));
}
inline float vmaximum(V x) {
  __m256 h = _mm256_max_ps(_mm512_castps512_ps256(x.v), _mm512_extractf32x8_ps(x.v, 1));
  __m128 q = _mm_max_ps(_mm256_castps256_ps128(h), _mm256_extractf128_ps(h, 1));
  q = _mm_max_ps(q, _mm_movehl_ps(q, q));
  return _mm_cvtss_f32(_mm_max_ss(q, _mm_movehdup_ps(q)));
}

inline I iset(int32_t x) { return {_mm512_set1_epi32(x)}; }
inline I ibroadcast(const void* p) {  // its four bytes in every lane
  int32_t x;
  memcpy(&x, p, 4);
  return iset(x);
}
// Makes the compiler keep x in a register, where it would load or compute it again for each use.
inline I in_registers(I x) {
  asm volatile("" : "+v"(x.v));
  return x;
}
inline I iload(const void* p) { return {_mm512_loadu_si512(p)}; }
inline I iand(I a, I b) { return {_mm512_and_si512(a.v, b.v)}; }
inline I iadd(I a, I b) { return {_mm512_add_epi32(a.v, b.v)}; }
inline I imax(I a, I b) { return {_mm512_max_epi32(a.v, b.v)}; }
inline int32_t imaximum(I a) {
  __m256i h = _mm256_max_epi32(_mm512_castsi512_si256(a.v), _mm512_extracti64x4_epi64(a.v, 1));
  __m128i q = _mm_max_epi32(_mm256_castsi256_si128(h), _mm256_extracti128_si256(h, 1));
  q = _mm_max_epi32(q, _mm_shuffle_epi32(q, 0x4e));
  return _mm_cvtsi128_si32(_mm_max_epi32(q, _mm_shuffle_epi32(q, 0xb1)));
}
inline I ior(I a, I b) { return {_mm512_or_si512(a.v, b.v)}; }
inline I ishl(I a, int s) { return {_mm512_slli_epi32(a.v, unsigned(s))}; }
inline I ishr(I a, int s) { return {_mm512_srli_epi32(a.v, unsigned(s))}; }
inline I ilookup(const uint8_t* table, I index) {
  return {_mm512_shuffle_epi8(_mm512_broadcast_i32x4(_mm_load_si128((const __m128i*)table)), index.v)};
}
inline I iload_u8(const uint8_t* p) { return {_mm512_cvtepu8_epi32(_mm_loadu_si128((const __m128i*)p))}; }
inline I iload_i8(const uint8_t* p) { return {_mm512_cvtepi8_epi32(_mm_loadu_si128((const __m128i*)p))}; }
inline V as_float(I a) { return {_mm512_castsi512_ps(a.v)}; }
inline I as_int(V a) { return {_mm512_castps_si512(a.v)}; }
inline V to_float(I a) { return {_mm512_cvtepi32_ps(a.v)}; }
inline void store_int8(int8_t* p, V a) {
  __m512 x = _mm512_min_ps(_mm512_max_ps(a.v, _mm512_set1_ps(-127.0f)), _mm512_set1_ps(127.0f));
  _mm_storeu_si128((__m128i*)p, _mm512_cvtepi32_epi8(_mm512_cvtps_epi32(x)));
}
inline int32_t byte_sum(const int8_t* p) {  // of 16 bytes
  __m128i s = _mm_dpbusd_epi32(_mm_setzero_si128(), _mm_set1_epi8(1), _mm_load_si128((const __m128i*)p));
  s = _mm_add_epi32(s, _mm_shuffle_epi32(s, 0x4e));
  return _mm_cvtsi128_si32(_mm_add_epi32(s, _mm_shuffle_epi32(s, 0xb1)));
}
#define DRUT_QUAD_TILES
// As assembly, because the compiler copies the sums of a tile to memory around the intrinsic.
inline I idot8(I acc, I u8, I s8) {
  asm("vpdpbusd %2, %1, %0" : "+v"(acc.v) : "v"(u8.v), "v"(s8.v));
  return acc;
}
inline I idot8(I acc, I u8, int32_t four) { return {_mm512_dpbusd_epi32(acc.v, u8.v, _mm512_set1_epi32(four))}; }
// acc + the dot product of the four 7-bit bytes of `four` with the four signed bytes of each lane.
inline I idot_signed(I acc, int32_t four, I s8) { return {_mm512_dpbusd_epi32(acc.v, _mm512_set1_epi32(four), s8.v)}; }
// Lanes hold at most 7 bits.
inline void store_bytes(uint8_t* p, I a) { _mm_storeu_si128((__m128i*)p, _mm512_cvtepi32_epi8(a.v)); }
inline I idot7(I acc, I u8, int32_t four) { return idot8(acc, u8, four); }
#if defined(DRUT_NATIVE_BF16)
inline void vstore_bf16(uint16_t* p, V rounded) {
  _mm256_storeu_si256((__m256i*)p, _mm512_cvtepi32_epi16(_mm512_srli_epi32(_mm512_castps_si512(rounded.v), 16)));
}
inline V vround_and_store_bf16(uint16_t* p, V x) {
  const __mmask16 nan = _mm512_cmp_ps_mask(x.v, x.v, _CMP_UNORD_Q);
  const __m256i b = _mm256_mask_set1_epi16((__m256i)_mm512_cvtneps_pbh(x.v), nan, 0x7fc0);
  _mm256_storeu_si256((__m256i*)p, b);
  return {_mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(b), 16))};
}
// Rounds a and then b to bf16 and stores them; their lanes are no subnormal numbers. Returns (sum + a) + b of the rounded
// values. NaNs are stored with their payload.
inline V vround_two_bf16(uint16_t* p, V a, V b, V sum) {
  alignas(64) static constexpr uint16_t kPairs[32] = {16, 0, 17, 1, 18, 2,  19, 3,  20, 4,  21, 5,  22, 6,  23, 7,
                                                      24, 8, 25, 9, 26, 10, 27, 11, 28, 12, 29, 13, 30, 14, 31, 15};
  const __m512i both = (__m512i)_mm512_cvtne2ps_pbh(b.v, a.v);
  _mm512_storeu_si512(p, both);
  const __m512i pairs = _mm512_permutexvar_epi16(_mm512_load_si512(kPairs), both);  // the odd element of a pair is added first
  return {_mm512_dpbf16_ps(sum.v, (__m512bh)pairs, (__m512bh)_mm512_set1_epi16(0x3f80))};
}
inline V vdot_bf16(V acc, I b, I pairs) { return {_mm512_dpbf16_ps(acc.v, (__m512bh)pairs.v, (__m512bh)b.v)}; }
// Multiplies the bf16 pair at `two` with every lane of b.
inline V vdot_bf16(V acc, I b, const float* two) { return vdot_bf16(acc, b, ibroadcast(two)); }
#endif

}  // namespace
