// Operations around one or two matrices: projection with residual, feed-forward, head.
#pragma once
#include "matmul/tiles.h"

struct DrutProject {  // x += scale * (source . W), or x = source . W
  DrutOp op;
  const float* source;
  const DrutMatrix* weight;
  float* x;
  const float* row_scale;  // (rows): additional factor, or null
  int32_t in_stride, stride, in_format, add;
  float scale;
  int32_t reserved;
};
DRUT_LAYOUT(DrutProject, FIELD(op), FIELD(source), FIELD(weight), FIELD(x), FIELD(row_scale), FIELD(in_stride),
            FIELD(stride), FIELD(in_format), FIELD(add), FIELD(scale), FIELD(reserved));

struct DrutNormalize {  // out = norm(x)
  DrutOp op;
  const float* x;
  DrutNorm norm;
  float* out;
  int32_t width, stride, out_stride, reserved;
};
DRUT_LAYOUT(DrutNormalize, FIELD(op), FIELD(x), FIELD(norm), FIELD(out), FIELD(width), FIELD(stride), FIELD(out_stride),
            FIELD(reserved));

struct DrutActivate {  // out = activation(gate) * up, or activation(up)
  DrutOp op;
  const float* gate;  // (rows, stride) or null
  const float* up;
  float* out;
  int32_t stride, activation;
};
DRUT_LAYOUT(DrutActivate, FIELD(op), FIELD(gate), FIELD(up), FIELD(out), FIELD(stride), FIELD(activation));

struct DrutAdd {  // x += scale * norm(source)
  DrutOp op;
  const float* source;
  DrutNorm norm;
  float* x;
  int32_t width, in_stride, stride;
  float scale;
};
DRUT_LAYOUT(DrutAdd, FIELD(op), FIELD(source), FIELD(norm), FIELD(x), FIELD(width), FIELD(in_stride), FIELD(stride),
            FIELD(scale));

struct DrutGateUp {  // out = activation(norm(x) . gate) * (norm(x) . up), or activation(norm(x) . up)
  DrutOp op;
  const float* x;
  DrutNorm norm;
  const DrutMatrix* gate;  // or null
  const DrutMatrix* up;
  float* out;
  int32_t width, stride, out_stride, out_format, activation, reserved;
};
DRUT_LAYOUT(DrutGateUp, FIELD(op), FIELD(x), FIELD(norm), FIELD(gate), FIELD(up), FIELD(out), FIELD(width),
            FIELD(stride), FIELD(out_stride), FIELD(out_format), FIELD(activation), FIELD(reserved));

struct DrutHead {  // logits of the sampled rows: softcap(scale * (norm(x) . weight))
  DrutOp op;
  const float* x;
  DrutNorm norm;
  const DrutMatrix* weight;
  float* logits;  // (samples, logits_stride)
  int32_t width, stride, logits_stride;
  float scale, softcap;
  int32_t reserved;
};
DRUT_LAYOUT(DrutHead, FIELD(op), FIELD(x), FIELD(norm), FIELD(weight), FIELD(logits), FIELD(width), FIELD(stride),
            FIELD(logits_stride), FIELD(scale), FIELD(softcap), FIELD(reserved));

namespace {

inline int row_blocks(int rows) { return (rows + kRowBlock - 1) / kRowBlock; }

// Distributes a matrix product over the workers: calls body(unit, begin, end, next) for units of outputs (panels or
// heads) and blocks of rows, block by block. The activations of a block are larger than the weights of a unit, and stay
// in the second-level cache. next: this worker computes unit + 1 for the same rows right after.
template <class Body> void parallel_matrix(Worker& w, int units, int rows, Body body) {
  w.parallel_ranges(units * row_blocks(rows), [&](int from, int to) {
    for (int i = from; i < to; ++i) {
      int begin = i / units * kRowBlock, end = begin + kRowBlock < rows ? begin + kRowBlock : rows;
      body(i % units, begin, end, i + 1 < to && (i + 1) % units != 0);
    }
  });
}

// The first bytes that this worker reads of one or two matrices whose `units` units have `panels_each` panels each.
inline Prefetch prefetch_of_panels(const Worker& w, int units, int panels_each, const DrutMatrix* a, const DrutMatrix* b = nullptr) {
  const int count = w.static_units(units) * panels_each, first = w.id * count;
  return {{panel(*a, first), b ? panel(*b, first) : nullptr}, count * panel_bytes(*a)};
}

// The same for an operation with one matrix, `weight`.
template <class Struct> Prefetch prefetch_of_matrix(const Worker& w, const Struct& o) {
  return prefetch_of_panels(w, panels(*o.weight), 1, o.weight);
}

inline int identity(int i) { return i; }

void project(const DrutProject& o, const DrutContext& c, Worker& w) {
  Step s(c.step);
  Acts a = o.in_format & (kActInt8 | kActWide) ? stored_activations(o.source, o.weight->k, o.in_format)
                              : prepare(w, c, activation_format(o.weight), o.source, o.in_stride, o.weight->k, kNoNorm, 0,
                                        o.weight->order, s.rows, identity);
  parallel_matrix(w, panels(*o.weight), s.rows, [&](int p, int begin, int end, bool next) {
    Tile tile;
    multiply(*o.weight, p, a, begin, end - begin, next_panel(*o.weight, p, next), tile.of);
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
  w.barrier();
}

void add(const DrutAdd& o, const DrutContext& c, Worker& w) {
  Step s(c.step);
  w.parallel_for(s.rows, [&](int row) {
    float* x = o.x + int64_t(row) * o.stride;
    const float* y = o.source + int64_t(row) * o.in_stride;
    if (o.norm.weight) {
      float* normed = reinterpret_cast<float*>(w.scratch);
      normalize(y, o.norm, o.width, o.in_stride, normed);
      y = normed;
    }
    for (int n = 0; n < o.stride; n += 16) vstore(x + n, vfma(vload(y + n), vset(o.scale), vload(x + n)));
  });
  w.barrier();
}

void normalize_rows(const DrutNormalize& o, const DrutContext& c, Worker& w) {
  Step s(c.step);
  w.parallel_for(s.rows, [&](int row) { normalize(o.x + int64_t(row) * o.stride, o.norm, o.width, o.out_stride, o.out + int64_t(row) * o.out_stride); });
  w.barrier();
}

inline V activate(int kind, V x) { return kind == kSilu ? vsilu(x) : kind == kGeluTanh ? vgelu_tanh(x) : vgelu_erf(x); }

// y * sigmoid(1.702 y) * (z + 1), with y <= 7 and z in [-7, 7] (gpt-oss). NaN stays NaN.
inline V clamped_swiglu(V y, V z) {
  const V limit = vset(7.0f), one = vset(1.0f);
  y = vmin(limit, y);
  z = vmax(vset(-7.0f), vmin(limit, z));
  return vmul(vdiv(y, vadd(one, vexp(vmul(y, vset(-1.702f))))), vadd(z, one));
}

// y = activation(y) * z for one panel, in place; z may be null.
inline void activate(int kind, float* y, const float* z) {
  for (int n = 0; kind == kClampedSwiglu && n < kPanel; n += 16) vstore(y + n, clamped_swiglu(vload(y + n), vload(z + n)));
  for (int n = 0; kind != kClampedSwiglu && n < kPanel; n += 16) {
    const V a = activate(kind, vload(y + n));
    vstore(y + n, z ? vmul(a, vload(z + n)) : a);
  }
}

inline Prefetch prefetch_of_gate_up(const Worker& w, const DrutGateUp& o) {
  const int span = groups_at_once(o.out_format);
  return prefetch_of_panels(w, (panels(*o.up) + span - 1) / span, span, o.up, o.gate);
}

void gate_up(const DrutGateUp& o, const DrutContext& c, Worker& w) {
  Step s(c.step);
  const DrutMatrix* first = o.gate ? o.gate : o.up;
  Acts a = prepare(w, c, activation_format(first) | activation_format(o.up), o.x, o.stride, o.up->k, o.norm, o.width, first->order, s.rows, identity);
  const int all = panels(*o.up), span = groups_at_once(o.out_format);
  parallel_matrix(w, (all + span - 1) / span, s.rows, [&](int unit, int begin, int end, bool next) {
    Tile y[2], z;
    const int from = unit * span, stop = from + span < all ? from + span : all;
    for (int p = from; p < stop; ++p) {
      const bool more = next || p + 1 < stop;
      float* of = y[p - from].of;
      multiply(*first, p, a, begin, end - begin, next_panel(*first, p, more), of);
      if (o.gate) multiply(*o.up, p, a, begin, end - begin, next_panel(*o.up, p, more), z.of);
      for (int at = 0; at < (end - begin) * kPanel; at += kPanel) activate(o.activation, of + at, o.gate ? z.of + at : nullptr);
    }
    for (int row = begin, at = 0; row < end; ++row, at += kPanel)
      store_activations(o.out, o.out_stride, o.out_format, row, from, y[0].of + at, stop - from == 2 ? y[1].of + at : nullptr);
  });
  w.barrier();
}

void activate_rows(const DrutActivate& o, const DrutContext& c, Worker& w) {
  Step s(c.step);
  w.parallel_for(s.rows, [&](int row) {
    const int64_t at = int64_t(row) * o.stride;
    float* y = o.out + at;
    memcpy(y, (o.gate ? o.gate : o.up) + at, size_t(o.stride) * 4);
    for (int n = 0; n < o.stride; n += kPanel) activate(o.activation, y + n, o.gate ? o.up + at + n : nullptr);
  });
  w.barrier();
}

void head(const DrutHead& o, const DrutContext& c, Worker& w) {
  Step s(c.step);
  Acts a = prepare(w, c, activation_format(o.weight), o.x, o.stride, o.weight->k, o.norm, o.width, o.weight->order, s.samples,
                   [&](int i) { return s.sample_row[i]; });
  parallel_matrix(w, panels(*o.weight), s.samples, [&](int p, int begin, int end, bool next) {
    Tile tile;
    multiply(*o.weight, p, a, begin, end - begin, next_panel(*o.weight, p, next), tile.of);
    const float* from = tile.of;
    for (int row = begin; row < end; ++row, from += kPanel) {
      float* to = o.logits + int64_t(row) * o.logits_stride + p * kPanel;
      for (int n = 0; n < kPanel; n += 16) vstore(to + n, softcap(vmul(vload(from + n), vset(o.scale)), o.softcap));
    }
  });
  w.barrier();
}

}  // namespace
