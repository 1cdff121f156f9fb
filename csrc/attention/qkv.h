// Queries, keys and values: projected, normed, turned by rope; queries stay, keys and values go to their page.
#pragma once
#include "attention/attention.h"
#include "matmul/matrix_ops.h"

struct DrutQkv {  // kStoreQkv: q, k and v are there, and neither x nor the projections are read
  DrutOp op;
  const float* x;
  DrutNorm norm, q_norm, k_norm;  // q_norm, k_norm: of each head, or where they are wide of all together
  const DrutMatrix* q_proj;
  const DrutMatrix* k_proj;
  const DrutMatrix* v_proj;
  const float* rope;  // (rows, 2*half)
  float* q;  // (rows, q_stride)
  float* k;  // (rows, kv_stride)
  float* v;
  int32_t width, stride, q_stride, kv_stride, heads, kv_heads, head_dim, rope_half, kv_dtype;
  int32_t wide_norm;
  int32_t growth_span;  // q is times 1 + growth * log(1 + position / span), the quotient an integer; 0: it is not
  float growth;
  int32_t group, reserved;  // of KV: whose pages and block table
  int64_t layer_offset;     // bytes of this layer inside a page
};
DRUT_LAYOUT(DrutQkv, FIELD(op), FIELD(x), FIELD(norm), FIELD(q_norm), FIELD(k_norm), FIELD(q_proj), FIELD(k_proj),
            FIELD(v_proj), FIELD(rope), FIELD(q), FIELD(k), FIELD(v), FIELD(width), FIELD(stride), FIELD(q_stride),
            FIELD(kv_stride), FIELD(heads), FIELD(kv_heads), FIELD(head_dim), FIELD(rope_half), FIELD(kv_dtype),
            FIELD(wide_norm), FIELD(growth_span), FIELD(growth), FIELD(group), FIELD(reserved), FIELD(layer_offset));

namespace {

// Pairs (i, i + half) of a head turn by the row's angle; elements past 2*half stay.
inline void rotate(float* x, const float* table, int half) {
  for (int i = 0; i < half; ++i) {
    float a = x[i], b = x[half + i], cosine = table[i], sine = table[half + i];
    x[i] = num::fma(a, cosine, -(b * sine));
    x[half + i] = num::fma(b, cosine, a * sine);
  }
}

// The heads of one of the three matrices, in units of as few heads as fill whole panels.
struct Heads3 {
  const DrutMatrix* weight;
  float* out;
  const DrutNorm& norm;
  int heads, head_dim, stride, span;

  Heads3(const DrutMatrix* m, float* out, const DrutNorm& norm, int heads, int head_dim, int stride)
      : weight(m), out(out), norm(norm), heads(heads), head_dim(head_dim), stride(stride), span(1) {
    while (span * head_dim % kPanel) ++span;
  }
  int units() const { return (heads + span - 1) / span; }
  int first_panel(int unit) const { return unit * span * head_dim / kPanel; }
  int end_panel(int unit) const { return unit + 1 < units() ? first_panel(unit + 1) : panels(*weight); }
  int end_head(int unit) const { return (unit + 1) * span < heads ? (unit + 1) * span : heads; }
};

inline void grow(float* x, int head_dim, float factor) {
  for (int d = 0; d < head_dim; d += 16) vstore(x + d, vmul(vload(x + d), vset(factor)));
}

enum Part { kQueries, kKeys, kValues };

template <class Kv> void finish_head(const DrutQkv& o, const DrutContext& c, const Step& s, Part part, const Heads3& h, int row, int head) {
  using Element = typename Kv::Element;
  float* x = h.out + int64_t(row) * h.stride + head * h.head_dim;
  if (h.norm.weight && !o.wide_norm) normalize(x, h.norm, h.head_dim, h.head_dim, x);
  if (part != kValues) rotate(x, o.rope + int64_t(row) * 2 * o.rope_half, o.rope_half);
  if (part == kQueries) {
    if (o.growth_span) grow(x, h.head_dim, 1.0f + o.growth * num::log(1.0f + float(s.position[row] / o.growth_span)));
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

inline void finish_heads(const DrutQkv& o, const DrutContext& c, const Step& s, Part part, const Heads3& h, int row, int first, int end) {
  for (int head = first; head < end; ++head) {
    if (o.kv_dtype == kKvBf16) finish_head<KvBf16>(o, c, s, part, h, row, head);
    else if (o.kv_dtype == kKvInt8) finish_head<KvInt8>(o, c, s, part, h, row, head);
    else finish_head<KvFp32>(o, c, s, part, h, row, head);
  }
}

// A row's queries, or its keys, normed together once all are there.
inline void finish_wide(const DrutQkv& o, const DrutContext& c, const Step& s, Part part, const Heads3& h, int row) {
  float* x = h.out + int64_t(row) * h.stride;
  normalize(x, h.norm, h.heads * h.head_dim, h.heads * h.head_dim, x);
  finish_heads(o, c, s, part, h, row, 0, h.heads);
}

// Of the queries, if heads are whole panels: the first runs of two workers or more lie there.
inline ReadAhead first_of_qkv(const Worker& w, const DrutQkv& o) {
  if (o.head_dim % kPanel) return {};
  return read_ahead_in(w, o.heads + 2 * o.kv_heads, o.head_dim / kPanel, o.q_proj);
}

struct Parts {
  Heads3 of[3];
  explicit Parts(const DrutQkv& o)
      : of{{o.q_proj, o.q, o.q_norm, o.heads, o.head_dim, o.q_stride},
           {o.k_proj, o.k, o.k_norm, o.kv_heads, o.head_dim, o.kv_stride},
           {o.v_proj, o.v, kNoNorm, o.kv_heads, o.head_dim, o.kv_stride}} {}
  const Heads3& operator[](int part) const { return of[part]; }
};

void qkv(const DrutQkv& o, const DrutContext& c, Worker& w) {
  Step s(c.step);
  const Parts parts(o);
  const int keys = parts[0].units(), values = keys + parts[1].units();
  int forms = form_of(o.q_proj) | form_of(o.k_proj) | form_of(o.v_proj);
  Acts a = prepare(w, c, forms, o.x, o.stride, o.q_proj->k, o.norm, o.width, o.q_proj->order, s.rows, identity);
  share_matrix(w, values + parts[2].units(), s.rows, [&](int u, int begin, int end, bool next) {
    Part part = u < keys ? kQueries : u < values ? kKeys : kValues;
    const Heads3& h = parts[part];
    int unit = part == kQueries ? u : part == kKeys ? u - keys : u - values;
    for (int p = h.first_panel(unit); p < h.end_panel(unit); ++p) {
      bool more = p + 1 < h.end_panel(unit) || (next && unit + 1 < h.units());
      Tile tile;
      multiply(*h.weight, p, a, begin, end - begin, panel_after(*h.weight, p, more), tile.of);
      const float* from = tile.of;
      for (int row = begin; row < end; ++row, from += kPanel) memcpy(h.out + int64_t(row) * h.stride + p * kPanel, from, kPanel * 4);
    }
    if (o.wide_norm && part != kValues) return;
    for (int row = begin; row < end; ++row) finish_heads(o, c, s, part, h, row, unit * h.span, h.end_head(unit));
  });
  w.sync();
  if (!o.wide_norm) return;
  w.share(2 * s.rows, [&](int i) { finish_wide(o, c, s, i % 2 ? kKeys : kQueries, parts[i % 2 ? kKeys : kQueries], i / 2); });
  w.sync();
}

// What qkv does after the projections, where those were operations of their own.
void store_qkv(const DrutQkv& o, const DrutContext& c, Worker& w) {
  Step s(c.step);
  const Parts parts(o);
  w.share(s.rows, [&](int row) {
    const Part all[] = {kQueries, kKeys, kValues};
    for (Part part : all) {
      if (o.wide_norm && part != kValues) finish_wide(o, c, s, part, parts[part], row);
      else finish_heads(o, c, s, part, parts[part], row, 0, parts[part].heads);
    }
  });
  w.sync();
}

}  // namespace
