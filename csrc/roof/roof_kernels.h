// The inner loops that `drut roof` times: reading memory, and the densest multiply-accumulate of each instruction set.
// Every kernel runs `reps` rounds and returns a value that depends on its work, so that the compiler removes nothing.
#pragma once
#include <cstddef>
#include <cstdint>

#if defined(__x86_64__)
#include <immintrin.h>
#define DRUT_TARGET(features) __attribute__((target(features)))
// Makes the compiler assume that the register changed, so that the loop around it must run.
#define DRUT_KEEP(reg) asm volatile("" : "+v"(reg))
#elif defined(__aarch64__)
#include <arm_neon.h>
#define DRUT_TARGET(features) __attribute__((target(features)))
#define DRUT_KEEP(reg) asm volatile("" : "+w"(reg))
#endif

namespace roof {

// Independent accumulators: more than latency times ports, and at most 16 registers, or 32 on AArch64.
#if defined(__aarch64__)
constexpr int kChains = 24;
#else
constexpr int kChains = 12;
#endif
constexpr int kUnroll = 64;     // rounds of the chains per repetition
constexpr size_t kBlock = 256;  // bytes per round of a reader; buffers are a multiple of it

using Read = uint64_t (*)(const uint8_t* from, size_t bytes);
using Multiply = uint64_t (*)(long reps);

inline uint64_t read_portable(const uint8_t* from, size_t bytes) {
  uint64_t sum[8] = {};
  for (size_t i = 0; i < bytes; i += 64) {
    const uint64_t* line = reinterpret_cast<const uint64_t*>(from + i);
    for (int l = 0; l < 8; ++l) sum[l] |= line[l];
  }
  for (int l = 1; l < 8; ++l) sum[0] |= sum[l];
  return sum[0];
}

// Multiply-accumulates per repetition of the portable kernels: 64 products for each of 64 elements. The compiler
// vectorizes the loop.
constexpr double kPortableMacs = 64 * 64;

inline uint64_t int8_portable(long reps) {
  int8_t a[64], b[64];
  uint32_t sum[64] = {}, total = 0;
  for (int i = 0; i < 64; ++i) a[i] = b[i] = int8_t(i - 32);
  for (long r = 0; r < reps; ++r) {
    asm volatile("" : : "r"(a), "r"(b) : "memory");
    for (int k = 0; k < 64; ++k)
      for (int l = 0; l < 64; ++l) sum[l] += uint32_t(int16_t(a[l]) * int16_t(b[k]));
  }
  for (uint32_t s : sum) total += s;
  return total;
}

inline uint64_t float_portable(long reps) {
  float a[64], b[64], sum[64] = {}, total = 0;
  for (int i = 0; i < 64; ++i) a[i] = b[i] = float(i - 32) * 0x1p-6f;
  for (long r = 0; r < reps; ++r) {
    asm volatile("" : : "r"(a), "r"(b) : "memory");
    for (int k = 0; k < 64; ++k) {
#if defined(__FMA__) || defined(__aarch64__)
      for (int l = 0; l < 64; ++l) sum[l] = __builtin_fmaf(a[l], b[k], sum[l]);
#else
      for (int l = 0; l < 64; ++l) sum[l] += a[l] * b[k];
#endif
    }
  }
  for (float s : sum) total += s;
  return total > 0;
}

#if defined(__x86_64__)

DRUT_TARGET("avx2") inline uint64_t read_avx2(const uint8_t* from, size_t bytes) {
  __m256i sum[8] = {};
  for (size_t i = 0; i < bytes; i += kBlock) {
    const __m256i* block = reinterpret_cast<const __m256i*>(from + i);
    for (int l = 0; l < 8; ++l) sum[l] = _mm256_or_si256(sum[l], _mm256_load_si256(block + l));
  }
  for (int l = 1; l < 8; ++l) sum[0] = _mm256_or_si256(sum[0], sum[l]);
  return uint64_t(_mm_cvtsi128_si64(_mm256_castsi256_si128(sum[0])));
}

DRUT_TARGET("avx512f") inline uint64_t read_avx512(const uint8_t* from, size_t bytes) {
  __m512i sum[4] = {};
  for (size_t i = 0; i < bytes; i += kBlock) {
    for (int l = 0; l < 4; ++l) sum[l] = _mm512_or_si512(sum[l], _mm512_load_si512(from + i + 64 * l));
  }
  for (int l = 1; l < 4; ++l) sum[0] = _mm512_or_si512(sum[0], sum[l]);
  alignas(64) uint64_t lanes[8];
  _mm512_store_si512(lanes, sum[0]);
  return lanes[0];
}

#elif defined(__aarch64__)

inline uint64_t read_neon(const uint8_t* from, size_t bytes) {
  uint64x2_t sum[16] = {};
  for (size_t i = 0; i < bytes; i += kBlock) {
    const uint64_t* block = reinterpret_cast<const uint64_t*>(from + i);
    for (int l = 0; l < 16; ++l) sum[l] = vorrq_u64(sum[l], vld1q_u64(block + 2 * l));
  }
  for (int l = 1; l < 16; ++l) sum[0] = vorrq_u64(sum[0], sum[l]);
  return vgetq_lane_u64(sum[0], 0);
}

#endif

// Defines a kernel whose repetition is kUnroll rounds of one instruction over kChains accumulators. The loops over the
// accumulators are unrolled, and only one of them is returned; otherwise they would be in memory, which halves the rate.
#define DRUT_EACH_CHAIN _Pragma("GCC unroll 24") for (int c = 0; c < kChains; ++c)
#define DRUT_CHAINS(name, features, Vector, zero, operand, step, result) \
  DRUT_TARGET(features) inline uint64_t name(long reps) {                \
    Vector acc[kChains];                                                 \
    auto x = operand;                                                    \
    DRUT_EACH_CHAIN acc[c] = zero;                                       \
    for (long r = 0; r < reps * kUnroll; ++r) {                          \
      DRUT_EACH_CHAIN {                                                  \
        DRUT_KEEP(x);                                                    \
        acc[c] = step(acc[c], x, x);                                     \
        DRUT_KEEP(acc[c]);                                               \
      }                                                                  \
    }                                                                    \
    return uint64_t(result(acc[0]));                                     \
  }

#if defined(__x86_64__)

#define DRUT_FMA256(acc, x, y) _mm256_fmadd_ps(x, y, acc)
#define DRUT_FMA512(acc, x, y) _mm512_fmadd_ps(x, y, acc)
#define DRUT_MADD16(acc, x, y) _mm256_add_epi32(acc, _mm256_madd_epi16(x, y))
#define DRUT_DPBF16(acc, x, y) _mm512_dpbf16_ps(acc, (__m512bh)(x), (__m512bh)(y))
#define DRUT_FIRST256(a) _mm_cvtsi128_si32(_mm256_castsi256_si128(a))

DRUT_CHAINS(float_avx2, "avx2,fma", __m256, _mm256_setzero_ps(), _mm256_set1_ps(0.5f), DRUT_FMA256,
            _mm256_cvtss_f32)
DRUT_CHAINS(float_avx512, "avx512f", __m512, _mm512_setzero_ps(), _mm512_set1_ps(0.5f), DRUT_FMA512,
            _mm512_cvtss_f32)
DRUT_CHAINS(bf16_avx512, "avx512f,avx512bf16", __m512, _mm512_setzero_ps(), _mm512_set1_ps(0.5f),
            DRUT_DPBF16, _mm512_cvtss_f32)
DRUT_CHAINS(int8_avx512, "avx512f,avx512vnni", __m512i, _mm512_setzero_si512(), _mm512_set1_epi8(1),
            _mm512_dpbusd_epi32, _mm512_cvtsi512_si32)
DRUT_CHAINS(int8_avxvnni, "avx2,avxvnni", __m256i, _mm256_setzero_si256(), _mm256_set1_epi8(1),
            _mm256_dpbusd_avx_epi32, DRUT_FIRST256)
// Without VNNI, of 8-bit codes: both factors are widened to 16 bits before, whose products of pairs need no more steps.
// Two halves of 4 bits, or absolute codes with signed activations, are up to 10 % slower.
DRUT_CHAINS(int8_avx2, "avx2", __m256i, _mm256_setzero_si256(), _mm256_set1_epi16(1), DRUT_MADD16, DRUT_FIRST256)

// Without VNNI, of codes of 4 bits: 8 products of pairs are summed in int16, which they cannot overflow, then widened
// once.
DRUT_TARGET("avx2") inline uint64_t int4_avx2(long reps) {
  constexpr int kPartial = 8, kSums = 6;
  __m256i acc[kSums], x = _mm256_set1_epi8(1), ones = _mm256_set1_epi16(1);
  _Pragma("GCC unroll 6") for (int c = 0; c < kSums; ++c) acc[c] = _mm256_setzero_si256();
  for (long r = 0; r < reps * (kUnroll * kChains / (kPartial * kSums)); ++r) {
    _Pragma("GCC unroll 6") for (int c = 0; c < kSums; ++c) {
      DRUT_KEEP(x);
      __m256i sum = _mm256_maddubs_epi16(x, x);
      _Pragma("GCC unroll 7") for (int u = 1; u < kPartial; ++u) {
        DRUT_KEEP(x);
        sum = _mm256_add_epi16(sum, _mm256_maddubs_epi16(x, x));
      }
      acc[c] = _mm256_add_epi32(acc[c], _mm256_madd_epi16(sum, ones));
      DRUT_KEEP(acc[c]);
    }
  }
  return uint64_t(DRUT_FIRST256(acc[0]));
}

#elif defined(__aarch64__)

#define DRUT_FIRST_F32(a) vgetq_lane_f32(a, 0)
#define DRUT_FIRST_S32(a) vgetq_lane_s32(a, 0)

DRUT_CHAINS(float_neon, "+simd", float32x4_t, vdupq_n_f32(0), vdupq_n_f32(0.5f), vfmaq_f32, DRUT_FIRST_F32)
DRUT_CHAINS(int8_dotprod, "arch=armv8.2-a+dotprod", int32x4_t, vdupq_n_s32(0), vdupq_n_s8(1), vdotq_s32, DRUT_FIRST_S32)
DRUT_CHAINS(int8_i8mm, "arch=armv8.2-a+i8mm", int32x4_t, vdupq_n_s32(0), vdupq_n_s8(1), vmmlaq_s32, DRUT_FIRST_S32)

#endif

}  // namespace roof
