// The 16 logical lanes in plain C++: the reference that the other instruction sets must match bit for bit.
#pragma once
#include "simd/numerics.h"

#define DRUT_UNROLL  // lanes are loops already

namespace {

constexpr int kTile = 8;          // (row, head) pairs of attention per load of K or V: 8 or 12
constexpr int kHalves = 2;        // halves of a panel's outputs per kernel call
constexpr int kMaxRows = 4;       // maximum of activation rows per kernel call
constexpr int kRegisterRows = 4;  // maximum of rows whose accumulators stay in registers
constexpr int kBlockRows = 4, kBlockVectors = 1;  // tile of attention for many rows, in registers
constexpr int vectors_at_once(int) { return 1; }  // vectors of keys or values per row tile, limited by registers

struct V { float f[16]; };
struct I { int32_t i[16]; };

#define LANES for (int n = 0; n < 16; ++n)
#define V_MAP(expr) V r; LANES r.f[n] = (expr); return r
#define I_MAP(expr) I r; LANES r.i[n] = int32_t(expr); return r

inline V vset(float x) { V_MAP(x); }
inline V vload(const float* p) { V r; memcpy(&r, p, 64); return r; }
inline void vstore(float* p, V a) { memcpy(p, &a, 64); }
inline V vadd(V a, V b) { V_MAP(a.f[n] + b.f[n]); }
inline V vsub(V a, V b) { V_MAP(a.f[n] - b.f[n]); }
inline V vmul(V a, V b) { V_MAP(a.f[n] * b.f[n]); }
inline V vdiv(V a, V b) { V_MAP(a.f[n] / b.f[n]); }
inline V vfma(V a, V b, V c) { V_MAP(num::fma(a.f[n], b.f[n], c.f[n])); }
// Return the second operand if either is NaN, as x86 does.
inline V vmax(V a, V b) { V_MAP(a.f[n] > b.f[n] ? a.f[n] : b.f[n]); }
inline V vmin(V a, V b) { V_MAP(a.f[n] < b.f[n] ? a.f[n] : b.f[n]); }
inline V vabs(V a) { V_MAP(num::from_bits(num::bits(a.f[n]) & 0x7fffffff)); }
// Returns `yes` where a < b, else `no`; vselect_nan: `yes` where a is NaN; vselect_first: `yes` in the first `count`
// lanes.
inline V vselect_lt(V a, V b, V yes, V no) { V_MAP(a.f[n] < b.f[n] ? yes.f[n] : no.f[n]); }
inline V vselect_nan(V a, V yes, V no) { V_MAP(a.f[n] != a.f[n] ? yes.f[n] : no.f[n]); }
inline V vselect_first(int count, V yes, V no) { V_MAP(n < count ? yes.f[n] : no.f[n]); }
inline V vload_half(const uint16_t* p) { V_MAP(num::half_to_float(p[n])); }
inline V vload_bf16(const uint16_t* p) { V_MAP(num::bf16_to_float(p[n])); }
inline V vload_e4m3(const uint8_t* p) { V_MAP(num::e4m3_to_float(p[n])); }
inline V vload_e4m3_strided(const uint8_t* p) { V_MAP(num::e4m3_to_float(p[2 * n])); }
// E4M3 values of 32 outputs times 2^-8: even[h] and odd[h] are the two elements of each output of half h.
inline void vload_e4m3_pairs(const uint8_t* p, V (&even)[2], V (&odd)[2]) {
  for (int i = 0; i < 2; ++i, p += 32) {
    even[i] = vload_e4m3_strided(p);
    odd[i] = vload_e4m3_strided(p + 1);
  }
}

inline I iset(int32_t x) { I_MAP(x); }
inline I iload(const void* p) { I r; memcpy(&r, p, 64); return r; }
inline I iand(I a, I b) { I_MAP(a.i[n] & b.i[n]); }
inline I iadd(I a, I b) { I_MAP(uint32_t(a.i[n]) + uint32_t(b.i[n])); }
inline I imax(I a, I b) { I_MAP(a.i[n] > b.i[n] ? a.i[n] : b.i[n]); }
inline int32_t imaximum(I a) {
  int32_t m = a.i[0];
  LANES m = a.i[n] > m ? a.i[n] : m;
  return m;
}
inline I ior(I a, I b) { I_MAP(a.i[n] | b.i[n]); }
inline I ishl(I a, int s) { I_MAP(uint32_t(a.i[n]) << s); }
inline I ishr(I a, int s) { I_MAP(uint32_t(a.i[n]) >> s); }
// table[b] for every byte b of `index`, 0..15.
inline I ilookup(const uint8_t* table, I index) {
  uint8_t b[64];
  memcpy(b, &index, 64);
  for (int n = 0; n < 64; ++n) b[n] = table[b[n]];
  return iload(b);
}
inline I iload_u8(const uint8_t* p) { I_MAP(p[n]); }
inline I iload_i8(const uint8_t* p) { I_MAP(int8_t(p[n])); }
inline V as_float(I a) { V r; memcpy(&r, &a, 64); return r; }
inline I as_int(V a) { I r; memcpy(&r, &a, 64); return r; }
inline V to_float(I a) { V_MAP(float(a.i[n])); }
// Rounds to nearest even and clamps to -127..127.
inline void store_int8(int8_t* p, V a) {
  LANES {
    float x = a.f[n] > -127.0f ? a.f[n] : -127.0f;  // NaN becomes -127
    x = x < 127.0f ? x : 127.0f;
    p[n] = int8_t(int((x + num::kRound) - num::kRound));
  }
}
inline int32_t byte_sum(const int8_t* p) {  // of 16 bytes
  int32_t s = 0;
  LANES s += p[n];
  return s;
}
// acc + the dot product of the four unsigned bytes of each lane with the four signed bytes of `four`.
inline I idot8(I acc, I u8, int32_t four) {
  int8_t s[4];
  memcpy(s, &four, 4);
  LANES {
    uint8_t u[4];
    memcpy(u, &u8.i[n], 4);
    acc.i[n] += u[0] * s[0] + u[1] * s[1] + u[2] * s[2] + u[3] * s[3];
  }
  return acc;
}
// acc + the dot product of the four 7-bit bytes of `four` with the four signed bytes of each lane.
inline I idot_signed(I acc, int32_t four, I s8) {
  uint8_t u[4];
  memcpy(u, &four, 4);
  LANES {
    int8_t s[4];
    memcpy(s, &s8.i[n], 4);
    acc.i[n] += u[0] * s[0] + u[1] * s[1] + u[2] * s[2] + u[3] * s[3];
  }
  return acc;
}
inline void store_bytes(uint8_t* p, I a) { LANES p[n] = uint8_t(a.i[n]); }
inline I idot7(I acc, I u8, int32_t four) { return idot8(acc, u8, four); }  // codes of at most 7 bits

// Sum of the lanes: lane n + lane n+8, then +4, +2, +1.
inline float vsum(V a) {
  for (int w = 8; w; w /= 2)
    for (int n = 0; n < w; ++n) a.f[n] = a.f[n] + a.f[n + w];
  return a.f[0];
}
inline float vmaximum(V a) {
  for (int w = 8; w; w /= 2)
    for (int n = 0; n < w; ++n) a.f[n] = a.f[n] > a.f[n + w] ? a.f[n] : a.f[n + w];
  return a.f[0];
}

#undef V_MAP
#undef I_MAP
#undef LANES
}  // namespace
