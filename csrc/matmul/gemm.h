// The matrix kernels: up to kMaxRows rows of activations times groups of one panel of 32 outputs. A lane is an output, so
// every output accumulates along K in ascending order, and its bits do not depend on the number of rows.
#pragma once
#include "matmul/dots.h"
#include "weights/packing.h"

namespace {

// Prefetches the next panel while a kernel computes: for each group, `lines` cache lines that start `offset` bytes
// after it. The passes over a panel divide the lines of the next panel among them.
struct PanelPrefetch {
  int64_t offset;
  int lines;
  void operator()(const uint8_t* group) const {
    for (int i = 0; i < lines; ++i) __builtin_prefetch(group + offset + i * 64, 0, 2);
  }
};

// Groups [begin, end) along K. fresh: their sum starts at +0; else it continues the sum in the tile.
struct GroupRange { int begin, end; bool fresh; };

// Multiplies rows `row`.. of a by the groups of a panel. b: the unit in memory that has the first of `groups`. tile:
// (rows, 32) sums.
using PanelKernel = void (*)(const DrutMatrix& m, const uint8_t* b, GroupRange groups, const Acts& a, int row, float* tile, PanelPrefetch prefetch);

inline V load_scales(int scale, const uint8_t* p, int half) {
  if (scale == kScaleF32) return vload(reinterpret_cast<const float*>(p) + 16 * half);
  const uint16_t* h = reinterpret_cast<const uint16_t*>(p) + 16 * half;
  return scale == kScaleF16 ? vload_half(h) : vload_bf16(h);
}

// Scales of one half of the outputs for a part of a group. s: the scales of the group, head: the head of the unit.
template <int K> inline V scale_of(const DrutMatrix& m, const uint8_t* head, const uint8_t* s, int part, int half) {
  constexpr Kind t = kind_of(K);
  if (t.scale == Scale::kFloat) return vload(reinterpret_cast<const float*>(s) + kPanel * part + 16 * half);
  if (t.scale == Scale::kGroup) return load_scales(m.scale, head, half);
  if (t.scale == Scale::kE4M3) return vmul(vload_e4m3(s + 32 * part + 16 * half), load_scales(kScaleF32, head, half));
  if (t.scale == Scale::kExponent) {
    I e = iload_u8(s + 16 * half);
    return vselect_lt(to_float(e), vset(2.0f), vset(0.0f), as_float(ishl(iadd(e, iset(-1)), 23)));
  }
  if (t.scale == Scale::kHalf) return vload_half(reinterpret_cast<const uint16_t*>(s) + 16 * half);
  const uint8_t* small = s + 32 * part + 16 * half;
  V d = vload_half(reinterpret_cast<const uint16_t*>(head) + 16 * half);
  return vmul(d, to_float(t.minimum ? iload_u8(small) : iload_i8(small)));
}

template <int K> inline V minimum_of(const DrutMatrix& m, const uint8_t* head, const uint8_t* s, int part, int half) {
  constexpr Kind t = kind_of(K);
  if (t.scale == Scale::kFloat) return vload(reinterpret_cast<const float*>(s) + kPanel * (t.parts + part) + 16 * half);
  if (t.scale == Scale::kGroup) {
    V zero = to_float(iload_i8(head + kPanel * scale_size(m.scale) + 16 * half));
    return vsub(vset(0.0f), vmul(zero, load_scales(m.scale, head, half)));
  }
  if (t.scale == Scale::kHalf) return vload_half(reinterpret_cast<const uint16_t*>(s + 64) + 16 * half);
  V d = vload_half(reinterpret_cast<const uint16_t*>(head + 64) + 16 * half);
  return vsub(vset(0.0f), vmul(d, to_float(iload_u8(s + 32 * (t.parts + part) + 16 * half))));
}

// Accumulators of R rows and H halves: in registers, or in the tile if the integer sums of so many rows leave no
// registers free. The order of operations is the same.
template <int R, int H, bool kInRegisters> struct Accumulators {
  float* tile;
  V acc[kInRegisters ? R : 1][H];
  Accumulators(float* tile, bool fresh) : tile(tile) {
    if (!kInRegisters && !fresh) return;
DRUT_UNROLL
    for (int r = 0; r < R; ++r) {
DRUT_UNROLL
      for (int h = 0; h < H; ++h) put(r, h, fresh ? vset(0.0f) : vload(tile + r * 32 + h * 16));
    }
  }
  void put(int r, int h, V x) {
    if (kInRegisters) acc[r][h] = x;
    else vstore(tile + r * 32 + h * 16, x);
  }
  V get(int r, int h) const { return kInRegisters ? acc[r][h] : vload(tile + r * 32 + h * 16); }
  void finish() {
DRUT_UNROLL
    for (int r = 0; kInRegisters && r < R; ++r) {
DRUT_UNROLL
      for (int h = 0; h < H; ++h) vstore(tile + r * 32 + h * 16, acc[r][h]);
    }
  }
};

// Integer kinds. For each part of each group, ascending: s = exact dot product of codes and activations;
// acc = fma(float(s) * act_scale, weight_scale, acc); for kinds with minima then acc = fma(scaled_sum, minimum, acc).
template <int K, int R, int H>
void int_halves(const DrutMatrix& m, const uint8_t* b, GroupRange range, const Acts& a, int row, float* tile, PanelPrefetch prefetch, int from) {
  constexpr Kind t = kind_of(K);
  const int groups = a.k / kGroup;
  int span = t.groups(), head_bytes = t.head_bytes();
  if constexpr (t.variable_units()) {
    const Layout l(m);
    span = l.span;
    head_bytes = l.head;
  }
  constexpr bool one_scale = t.scale == Scale::kGroup;  // one scale for the whole unit: loaded once
  constexpr bool one_group = !t.variable_units() && t.groups() == 1;
  const bool minima = t.minimum || (one_scale && m.zeros);
  const int zero = zero_of<K>(m);
  const ActGroup* act = a.groups + int64_t(row) * groups + range.begin;
  Accumulators<R, H, (R <= kRegisterRows)> acc(tile + from * 16, range.fresh);
  int done = one_group ? 0 : range.begin % span;  // groups of the first unit before the range
  for (int at = range.begin, here; at < range.end; at += here, done = 0) {
    const uint8_t* head = b;
    b += head_bytes + done * t.group_bytes();
    here = one_group ? 1 : range.end - at < span - done ? range.end - at : span - done;
    V d[H], minimum[H];
DRUT_UNROLL
    for (int h = 0; one_scale && h < H; ++h) {
      d[h] = scale_of<K>(m, head, head, 0, from + h);
      if (minima) minimum[h] = minimum_of<K>(m, head, head, 0, from + h);
    }
    for (int g = 0; g < here; ++g, ++act, b += t.group_bytes()) {
      const uint8_t* s = b + t.code_bytes() + t.plane_bytes();
      prefetch(b);
DRUT_UNROLL
      for (int part = 0; part < t.parts; ++part) {
        I sum[R][H];
        part_dots<K, R, H>(b, act, groups, part, zero, from, sum);
DRUT_UNROLL
        for (int h = 0; !one_scale && h < H; ++h) d[h] = scale_of<K>(m, head, s, part, from + h);
DRUT_UNROLL
        for (int r = 0; r < R; ++r) {
          V x = vset(act[r * groups].scale);
DRUT_UNROLL
          for (int h = 0; h < H; ++h) acc.put(r, h, vfma(vmul(to_float(sum[r][h]), x), d[h], acc.get(r, h)));
        }
        if (!minima) continue;
DRUT_UNROLL
        for (int h = 0; !one_scale && h < H; ++h) minimum[h] = minimum_of<K>(m, head, s, part, from + h);
DRUT_UNROLL
        for (int r = 0; r < R; ++r) {
          const ActGroup& x = act[r * groups];
          V scaled = vset(t.parts == 2 ? x.scaled_half[part] : x.scaled_sum);
DRUT_UNROLL
          for (int h = 0; h < H; ++h) acc.put(r, h, vfma(scaled, minimum[h], acc.get(r, h)));
        }
      }
    }
  }
  acc.finish();
}

// Codes with one scale per row, activations with one scale for each pair of groups. For each pair, ascending: s = exact
// dot product of the codes less their zero points and the activations; acc = fma(float(s), act_scale, acc). `finish_rows`
// multiplies by the scales of the rows. b: the panel; of unpacked kinds kRowHead bytes that start with the zero points,
// then groups.
constexpr int kRowHead = 64;
template <int K, int R, int H>
void row_halves(const DrutMatrix& m, const uint8_t* b, GroupRange range, const Acts& a, int row, float* tile, PanelPrefetch prefetch, int from) {
  constexpr Kind t = kind_of(K);
  constexpr int bytes = t.group_bytes();
  const int groups = a.k / kGroup;
  const uint8_t* zeros = t.storage == kPacked ? b + kPanel * scale_size(m.scale) : b;
  b += t.storage == kPacked ? Layout(m).head + int64_t(range.begin) * bytes : kRowHead;
  const ActGroup* act = a.wide + int64_t(row) * groups + range.begin;
  Accumulators<R, H, (R <= kRegisterRows)> acc(tile + from * 16, range.fresh);
  V eighth[H] = {};  // of the zero points: zero8 is minus eight times the sum of the activations, and all of it is exact
  for (int h = 0; m.zeros && h < H; ++h) eighth[h] = vmul(to_float(iload_i8(zeros + 16 * (from + h))), vset(0.125f));
  for (int g = range.begin; g < range.end; g += 2, act += 2) {
    const bool pair = g + 1 < range.end;
    I sum[R][H];
    part_dots<K, R, H>(b, act, groups, 0, t.zero, from, sum);
    prefetch(b += bytes);
    if (pair) {
      part_dots<K, R, H, true>(b, act + 1, groups, 0, t.zero, from, sum);
      prefetch(b += bytes);
    }
DRUT_UNROLL
    for (int r = 0; r < R; ++r) {
      const ActGroup& x = act[r * groups];
      const V scale = vset(x.scale), minus_sum = vset(float(x.zero8 + (pair ? (&x)[1].zero8 : 0)));
DRUT_UNROLL
      for (int h = 0; h < H; ++h) {
        V s = to_float(sum[r][h]);
        if (m.zeros) s = vfma(minus_sum, eighth[h], s);
        acc.put(r, h, vfma(s, scale, acc.get(r, h)));
      }
    }
  }
  acc.finish();
}

// Multiplies `rows` rows of sums by the scales of a panel's rows.
inline void finish_rows(const DrutMatrix& m, const uint8_t* panel, int rows, float* tile) {
  const V d[2] = {load_scales(m.scale, panel, 0), load_scales(m.scale, panel, 1)};
  for (int i = 0; i < rows * kPanel; i += 16) vstore(tile + i, vmul(vload(tile + i), d[i / 16 % 2]));
}

template <int K, int R>
void row_panel(const DrutMatrix& m, const uint8_t* b, GroupRange groups, const Acts& a, int row, float* tile, PanelPrefetch prefetch) {
  row_halves<K, R, kHalves>(m, b, groups, a, row, tile, prefetch, 0);
  if (kHalves == 1) row_halves<K, R, kHalves>(m, b, groups, a, row, tile, {0, 0}, 1);
}

template <int K, int R>
void int_panel(const DrutMatrix& m, const uint8_t* b, GroupRange groups, const Acts& a, int row, float* tile, PanelPrefetch prefetch) {
  int_halves<K, R, kHalves>(m, b, groups, a, row, tile, prefetch, 0);
  if (kHalves == 1) int_halves<K, R, kHalves>(m, b, groups, a, row, tile, {0, 0}, 1);
}

// Float kinds: acc = fma(weight, activation, acc), k ascending. bf16 takes the odd element of a pair before the even
// one.
template <int Kind, int R, int H>
void float_halves(const uint8_t* b, GroupRange range, const Acts& a, int row, float* tile, PanelPrefetch prefetch, int from) {
  constexpr int half = Kind == kF16 ? 32 : 64, line = Kind == kF32 ? 128 : 64;  // bytes of half the outputs; of one k or pair
  const float* x = Kind == kBF16 ? a.bf16 + int64_t(row) * a.k : a.floats + int64_t(row) * a.float_stride;
  const int64_t stride = Kind == kBF16 ? a.k : a.float_stride;
  tile += from * 16;
  b += from * half;
  V acc[R][H];
DRUT_UNROLL
  for (int r = 0; r < R; ++r) {
DRUT_UNROLL
    for (int h = 0; h < H; ++h) acc[r][h] = range.fresh ? vset(0.0f) : vload(tile + r * kPanel + h * 16);
  }
  for (int k = range.begin * kGroup; k < range.end * kGroup; k += 2, b += 2 * line) {
    if (k % kGroup == 0) prefetch(b);
    if constexpr (Kind == kBF16) {
      Bf16Pair w[H];
DRUT_UNROLL
      for (int h = 0; h < H; ++h) w[h] = bf16_pair_load(b + h * half);
DRUT_UNROLL
      for (int r = 0; r < R; ++r) {
DRUT_UNROLL
        for (int h = 0; h < H; ++h) acc[r][h] = bf16_pair_dot(acc[r][h], w[h], x + r * stride, k / 2);
      }
    } else {
      for (int i = 0; i < 2; ++i) {
        V w[H];
DRUT_UNROLL
        for (int h = 0; h < H; ++h) {
          const uint8_t* at = b + i * line + h * half;
          w[h] = Kind == kF16 ? vload_half(reinterpret_cast<const uint16_t*>(at)) : vload(reinterpret_cast<const float*>(at));
        }
DRUT_UNROLL
        for (int r = 0; r < R; ++r) {
          const V v = vset(x[r * stride + k + i]);
DRUT_UNROLL
          for (int h = 0; h < H; ++h) acc[r][h] = vfma(w[h], v, acc[r][h]);
        }
      }
    }
  }
DRUT_UNROLL
  for (int r = 0; r < R; ++r) {
DRUT_UNROLL
    for (int h = 0; h < H; ++h) vstore(tile + r * kPanel + h * 16, acc[r][h]);
  }
}

template <int Kind, int R>
void float_panel(const DrutMatrix&, const uint8_t* b, GroupRange range, const Acts& a, int row, float* tile, PanelPrefetch prefetch) {
  float_halves<Kind, R, kHalves>(b, range, a, row, tile, prefetch, 0);
  if (kHalves == 1) float_halves<Kind, R, kHalves>(b, range, a, row, tile, {0, 0}, 1);
}

// FP8: for each unit, as far as it is in the range, p = fma(2^-8 weight, activation, p), k ascending from +0; then
// acc = fma(p, 2^8 scale, acc).
template <int R>
void fp8_panel(const DrutMatrix& m, const uint8_t* b, GroupRange range, const Acts& a, int row, float* tile, PanelPrefetch prefetch) {
  const float* x = a.floats + int64_t(row) * a.float_stride;
  const Layout l(m);
  for (int i = 0; range.fresh && i < R * kPanel; i += 16) vstore(tile + i, vset(0.0f));
  int done = range.begin % l.span;  // groups of the first unit before the range
  for (int at = range.begin, here; at < range.end; at += here, done = 0) {
    const uint8_t* head = b;
    b += l.head + done * l.group;
    here = range.end - at < l.span - done ? range.end - at : l.span - done;
    V p[R][2];
DRUT_UNROLL
    for (int r = 0; r < R; ++r) p[r][0] = p[r][1] = vset(0.0f);
    for (int k = at * kGroup; k < (at + here) * kGroup; k += 2, b += 2 * kPanel) {
      if (k % kGroup == 0) prefetch(b);
      V even[2], odd[2];
      vload_e4m3_pairs(b, even, odd);
DRUT_UNROLL
      for (int r = 0; r < R; ++r) {
        const V v = vset(x[r * a.float_stride + k]), next = vset(x[r * a.float_stride + k + 1]);
DRUT_UNROLL
        for (int h = 0; h < 2; ++h) p[r][h] = vfma(odd[h], next, vfma(even[h], v, p[r][h]));
      }
    }
    V d0 = vmul(load_scales(m.scale, head, 0), vset(256.0f)), d1 = vmul(load_scales(m.scale, head, 1), vset(256.0f));
DRUT_UNROLL
    for (int r = 0; r < R; ++r) {
      float* y = tile + r * kPanel;
      vstore(y, vfma(p[r][0], d0, vload(y)));
      vstore(y + 16, vfma(p[r][1], d1, vload(y + 16)));
    }
  }
}

template <int R> PanelKernel kernel_for(int kind) {
  switch (kind) {
#if defined(DRUT_NARROW_DOTS)
    case unpacked_to(kFour, 1, false): return int_panel<unpacked_to(kFour, 1, false), R>;
    case unpacked_to(kFour, 1, true): return int_panel<unpacked_to(kFour, 1, true), R>;
    case unpacked_to(kFour, 2, false): return int_panel<unpacked_to(kFour, 2, false), R>;
    case unpacked_to(kFour, 2, true): return int_panel<unpacked_to(kFour, 2, true), R>;
    case unpacked_to(kFive, 1, false): return int_panel<unpacked_to(kFive, 1, false), R>;
    case unpacked_to(kFive, 1, true): return int_panel<unpacked_to(kFive, 1, true), R>;
    case unpacked_to(kSix, 2, false): return int_panel<unpacked_to(kSix, 2, false), R>;
    case unpacked_to(kSixteen, 1, false): return int_panel<unpacked_to(kSixteen, 1, false), R>;
    case unpacked_to(kSixteen, 1, true): return int_panel<unpacked_to(kSixteen, 1, true), R>;
    case unpacked_to(kSixteen, 2, false): return int_panel<unpacked_to(kSixteen, 2, false), R>;
    case kRowBytes: return row_panel<kRowBytes, R>;
    case kRowWords: return row_panel<kRowWords, R>;
#else
    case unpacked_to(kWide, 1, false): return int_panel<unpacked_to(kWide, 1, false), R>;
    case unpacked_to(kWide, 1, true): return int_panel<unpacked_to(kWide, 1, true), R>;
    case unpacked_to(kWide, 2, false): return int_panel<unpacked_to(kWide, 2, false), R>;
    case unpacked_to(kWide, 2, true): return int_panel<unpacked_to(kWide, 2, true), R>;
    case kRowWide: return row_panel<kRowWide, R>;
#endif
    case kRowW4: return row_panel<kRowW4, R>;
    case kRowW8: return row_panel<kRowW8, R>;
    case kFP8: return fp8_panel<R>;
    case kF32: return float_panel<kF32, R>;
    case kF16: return float_panel<kF16, R>;
    case kBF16: return float_panel<kBF16, R>;
    default: return with_integer_kind(kind, [](auto which) -> PanelKernel { return int_panel<which.value, R>; });
  }
}

constexpr int at_most(int rows) { return rows < kMaxRows ? rows : kMaxRows; }

// The kind of the kernels that read the matrix as it is stored.
inline int kernel_kind(const DrutMatrix& m) { return !scaled_by_row(m) ? m.kind : m.kind == kW4 ? kRowW4 : kRowW8; }

inline PanelKernel kernel_of(int kind, int rows) {
  switch (rows) {
    case 1: return kernel_for<1>(kind);
    case 2: return kernel_for<2>(kind);
    case 3: return kernel_for<at_most(3)>(kind);
    case 4: return kernel_for<at_most(4)>(kind);
    case 5: return kernel_for<at_most(5)>(kind);
    case 6: return kernel_for<at_most(6)>(kind);
    case 7: return kernel_for<at_most(7)>(kind);
    default: return kernel_for<kMaxRows>(kind);
  }
}

}  // namespace
