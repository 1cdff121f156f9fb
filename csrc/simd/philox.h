// The first word of num::philox for many token ids at once. A 32-bit counter word is the low half of a 64-bit lane; the
// high half is never read, so that the two halves of a product need no shuffle.
#pragma once
#include "simd/simd.h"

namespace {

#if defined(__AVX512F__)
struct Wide { __m512i v; };
constexpr int kAtOnce = 4;  // as many as the registers hold
inline Wide wset(uint32_t x) { return {_mm512_set1_epi64(x)}; }
inline Wide wload(const int32_t* p) { return {_mm512_cvtepu32_epi64(_mm256_loadu_si256((const __m256i*)p))}; }
inline void wstore(uint32_t* p, Wide a) { _mm256_storeu_si256((__m256i*)p, _mm512_cvtepi64_epi32(a.v)); }
inline Wide wmul(Wide a, Wide b) { return {_mm512_mul_epu32(a.v, b.v)}; }
inline Wide whigh(Wide a) { return {_mm512_srli_epi64(a.v, 32)}; }
inline Wide wxor(Wide a, Wide b, Wide c) { return {_mm512_xor_si512(_mm512_xor_si512(a.v, b.v), c.v)}; }
#elif defined(__AVX2__)
struct Wide { __m256i a, b; };
constexpr int kAtOnce = 2;
inline Wide wset(uint32_t x) { return {_mm256_set1_epi64x(x), _mm256_set1_epi64x(x)}; }
inline Wide wload(const int32_t* p) {
  return {_mm256_cvtepu32_epi64(_mm_loadu_si128((const __m128i*)p)), _mm256_cvtepu32_epi64(_mm_loadu_si128((const __m128i*)p + 1))};
}
inline void wstore(uint32_t* p, Wide x) {
  const __m256i even = _mm256_setr_epi32(0, 2, 4, 6, 0, 2, 4, 6);
  _mm_storeu_si128((__m128i*)p, _mm256_castsi256_si128(_mm256_permutevar8x32_epi32(x.a, even)));
  _mm_storeu_si128((__m128i*)p + 1, _mm256_castsi256_si128(_mm256_permutevar8x32_epi32(x.b, even)));
}
inline Wide wmul(Wide x, Wide y) { return {_mm256_mul_epu32(x.a, y.a), _mm256_mul_epu32(x.b, y.b)}; }
inline Wide whigh(Wide x) { return {_mm256_srli_epi64(x.a, 32), _mm256_srli_epi64(x.b, 32)}; }
inline Wide wxor(Wide x, Wide y, Wide z) {
  return {_mm256_xor_si256(_mm256_xor_si256(x.a, y.a), z.a), _mm256_xor_si256(_mm256_xor_si256(x.b, y.b), z.b)};
}
#elif defined(DRUT_NEON)
// Low words and high words in separate registers. The high words are valid only right after a product.
struct Wide { uint32x4_t a, b, high_a, high_b; };
constexpr int kAtOnce = 2;
inline Wide wset(uint32_t x) {
  uint32x4_t v = vdupq_n_u32(x);
  return {v, v, v, v};
}
inline Wide wload(const int32_t* p) {
  uint32x4_t a = vreinterpretq_u32_s32(vld1q_s32(p)), b = vreinterpretq_u32_s32(vld1q_s32(p + 4));
  return {a, b, a, b};
}
inline void wstore(uint32_t* p, Wide x) {
  vst1q_u32(p, x.a);
  vst1q_u32(p + 4, x.b);
}
inline Wide wmul(Wide x, Wide y) {
  auto pair = [](uint32x4_t u, uint32x4_t v) {
    uint64x2_t first = vmull_u32(vget_low_u32(u), vget_low_u32(v)), last = vmull_high_u32(u, v);
    return vuzpq_u32(vreinterpretq_u32_u64(first), vreinterpretq_u32_u64(last));
  };
  uint32x4x2_t a = pair(x.a, y.a), b = pair(x.b, y.b);
  return {a.val[0], b.val[0], a.val[1], b.val[1]};
}
inline Wide whigh(Wide x) { return {x.high_a, x.high_b, x.high_a, x.high_b}; }
inline Wide wxor(Wide x, Wide y, Wide z) {
  uint32x4_t a = veorq_u32(veorq_u32(x.a, y.a), z.a), b = veorq_u32(veorq_u32(x.b, y.b), z.b);
  return {a, b, a, b};
}
#endif

// Computes word[i] for ids[0..63]. The counter is (position, choice, id, 0).
#if defined(__AVX2__) || defined(DRUT_NEON)
inline void philox_words(uint64_t seed, uint32_t position, uint32_t choice, const int32_t* ids, uint32_t* word) {
  const Wide m0 = wset(0xD2511F53u), m1 = wset(0xCD9E8D57u);
  for (int first = 0; first < 64; first += 8 * kAtOnce) {
    Wide c0[kAtOnce], c1[kAtOnce], c2[kAtOnce], c3[kAtOnce];
    DRUT_UNROLL
    for (int i = 0; i < kAtOnce; ++i) {
      c0[i] = wset(position);
      c1[i] = wset(choice);
      c2[i] = wload(ids + first + 8 * i);
      c3[i] = wset(0);
    }
    uint32_t k0 = uint32_t(seed), k1 = uint32_t(seed >> 32);
    for (int round = 0; round < 10; ++round, k0 += 0x9E3779B9u, k1 += 0xBB67AE85u) {
      Wide key0 = wset(k0), key1 = wset(k1);
      DRUT_UNROLL
      for (int i = 0; i < kAtOnce; ++i) {
        Wide a = wmul(m0, c0[i]), b = wmul(m1, c2[i]);
        c0[i] = wxor(whigh(b), c1[i], key0);
        c1[i] = b;
        c2[i] = wxor(whigh(a), c3[i], key1);
        c3[i] = a;
      }
    }
    DRUT_UNROLL
    for (int i = 0; i < kAtOnce; ++i) wstore(word + first + 8 * i, c0[i]);
  }
}
#else
inline void philox_words(uint64_t seed, uint32_t position, uint32_t choice, const int32_t* ids, uint32_t* word) {
  for (int i = 0; i < 64; ++i) {
    uint32_t c[4] = {position, choice, uint32_t(ids[i]), 0};
    num::philox(uint32_t(seed), uint32_t(seed >> 32), c);
    word[i] = c[0];
  }
}
#endif

}  // namespace
