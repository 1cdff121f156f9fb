// Operations around one or two matrices: projection with residual, gated feed-forward, head.
#pragma once
#include "gemm.h"

namespace {

constexpr int kRowBlock = 96;  // rows of one unit of matrix work: their activations stay in the second-level cache
inline int row_blocks(int rows) { return (rows + kRowBlock - 1) / kRowBlock; }

// Calls body(unit, begin, end, next) over units of output (panels, heads) and row blocks, a unit's blocks side by side.
// next: the same worker's next unit of output is the one after this.
template <class Body> void share_matrix(Worker& w, int units, int rows, Body body) {
  int blocks = row_blocks(rows);
  w.share_runs(units * blocks, [&](int from, int to) {
    for (int i = from; i < to; ++i) {
      int begin = i % blocks * kRowBlock, end = begin + kRowBlock < rows ? begin + kRowBlock : rows;
      body(i / blocks, begin, end, i + 1 < to && (i + 1) / blocks != i / blocks);
    }
  });
}

// What the worker reads first of one or two matrices that are shared out by `units` of output with `panels_each`.
inline ReadAhead read_ahead_in(const Worker& w, int units, int panels_each, const DrutMatrix* a, const DrutMatrix* b = nullptr) {
  const int count = w.first_run(units) * panels_each, first = w.id * count;
  return {{panel(*a, first), b ? panel(*b, first) : nullptr}, count * panel_bytes(*a)};
}

inline int identity(int i) { return i; }

// y = activation(y, z), 32 of them. The clamped form: y * sigmoid(1.702 y) * (z + 1), y at most 7, z within +-7.
inline void activate(int kind, float* y, const float* z) {
  for (int n = 0; n < kPanel; n += 16) {
    V g = vload(y + n), u = vload(z + n);
    if (kind == kSilu) {
      g = vmul(vsilu(g), u);
    } else {
      const V most = vset(7.0f), least = vset(-7.0f), one = vset(1.0f);
      g = vmin(most, g);  // a NaN stays
      u = vmax(least, vmin(most, u));
      V sigmoid_of = vadd(one, vexp(vmul(g, vset(-1.702f))));
      g = vmul(vdiv(g, sigmoid_of), vadd(u, one));
    }
    vstore(y + n, g);
  }
}

void project(const DrutProject& o, const DrutContext& c, Worker& w) {
  Step s(c.step);
  Acts a = o.in_form == kInt8 ? handed_over(o.in, o.weight->k, kInt8)
                              : prepare(w, c, form_of(o.weight), o.in, o.in_stride, o.weight->k, nullptr, 0, 0,
                                        o.weight->order, s.rows, identity);
  share_matrix(w, panels(*o.weight), s.rows, [&](int p, int begin, int end, bool next) {
    multiply(*o.weight, p, a, begin, end, next, [&](int row, int rows, const float* tile) {
      for (int r = 0; r < rows; ++r) {
        float* x = o.x + int64_t(row + r) * o.stride + p * kPanel;
        const V scale = vset(o.scale ? o.scale[row + r] : 1.0f);
        for (int n = 0; n < kPanel; n += 16) vstore(x + n, vadd(vload(x + n), vmul(scale, vload(tile + r * kPanel + n))));
      }
    });
  });
  w.sync();
}

void gate_up(const DrutGateUp& o, const DrutContext& c, Worker& w) {
  Step s(c.step);
  Acts a = prepare(w, c, form_of(o.gate) | form_of(o.up), o.x, o.stride, o.gate->k, o.norm, o.width, o.eps, o.gate->order,
                   s.rows, identity);
  share_matrix(w, panels(*o.gate), s.rows, [&](int p, int begin, int end, bool next) {
    alignas(64) float gate[kMaxRows * kPanel], up[kMaxRows * kPanel];
    each_block(begin, end, [&](int row, int rows, int pass, int passes) {
      multiply_tile(*o.gate, p, a, row, rows, gate, fetch_next(*o.gate, p, next, pass, passes));
      multiply_tile(*o.up, p, a, row, rows, up, fetch_next(*o.up, p, next, pass, passes));
      for (int r = 0; r < rows; ++r) {
        float* y = gate + r * kPanel;
        for (int n = 0; n < kPanel; n += 16) vstore(y + n, vmul(vsilu(vload(y + n)), vload(up + r * kPanel + n)));
        hand_over(o.out, o.out_stride, o.out_form, row + r, p, y);
      }
    });
  });
  w.sync();
}

void head(const DrutHead& o, const DrutContext& c, Worker& w) {
  Step s(c.step);
  Acts a = prepare(w, c, form_of(o.weight), o.x, o.stride, o.weight->k, o.norm, o.width, o.eps, o.weight->order,
                   s.samples, [&](int i) { return s.sample_row[i]; });
  share_matrix(w, panels(*o.weight), s.samples, [&](int p, int begin, int end, bool next) {
    multiply(*o.weight, p, a, begin, end, next, [&](int row, int rows, const float* tile) {
      for (int r = 0; r < rows; ++r) memcpy(o.logits + int64_t(row + r) * o.logits_stride + p * kPanel, tile + r * kPanel, kPanel * 4);
    });
  });
  w.sync();
}

}  // namespace
