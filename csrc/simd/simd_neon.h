// The 16 logical lanes as four NEON registers of 4, with SDOT, or with USDOT if the unit is compiled for it.
#pragma once
#include <arm_neon.h>
#include "simd/numerics.h"

#define DRUT_NEON
#define DRUT_UNROLL _Pragma("GCC unroll 8")
#if !defined(__ARM_FEATURE_MATMUL_INT8)
#define DRUT_CENTRED_CODES  // idot8 subtracts 128 from each code
#endif

namespace {

constexpr int kTile = 8;          // (row, head) pairs of attention per load of K or V: 8 or 12
constexpr int kHalves = 1;        // halves of a panel's outputs per kernel call
constexpr int kMaxRows = 3;       // maximum of activation rows per kernel call
constexpr int kRegisterRows = 3;  // maximum of rows whose accumulators stay in registers
constexpr int kBlockRows = 5, kBlockVectors = 1;  // tile of attention for many rows, in registers
constexpr int vectors_at_once(int) { return 1; }  // vectors of keys or values per row tile, limited by registers

struct V { float32x4_t a, b, c, d; };
struct I { int32x4_t a, b, c, d; };

#define EACH1(f, x) {f((x).a), f((x).b), f((x).c), f((x).d)}
#define EACH2(f, x, y) {f((x).a, (y).a), f((x).b, (y).b), f((x).c, (y).c), f((x).d, (y).d)}
#define EACH3(f, x, y, z) \
  {f((x).a, (y).a, (z).a), f((x).b, (y).b, (z).b), f((x).c, (y).c, (z).c), f((x).d, (y).d, (z).d)}

// Not FMAX and FMIN, which return NaN if either operand is NaN: here the second operand is returned then.
inline float32x4_t max4(float32x4_t x, float32x4_t y) { return vbslq_f32(vcgtq_f32(x, y), x, y); }
inline float32x4_t min4(float32x4_t x, float32x4_t y) { return vbslq_f32(vcltq_f32(x, y), x, y); }
inline float32x4_t if_nan4(float32x4_t x, float32x4_t yes, float32x4_t no) { return vbslq_f32(vceqq_f32(x, x), no, yes); }

inline V vset(float x) {
  float32x4_t v = vdupq_n_f32(x);
  return {v, v, v, v};
}
inline V vload(const float* p) { return {vld1q_f32(p), vld1q_f32(p + 4), vld1q_f32(p + 8), vld1q_f32(p + 12)}; }
inline void vstore(float* p, V x) {
  vst1q_f32(p, x.a);
  vst1q_f32(p + 4, x.b);
  vst1q_f32(p + 8, x.c);
  vst1q_f32(p + 12, x.d);
}
inline V vadd(V x, V y) { return EACH2(vaddq_f32, x, y); }
inline V vsub(V x, V y) { return EACH2(vsubq_f32, x, y); }
inline V vmul(V x, V y) { return EACH2(vmulq_f32, x, y); }
inline V vdiv(V x, V y) { return EACH2(vdivq_f32, x, y); }
inline V vfma(V x, V y, V z) { return EACH3(vfmaq_f32, z, x, y); }
inline V vmax(V x, V y) { return EACH2(max4, x, y); }
inline V vmin(V x, V y) { return EACH2(min4, x, y); }
inline V vabs(V x) { return EACH1(vabsq_f32, x); }
inline V vselect_lt(V x, V y, V yes, V no) {
  return {vbslq_f32(vcltq_f32(x.a, y.a), yes.a, no.a), vbslq_f32(vcltq_f32(x.b, y.b), yes.b, no.b),
          vbslq_f32(vcltq_f32(x.c, y.c), yes.c, no.c), vbslq_f32(vcltq_f32(x.d, y.d), yes.d, no.d)};
}
inline V vselect_nan(V x, V yes, V no) { return EACH3(if_nan4, x, yes, no); }
inline V vselect_first(int count, V yes, V no) {
  const int32x4_t lane = {0, 1, 2, 3};
  auto pick = [&](int first, float32x4_t y, float32x4_t n) {
    return vbslq_f32(vcltq_s32(lane, vdupq_n_s32(count - first)), y, n);
  };
  return {pick(0, yes.a, no.a), pick(4, yes.b, no.b), pick(8, yes.c, no.c), pick(12, yes.d, no.d)};
}
inline V vload_half(const uint16_t* p) {
  float16x8_t low = vreinterpretq_f16_u16(vld1q_u16(p)), high = vreinterpretq_f16_u16(vld1q_u16(p + 8));
  return {vcvt_f32_f16(vget_low_f16(low)), vcvt_high_f32_f16(low), vcvt_f32_f16(vget_low_f16(high)),
          vcvt_high_f32_f16(high)};
}
inline V vload_bf16(const uint16_t* p) {
  uint16x8_t low = vld1q_u16(p), high = vld1q_u16(p + 8);
  auto wide = [](uint16x4_t h) { return vreinterpretq_f32_u32(vshll_n_u16(h, 16)); };
  return {wide(vget_low_u16(low)), wide(vget_high_u16(low)), wide(vget_low_u16(high)), wide(vget_high_u16(high))};
}
// 16 E4M3 values times 2^-8, by way of halves, whose exponent is one bit wider.
inline V vload_e4m3(const uint8_t* p) {
  int8x16_t b = vreinterpretq_s8_u8(vld1q_u8(p));
  auto half = [](int8x8_t s) { return vandq_u16(vreinterpretq_u16_s16(vshll_n_s8(s, 7)), vdupq_n_u16(0xbfff)); };
  float16x8_t low = vreinterpretq_f16_u16(half(vget_low_s8(b))), high = vreinterpretq_f16_u16(half(vget_high_s8(b)));
  return {vcvt_f32_f16(vget_low_f16(low)), vcvt_high_f32_f16(low), vcvt_f32_f16(vget_low_f16(high)),
          vcvt_high_f32_f16(high)};
}

// E4M3 values of 32 outputs times 2^-8: even[h] and odd[h] are the two elements of each output of half h.
inline void vload_e4m3_pairs(const uint8_t* p, V (&even)[2], V (&odd)[2]) {
  auto half = [](uint8x16_t b) {
    const int16x8_t wide = vshrq_n_s16(vreinterpretq_s16_u8(b), 1);
    return vreinterpretq_f16_u16(vandq_u16(vreinterpretq_u16_s16(wide), vdupq_n_u16(0xbf80)));
  };
  auto widen = [](float16x8_t low, float16x8_t high) {
    return V{vcvt_f32_f16(vget_low_f16(low)), vcvt_high_f32_f16(low), vcvt_f32_f16(vget_low_f16(high)),
             vcvt_high_f32_f16(high)};
  };
  for (int i = 0; i < 2; ++i, p += 32) {
    const uint8x16_t low = vld1q_u8(p), high = vld1q_u8(p + 16);
    auto first = [](uint8x16_t b) { return vreinterpretq_u8_u16(vshlq_n_u16(vreinterpretq_u16_u8(b), 8)); };
    even[i] = widen(half(first(low)), half(first(high)));
    odd[i] = widen(half(low), half(high));
  }
}

// Sum of the lanes: lane n + lane n+8, then +4, +2, +1.
inline float vsum(V x) {
  float32x4_t q = vaddq_f32(vaddq_f32(x.a, x.c), vaddq_f32(x.b, x.d));
  float32x2_t p = vadd_f32(vget_low_f32(q), vget_high_f32(q));
  return vget_lane_f32(p, 0) + vget_lane_f32(p, 1);
}
inline float vmaximum(V x) {
  float32x4_t q = max4(max4(x.a, x.c), max4(x.b, x.d));
  q = max4(q, vextq_f32(q, q, 2));
  return vgetq_lane_f32(max4(q, vextq_f32(q, q, 1)), 0);
}

inline I iset(int32_t x) {
  int32x4_t v = vdupq_n_s32(x);
  return {v, v, v, v};
}
inline I iload(const void* from) {
  const uint8_t* p = static_cast<const uint8_t*>(from);
  auto part = [p](int i) { return vreinterpretq_s32_u8(vld1q_u8(p + i)); };
  return {part(0), part(16), part(32), part(48)};
}
inline I iand(I x, I y) { return EACH2(vandq_s32, x, y); }
inline I iadd(I x, I y) {  // wraps around
  auto sum = [](int32x4_t u, int32x4_t v) {
    return vreinterpretq_s32_u32(vaddq_u32(vreinterpretq_u32_s32(u), vreinterpretq_u32_s32(v)));
  };
  return EACH2(sum, x, y);
}
inline I imax(I x, I y) { return EACH2(vmaxq_s32, x, y); }
inline int32_t imaximum(I x) { return vmaxvq_s32(vmaxq_s32(vmaxq_s32(x.a, x.b), vmaxq_s32(x.c, x.d))); }
inline I ior(I x, I y) { return EACH2(vorrq_s32, x, y); }
// Shifts of the compiler's vector extension: the intrinsics accept only constants, and these compile to the same
// instructions.
inline I ishl(I x, int s) { return {x.a << s, x.b << s, x.c << s, x.d << s}; }
inline I ishr(I x, int s) {
  auto shifted = [s](int32x4_t v) { return vreinterpretq_s32_u32(vreinterpretq_u32_s32(v) >> s); };
  return EACH1(shifted, x);
}
inline I ilookup(const uint8_t* table, I index) {
  const uint8x16_t t = vld1q_u8(table);
  auto look = [t](int32x4_t i) { return vreinterpretq_s32_u8(vqtbl1q_u8(t, vreinterpretq_u8_s32(i))); };
  return EACH1(look, index);
}
inline I iload_u8(const uint8_t* p) {
  uint8x16_t x = vld1q_u8(p);
  uint16x8_t low = vmovl_u8(vget_low_u8(x)), high = vmovl_high_u8(x);
  return {vreinterpretq_s32_u32(vmovl_u16(vget_low_u16(low))), vreinterpretq_s32_u32(vmovl_high_u16(low)),
          vreinterpretq_s32_u32(vmovl_u16(vget_low_u16(high))), vreinterpretq_s32_u32(vmovl_high_u16(high))};
}
inline I iload_i8(const uint8_t* p) {
  int8x16_t x = vreinterpretq_s8_u8(vld1q_u8(p));
  int16x8_t low = vmovl_s8(vget_low_s8(x)), high = vmovl_high_s8(x);
  return {vmovl_s16(vget_low_s16(low)), vmovl_high_s16(low), vmovl_s16(vget_low_s16(high)), vmovl_high_s16(high)};
}
inline V as_float(I x) { return EACH1(vreinterpretq_f32_s32, x); }
inline I as_int(V x) { return EACH1(vreinterpretq_s32_f32, x); }
inline V to_float(I x) { return EACH1(vcvtq_f32_s32, x); }
inline void store_int8(int8_t* p, V x) {
  V c = vmin(vmax(x, vset(-127.0f)), vset(127.0f));
  int16x8_t low = vcombine_s16(vmovn_s32(vcvtnq_s32_f32(c.a)), vmovn_s32(vcvtnq_s32_f32(c.b)));
  int16x8_t high = vcombine_s16(vmovn_s32(vcvtnq_s32_f32(c.c)), vmovn_s32(vcvtnq_s32_f32(c.d)));
  vst1q_s8(p, vcombine_s8(vmovn_s16(low), vmovn_s16(high)));
}

inline int32_t byte_sum(const int8_t* p) { return vaddlvq_s8(vld1q_s8(p)); }  // of 16 bytes
// acc + the dot product of the four 7-bit bytes of `four` with the four signed bytes of each lane.
inline I idot_signed(I acc, int32_t four, I s8) {
  const int8x16_t u = vreinterpretq_s8_s32(vdupq_n_s32(four));
  auto dot = [u](int32x4_t sum, int32x4_t s) { return vdotq_s32(sum, u, vreinterpretq_s8_s32(s)); };
  return EACH2(dot, acc, s8);
}
inline void store_bytes(uint8_t* p, I x) {  // lanes hold at most 7 bits
  int16x8_t low = vcombine_s16(vmovn_s32(x.a), vmovn_s32(x.b)), high = vcombine_s16(vmovn_s32(x.c), vmovn_s32(x.d));
  vst1q_u8(p, vreinterpretq_u8_s8(vcombine_s8(vmovn_s16(low), vmovn_s16(high))));
}

#if defined(DRUT_CENTRED_CODES)
inline I idot7(I acc, I u8, int32_t four) {
  const int8x16_t s = vreinterpretq_s8_s32(vdupq_n_s32(four));
  auto dot = [s](int32x4_t sum, int32x4_t codes) { return vdotq_s32(sum, vreinterpretq_s8_s32(codes), s); };
  return EACH2(dot, acc, u8);
}
// Both operands of SDOT are signed, so 128 is subtracted from each code here. All kinds with 8-bit codes have the zero
// point 128: kCodeZero (matmul/activations.h) is 0 then, and the sum of the activations must not subtract it again.
inline I idot8(I acc, I u8, int32_t four) {
  const int32x4_t top = vdupq_n_s32(int32_t(0x80808080));
  auto subtract_mean = [top](int32x4_t codes) { return veorq_s32(codes, top); };
  I s8 = EACH1(subtract_mean, u8);
  return idot7(acc, s8, four);
}
#else
inline I idot8(I acc, I u8, int32_t four) {
  const int8x16_t s = vreinterpretq_s8_s32(vdupq_n_s32(four));
  auto dot = [s](int32x4_t sum, int32x4_t codes) { return vusdotq_s32(sum, vreinterpretq_u8_s32(codes), s); };
  return EACH2(dot, acc, u8);
}
inline I idot7(I acc, I u8, int32_t four) { return idot8(acc, u8, four); }
#endif

#undef EACH1
#undef EACH2
#undef EACH3

}  // namespace
