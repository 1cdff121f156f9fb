// Operations around one or two matrices: projection with residual, feed-forward, head.
#pragma once
#include "tiles.h"

namespace {

inline int row_blocks(int rows) { return (rows + kRowBlock - 1) / kRowBlock; }

// Calls body(unit, begin, end, next) over units of output (panels, heads) and row blocks, block by block: of a block's
// activations and a unit's weights the former are more, and stay in the second-level cache.
// next: the same worker's next unit of output is the one after this.
template <class Body> void share_matrix(Worker& w, int units, int rows, Body body) {
  w.share_runs(units * row_blocks(rows), [&](int from, int to) {
    for (int i = from; i < to; ++i) {
      int begin = i / units * kRowBlock, end = begin + kRowBlock < rows ? begin + kRowBlock : rows;
      body(i % units, begin, end, i + 1 < to && (i + 1) % units != 0);
    }
  });
}

// What the worker reads first of one or two matrices that are shared out by `units` of output with `panels_each`.
inline ReadAhead read_ahead_in(const Worker& w, int units, int panels_each, const DrutMatrix* a, const DrutMatrix* b = nullptr) {
  const int count = w.first_run(units) * panels_each, first = w.id * count;
  return {{panel(*a, first), b ? panel(*b, first) : nullptr}, count * panel_bytes(*a)};
}

inline int identity(int i) { return i; }

void project(const DrutProject& o, const DrutContext& c, Worker& w) {
  Step s(c.step);
  Acts a = o.in_form == kInt8 ? handed_over(o.in, o.weight->k, kInt8)
                              : prepare(w, c, form_of(o.weight), o.in, o.in_stride, o.weight->k, kNoNorm, 0,
                                        o.weight->order, s.rows, identity);
  share_matrix(w, panels(*o.weight), s.rows, [&](int p, int begin, int end, bool next) {
    Tile tile;
    multiply(*o.weight, p, a, begin, end - begin, panel_after(*o.weight, p, next), tile.of);
    const float* from = tile.of;
    for (int row = begin; row < end; ++row, from += kPanel) {
      float* x = o.x + int64_t(row) * o.stride + p * kPanel;
      for (int n = 0; n < kPanel; n += 16) {
        V y = vload(from + n);
        if (o.row_scale) y = vmul(y, vset(o.row_scale[row]));
        vstore(x + n, o.add ? vfma(y, vset(o.scale), vload(x + n)) : y);
      }
    }
  });
  w.sync();
}

void add(const DrutAdd& o, const DrutContext& c, Worker& w) {
  Step s(c.step);
  w.share(s.rows, [&](int row) {
    float* x = o.x + int64_t(row) * o.stride;
    const float* y = o.in + int64_t(row) * o.in_stride;
    if (o.norm.weight) {
      float* normed = reinterpret_cast<float*>(w.scratch);
      normalize(y, o.norm, o.width, o.in_stride, normed);
      y = normed;
    }
    for (int n = 0; n < o.stride; n += 16) vstore(x + n, vfma(vload(y + n), vset(o.scale), vload(x + n)));
  });
  w.sync();
}

void normalize_rows(const DrutNormalize& o, const DrutContext& c, Worker& w) {
  Step s(c.step);
  w.share(s.rows, [&](int row) { normalize(o.x + int64_t(row) * o.stride, o.norm, o.width, o.out_stride, o.out + int64_t(row) * o.out_stride); });
  w.sync();
}

inline V activate(int kind, V x) { return kind == kSilu ? vsilu(x) : kind == kGeluTanh ? vgelu_tanh(x) : vgelu_erf(x); }

// y * sigmoid(1.702 y) * (z + 1), y at most 7 and z within +-7. A NaN stays.
inline V clamped_swiglu(V y, V z) {
  const V most = vset(7.0f), one = vset(1.0f);
  y = vmin(most, y);
  z = vmax(vset(-7.0f), vmin(most, z));
  return vmul(vdiv(y, vadd(one, vexp(vmul(y, vset(-1.702f))))), vadd(z, one));
}

// y = activation(y) * z, a panel's worth; z may be null.
inline void activate(int kind, float* y, const float* z) {
  for (int n = 0; kind == kClampedSwiglu && n < kPanel; n += 16) vstore(y + n, clamped_swiglu(vload(y + n), vload(z + n)));
  for (int n = 0; kind != kClampedSwiglu && n < kPanel; n += 16) {
    const V a = activate(kind, vload(y + n));
    vstore(y + n, z ? vmul(a, vload(z + n)) : a);
  }
}

void gate_up(const DrutGateUp& o, const DrutContext& c, Worker& w) {
  Step s(c.step);
  const DrutMatrix* first = o.gate ? o.gate : o.up;
  Acts a = prepare(w, c, form_of(first) | form_of(o.up), o.x, o.stride, o.up->k, o.norm, o.width, first->order, s.rows, identity);
  share_matrix(w, panels(*o.up), s.rows, [&](int p, int begin, int end, bool next) {
    Tile y, z;
    multiply(*first, p, a, begin, end - begin, panel_after(*first, p, next), y.of);
    if (o.gate) multiply(*o.up, p, a, begin, end - begin, panel_after(*o.up, p, next), z.of);
    for (int row = begin, at = 0; row < end; ++row, at += kPanel) {
      activate(o.activation, y.of + at, o.gate ? z.of + at : nullptr);
      hand_over(o.out, o.out_stride, o.out_form, row, p, y.of + at);
    }
  });
  w.sync();
}

void activate_rows(const DrutActivate& o, const DrutContext& c, Worker& w) {
  Step s(c.step);
  w.share(s.rows, [&](int row) {
    const int64_t at = int64_t(row) * o.stride;
    float* y = o.out + at;
    memcpy(y, (o.gate ? o.gate : o.up) + at, size_t(o.stride) * 4);
    for (int n = 0; n < o.stride; n += kPanel) activate(o.activation, y + n, o.gate ? o.up + at + n : nullptr);
  });
  w.sync();
}

void head(const DrutHead& o, const DrutContext& c, Worker& w) {
  Step s(c.step);
  Acts a = prepare(w, c, form_of(o.weight), o.x, o.stride, o.weight->k, o.norm, o.width, o.weight->order, s.samples,
                   [&](int i) { return s.sample_row[i]; });
  share_matrix(w, panels(*o.weight), s.samples, [&](int p, int begin, int end, bool next) {
    Tile tile;
    multiply(*o.weight, p, a, begin, end - begin, panel_after(*o.weight, p, next), tile.of);
    const float* from = tile.of;
    for (int row = begin; row < end; ++row, from += kPanel) {
      float* to = o.logits + int64_t(row) * o.logits_stride + p * kPanel;
      for (int n = 0; n < kPanel; n += 16) vstore(to + n, capped(vmul(vload(from + n), vset(o.scale)), o.cap));
    }
  });
  w.sync();
}

}  // namespace
