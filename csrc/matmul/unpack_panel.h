// Unpacks panels once for a block of rows: codes as bytes, scales and minima as floats. A kernel then does this work once
// for all rows. As many groups are unpacked at a time as fit in the first-level cache.
//
//   group   1024 B codes as bytes or 2048 B codes as 16-bit integers (Storage of kinds.h);
//           unless the matrix has one scale per row: per part 32 float scales, then per part 32 float minima if there are
//
// Instructions for 8-bit codes take all codes with zero point 128. The narrow dots take codes as they are, of 8 bits as
// 16-bit integers.
#pragma once
#include "matmul/gemm.h"

namespace {

constexpr int kUnpackedBytes = 21 << 10;

// The format to which groups of m are unpacked, or -1 if they are used as stored.
inline int unpacked_kind(const DrutMatrix& m) {
  if (!is_integer(m.kind)) return -1;
  const Kind t = kind_of(m.kind);
  const bool minimum = t.minimum || (t.scale == Scale::kGroup && m.zeros);
  if (!kNarrowDots && t.bits == 8) return -1;
  if (!kNarrowDots) return scaled_by_row(m) ? kRowWide : unpacked_to(kWide, t.parts, minimum);
  if (scaled_by_row(m)) return t.wide_codes() ? kRowWords : kRowBytes;
  return unpacked_to(t.wide_codes() ? kSixteen : t.bits == 4 ? kFour : t.bits == 5 ? kFive : kSix, t.parts, minimum);
}

// Stores the codes of one quad and half of the outputs in an unpacked group.
template <int K> inline void store_codes(const uint8_t* from, int quad, int half, uint8_t* group) {
  constexpr Kind t = kind_of(K);
  const auto store = [](uint8_t* to, I x) { vstore(reinterpret_cast<float*>(to), as_float(x)); };
  if (kNarrowDots && t.wide_codes()) {
    const CodePairs pairs = code_pairs<K>(from, quad, half);
    store(group + quad * 256 + half * 64, pairs.even);
    store(group + quad * 256 + 128 + half * 64, pairs.odd);
    return;
  }
  I code = codes_of<K>(from, quad, half);
  if (!kNarrowDots && t.zero != 128) code = iadd(code, iset(int32_t((128u - unsigned(t.zero)) * 0x01010101u)));
  store(group + quad * 128 + half * 64, code);
}

template <int K> void unpack_panel_group(const DrutMatrix& m, const uint8_t* head, const uint8_t* b, Kind unpacked, uint8_t* to) {
  constexpr Kind t = kind_of(K);
  const uint8_t* s = t.scale == Scale::kGroup ? head : b + t.code_bytes() + t.plane_bytes();
DRUT_UNROLL
  for (int quad = 0; quad < 8; ++quad) {
DRUT_UNROLL
    for (int half = 0; half < 2; ++half) store_codes<K>(b, quad, half, to);
  }
  if (unpacked.scale == Scale::kRow) return;
  float *scales = reinterpret_cast<float*>(to + unpacked.code_bytes()), *minima = scales + kPanel * t.parts;
DRUT_UNROLL
  for (int i = 0; i < 2 * t.parts; ++i) {
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
    if constexpr (kNarrowDots || kind_of(kind.value).bits < 8) unpack_panel_groups<kind.value>(m, panel, groups, unpacked, to);
  });
}

}  // namespace
