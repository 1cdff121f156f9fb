// Attention over one chunk of keys and values stored as int8, with one scale per token and head. Dot products are exact
// integer sums: of the query quantized to int8 with the keys, and of the softmax weights with the values. A weight
// includes the scale of its value and is quantized to 14 bits relative to the largest weight of the chunk.
#pragma once
#include "matmul/activations.h"
#include "attention/attend_float.h"

namespace {

constexpr float kWeightMax = 16383.0f;  // two parts of 7 bits

struct KvInt8 {
#if defined(DRUT_WORD_DOTS) || defined(DRUT_QUAD_TILES)
  static constexpr bool kBlocks = true;
#else
  static constexpr bool kBlocks = false;
#endif
  using Element = uint8_t;
  static int64_t head_bytes(int head_dim) { return int64_t(2) * kPage * (head_dim + 4); }
  static const float* scales(const Element* keys, int head_dim) { return reinterpret_cast<const float*>(keys + 2 * kPage * head_dim); }

  // Quantizes x to int8 in q; head_dim is a multiple of 16. Returns the scale.
  static float quantize(const float* x, int head_dim, int8_t* q) {
    I top = as_int(vabs(vload(x)));
    for (int d = 16; d < head_dim; d += 16) top = imax(top, as_int(vabs(vload(x + d))));
    float amax = num::from_bits(uint32_t(imaximum(top)));  // a NaN is the largest
    V inverse = vset(amax > 0 ? 127.0f / amax : 0.0f);
    for (int d = 0; d < head_dim; d += 16) store_int8(q + d, vmul(vload(x + d), inverse));
    return amax * (1.0f / 127.0f);
  }
  // Quantizes a query in place: codes, then from element head_dim / 4 on the scale and the initial value of the dot
  // products.
  static void store_query(float* x, int head_dim) {
    alignas(64) int8_t q[kMaxHeadDim];
    float scale = quantize(x, head_dim, q);
    int32_t zero = 0;
    for (int d = 0; d < head_dim; d += 16) zero -= kCodeZero * byte_sum(q + d);
    memcpy(x, q, size_t(head_dim));
    x[head_dim / 4] = scale;
    memcpy(x + head_dim / 4 + 1, &zero, 4);
  }
  static void write_key(Element* k, int head_dim, int token, const float* key) {
    alignas(64) int8_t q[kMaxHeadDim];
    const float scale = quantize(key, head_dim, q);
    memcpy(k + 2 * kPage * head_dim + token * 4, &scale, 4);
    for (int d = 0; d < head_dim; d += 4) {
      uint32_t four;
      memcpy(&four, q + d, 4);
      four ^= 0x80808080u;  // + 128
      memcpy(k + d * kPage + token * 4, &four, 4);
    }
  }
  static void write_value(Element* v, int head_dim, int token, const float* value) {
    alignas(64) int8_t q[kMaxHeadDim];
    const float scale = quantize(value, head_dim, q);
    memcpy(v + kPage * head_dim + (kPage + token) * 4, &scale, 4);
    for (int d = 0; d < head_dim; ++d) v[(token / 4 * head_dim + d) * 4 + token % 4] = uint8_t(q[d]);
  }
};

template <int R> struct Queries {  // contiguous, so that one base register addresses all rows
  alignas(64) int8_t q[R][kMaxHeadDim];
  float scale[R];
  int32_t zero[R];
  float softcap;
  Queries(const QueryHead* c, int head_dim, Scoring o) : softcap(o.softcap) {
    for (int r = 0; r < R; ++r) {
      memcpy(q[r], c[r].q, size_t(head_dim));
      scale[r] = c[r].q[head_dim / 4] * o.scale;
      memcpy(zero + r, c[r].q + head_dim / 4 + 1, 4);
    }
  }
};

// scores[r][t] = softcap(float(q_r . k_t) * (query scale * scale) * key scale) for P pages; -inf for positions that row
// r does not see.
template <int R, int P>
void int8_scores(const KvHead<KvInt8>& h, const VisibleRange<R>& visible, int page, const Queries<R>& q, float (*scores)[kChunk], PagePrefetch prefetch) {
  const uint8_t *k[P], *next[P];
  I acc[P][R];
DRUT_UNROLL
  for (int p = 0; p < P; ++p) {
    const int at = visible.first_page + page + p, later = at + kChunk / kPage;
    k[p] = h.keys(at);
    next[p] = prefetch.wants(at) && later < h.pages ? h.keys(later) : nullptr;
DRUT_UNROLL
    for (int r = 0; r < R; ++r) acc[p][r] = iset(q.zero[r]);
  }
  for (int i = 0; i < h.head_dim / 4; ++i) {
    I key[P];
DRUT_UNROLL
    for (int p = 0; p < P; ++p) {
      key[p] = iload(k[p] + i * 64);
      if (next[p]) prefetch_bytes(next[p] + i * 64, 64);
    }
DRUT_UNROLL
    for (int r = 0; r < R; ++r) {
      int32_t four;
      memcpy(&four, q.q[r] + 4 * i, 4);
DRUT_UNROLL
      for (int p = 0; p < P; ++p) acc[p][r] = idot8(acc[p][r], key[p], four);
    }
  }
DRUT_UNROLL
  for (int p = 0; p < P; ++p) {
    const V scale = vload(KvInt8::scales(k[p], h.head_dim));
    if (next[p]) prefetch_bytes(KvInt8::scales(next[p], h.head_dim), 128);
DRUT_UNROLL
    for (int r = 0; r < R; ++r) {
      const V s = softcap(vmul(vmul(to_float(acc[p][r]), vset(q.scale[r])), scale), q.softcap);
      const int start = (page + p) * kPage;
      vstore(&scores[r][start], mask_scores(s, visible.begin[r] - start, visible.end[r] - start));
    }
  }
}

// Computes exp(s - maximum) and the weights of a row that sees tokens [begin, end) of the chunk: that times the scales of
// the values, as codes of 14 bits times *unit. Calls store(page, codes) for pages [from, to); codes of tokens that the
// row does not see are 0. Returns the sum.
template <class Store>
float int8_softmax(const float* scales, int begin, int end_token, int from, int to, float maximum, float* s, float* unit, Store store) {
  const int first = begin / kPage, end = (end_token + kPage - 1) / kPage;
  V shift = vset(maximum), total = vset(0.0f);
  I top = iset(0);
  for (int p = first, start = p * kPage; p < end; ++p, start += kPage) {
    V e = vexp_of_negative(vsub(vload(s + start), shift));
    total = vadd(total, e);
    V scaled = vmul(e, vload(scales + start));
    if (start < begin || start + kPage > end_token) {
      scaled = vselect_first(end_token - start, scaled, vset(0.0f));
      scaled = vselect_first(begin - start, vset(0.0f), scaled);
    }
    top = imax(top, as_int(vabs(scaled)));  // a NaN may have either sign
    vstore(s + start, scaled);
  }
  const float largest = num::from_bits(uint32_t(imaximum(top)));  // a NaN is the largest
  const V inverse = vset(largest > 0 ? kWeightMax / largest : 0.0f);
  *unit = largest * (1.0f / kWeightMax);
  for (int p = from; p < first; ++p) store(p, iset(0));
  for (int p = first; p < end; ++p) store(p, iand(as_int(vadd(vmul(vload(s + p * kPage), inverse), vset(num::kRound))), iset(16383)));
  for (int p = end; p < to; ++p) store(p, iset(0));
  return vsum(total);
}

template <int R> struct Weights {  // 7 high and 7 low bits of each weight; 0 for positions that the row does not see
  alignas(64) uint8_t high[R][kChunk], low[R][kChunk];
  float unit[R];
};

// partial[r][n] = unit * float(sum over tokens of weight * value) for elements d + 16n..
template <int R, int N>
void int8_values(const KvHead<KvInt8>& h, const VisibleRange<R>& visible, const Weights<R>& w, int d, float* const* partial, PagePrefetch prefetch) {
  I high[R][N], low[R][N];
DRUT_UNROLL
  for (int r = 0; r < R; ++r) {
DRUT_UNROLL
    for (int n = 0; n < N; ++n) high[r][n] = low[r][n] = iset(0);
  }
  for (int quad = visible.skip * kPage / 4; quad < (visible.longest + 3) / 4; ++quad) {
    const int page = visible.first_page + quad / 4, later = page + kChunk / kPage;
    const uint8_t* v = h.values(page) + quad % 4 * 4 * h.head_dim;
    if (d == 0 && prefetch.wants(page) && later < h.pages) prefetch_bytes(h.values(later) + quad % 4 * 4 * h.head_dim, 4 * h.head_dim);
    I value[N];
DRUT_UNROLL
    for (int n = 0; n < N; ++n) value[n] = iload(v + (d + 16 * n) * 4);
DRUT_UNROLL
    for (int r = 0; r < R; ++r) {
      int32_t h4, l4;
      memcpy(&h4, w.high[r] + 4 * quad, 4);
      memcpy(&l4, w.low[r] + 4 * quad, 4);
DRUT_UNROLL
      for (int n = 0; n < N; ++n) {
        high[r][n] = idot_signed(high[r][n], h4, value[n]);
        low[r][n] = idot_signed(low[r][n], l4, value[n]);
      }
    }
  }
DRUT_UNROLL
  for (int r = 0; r < R; ++r) {
DRUT_UNROLL
    for (int n = 0; n < N; ++n) {
      V sum = to_float(iadd(ishl(high[r][n], 7), low[r][n]));
      vstore(partial[r] + kPartialHead + d + 16 * n, vmul(sum, vset(w.unit[r])));
    }
  }
}

template <class Kv, int R>
void attend_chunk(const KvHead<KvInt8>& h, int chunk, Scoring o, const QueryHead* c, float* const* partial, PagePrefetch prefetch) {
  alignas(64) float s[R][kChunk];
  const VisibleRange<R> visible(c, chunk);
  const Queries<R> q(c, h.head_dim, o);
  Weights<R> w;
  int page = visible.skip;
  for (; page + 2 <= visible.page_count; page += 2) int8_scores<R, 2>(h, visible, page, q, s, prefetch);
  for (; page < visible.page_count; ++page) int8_scores<R, 1>(h, visible, page, q, s, prefetch);
  alignas(64) float scales[kChunk];
  for (page = visible.skip; page < visible.page_count; ++page) memcpy(scales + page * kPage, KvInt8::scales(h.keys(visible.first_page + page), h.head_dim) + kPage, kPage * 4);
  for (int r = 0; r < R; ++r) {
    partial[r][0] = vmaximum(lane_maxima(s[r], visible.begin[r] / kPage, (visible.end[r] + kPage - 1) / kPage));
    partial[r][1] = int8_softmax(scales, visible.begin[r], visible.end[r], visible.skip, visible.page_count, partial[r][0], s[r], w.unit + r,
                                 [&](int p, I codes) {
                                   store_bytes(w.high[r] + p * kPage, ishr(codes, 7));
                                   store_bytes(w.low[r] + p * kPage, iand(codes, iset(127)));
                                 });
  }
  constexpr int N = R <= 3 ? 4 : R <= 6 ? 2 : 1;
  int d = 0;
  for (; d + 16 * N <= h.head_dim; d += 16 * N) int8_values<R, N>(h, visible, w, d, partial, prefetch);
  for (; d < h.head_dim; d += 16) int8_values<R, 1>(h, visible, w, d, partial, prefetch);
}

}  // namespace
