// Exact integer dot products of one part of a group: R rows of activations with the 32 outputs of a panel.
#pragma once
#include "matmul/activations.h"
#include "weights/kinds.h"

namespace {

#if defined(DRUT_NARROW_DOTS)
constexpr bool kNarrowDots = true;
#else
constexpr bool kNarrowDots = false;
#endif

inline int32_t quad(const ActGroup& g, int i) { int32_t v; memcpy(&v, g.q + 4 * i, 4); return v; }
#if defined(DRUT_NARROW_DOTS)
inline int32_t word(const ActGroup& g, int i) { int32_t v; memcpy(&v, g.words + 2 * i, 4); return v; }
#endif

// Codes of quad q (elements 4q..4q+3 of a group) for one half of the outputs, as unsigned bytes.
template <int K> inline I codes_of(const uint8_t* g, int q, int half) {
  constexpr Kind t = kind_of(K);
  if (t.bits == 8 || t.storage == kBytes) return iload(g + q * 128 + half * 64);
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

// The same codes as unsigned 16-bit integers: elements 4q and 4q + 2, 4q + 1 and 4q + 3.
struct CodePairs { I even, odd; };
template <int K> inline CodePairs code_pairs(const uint8_t* g, int q, int half) {
  if (kind_of(K).storage == kWords) return {iload(g + q * 256 + half * 64), iload(g + q * 256 + 128 + half * 64)};
  const I code = codes_of<K>(g, q, half), bytes = iset(0x00ff00ff);
  return {iand(code, bytes), iand(ishr(code, 8), bytes)};
}

// The zero point of a matrix whose codes are stored as K.
template <int K> inline int zero_of(const DrutMatrix& m) {
  constexpr Kind t = kind_of(K);
  return t.storage != kPacked && !t.zero ? kind_of(m.kind).zero : t.zero;
}

// Correction of the dot product of a part for the zero point: minus zero times the sum of its activations.
inline int32_t zero_point_term(const ActGroup& x, int parts, int part, int zero) {
  if (parts == 2) return x.minus_half[part] * (zero == 128 ? kCodeZero : zero);
  return zero == 128 ? x.zero128 : x.zero8 * (zero / 8);
}

// sum[r][h] = dot products of row r of a part with the outputs of half from + h, for h < H, less the zero points. more:
// adds to sum.
#if defined(DRUT_NARROW_DOTS)
// For instruction sets without a four-product instruction. Pairs of products of codes of at most 6 bits are summed in 16
// bits for as many quads as cannot overflow, then widened. Wider codes are multiplied as 16-bit integers.
template <int K, int R, int H, bool more = false>
inline void part_dots(const uint8_t* b, const ActGroup* act, int groups, int part, int zero, int from, I (*sum)[H]) {
  constexpr Kind t = kind_of(K);
  constexpr int quads = 8 / t.parts, fit = t.bits <= 4 ? 8 : t.bits == 5 ? 4 : 2;  // 2 * (2^bits - 1) * 127 * fit < 2^15
  constexpr int run = fit < quads ? fit : quads;
  static_assert(H == 1, "registers are for one half");
  if constexpr (t.wide_codes()) {
DRUT_UNROLL
    for (int r = 0; r < R && !more; ++r) sum[r][0] = iset(0);
DRUT_UNROLL
    for (int q = part * quads; q < (part + 1) * quads; ++q) {
      const CodePairs w = code_pairs<K>(b, q, from);
      const I even = in_registers(w.even), odd = in_registers(w.odd);
DRUT_UNROLL
      for (int r = 0; r < R; ++r) sum[r][0] = idot16(idot16(sum[r][0], even, word(act[r * groups], 2 * q)), odd, word(act[r * groups], 2 * q + 1));
    }
  } else {
DRUT_UNROLL
    for (int at = part * quads; at < (part + 1) * quads; at += run) {
      Narrow acc[R];
DRUT_UNROLL
      for (int r = 0; r < R; ++r) acc[r] = narrow_zero();
DRUT_UNROLL
      for (int i = 0; i < run; ++i) {
        const I w = in_registers(codes_of<K>(b, at + i, from));
DRUT_UNROLL
        for (int r = 0; r < R; ++r) acc[r] = add_pairs(acc[r], w, quad(act[r * groups], at + i));
      }
DRUT_UNROLL
      for (int r = 0; r < R; ++r) sum[r][0] = more || at > part * quads ? iadd(sum[r][0], widened(acc[r])) : widened(acc[r]);
    }
  }
DRUT_UNROLL
  for (int r = 0; r < R; ++r) sum[r][0] = iadd(sum[r][0], iset(zero_point_term(act[r * groups], t.parts, part, zero)));
}
#else
template <int K, int R, int H, bool more = false>
inline void part_dots(const uint8_t* b, const ActGroup* act, int groups, int part, int zero, int from, I (*sum)[H]) {
  constexpr Kind t = kind_of(K);
  constexpr int quads = 8 / t.parts;
DRUT_UNROLL
  for (int r = 0; r < R; ++r) {
DRUT_UNROLL
    for (int h = 0; h < H; ++h) {
      const I start = iset(zero_point_term(act[r * groups], t.parts, part, zero));
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
