// Unpacks one row of a packed matrix to floats, as formats/decode.py defines them.
#pragma once
#include "weights/kinds.h"
#include "simd/numerics.h"

namespace {

inline uint16_t load16(const uint8_t* p) { uint16_t v; memcpy(&v, p, 2); return v; }
inline float load_half(const uint8_t* p, int lane) { return num::half_to_float(load16(p + 2 * lane)); }
inline float load_scale(int scale, const uint8_t* p, int lane) {
  if (scale == kScaleF16) return load_half(p, lane);
  if (scale == kScaleBF16) return num::bf16_to_float(load16(p + 2 * lane));
  float f;
  memcpy(&f, p + 4 * lane, 4);
  return f;
}

// 2^(e - 128): half of the E8M0 value, because the table holds doubled values. Subnormal results are zero.
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

template <int K> void unpack_group(const DrutMatrix& m, const uint8_t* head, const uint8_t* g, int lane, float* out) {
  constexpr Kind t = kind_of(K);
  const int zero = t.zero + (t.scale == Scale::kGroup && m.zeros ? int8_t(head[kPanel * scale_size(m.scale) + lane]) : 0);
  const uint8_t* s = g + t.code_bytes() + t.plane_bytes();
  for (int k = 0; k < kGroup; ++k) {
    int part = k / (kGroup / t.parts);
    float scale, minimum = 0.0f;
    if (t.scale == Scale::kExponent) {
      scale = exponent_scale(s[lane]);
    } else if (t.scale == Scale::kGroup) {
      scale = load_scale(m.scale, head, lane);
    } else if (t.scale == Scale::kE4M3) {
      scale = num::e4m3_to_float(s[32 * part + lane]) * load_scale(kScaleF32, head, lane);
    } else if (t.scale == Scale::kHalf) {
      scale = load_half(s, lane);
      if (t.minimum) minimum = load_half(s + 64, lane);
    } else {
      uint8_t small = s[32 * part + lane];
      scale = load_half(head, lane) * float(t.minimum ? int(small) : int(int8_t(small)));
      if (t.minimum) minimum = -(load_half(head + 64, lane) * float(int(s[32 * (t.parts + part) + lane])));
    }
    float x = float(group_code(t, g, lane, k) - zero) * scale;
    out[k] = t.minimum ? x + minimum : x;
  }
}

// Calls body(head, group, k) for every group of a panel.
template <class Body> void for_each_group(const DrutMatrix& m, const uint8_t* b, Body body) {
  const Layout l(m);
  const int groups = m.k / kGroup;
  for (int unit = 0; unit < groups; unit += l.span) {
    const uint8_t* head = b;
    b += l.head;
    for (int g = unit; g < unit + l.span && g < groups; ++g, b += l.group) body(head, b, g * kGroup);
  }
}

template <int K> void unpack_lane(const DrutMatrix& m, const uint8_t* b, int lane, float* out) {
  for_each_group(m, b, [&](const uint8_t* head, const uint8_t* g, int k) { unpack_group<K>(m, head, g, lane, out + k); });
}

inline void unpack_fp8(const DrutMatrix& m, const uint8_t* b, int lane, float* out) {
  for_each_group(m, b, [&](const uint8_t* head, const uint8_t* g, int k) {
    const float scale = load_scale(m.scale, head, lane) * 256.0f;
    for (int i = 0; i < kGroup; ++i) out[k + i] = num::e4m3_to_float(g[i / 2 * 2 * kPanel + 2 * lane + i % 2]) * scale;
  });
}

inline void unpack_row(const DrutMatrix& m, int n, float* out) {
  const uint8_t* b = panel(m, n / kPanel);
  int lane = n % kPanel;
  if (m.kind == kFP8) return unpack_fp8(m, b, lane, out);
  if (is_integer(m.kind))
    return with_integer_kind(m.kind, [&](auto kind) { unpack_lane<kind.value>(m, b, lane, out); });
  for (int k = 0; k < m.k; ++k) {
    if (m.kind == kF32) memcpy(out + k, b + (int64_t(k) * 32 + lane) * 4, 4);
    else if (m.kind == kF16) out[k] = num::half_to_float(load16(b + (int64_t(k) * 32 + lane) * 2));
    else out[k] = num::bf16_to_float(load16(b + (int64_t(k / 2) * 64 + lane * 2 + k % 2) * 2));
  }
}

}  // namespace
