// Unpacks sub-8-bit panels to bytes once for a block of rows: codes as bytes with zero point 128, scales and minima as
// floats. A kernel then does this work once for all rows. As many groups are unpacked at a time as fit in the
// first-level cache.
//
//   group   1024 B codes as 8-bit codes; per part 32 float scales; per part 32 float minima if the kind has minima;
//           of kUnpackedRow codes alone
#pragma once
#include "matmul/gemm.h"

namespace {

constexpr int kUnpackedBytes = 18 << 10;

// The format to which groups of m are unpacked, or -1 if they are used as stored. The narrow dots need codes of few
// bits.
inline int unpacked_kind(const DrutMatrix& m) {
#if defined(DRUT_NARROW_DOTS)
  (void)m;
  return -1;
#else
  const Kind t = kind_of(m.kind);
  if (!is_integer(m.kind) || t.bits == 8) return -1;
  if (scaled_by_row(m)) return kUnpackedRow;
  const bool minimum = t.minimum || (t.scale == Scale::kGroup && m.zeros);
  return (t.parts == 2 ? kUnpackedHalves : kUnpacked) + minimum;
#endif
}

template <int K> void unpack_panel_group(const DrutMatrix& m, const uint8_t* head, const uint8_t* b, Kind unpacked, uint8_t* to) {
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
  for (int i = 0; unpacked.scale != Scale::kRow && i < 2 * t.parts; ++i) {
    vstore(scales + 16 * i, scale_of<K>(m, head, s, i / 2, i % 2));
    if (unpacked.minimum) vstore(minima + 16 * i, minimum_of<K>(m, head, s, i / 2, i % 2));
  }
}

// Unpacks groups of a panel to `to`, one after another.
template <int K> void unpack_panel_groups(const DrutMatrix& m, const uint8_t* panel, GroupRange groups, Kind unpacked, uint8_t* to) {
  constexpr Kind t = kind_of(K);
  const Layout l(m);
  const int span = t.variable_units() ? l.span : t.groups(), head_bytes = t.variable_units() ? l.head : t.head_bytes();
  const int unit_bytes = head_bytes + span * t.group_bytes();
  int unit = groups.begin / span, done = groups.begin - unit * span;  // done: groups of the unit to skip
  const uint8_t* head = panel + int64_t(unit) * unit_bytes;
  for (int g = groups.begin; g < groups.end; head += unit_bytes, done = 0) {
    const uint8_t* b = head + head_bytes + done * t.group_bytes();
    for (; done < span && g < groups.end; ++done, ++g, b += t.group_bytes(), to += unpacked.group_bytes())
      unpack_panel_group<K>(m, head, b, unpacked, to);
  }
}

inline void unpack_panel_groups(const DrutMatrix& m, const uint8_t* panel, GroupRange groups, uint8_t* to) {
  const Kind unpacked = kind_of(unpacked_kind(m));
  with_integer_kind(m.kind, [&](auto kind) {
    if constexpr (kind_of(kind.value).bits < 8) unpack_panel_groups<kind.value>(m, panel, groups, unpacked, to);
  });
}

}  // namespace
