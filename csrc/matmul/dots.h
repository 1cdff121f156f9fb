// Exact integer dot products of one part of a group: R rows of activations with the 32 outputs of a panel.
#pragma once
#include "matmul/activations.h"
#include "weights/kinds.h"

namespace {

inline int32_t quad(const ActGroup& g, int i) { int32_t v; memcpy(&v, g.q + 4 * i, 4); return v; }

// Codes of quad q (elements 4q..4q+3 of a group) for one half of the outputs, as unsigned bytes.
template <int K> inline I codes_of(const uint8_t* g, int q, int half) {
  constexpr Kind t = kind_of(K);
  if (t.bits == 8) return iload(g + q * 128 + half * 64);
  I nibbles = iload(g + q / 2 * 128 + half * 64);
  I code = iand(q % 2 ? ishr(nibbles, 4) : nibbles, iset(0x0f0f0f0f));
  if (t.bits == 5) {
    I plane = iload(g + 512 + half * 64);
    code = ior(code, iand(q < 4 ? ishl(plane, 4 - q) : ishr(plane, q - 4), iset(0x10101010)));
  }
  if (t.bits == 6) {
    I plane = iload(g + 512 + half * 128 + q / 4 * 64);
    int f = q % 4;
    code = ior(code, iand(f < 2 ? ishl(plane, 4 - 2 * f) : ishr(plane, 2 * f - 4), iset(0x30303030)));
  }
  return t.table ? ilookup(kTables[t.table - 1], code) : code;
}

// Correction of the dot product of a part for the zero point: minus zero times the sum of its activations.
template <int K> inline int32_t zero_point_term(const ActGroup& x, int part) {
  constexpr Kind t = kind_of(K);
  if (t.parts == 2) return x.minus_half[part] * (t.zero == 128 ? kCodeZero : t.zero);
  return t.zero == 8 ? x.zero8 : t.zero == 128 ? x.zero128 : t.zero == 16 ? 2 * x.zero8 : 0;
}

// sum[r][h] = dot products of row r of a part with the outputs of half from + h, for h < H. more: adds to sum.
#if defined(DRUT_NARROW_DOTS)
// For instruction sets without a four-product instruction: pairs of products are summed in 16 bits for as many quads as
// cannot overflow, then widened. 8-bit codes are split into two 4-bit halves.
template <int K, int R, int H, bool more = false>
inline void part_dots(const uint8_t* b, const ActGroup* act, int groups, int part, int from, I (*sum)[H]) {
  constexpr Kind t = kind_of(K);
  constexpr bool split = t.bits == 8 || t.table;
  constexpr int bits = split ? 4 : t.bits, quads = 8 / t.parts;
  constexpr int fit = bits <= 4 ? 8 : bits == 5 ? 4 : 2;  // 2 * (2^bits - 1) * 127 * fit < 2^15
  constexpr int run = fit < quads ? fit : quads;
  static_assert(H == 1, "registers are for one half");
DRUT_UNROLL
  for (int r = 0; r < R; ++r) {
    const I start = iset(zero_point_term<K>(act[r * groups], part));
    sum[r][0] = more ? iadd(sum[r][0], start) : start;
  }
DRUT_UNROLL
  for (int high = 0; high <= split; ++high) {
DRUT_UNROLL
    for (int at = part * quads; at < (part + 1) * quads; at += run) {
      Narrow acc[R];
DRUT_UNROLL
      for (int r = 0; r < R; ++r) acc[r] = narrow_zero();
DRUT_UNROLL
      for (int i = 0; i < run; ++i) {
        I w = codes_of<K>(b, at + i, from);
        if (split) w = iand(high ? ishr(w, 4) : w, iset(0x0f0f0f0f));
DRUT_UNROLL
        for (int r = 0; r < R; ++r) acc[r] = add_pairs(acc[r], w, quad(act[r * groups], at + i));
      }
DRUT_UNROLL
      for (int r = 0; r < R; ++r) sum[r][0] = iadd(sum[r][0], high ? ishl(widened(acc[r]), 4) : widened(acc[r]));
    }
  }
}
#else
template <int K, int R, int H, bool more = false>
inline void part_dots(const uint8_t* b, const ActGroup* act, int groups, int part, int from, I (*sum)[H]) {
  constexpr Kind t = kind_of(K);
  constexpr int quads = 8 / t.parts;
DRUT_UNROLL
  for (int r = 0; r < R; ++r) {
DRUT_UNROLL
    for (int h = 0; h < H; ++h) {
      const I start = iset(zero_point_term<K>(act[r * groups], part));
      sum[r][h] = more ? iadd(sum[r][h], start) : start;
    }
  }
DRUT_UNROLL
  for (int i = 0; i < quads; ++i) {
    const int q = part * quads + i;
    I w[H];
DRUT_UNROLL
    for (int h = 0; h < H; ++h) w[h] = codes_of<K>(b, q, from + h);
DRUT_UNROLL
    for (int r = 0; r < R; ++r) {
      const int32_t x = quad(act[r * groups], q);
DRUT_UNROLL
      for (int h = 0; h < H; ++h) sum[r][h] = t.bits == 8 || t.table ? idot8(sum[r][h], w[h], x) : idot7(sum[r][h], w[h], x);
    }
  }
}
#endif

}  // namespace
