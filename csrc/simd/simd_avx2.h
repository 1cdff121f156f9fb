// The 16 logical lanes as two AVX2 registers of 8.
#pragma once
#include <immintrin.h>
#include "simd/numerics.h"

#define DRUT_UNROLL _Pragma("GCC unroll 8")

namespace {

constexpr int kTile = 8;          // (row, head) pairs of attention per load of K or V: 8 or 12
constexpr int kHalves = 1;        // halves of a panel's outputs per kernel call
constexpr int kMaxRows = 4;       // maximum of activation rows per kernel call
constexpr int kRegisterRows = 4;  // maximum of rows whose accumulators stay in registers
constexpr int kBlockRows = 6, kBlockVectors = 1;  // tile of attention for many rows, in registers
constexpr int vectors_at_once(int) { return 1; }  // vectors of keys or values per row tile, limited by registers

struct V { __m256 a, b; };
struct I { __m256i a, b; };


inline V vset(float x) { return {_mm256_set1_ps(x), _mm256_set1_ps(x)}; }
inline V vload(const float* p) { return {_mm256_loadu_ps(p), _mm256_loadu_ps(p + 8)}; }
inline void vstore(float* p, V x) { _mm256_storeu_ps(p, x.a); _mm256_storeu_ps(p + 8, x.b); }
inline V vadd(V x, V y) { return {_mm256_add_ps(x.a, y.a), _mm256_add_ps(x.b, y.b)}; }
inline V vsub(V x, V y) { return {_mm256_sub_ps(x.a, y.a), _mm256_sub_ps(x.b, y.b)}; }
inline V vmul(V x, V y) { return {_mm256_mul_ps(x.a, y.a), _mm256_mul_ps(x.b, y.b)}; }
inline V vdiv(V x, V y) { return {_mm256_div_ps(x.a, y.a), _mm256_div_ps(x.b, y.b)}; }
inline V vfma(V x, V y, V z) { return {_mm256_fmadd_ps(x.a, y.a, z.a), _mm256_fmadd_ps(x.b, y.b, z.b)}; }
inline V vmax(V x, V y) { return {_mm256_max_ps(x.a, y.a), _mm256_max_ps(x.b, y.b)}; }
inline V vmin(V x, V y) { return {_mm256_min_ps(x.a, y.a), _mm256_min_ps(x.b, y.b)}; }
inline V vabs(V x) {
  const __m256 mask = _mm256_castsi256_ps(_mm256_set1_epi32(0x7fffffff));
  return {_mm256_and_ps(x.a, mask), _mm256_and_ps(x.b, mask)};
}
inline V vselect_lt(V x, V y, V yes, V no) {
  return {_mm256_blendv_ps(no.a, yes.a, _mm256_cmp_ps(x.a, y.a, _CMP_LT_OQ)),
          _mm256_blendv_ps(no.b, yes.b, _mm256_cmp_ps(x.b, y.b, _CMP_LT_OQ))};
}
inline V vselect_nan(V x, V yes, V no) {
  return {_mm256_blendv_ps(no.a, yes.a, _mm256_cmp_ps(x.a, x.a, _CMP_UNORD_Q)),
          _mm256_blendv_ps(no.b, yes.b, _mm256_cmp_ps(x.b, x.b, _CMP_UNORD_Q))};
}
inline V vselect_first(int count, V yes, V no) {
  const __m256i lane = _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7);
  __m256i low = _mm256_cmpgt_epi32(_mm256_set1_epi32(count), lane);
  __m256i high = _mm256_cmpgt_epi32(_mm256_set1_epi32(count - 8), lane);
  return {_mm256_blendv_ps(no.a, yes.a, _mm256_castsi256_ps(low)), _mm256_blendv_ps(no.b, yes.b, _mm256_castsi256_ps(high))};
}
inline V vload_half(const uint16_t* p) {
  return {_mm256_cvtph_ps(_mm_loadu_si128((const __m128i*)p)), _mm256_cvtph_ps(_mm_loadu_si128((const __m128i*)(p + 8)))};
}
inline V vload_bf16(const uint16_t* p) {
  auto part = [p](int i) {
    return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(_mm_loadu_si128((const __m128i*)(p + i))), 16));
  };
  return {part(0), part(8)};
}
// 16 E4M3 values times 2^-8, by way of halves, whose exponent is one bit wider.
inline V vload_e4m3(const uint8_t* p) {
  __m256i h = _mm256_slli_epi16(_mm256_cvtepi8_epi16(_mm_loadu_si128((const __m128i*)p)), 7);
  h = _mm256_and_si256(h, _mm256_set1_epi16(int16_t(0xbfff)));
  return {_mm256_cvtph_ps(_mm256_castsi256_si128(h)), _mm256_cvtph_ps(_mm256_extracti128_si256(h, 1))};
}

// E4M3 values of 32 outputs times 2^-8: even[h] and odd[h] are the two elements of each output of half h.
inline void vload_e4m3_pairs(const uint8_t* p, V (&even)[2], V (&odd)[2]) {
  auto widen = [](__m256i h) {
    h = _mm256_and_si256(_mm256_srai_epi16(h, 1), _mm256_set1_epi16(int16_t(0xbf80)));
    return V{_mm256_cvtph_ps(_mm256_castsi256_si128(h)), _mm256_cvtph_ps(_mm256_extracti128_si256(h, 1))};
  };
  for (int i = 0; i < 2; ++i) {
    const __m256i two = _mm256_loadu_si256((const __m256i*)p + i);
    even[i] = widen(_mm256_slli_epi16(two, 8));
    odd[i] = widen(two);
  }
}

// Sum of the lanes: lane n + lane n+8, then +4, +2, +1.
inline float vsum(V x) {
  __m256 h = _mm256_add_ps(x.a, x.b);
  __m128 q = _mm_add_ps(_mm256_castps256_ps128(h), _mm256_extractf128_ps(h, 1));
  q = _mm_add_ps(q, _mm_movehl_ps(q, q));
  return _mm_cvtss_f32(_mm_add_ss(q, _mm_movehdup_ps(q)));
}
inline float vmaximum(V x) {
  __m256 h = _mm256_max_ps(x.a, x.b);
  __m128 q = _mm_max_ps(_mm256_castps256_ps128(h), _mm256_extractf128_ps(h, 1));
  q = _mm_max_ps(q, _mm_movehl_ps(q, q));
  return _mm_cvtss_f32(_mm_max_ss(q, _mm_movehdup_ps(q)));
}

inline I iset(int32_t x) { return {_mm256_set1_epi32(x), _mm256_set1_epi32(x)}; }
inline I iload(const void* p) {
  return {_mm256_loadu_si256((const __m256i*)p), _mm256_loadu_si256((const __m256i*)p + 1)};
}
inline I iand(I x, I y) { return {_mm256_and_si256(x.a, y.a), _mm256_and_si256(x.b, y.b)}; }
inline I iadd(I x, I y) { return {_mm256_add_epi32(x.a, y.a), _mm256_add_epi32(x.b, y.b)}; }
inline I imax(I x, I y) { return {_mm256_max_epi32(x.a, y.a), _mm256_max_epi32(x.b, y.b)}; }
inline int32_t imaximum(I x) {
  __m256i m = _mm256_max_epi32(x.a, x.b);
  __m128i h = _mm_max_epi32(_mm256_castsi256_si128(m), _mm256_extracti128_si256(m, 1));
  h = _mm_max_epi32(h, _mm_shuffle_epi32(h, 0x4e));
  h = _mm_max_epi32(h, _mm_shuffle_epi32(h, 0xb1));
  return _mm_cvtsi128_si32(h);
}
inline I ior(I x, I y) { return {_mm256_or_si256(x.a, y.a), _mm256_or_si256(x.b, y.b)}; }
inline I ishl(I x, int s) { return {_mm256_slli_epi32(x.a, s), _mm256_slli_epi32(x.b, s)}; }
inline I ishr(I x, int s) { return {_mm256_srli_epi32(x.a, s), _mm256_srli_epi32(x.b, s)}; }
inline I ilookup(const uint8_t* table, I index) {
  __m256i t = _mm256_broadcastsi128_si256(_mm_load_si128((const __m128i*)table));
  return {_mm256_shuffle_epi8(t, index.a), _mm256_shuffle_epi8(t, index.b)};
}
inline I iload_u8(const uint8_t* p) {
  return {_mm256_cvtepu8_epi32(_mm_loadl_epi64((const __m128i*)p)), _mm256_cvtepu8_epi32(_mm_loadl_epi64((const __m128i*)(p + 8)))};
}
inline I iload_i8(const uint8_t* p) {
  return {_mm256_cvtepi8_epi32(_mm_loadl_epi64((const __m128i*)p)), _mm256_cvtepi8_epi32(_mm_loadl_epi64((const __m128i*)(p + 8)))};
}
inline V as_float(I x) { return {_mm256_castsi256_ps(x.a), _mm256_castsi256_ps(x.b)}; }
inline I as_int(V x) { return {_mm256_castps_si256(x.a), _mm256_castps_si256(x.b)}; }
inline V to_float(I x) { return {_mm256_cvtepi32_ps(x.a), _mm256_cvtepi32_ps(x.b)}; }
inline void store_int8(int8_t* p, V x) {
  V c = vmin(vmax(x, vset(-127.0f)), vset(127.0f));
  __m256i words = _mm256_packs_epi32(_mm256_cvtps_epi32(c.a), _mm256_cvtps_epi32(c.b));
  words = _mm256_permute4x64_epi64(words, 0xd8);  // the pack works in 128-bit halves
  _mm_storeu_si128((__m128i*)p, _mm_packs_epi16(_mm256_castsi256_si128(words), _mm256_extracti128_si256(words, 1)));
}
inline int32_t byte_sum(const int8_t* p) {  // of 16 bytes
  __m128i pairs = _mm_maddubs_epi16(_mm_set1_epi8(1), _mm_load_si128((const __m128i*)p));
  __m128i s = _mm_madd_epi16(pairs, _mm_set1_epi16(1));
  s = _mm_add_epi32(s, _mm_shuffle_epi32(s, 0x4e));
  return _mm_cvtsi128_si32(_mm_add_epi32(s, _mm_shuffle_epi32(s, 0xb1)));
}
#if defined(__AVXVNNI__)
inline __m256i dot_bytes(__m256i acc, __m256i u8, __m256i s8) { return _mm256_dpbusd_avx_epi32(acc, u8, s8); }
#elif defined(__AVX512VNNI__)
inline __m256i dot_bytes(__m256i acc, __m256i u8, __m256i s8) { return _mm256_dpbusd_epi32(acc, u8, s8); }
#else
#define DRUT_NARROW_DOTS
inline __m256i dot_bytes(__m256i acc, __m256i u8, __m256i s8) {
  return _mm256_add_epi32(acc, _mm256_madd_epi16(_mm256_maddubs_epi16(u8, s8), _mm256_set1_epi16(1)));
}
// 16-bit sums of pairs of products.
struct Narrow { __m256i a, b; };
inline Narrow narrow_zero() { return {_mm256_setzero_si256(), _mm256_setzero_si256()}; }
// Makes the compiler compute the operand where it is written and keep it in registers. Otherwise GCC computes all products
// before it adds one, and they do not fit in the registers, or loads weights again for each row: kernels then take twice
// the time.
inline void in_registers(__m256i& a, __m256i& b) { asm volatile("" : "+x"(a), "+x"(b)); }
inline I in_registers(I x) {
  in_registers(x.a, x.b);
  return x;
}
inline Narrow add_pairs(Narrow acc, I u8, int32_t four) {
  __m256i s = _mm256_set1_epi32(four);
  acc = {_mm256_add_epi16(acc.a, _mm256_maddubs_epi16(u8.a, s)), _mm256_add_epi16(acc.b, _mm256_maddubs_epi16(u8.b, s))};
  in_registers(acc.a, acc.b);
  return acc;
}
// The product of two 16-bit pairs, and its operands: bytes 0 and 2, or 1 and 3, of each lane with sign; lanes of at most 15
// bits.
#define DRUT_WORD_DOTS
inline I idot16(I acc, I pairs, int32_t two) {
  const __m256i y = _mm256_set1_epi32(two);
  acc = {_mm256_add_epi32(acc.a, _mm256_madd_epi16(pairs.a, y)), _mm256_add_epi32(acc.b, _mm256_madd_epi16(pairs.b, y))};
  in_registers(acc.a, acc.b);
  return acc;
}
// 32 bytes with sign, each quad in the order 0, 2, 1, 3.
inline void store_quad_words(int16_t* to, const int8_t* q) {
  const __m256i x = _mm256_load_si256((const __m256i*)q);
  const __m256i even = _mm256_srai_epi16(_mm256_slli_epi16(x, 8), 8), odd = _mm256_srai_epi16(x, 8);
  const __m256i low = _mm256_unpacklo_epi32(even, odd), high = _mm256_unpackhi_epi32(even, odd);
  _mm256_store_si256((__m256i*)to, _mm256_permute2x128_si256(low, high, 0x20));
  _mm256_store_si256((__m256i*)to + 1, _mm256_permute2x128_si256(low, high, 0x31));
}
inline I ieven_bytes(I x) {
  return {_mm256_srai_epi16(_mm256_slli_epi16(x.a, 8), 8), _mm256_srai_epi16(_mm256_slli_epi16(x.b, 8), 8)};
}
inline I iodd_bytes(I x) { return {_mm256_srai_epi16(x.a, 8), _mm256_srai_epi16(x.b, 8)}; }
inline void store_int16(int16_t* p, I x) {
  _mm256_storeu_si256((__m256i*)p, _mm256_permute4x64_epi64(_mm256_packs_epi32(x.a, x.b), 0xd8));
}
inline I widened(Narrow n) {
  const __m256i one = _mm256_set1_epi16(1);
  return {_mm256_madd_epi16(n.a, one), _mm256_madd_epi16(n.b, one)};
}
#endif
// For codes of at most 7 bits: a pair of products fits in 16 bits (2 * 127 * 127).
inline I idot7(I acc, I u8, int32_t four) {
  __m256i s = _mm256_set1_epi32(four);
  return {dot_bytes(acc.a, u8.a, s), dot_bytes(acc.b, u8.b, s)};
}
// acc + the dot product of the four 7-bit bytes of `four` with the four signed bytes of each lane.
inline I idot_signed(I acc, int32_t four, I s8) {
  __m256i u = _mm256_set1_epi32(four);
  return {dot_bytes(acc.a, u, s8.a), dot_bytes(acc.b, u, s8.b)};
}
inline void store_bytes(uint8_t* p, I x) {  // lanes hold at most 7 bits
  __m256i words = _mm256_permute4x64_epi64(_mm256_packs_epi32(x.a, x.b), 0xd8);
  _mm_storeu_si128((__m128i*)p, _mm_packus_epi16(_mm256_castsi256_si128(words), _mm256_extracti128_si256(words, 1)));
}
#if !defined(DRUT_NARROW_DOTS)
inline I idot8(I acc, I u8, int32_t four) { return idot7(acc, u8, four); }
#else
// For codes of 8 bits, with the top bit apart: a pair of products with 255 * 127 would saturate.
inline I idot8(I acc, I u8, int32_t four) {
  const I low = iset(0x7f7f7f7f), top = iset(int32_t(0x80808080));
  return idot7(idot7(acc, iand(u8, low), four), iand(u8, top), four);
}
#endif

}  // namespace
