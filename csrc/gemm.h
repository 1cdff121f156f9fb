// The matrix kernels: up to kMaxRows activation rows against one panel of 32 outputs. A lane is an output, so every
// output adds its partial results along K in ascending order and nothing depends on the number of rows.
#pragma once
#include "activations.h"
#include "packing.h"

namespace {

constexpr int kMaxRows = 6;
using PanelKernel = void (*)(const uint8_t* panel, const Acts& a, int row, float* tile);  // tile: (rows, 32)

inline int32_t quad(const ActGroup& g, int i) { int32_t v; memcpy(&v, g.q + 4 * i, 4); return v; }

// Integer kinds. Per group g: s = the exact dot of codes and activations;
// acc = fma(float(s) * act_scale, weight_scale, acc), then for minima acc = fma(scaled_sum, minimum, acc).
template <int Kind, int R> void int_panel(const uint8_t* b, const Acts& a, int row, float* tile) {
  const int groups = a.k / kGroup;
  const ActGroup* act = a.groups + int64_t(row) * groups;
  V acc[R][2];
DRUT_UNROLL
  for (int r = 0; r < R; ++r) acc[r][0] = acc[r][1] = vset(0.0f);
  for (int g = 0; g < groups; ++g, ++act, b += Kind == kQ8_0 ? 1088 : Kind == kQ4_1 ? 640 : 576) {
    I sum[R][2];
DRUT_UNROLL
    for (int r = 0; r < R; ++r) {
      const ActGroup& x = act[r * groups];
      sum[r][0] = sum[r][1] = iset(Kind == kQ8_0 ? x.zero128 : Kind == kQ4_0 ? x.zero8 : 0);
    }
    if (Kind == kQ8_0) {
DRUT_UNROLL
      for (int j = 0; j < 8; ++j) {
        I w0 = iload(b + j * 128), w1 = iload(b + j * 128 + 64);
DRUT_UNROLL
        for (int r = 0; r < R; ++r) {
          int32_t x = quad(act[r * groups], j);
          sum[r][0] = idot8(sum[r][0], w0, x);
          sum[r][1] = idot8(sum[r][1], w1, x);
        }
      }
    } else {
      const I low = iset(0x0f0f0f0f);
DRUT_UNROLL
      for (int j = 0; j < 4; ++j) {
        I b0 = iload(b + j * 128), b1 = iload(b + j * 128 + 64);
        I w0 = iand(b0, low), w1 = iand(b1, low);
DRUT_UNROLL
        for (int r = 0; r < R; ++r) {
          int32_t x = quad(act[r * groups], 2 * j);
          sum[r][0] = idot7(sum[r][0], w0, x);
          sum[r][1] = idot7(sum[r][1], w1, x);
        }
        w0 = iand(ishr<4>(b0), low);
        w1 = iand(ishr<4>(b1), low);
DRUT_UNROLL
        for (int r = 0; r < R; ++r) {
          int32_t x = quad(act[r * groups], 2 * j + 1);
          sum[r][0] = idot7(sum[r][0], w0, x);
          sum[r][1] = idot7(sum[r][1], w1, x);
        }
      }
    }
    const uint16_t* scales = reinterpret_cast<const uint16_t*>(b + (Kind == kQ8_0 ? 1024 : 512));
    V d0 = vload_half(scales), d1 = vload_half(scales + 16);
DRUT_UNROLL
    for (int r = 0; r < R; ++r) {
      V s = vset(act[r * groups].scale);
      acc[r][0] = vfma(vmul(to_float(sum[r][0]), s), d0, acc[r][0]);
      acc[r][1] = vfma(vmul(to_float(sum[r][1]), s), d1, acc[r][1]);
    }
    if (Kind == kQ4_1) {
      V m0 = vload_half(scales + 32), m1 = vload_half(scales + 48);
DRUT_UNROLL
      for (int r = 0; r < R; ++r) {
        V s = vset(act[r * groups].scaled_sum);
        acc[r][0] = vfma(s, m0, acc[r][0]);
        acc[r][1] = vfma(s, m1, acc[r][1]);
      }
    }
  }
DRUT_UNROLL
  for (int r = 0; r < R; ++r) {
    vstore(tile + r * 32, acc[r][0]);
    vstore(tile + r * 32 + 16, acc[r][1]);
  }
}

// Float kinds: acc = fma(weight, activation, acc), k ascending; bf16 takes the odd element of a pair, then the even.
template <int Kind, int R> void float_panel(const uint8_t* b, const Acts& a, int row, float* tile) {
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

template <int R> PanelKernel kernel_for(int kind) {
  switch (kind) {
    case kQ4_0: return int_panel<kQ4_0, R>;
    case kQ4_1: return int_panel<kQ4_1, R>;
    case kQ8_0: return int_panel<kQ8_0, R>;
    case kF16: return float_panel<kF16, R>;
    case kBF16: return float_panel<kBF16, R>;
    default: return float_panel<kF32, R>;
  }
}

inline PanelKernel kernel_of(int kind, int rows) {
  switch (rows) {
    case 1: return kernel_for<1>(kind);
    case 2: return kernel_for<2>(kind);
    case 3: return kernel_for<3>(kind);
    case 4: return kernel_for<4>(kind);
    case 5: return kernel_for<5>(kind);
    default: return kernel_for<6>(kind);
  }
}

// Rows begin..end of a against panel p, in even blocks of at most kMaxRows; sink(row, rows, tile) takes each.
template <class Sink> void multiply(const DrutMatrix& m, int p, const Acts& a, int begin, int end, Sink sink) {
  alignas(64) float tile[kMaxRows * kPanel];
  int count = end - begin, blocks = (count + kMaxRows - 1) / kMaxRows;
  for (int i = 0, row = begin; i < blocks; ++i) {
    int rows = (end - row + (blocks - i) - 1) / (blocks - i);
    kernel_of(m.kind, rows)(panel(m, p), a, row, tile);
    if (m.bias)
      for (int r = 0; r < rows; ++r)
        for (int n = 0; n < kPanel; ++n) tile[r * kPanel + n] = tile[r * kPanel + n] + m.bias[p * kPanel + n];
    sink(row, rows, tile);
    row += rows;
  }
}

}  // namespace
