// Reading one row back out of a packed matrix, as formats/decode.py defines its numbers.
#pragma once
#include "kinds.h"
#include "numerics.h"

namespace {

inline uint16_t load16(const uint8_t* p) { uint16_t v; memcpy(&v, p, 2); return v; }
inline float load_half(const uint8_t* p, int lane) { return num::half_to_float(load16(p + 2 * lane)); }

// 2^(e - 128): half of what E8M0 says, since tables hold doubled values. Subnormal results are zero.
inline float exponent_scale(uint8_t e) { return e < 2 ? 0.0f : num::from_bits(uint32_t(e - 1) << 23); }

// Code k (0..31) of output `lane` in a group.
inline int group_code(const Kind& t, const uint8_t* g, int lane, int k) {
  int half = lane / 16, at = half * 64 + lane % 16 * 4 + k % 4, quad = k / 4;
  if (t.bits == 8) return g[quad * 128 + at];
  uint8_t byte = g[quad / 2 * 128 + at];
  int code = quad % 2 ? byte >> 4 : byte & 15;
  const uint8_t* plane = g + 512;
  if (t.bits == 5) code |= (plane[at] >> quad & 1) << 4;
  if (t.bits == 6) code |= (plane[half * 128 + quad / 4 * 64 + lane % 16 * 4 + k % 4] >> (quad % 4 * 2) & 3) << 4;
  return t.table ? kTables[t.table - 1][code] : code;
}

template <int K> void unpack_group(const uint8_t* head, const uint8_t* g, int lane, float* out) {
  constexpr Kind t = kind_of(K);
  const uint8_t* s = g + t.code_bytes() + t.plane_bytes();
  for (int k = 0; k < kGroup; ++k) {
    int part = k / (kGroup / t.parts);
    float scale, minimum = 0.0f;
    if (t.scale == Scale::kExponent) {
      scale = exponent_scale(s[lane]);
    } else if (t.scale == Scale::kHalf) {
      scale = load_half(s, lane);
      if (t.minimum) minimum = load_half(s + 64, lane);
    } else {
      uint8_t small = s[32 * part + lane];
      scale = load_half(head, lane) * float(t.minimum ? int(small) : int(int8_t(small)));
      if (t.minimum) minimum = -(load_half(head + 64, lane) * float(int(s[32 * (t.parts + part) + lane])));
    }
    float x = float(group_code(t, g, lane, k) - t.zero) * scale;
    out[k] = t.minimum ? x + minimum : x;
  }
}

template <int K> void unpack_lane(const uint8_t* b, int lane, int count, float* out) {
  constexpr Kind t = kind_of(K);
  for (int k = 0; k < count; k += t.groups() * kGroup, b += t.unit_bytes())
    for (int g = 0; g < t.groups(); ++g) unpack_group<K>(b, b + t.head_bytes() + g * t.group_bytes(), lane, out + k + g * kGroup);
}

inline void unpack_row(const DrutMatrix& m, int n, float* out) {
  const uint8_t* b = panel(m, n / kPanel);
  int lane = n % kPanel;
  switch (m.kind) {
    case kQ4_0: return unpack_lane<kQ4_0>(b, lane, m.k, out);
    case kQ4_1: return unpack_lane<kQ4_1>(b, lane, m.k, out);
    case kQ8_0: return unpack_lane<kQ8_0>(b, lane, m.k, out);
    case kQ5_0: return unpack_lane<kQ5_0>(b, lane, m.k, out);
    case kQ5_1: return unpack_lane<kQ5_1>(b, lane, m.k, out);
    case kQ2_K: return unpack_lane<kQ2_K>(b, lane, m.k, out);
    case kQ3_K: return unpack_lane<kQ3_K>(b, lane, m.k, out);
    case kQ4_K: return unpack_lane<kQ4_K>(b, lane, m.k, out);
    case kQ5_K: return unpack_lane<kQ5_K>(b, lane, m.k, out);
    case kQ6_K: return unpack_lane<kQ6_K>(b, lane, m.k, out);
    case kIQ4_NL: return unpack_lane<kIQ4_NL>(b, lane, m.k, out);
    case kMXFP4: return unpack_lane<kMXFP4>(b, lane, m.k, out);
  }
  for (int k = 0; k < m.k; ++k) {
    if (m.kind == kF32) memcpy(out + k, b + (int64_t(k) * 32 + lane) * 4, 4);
    else if (m.kind == kF16) out[k] = num::half_to_float(load16(b + (int64_t(k) * 32 + lane) * 2));
    else out[k] = num::bf16_to_float(load16(b + (int64_t(k / 2) * 64 + lane * 2 + k % 2) * 2));
  }
}

}  // namespace
