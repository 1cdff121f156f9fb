// Weights of fewer bits opened for many rows: codes as bytes around 128, scales and minima as floats, so that a kernel
// does once for all rows what it would do for each few. Only as much of a panel as the first-level cache keeps.
//
//   group   1024 B codes as of 8 bits; per part 32 float scales; per part 32 float minima where there are any
#pragma once
#include "matmul/gemm.h"

namespace {

constexpr int kOpenedBytes = 18 << 10;

// What m's groups are opened to; -1 where they are used as they lie. Pairs of products in 16 bits want few bits.
inline int opened_kind(const DrutMatrix& m) {
#if defined(DRUT_NARROW_DOTS)
  (void)m;
  return -1;
#else
  const Kind t = kind_of(m.kind);
  if (!is_integer(m.kind) || t.bits == 8) return -1;
  const bool minimum = t.minimum || (t.scale == Scale::kGroup && m.zeros);
  return (t.parts == 2 ? kOpenedHalves : kOpened) + minimum;
#endif
}

template <int K> void open_group(const DrutMatrix& m, const uint8_t* head, const uint8_t* b, bool minimum, uint8_t* to) {
  constexpr Kind t = kind_of(K);
  const I middle = iset(int32_t((128u - unsigned(t.zero)) * 0x01010101u));
  const uint8_t* s = t.scale == Scale::kGroup ? head : b + t.code_bytes() + t.plane_bytes();
  float *codes = reinterpret_cast<float*>(to), *scales = codes + 256, *minima = scales + kPanel * t.parts;
DRUT_UNROLL
  for (int i = 0; i < 16; ++i) {
    const I code = codes_of<K>(b, i / 2, i % 2);
    vstore(codes + 16 * i, as_float(t.zero == 128 ? code : iadd(code, middle)));
  }
DRUT_UNROLL
  for (int i = 0; i < 2 * t.parts; ++i) {
    vstore(scales + 16 * i, scale_of<K>(m, head, s, i / 2, i % 2));
    if (minimum) vstore(minima + 16 * i, minimum_of<K>(m, head, s, i / 2, i % 2));
  }
}

// Groups of a panel to `to`, one after the other.
template <int K> void open_groups(const DrutMatrix& m, const uint8_t* panel, Groups groups, Kind opened, uint8_t* to) {
  constexpr Kind t = kind_of(K);
  const Layout l(m);
  const int span = t.open() ? l.span : t.groups(), head_bytes = t.open() ? l.head : t.head_bytes();
  const int unit_bytes = head_bytes + span * t.group_bytes();
  int unit = groups.begin / span, done = groups.begin - unit * span;  // groups of a unit that are not wanted
  const uint8_t* head = panel + int64_t(unit) * unit_bytes;
  for (int g = groups.begin; g < groups.end; head += unit_bytes, done = 0) {
    const uint8_t* b = head + head_bytes + done * t.group_bytes();
    for (; done < span && g < groups.end; ++done, ++g, b += t.group_bytes(), to += opened.group_bytes())
      open_group<K>(m, head, b, opened.minimum, to);
  }
}

inline void open_groups(const DrutMatrix& m, const uint8_t* panel, Groups groups, uint8_t* to) {
  const Kind opened = kind_of(opened_kind(m));
  with_integer_kind(m.kind, [&](auto kind) {
    if constexpr (kind_of(kind.value).bits < 8) open_groups<kind.value>(m, panel, groups, opened, to);
  });
}

}  // namespace
