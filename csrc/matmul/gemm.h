// The matrix kernels: up to kMaxRows rows of activations against one panel of 32 outputs. A lane is an output, so every
// output adds its partial results along K in ascending order and nothing depends on the number of rows.
#pragma once
#include "matmul/dots.h"
#include "weights/packing.h"

namespace {

// What a kernel asks of memory while it computes: `lines` cache lines of each group from `offset` on, counted from where
// the group would lie in the panel that comes next. Passes over a panel divide the lines of the next among them.
struct Fetch {
  int64_t offset;
  int lines;
  void operator()(const uint8_t* group) const {
    for (int i = 0; i < lines; ++i) __builtin_prefetch(group + offset + i * 64, 0, 2);
  }
};

// Groups begin..end of K.
struct Groups { int begin, end; };

// tile: (rows, 32), of the rows from `row` on. b: the panel, at the first of `groups`; what those before them came to lies
// in the tile. Of kinds other than opened ones all groups are taken at once.
using PanelKernel = void (*)(const DrutMatrix& m, const uint8_t* b, Groups groups, const Acts& a, int row, float* tile, Fetch fetch);

inline V load_scales(int scale, const uint8_t* p, int half) {
  if (scale == kScaleF32) return vload(reinterpret_cast<const float*>(p) + 16 * half);
  const uint16_t* h = reinterpret_cast<const uint16_t*>(p) + 16 * half;
  return scale == kScaleF16 ? vload_half(h) : vload_brain(h);
}

// Scale of one half of the outputs for a part of a group; s: the group's scales, head: the unit's.
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

// Where the results of a kernel grow, H halves of the outputs from `tile` on: in registers, or in the tile where the
// rows' integer sums leave none free.
template <int R, int H, bool kInRegisters> struct Results {
  float* tile;
  V acc[kInRegisters ? R : 1][H];
  Results(float* tile, bool fresh) : tile(tile) {
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

// Integer kinds. For each part of each group, ascending: s = the exact dot of codes and activations;
// acc = fma(float(s) * act_scale, weight_scale, acc), then for minima acc = fma(scaled_sum, minimum, acc).
template <int K, int R, int H>
void int_halves(const DrutMatrix& m, const uint8_t* b, Groups range, const Acts& a, int row, float* tile, Fetch fetch, int from) {
  constexpr Kind t = kind_of(K);
  const int groups = a.k / kGroup;
  const Layout l(m);
  const int span = t.open() ? l.span : t.groups(), head_bytes = t.open() ? l.head : t.head_bytes();
  constexpr bool once = t.scale == Scale::kGroup;  // a unit has one scale
  const bool minima = t.minimum || (once && m.zeros);
  const ActGroup* act = a.groups + int64_t(row) * groups + range.begin;
  Results<R, H, (R <= kRegisterRows)> acc(tile + from * 16, K < kOpened || !range.begin);
  for (int unit = range.begin; unit < range.end; unit += span) {
    const uint8_t* head = b;
    b += head_bytes;
    const int here = t.open() && range.end - unit < span ? range.end - unit : span;
    V d[H], least[H];
DRUT_UNROLL
    for (int h = 0; once && h < H; ++h) {
      d[h] = scale_of<K>(m, head, head, 0, from + h);
      if (minima) least[h] = minimum_of<K>(m, head, head, 0, from + h);
    }
    for (int g = 0; g < here; ++g, ++act, b += t.group_bytes()) {
      const uint8_t* s = b + t.code_bytes() + t.plane_bytes();
      fetch(b);
DRUT_UNROLL
      for (int part = 0; part < t.parts; ++part) {
        I sum[R][H];
        part_dots<K, R, H>(b, act, groups, part, from, sum);
DRUT_UNROLL
        for (int h = 0; !once && h < H; ++h) d[h] = scale_of<K>(m, head, s, part, from + h);
DRUT_UNROLL
        for (int r = 0; r < R; ++r) {
          V x = vset(act[r * groups].scale);
DRUT_UNROLL
          for (int h = 0; h < H; ++h) acc.put(r, h, vfma(vmul(to_float(sum[r][h]), x), d[h], acc.get(r, h)));
        }
        if (!minima) continue;
DRUT_UNROLL
        for (int h = 0; !once && h < H; ++h) least[h] = minimum_of<K>(m, head, s, part, from + h);
DRUT_UNROLL
        for (int r = 0; r < R; ++r) {
          const ActGroup& x = act[r * groups];
          V scaled = vset(t.parts == 2 ? x.scaled_half[part] : x.scaled_sum);
DRUT_UNROLL
          for (int h = 0; h < H; ++h) acc.put(r, h, vfma(scaled, least[h], acc.get(r, h)));
        }
      }
    }
  }
  acc.finish();
}

template <int K, int R>
void int_panel(const DrutMatrix& m, const uint8_t* b, Groups groups, const Acts& a, int row, float* tile, Fetch fetch) {
  int_halves<K, R, kHalves>(m, b, groups, a, row, tile, fetch, 0);
  if (kHalves == 1) int_halves<K, R, kHalves>(m, b, groups, a, row, tile, {0, 0}, 1);
}

// Float kinds: acc = fma(weight, activation, acc), k ascending; bf16 takes the odd element of a pair, then the even.
template <int Kind, int R>
void float_panel(const DrutMatrix&, const uint8_t* b, Groups, const Acts& a, int row, float* tile, Fetch fetch) {
  const float* x = Kind == kBF16 ? a.brains + int64_t(row) * a.k : a.floats + int64_t(row) * a.float_stride;
  const int64_t stride = Kind == kBF16 ? a.k : a.float_stride;
  V acc[R][2];
DRUT_UNROLL
  for (int r = 0; r < R; ++r) acc[r][0] = acc[r][1] = vset(0.0f);
  auto step = [&](V w0, V w1, int k) {
DRUT_UNROLL
    for (int r = 0; r < R; ++r) {
      V v = vset(x[r * stride + k]);
      acc[r][0] = vfma(w0, v, acc[r][0]);
      acc[r][1] = vfma(w1, v, acc[r][1]);
    }
  };
  for (int k = 0; k < a.k; k += 2, b += Kind == kF32 ? 256 : 128) {
    if (k % kGroup == 0) fetch(b);
    if (Kind == kBF16) {
      Brain2 w0 = brain2_load(b), w1 = brain2_load(b + 64);
DRUT_UNROLL
      for (int r = 0; r < R; ++r) {
        acc[r][0] = brain2_dot(acc[r][0], w0, x + r * stride, k / 2);
        acc[r][1] = brain2_dot(acc[r][1], w1, x + r * stride, k / 2);
      }
    } else if (Kind == kF16) {
      const uint16_t* h = reinterpret_cast<const uint16_t*>(b);
      step(vload_half(h), vload_half(h + 16), k);
      step(vload_half(h + 32), vload_half(h + 48), k + 1);
    } else {
      const float* f = reinterpret_cast<const float*>(b);
      step(vload(f), vload(f + 16), k);
      step(vload(f + 32), vload(f + 48), k + 1);
    }
  }
DRUT_UNROLL
  for (int r = 0; r < R; ++r) {
    vstore(tile + r * 32, acc[r][0]);
    vstore(tile + r * 32 + 16, acc[r][1]);
  }
}

// FP8: of each unit p = fma(2^-8 weight, activation, p), k ascending from +0; acc = fma(p, 2^8 scale, acc).
template <int R>
void fp8_panel(const DrutMatrix& m, const uint8_t* b, Groups, const Acts& a, int row, float* tile, Fetch fetch) {
  const float* x = a.floats + int64_t(row) * a.float_stride;
  const Layout l(m);
  for (int i = 0; i < R * kPanel; i += 16) vstore(tile + i, vset(0.0f));
  for (int k = 0; k < a.k;) {
    const uint8_t* head = b;
    b += l.head;
    V p[R][2];
DRUT_UNROLL
    for (int r = 0; r < R; ++r) p[r][0] = p[r][1] = vset(0.0f);
    for (const int end = a.k - k < l.span * kGroup ? a.k : k + l.span * kGroup; k < end; k += 2, b += 2 * kPanel) {
      if (k % kGroup == 0) fetch(b);
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
    case kOpened: return int_panel<kOpened, R>;
    case kOpenedMinimum: return int_panel<kOpenedMinimum, R>;
    case kOpenedHalves: return int_panel<kOpenedHalves, R>;
    case kOpenedHalvesMinimum: return int_panel<kOpenedHalvesMinimum, R>;
    case kFP8: return fp8_panel<R>;
    case kF32: return float_panel<kF32, R>;
    case kF16: return float_panel<kF16, R>;
    case kBF16: return float_panel<kBF16, R>;
    default: return with_integer_kind(kind, [](auto which) -> PanelKernel { return int_panel<which.value, R>; });
  }
}

constexpr int at_most(int rows) { return rows < kMaxRows ? rows : kMaxRows; }

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
