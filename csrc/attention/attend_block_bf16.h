// Attention of many (row, head) pairs over one chunk of keys and values stored as bf16, for instruction sets with a
// product of bf16 pairs: keys and values are read from their pages as they are, once per tile of rows.
#pragma once
#include "attention/attend_block.h"

#if defined(DRUT_NATIVE_BF16)
namespace {

// to[r][n] = (fresh ? 0 : to[r][n]) + a[r] . b[n] over pairs [begin, end), ascending. a: rows of packed pairs, kBlockStride
// words each; b(i, n): the address of vector n of pair i. Not inlined, so that the compiler keeps all sums in registers.
template <int R, int N, bool fresh, class Address>
__attribute__((noinline)) void add_pair_products(const float* a, Address b, int begin, int end, float* to, int stride) {
  V acc[R][N];
DRUT_UNROLL
  for (int r = 0; r < R; ++r) {
DRUT_UNROLL
    for (int n = 0; n < N; ++n) acc[r][n] = fresh ? vset(0.0f) : vload(to + r * stride + 16 * n);
  }
  for (int i = begin; i < end; ++i) {
    I y[N];
DRUT_UNROLL
    for (int n = 0; n < N; ++n) y[n] = iload(b(i, n));
DRUT_UNROLL
    for (int r = 0; r < R; ++r) {
      const I x = in_registers(ibroadcast(a + r * kBlockStride + i));
DRUT_UNROLL
      for (int n = 0; n < N; ++n) acc[r][n] = vdot_bf16(acc[r][n], y[n], x);
    }
  }
DRUT_UNROLL
  for (int r = 0; r < R; ++r) {
DRUT_UNROLL
    for (int n = 0; n < N; ++n) vstore(to + r * stride + 16 * n, acc[r][n]);
  }
}

// Writes the queries of a unit as packed pairs.
template <> inline void block_queries<KvBf16>(const QueryHead* c, int count, int head_dim, AttentionBlock& m) {
  for (int i = 0; i < count; ++i) memcpy(m.q[i], c[i].q, size_t(head_dim) * 2);
}

// The same as value_tile of attend_block.h, of values in their pages.
template <int R, int N>
void paged_value_tile(const KvHead<KvBf16>& h, const AttentionBlock& m, const BlockRows& rows, const BlockTile& t, int d, float* partials, int stride) {
  const int first = (t.latest + 1) / 2, end = t.shortest / 2 > first ? t.shortest / 2 : first;
  float* to = partials + int64_t(t.row) * stride + kPartialHead + d;
  const auto value = [&](int pair, int n) {
    return h.values(rows.first_page + pair / (kPage / 2)) + (pair % (kPage / 2) * h.head_dim + d + 16 * n) * 2;
  };
  if (t.latest == 0 && t.shortest == kChunk) return add_pair_products<R, N, true>(m.s[t.row], value, 0, kChunk / 2, to, stride);
  for (int r = 0; r < R; ++r) {
    for (int n = 0; n < N; ++n) vstore(to + r * stride + 16 * n, vset(0.0f));
    const int stop = rows.end[t.row + r] < 2 * first ? rows.end[t.row + r] : 2 * first;
    row_values<KvBf16, N>(h, rows.first_page, rows.begin[t.row + r], stop, m.s[t.row + r], d, to + r * stride);
  }
  add_pair_products<R, N, false>(m.s[t.row], value, first, end, to, stride);
  for (int r = 0; r < R; ++r) row_values<KvBf16, N>(h, rows.first_page, 2 * end, rows.end[t.row + r], m.s[t.row + r], d, to + r * stride);
}

// The same as chunk_softmax, two pages at a time.
inline float two_page_softmax(float* s, int first, int end, float maximum) {
  const V shift = vset(maximum);
  V total = vset(0.0f);
  const auto weights = [&](int page) { return vexp_of_negative(vsub(vload(s + page * kPage), shift)); };
  uint16_t* to = reinterpret_cast<uint16_t*>(s);  // weights replace scores: those of a page lie before the next page's scores
  int p = first;
  for (; p + 2 <= end; p += 2) {
    const V even = weights(p), odd = weights(p + 1);
    total = vround_two_bf16(to + p * kPage, even, odd, total);
  }
  if (p < end) total = vadd(total, vround_and_store_bf16(to + p * kPage, weights(p)));
  const float sum = vsum(total);
  for (int i = first * kPage; sum != sum && i < end * kPage; ++i) to[i] = (to[i] & 0x7fff) > 0x7f80 ? 0x7fc0 : to[i];
  return sum;
}

// Scores of one tile.
template <int R> void paged_scores(const KvHead<KvBf16>& h, const BlockRows& rows, const BlockTile& t, AttentionBlock& m) {
  const int end = (t.longest + kPage - 1) / kPage;
  int page = t.earliest / kPage;
  const auto pages = [&](auto n) {
    const uint16_t* k[n.value];
    for (int i = 0; i < n.value; ++i) k[i] = h.keys(rows.first_page + page + i);
    add_pair_products<R, n.value, true>(m.q[t.row], [&](int i, int v) { return k[v] + i * 2 * kPage; }, 0, h.head_dim / 2, m.s[t.row] + page * kPage, kBlockStride);
    page += n.value;
  };
  while (page + kBlockVectors <= end) pages(Constant<kBlockVectors>());
  while (page < end) pages(Constant<1>());
}

// Tile by tile: the scores of a tile stay in the first-level cache, and keys and values come from the second.
template <>
inline void attend_block<KvBf16>(const KvHead<KvBf16>& h, int chunk, Scoring o, const QueryHead* c, int from, int to, AttentionBlock& m, float* partials, int stride) {
  const BlockRows rows(c, from, to, chunk, kBlockRows);
  for (int i = 0; i < rows.tiles; ++i) {
    const BlockTile& t = rows.tile[i];
    prefetch_next_chunk(h, rows.first_page, i, rows.tiles, int(KvBf16::head_bytes(h.head_dim)));
    with_count<kBlockRows>(t.rows, [&](auto r) {
      paged_scores<r.value>(h, rows, t, m);
      block_softmax(rows, o, t.row, t.row + t.rows, m, partials, stride, two_page_softmax);
      int d = 0;
      for (; d + 16 * kBlockVectors <= h.head_dim; d += 16 * kBlockVectors) paged_value_tile<r.value, kBlockVectors>(h, m, rows, t, d, partials, stride);
      for (; d < h.head_dim; d += 16) paged_value_tile<r.value, 1>(h, m, rows, t, d, partials, stride);
    });
  }
}

}  // namespace
#endif
