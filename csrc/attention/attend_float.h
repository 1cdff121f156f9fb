// Attention over one chunk of keys and values stored as bf16 or fp32.
#pragma once
#include "attention/kv_pages.h"

namespace {

// A KV format: how pages are read (pairs of adjacent elements) and written, and the format of the other operand, which
// `store` writes and `stored` reads.
struct KvBf16 {
  static constexpr bool kBlocks = true;
  using Element = uint16_t;
  using Pair = Bf16Pair;
  static int64_t head_bytes(int head_dim) { return int64_t(2) * kPage * head_dim * int64_t(sizeof(Element)); }
  static void store_query(float* x, int head_dim) {
    for (int d = 0; d < head_dim; d += 16) store(x, d, round(vload(x + d)));
  }
  static V round(V x) { return vround_bf16(x); }
  static void store(float* row, int i, V rounded) { store_bf16(row, i, rounded); }
  static V store_weights(float* row, int i, V x) { return round_and_store_bf16(row, i, x); }
  static V dot(V acc, Pair p, const float* row, int pair) { return bf16_pair_dot(acc, p, row, pair); }
  static Pair even(Pair p) { return bf16_pair_even(p); }
  static Pair odd(Pair p) { return bf16_pair_odd(p); }
  static Pair keys(const Element* k, int pair) { return bf16_pair_load(k + pair * 32); }
  static Pair values(const Element* v, int head_dim, int pair, int d) { return bf16_pair_load(v + (pair * head_dim + d) * 2); }
  static V stored(const float* row, int i) { return load_stored_bf16(row, i); }
  static FloatPair key_floats(const Element* k, int pair) { return bf16_floats(k + pair * 32); }
  static FloatPair value_floats(const Element* v, int head_dim, int pair, int d) { return bf16_floats(v + (pair * head_dim + d) * 2); }
  static void rounded(const float* x, int head_dim, uint32_t* bits) {  // bf16 in the high halves
    for (int d = 0; d < head_dim; d += 16) vstore(reinterpret_cast<float*>(bits + d), vround_bf16(vload(x + d)));
  }
  static void write_key(Element* k, int head_dim, int token, const float* key) {
    uint32_t bits[kMaxHeadDim];
    rounded(key, head_dim, bits);
    for (int d = 0; d < head_dim; d += 2) {
      uint32_t pair = bits[d] >> 16 | bits[d + 1];
      memcpy(k + (d / 2) * 32 + token * 2, &pair, 4);
    }
  }
  static void write_value(Element* v, int head_dim, int token, const float* value) {
    uint32_t bits[kMaxHeadDim];
    rounded(value, head_dim, bits);
    for (int d = 0; d < head_dim; ++d) v[((token / 2) * head_dim + d) * 2 + (token & 1)] = uint16_t(bits[d] >> 16);
  }
};

struct KvFp32 {
  static constexpr bool kBlocks = true;
  using Element = float;
  using Pair = FloatPair;
  static int64_t head_bytes(int head_dim) { return int64_t(2) * kPage * head_dim * int64_t(sizeof(Element)); }
  static void store_query(float* x, int head_dim) {
    for (int d = 0; d < head_dim; d += 16) store(x, d, round(vload(x + d)));
  }
  static V round(V x) { return x; }
  static void store(float* row, int i, V x) { vstore(row + i, x); }
  static V store_weights(float* row, int i, V x) {
    vstore(row + i, x);
    return x;
  }
  static V stored(const float* row, int i) { return vload(row + i); }
  static FloatPair key_floats(const Element* k, int pair) { return keys(k, pair); }
  static FloatPair value_floats(const Element* v, int head_dim, int pair, int d) { return values(v, head_dim, pair, d); }
  static V dot(V acc, Pair p, const float* row, int pair) {
    return vfma(vset(row[2 * pair]), p.even, vfma(vset(row[2 * pair + 1]), p.odd, acc));
  }
  static Pair even(Pair p) { return {vset(0.0f), p.even}; }
  static Pair odd(Pair p) { return {p.odd, vset(0.0f)}; }
  static Pair keys(const Element* k, int pair) { return {vload(k + (2 * pair + 1) * 16), vload(k + 2 * pair * 16)}; }
  static Pair values(const Element* v, int head_dim, int pair, int d) {
    return {vload(v + (2 * pair + 1) * head_dim + d), vload(v + 2 * pair * head_dim + d)};
  }
  static void write_key(Element* k, int head_dim, int token, const float* key) {
    for (int d = 0; d < head_dim; ++d) k[d * 16 + token] = key[d];
  }
  static void write_value(Element* v, int head_dim, int token, const float* value) {
    memcpy(v + token * head_dim, value, size_t(head_dim) * 4);
  }
};

// scores[r][t] = softcap(scale * (q_r . k_t)) for P pages of the chunk; -inf for positions that row r does not see.
template <class Kv, int R, int P>
void page_scores(const KvHead<Kv>& h, const VisibleRange<R>& visible, int page, Scoring o, const float (*q)[kMaxHeadDim],
                 float (*scores)[kChunk], PagePrefetch prefetch) {
  constexpr int line = 2 * kPage;  // elements of one pair of the head, for 16 tokens
  const typename Kv::Element *k[P], *next[P];
  V acc[P][R];
DRUT_UNROLL
  for (int p = 0; p < P; ++p) {
    const int at = visible.first_page + page + p, later = at + kChunk / kPage;
    k[p] = h.keys(at);
    next[p] = prefetch.wants(at) && later < h.pages ? h.keys(later) : nullptr;
DRUT_UNROLL
    for (int r = 0; r < R; ++r) acc[p][r] = vset(0.0f);
  }
  for (int i = 0; i < h.head_dim / 2; ++i) {
    typename Kv::Pair key[P];
DRUT_UNROLL
    for (int p = 0; p < P; ++p) {
      key[p] = Kv::keys(k[p], i);
      if (next[p]) prefetch_bytes(next[p] + i * line, line * int(sizeof(typename Kv::Element)));
    }
DRUT_UNROLL
    for (int r = 0; r < R; ++r) {
DRUT_UNROLL
      for (int p = 0; p < P; ++p) acc[p][r] = Kv::dot(acc[p][r], key[p], q[r], i);
    }
  }
DRUT_UNROLL
  for (int p = 0; p < P; ++p) {
    const int start = (page + p) * kPage;
DRUT_UNROLL
    for (int r = 0; r < R; ++r) {
      const V score = softcap(vmul(acc[p][r], vset(o.scale)), o.softcap);
      vstore(&scores[r][start], mask_scores(score, visible.begin[r] - start, visible.end[r] - start));
    }
  }
}

template <class Kv, int R>
void chunk_scores(const KvHead<Kv>& h, const VisibleRange<R>& visible, Scoring o, const QueryHead* c, float (*scores)[kChunk], PagePrefetch prefetch) {
  alignas(64) float q[R][kMaxHeadDim];  // contiguous, so that one base register addresses all rows
  for (int r = 0; r < R; ++r) memcpy(q[r], c[r].q, size_t(h.head_dim) * 4);
  int page = visible.skip;
  for (; page + vectors_at_once(R) <= visible.page_count; page += vectors_at_once(R)) page_scores<Kv, R, vectors_at_once(R)>(h, visible, page, o, q, scores, prefetch);
  for (; page < visible.page_count; ++page) page_scores<Kv, R, 1>(h, visible, page, o, q, scores, prefetch);
}

// The maxima of 16 lanes over the scores of pages [first, end).
inline V lane_maxima(const float* s, int first, int end) {
  V m = vload(s + first * kPage);
  for (int p = first + 1; p < end; ++p) m = vmax(vload(s + p * kPage), m);
  return m;
}

// Replaces the scores of pages [first, end) by exp(s - maximum), rounded to the KV format. Returns the sum.
template <class Kv> float chunk_softmax(float* s, int first, int end, float maximum) {
  V shift = vset(maximum), total = vset(0.0f);
  for (int p = first; p < end; ++p)
    total = vadd(total, Kv::store_weights(s, p * kPage, vexp_of_negative(vsub(vload(s + p * kPage), shift))));
  return vsum(total);
}

// Adds weight * value of tokens [begin, end) of the chunk to `to`, for one row. Other slots are not read.
template <class Kv, int N> void row_values(const KvHead<Kv>& h, int first_page, int begin, int end, const float* w, int d, float* to) {
  for (int n = 0; n < N && begin < end; ++n) {
    V sum = vload(to + 16 * n);
    for (int t = begin / 2; 2 * t < end; ++t) {
      typename Kv::Pair value = Kv::values(h.values(first_page + t / 8), h.head_dim, t % 8, d + 16 * n);
      if (2 * t < begin) value = Kv::odd(value);
      if (2 * t + 1 == end) value = Kv::even(value);
      sum = Kv::dot(sum, value, w, t);
    }
    vstore(to + 16 * n, sum);
  }
}

// partial[r][n] = sum over tokens of weight * value for elements d + 16n..: pairs of tokens ascending, the odd token of
// a pair first. Pairs that all rows see are loaded once for all rows; each row loads its pairs before and after them
// alone. The order of additions of a row is the same either way.
template <class Kv, int R, int N>
void chunk_values(const KvHead<Kv>& h, const VisibleRange<R>& visible, const float (*w)[kChunk], int d, float* const* partial, PagePrefetch prefetch) {
  const int first = (visible.latest + 1) / 2, end = visible.shortest / 2 > first ? visible.shortest / 2 : first;
  for (int r = 0; r < R; ++r) {
    float* to = partial[r] + kPartialHead + d;
    for (int n = 0; n < N; ++n) vstore(to + 16 * n, vset(0.0f));
    row_values<Kv, N>(h, visible.first_page, visible.begin[r], 2 * first < visible.end[r] ? 2 * first : visible.end[r], w[r], d, to);
  }
  V acc[R][N];
DRUT_UNROLL
  for (int r = 0; r < R; ++r) {
DRUT_UNROLL
    for (int n = 0; n < N; ++n) acc[r][n] = vload(partial[r] + kPartialHead + d + 16 * n);
  }
  for (int t = first; t < end; ++t) {
    const int page = visible.first_page + t / 8, later = page + kChunk / kPage;
    const typename Kv::Element* v = h.values(page);
    if (d == 0 && prefetch.wants(page) && later < h.pages)
      prefetch_bytes(h.values(later) + t % 8 * 2 * h.head_dim, 2 * h.head_dim * int(sizeof(typename Kv::Element)));
    typename Kv::Pair value[N];
DRUT_UNROLL
    for (int n = 0; n < N; ++n) value[n] = Kv::values(v, h.head_dim, t % 8, d + 16 * n);
DRUT_UNROLL
    for (int r = 0; r < R; ++r) {
DRUT_UNROLL
      for (int n = 0; n < N; ++n) acc[r][n] = Kv::dot(acc[r][n], value[n], w[r], t);
    }
  }
DRUT_UNROLL
  for (int r = 0; r < R; ++r) {
DRUT_UNROLL
    for (int n = 0; n < N; ++n) vstore(partial[r] + kPartialHead + d + 16 * n, acc[r][n]);
  }
  for (int r = 0; r < R; ++r)
    row_values<Kv, N>(h, visible.first_page, 2 * end, visible.end[r], w[r], d, partial[r] + kPartialHead + d);
}

// Computes one chunk for R rows that each see some of it, into partial[r].
template <class Kv, int R>
void attend_chunk(const KvHead<Kv>& h, int chunk, Scoring o, const QueryHead* c, float* const* partial, PagePrefetch prefetch) {
  alignas(64) float s[R][kChunk];
  const VisibleRange<R> visible(c, chunk);
  chunk_scores<Kv, R>(h, visible, o, c, s, prefetch);
  for (int r = 0; r < R; ++r) {
    const int first = visible.begin[r] / kPage, end = (visible.end[r] + kPage - 1) / kPage;
    partial[r][0] = vmaximum(lane_maxima(s[r], first, end));
    partial[r][1] = chunk_softmax<Kv>(s[r], first, end, partial[r][0]);
  }
  constexpr int N = vectors_at_once(R);
  int d = 0;
  for (; d + 16 * N <= h.head_dim; d += 16 * N) chunk_values<Kv, R, N>(h, visible, s, d, partial, prefetch);
  for (; d < h.head_dim; d += 16) chunk_values<Kv, R, 1>(h, visible, s, d, partial, prefetch);
}

}  // namespace
