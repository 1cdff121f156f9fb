// Computes queries, keys and values: projection, norm, rope. Queries stay in their buffer; keys and values go to their
// page.
#pragma once
#include "attention/attention.h"
#include "matmul/matrix_ops.h"

struct DrutQkv {  // store_qkv: q, k and v are already computed; x and the projections are not read
  DrutOp op;
  const float* x;
  DrutNorm norm, q_norm, k_norm;  // q_norm, k_norm: of each head, or with wide_norm of all heads together
  const DrutMatrix* q_proj;
  const DrutMatrix* k_proj;
  const DrutMatrix* v_proj;
  const float* rope;  // (rows, 2*half)
  float* q;  // (rows, q_stride)
  float* k;  // (rows, kv_stride)
  float* v;
  int32_t width, stride, q_stride, kv_stride, heads, kv_heads, head_dim, rope_half, kv_dtype;
  int32_t wide_norm;
  // q *= 1 + position_scale * log(1 + position / position_span), the quotient an integer. position_span 0: not scaled
  int32_t position_span;
  float position_scale;
  int32_t group, reserved;  // KV group: selects pages and block table
  int64_t layer_offset;     // of this layer inside a page, in bytes
};
DRUT_LAYOUT(DrutQkv, FIELD(op), FIELD(x), FIELD(norm), FIELD(q_norm), FIELD(k_norm), FIELD(q_proj), FIELD(k_proj),
            FIELD(v_proj), FIELD(rope), FIELD(q), FIELD(k), FIELD(v), FIELD(width), FIELD(stride), FIELD(q_stride),
            FIELD(kv_stride), FIELD(heads), FIELD(kv_heads), FIELD(head_dim), FIELD(rope_half), FIELD(kv_dtype),
            FIELD(wide_norm), FIELD(position_span), FIELD(position_scale), FIELD(group), FIELD(reserved), FIELD(layer_offset));

namespace {

// Rotates the pairs (i, i + half) of a head by the angles of the row. Elements from 2*half on are unchanged.
inline void rotate(float* x, const float* table, int half) {
  for (int i = 0; i < half; ++i) {
    float a = x[i], b = x[half + i], cosine = table[i], sine = table[half + i];
    x[i] = num::fma(a, cosine, -(b * sine));
    x[half + i] = num::fma(b, cosine, a * sine);
  }
}

// The heads of one of the three projections, in units of as few heads as fill whole panels.
struct ProjectedHeads {
  const DrutMatrix* weight;
  float* out;
  const DrutNorm& norm;
  int heads, head_dim, stride, span;

  ProjectedHeads(const DrutMatrix* m, float* out, const DrutNorm& norm, int heads, int head_dim, int stride)
      : weight(m), out(out), norm(norm), heads(heads), head_dim(head_dim), stride(stride), span(1) {
    while (span * head_dim % kPanel) ++span;
  }
  int units() const { return (heads + span - 1) / span; }
  int first_panel(int unit) const { return unit * span * head_dim / kPanel; }
  int end_panel(int unit) const { return unit + 1 < units() ? first_panel(unit + 1) : panels(*weight); }
  int end_head(int unit) const { return (unit + 1) * span < heads ? (unit + 1) * span : heads; }
};

inline void scale_head(float* x, int head_dim, float factor) {
  for (int d = 0; d < head_dim; d += 16) vstore(x + d, vmul(vload(x + d), vset(factor)));
}

enum Part { kQueries, kKeys, kValues };

template <class Kv> void finish_head(const DrutQkv& o, const DrutContext& c, const Step& s, Part part, const ProjectedHeads& h, int row, int head) {
  using Element = typename Kv::Element;
  float* x = h.out + int64_t(row) * h.stride + head * h.head_dim;
  if (h.norm.weight && !o.wide_norm) normalize(x, h.norm, h.head_dim, h.head_dim, x);
  if (part != kValues) rotate(x, o.rope + int64_t(row) * 2 * o.rope_half, o.rope_half);
  if (part == kQueries) {
    if (o.position_span) scale_head(x, h.head_dim, 1.0f + o.position_scale * num::log(1.0f + float(s.position[row] / o.position_span)));
    Kv::store_query(x, h.head_dim);
    return;
  }
  const int slot = s.slot(o.group, row);
  const DrutPages& pages = c.pages[o.group];
  uint8_t* page = pages.data + int64_t(slot / kPage) * pages.page_bytes + o.layer_offset + head * Kv::head_bytes(h.head_dim);
  Element* keys = reinterpret_cast<Element*>(page);
  if (part == kKeys) Kv::write_key(keys, h.head_dim, slot % kPage, x);
  else Kv::write_value(keys + kPage * h.head_dim, h.head_dim, slot % kPage, x);
}

inline void finish_heads(const DrutQkv& o, const DrutContext& c, const Step& s, Part part, const ProjectedHeads& h, int row, int first, int end) {
  for (int head = first; head < end; ++head) {
    if (o.kv_dtype == kKvBf16) finish_head<KvBf16>(o, c, s, part, h, row, head);
    else if (o.kv_dtype == kKvInt8) finish_head<KvInt8>(o, c, s, part, h, row, head);
    else finish_head<KvFp32>(o, c, s, part, h, row, head);
  }
}

// Normalizes all queries, or all keys, of a row together, once all are computed, and finishes them.
inline void finish_wide(const DrutQkv& o, const DrutContext& c, const Step& s, Part part, const ProjectedHeads& h, int row) {
  float* x = h.out + int64_t(row) * h.stride;
  normalize(x, h.norm, h.heads * h.head_dim, h.heads * h.head_dim, x);
  finish_heads(o, c, s, part, h, row, 0, h.heads);
}

// The first bytes of the query projection that this worker reads. None if heads are not whole panels.
inline Prefetch prefetch_of_qkv(const Worker& w, const DrutQkv& o) {
  if (o.head_dim % kPanel) return {};
  return prefetch_of_panels(w, o.heads + 2 * o.kv_heads, o.head_dim / kPanel, o.q_proj);
}

struct Parts {
  ProjectedHeads of[3];
  explicit Parts(const DrutQkv& o)
      : of{{o.q_proj, o.q, o.q_norm, o.heads, o.head_dim, o.q_stride},
           {o.k_proj, o.k, o.k_norm, o.kv_heads, o.head_dim, o.kv_stride},
           {o.v_proj, o.v, kNoNorm, o.kv_heads, o.head_dim, o.kv_stride}} {}
  const ProjectedHeads& operator[](int part) const { return of[part]; }
};

void qkv(const DrutQkv& o, const DrutContext& c, Worker& w) {
  Step s(c.step);
  const Parts parts(o);
  const int keys = parts[0].units(), values = keys + parts[1].units();
  int formats = activation_format(o.q_proj) | activation_format(o.k_proj) | activation_format(o.v_proj);
  Acts a = prepare(w, c, formats, o.x, o.stride, o.q_proj->k, o.norm, o.width, o.q_proj->order, s.rows, identity);
  parallel_matrix(w, values + parts[2].units(), s.rows, [&](int u, int begin, int end, bool next) {
    Part part = u < keys ? kQueries : u < values ? kKeys : kValues;
    const ProjectedHeads& h = parts[part];
    int unit = part == kQueries ? u : part == kKeys ? u - keys : u - values;
    for (int p = h.first_panel(unit); p < h.end_panel(unit); ++p) {
      bool more = p + 1 < h.end_panel(unit) || (next && unit + 1 < h.units());
      Tile tile;
      multiply(*h.weight, p, a, begin, end - begin, next_panel(*h.weight, p, more), tile.of);
      const float* from = tile.of;
      for (int row = begin; row < end; ++row, from += kPanel) memcpy(h.out + int64_t(row) * h.stride + p * kPanel, from, kPanel * 4);
    }
    if (o.wide_norm && part != kValues) return;
    for (int row = begin; row < end; ++row) finish_heads(o, c, s, part, h, row, unit * h.span, h.end_head(unit));
  });
  w.barrier();
  if (!o.wide_norm) return;
  w.parallel_for(2 * s.rows, [&](int i) { finish_wide(o, c, s, i % 2 ? kKeys : kQueries, parts[i % 2 ? kKeys : kQueries], i / 2); });
  w.barrier();
}

// Does what qkv does after the projections, for plans where those are separate operations.
void store_qkv(const DrutQkv& o, const DrutContext& c, Worker& w) {
  Step s(c.step);
  const Parts parts(o);
  w.parallel_for(s.rows, [&](int row) {
    const Part all[] = {kQueries, kKeys, kValues};
    for (Part part : all) {
      if (o.wide_norm && part != kValues) finish_wide(o, c, s, part, parts[part], row);
      else finish_heads(o, c, s, part, parts[part], row, 0, parts[part].heads);
    }
  });
  w.barrier();
}

}  // namespace
