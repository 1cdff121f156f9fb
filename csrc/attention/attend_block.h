// Attention of many (row, head) pairs over one chunk of keys and values stored as bf16 or fp32. Keys and values are
// unpacked to floats once for all pairs. Then both products, queries with keys and weights with values, are tiles of
// fused multiply-adds in registers. Few pairs are bound by memory: attend_float.h computes them without unpacking.
#pragma once
#include "attention/attend_float.h"

namespace {

constexpr int kBlockStride = kChunk + 16;  // floats between rows: rows of 1 KB would share the sets of a cache
static_assert(kMaxHeadDim <= kChunk, "queries and scores have one stride");

// The memory of one unit of work. q: the queries of all chunks; s: scores, then weights, of one chunk; unpacked: keys of
// kBlockVectors pages [d][16 * pages], or 16 * kBlockVectors elements of all values of the chunk [token][elements].
struct alignas(64) AttentionBlock {
  static constexpr int kWidth = 16 * kBlockVectors;
  float q[kMaxQueryHeads][kBlockStride];
  float s[kMaxQueryHeads][kBlockStride];
  float unpacked[kChunk * kWidth];
};

// to[r][n] = (fresh ? 0 : to[r][n]) + a[r] . b[n] over pairs of k, ascending, the odd one of a pair first. a: rows of
// kBlockStride; b: rows of AttentionBlock::kWidth. Not inlined, so that the compiler keeps all sums in registers.
template <int R, int N, bool fresh> __attribute__((noinline)) void add_products(const float* a, const float* b, int pairs, float* to, int stride) {
  constexpr int width = AttentionBlock::kWidth;
  V acc[R][N];
DRUT_UNROLL
  for (int r = 0; r < R; ++r) {
DRUT_UNROLL
    for (int n = 0; n < N; ++n) acc[r][n] = fresh ? vset(0.0f) : vload(to + r * stride + 16 * n);
  }
  for (int i = 0; i < pairs; ++i, a += 2, b += 2 * width) {
    for (int k = 1; k >= 0; --k) {
      V y[N];
DRUT_UNROLL
      for (int n = 0; n < N; ++n) y[n] = vload(b + k * width + 16 * n);
DRUT_UNROLL
      for (int r = 0; r < R; ++r) {
        const V x = vset(a[r * kBlockStride + k]);
DRUT_UNROLL
        for (int n = 0; n < N; ++n) acc[r][n] = vfma(x, y[n], acc[r][n]);
      }
    }
  }
DRUT_UNROLL
  for (int r = 0; r < R; ++r) {
DRUT_UNROLL
    for (int n = 0; n < N; ++n) vstore(to + r * stride + 16 * n, acc[r][n]);
  }
}

// Rows that one tile computes, and the positions of the chunk that they see, as in VisibleRange.
struct BlockTile { int row, rows, earliest, latest, longest, shortest; };

struct BlockRows {
  int begin[kMaxQueryHeads], end[kMaxQueryHeads], tiles = 0, first_page, skip = kChunk, page_count = 0;
  BlockTile tile[kMaxQueryHeads];
  // Rows [from, to) of c, which each see some of the chunk, in tiles of at most `most` rows.
  BlockRows(const QueryHead* c, int from, int to, int chunk, int most) : first_page(chunk * kChunk / kPage) {
    const int count = (to - from + most - 1) / most;
    for (int row = from; tiles < count; ++tiles) {
      BlockTile& t = tile[tiles] = {row, (to - row + count - tiles - 1) / (count - tiles), kChunk, 0, 0, kChunk};
      for (; row < t.row + t.rows; ++row) {
        const int start = c[row].begin - chunk * kChunk, left = c[row].length - chunk * kChunk;
        begin[row] = start > 0 ? start : 0;
        end[row] = left < kChunk ? left : kChunk;
        t.earliest = begin[row] < t.earliest ? begin[row] : t.earliest;
        t.latest = begin[row] > t.latest ? begin[row] : t.latest;
        t.longest = end[row] > t.longest ? end[row] : t.longest;
        t.shortest = end[row] < t.shortest ? end[row] : t.shortest;
      }
      skip = t.earliest / kPage < skip ? t.earliest / kPage : skip;
      page_count = (t.longest + kPage - 1) / kPage > page_count ? (t.longest + kPage - 1) / kPage : page_count;
    }
  }
};

// Calls f with `count`, 1 to N, as a Constant.
template <int N, class F> inline void with_count(int count, F f) {
  if constexpr (N > 1) {
    if (count < N) return with_count<N - 1>(count, f);
  }
  f(Constant<N>());
}

// Prefetches the share of tile `tile` of `tiles` of the pages of the next chunk, `bytes` each; first_page: of this chunk.
template <class Kv> void prefetch_next_chunk(const KvHead<Kv>& h, int first_page, int tile, int tiles, int bytes) {
  for (int page = first_page + kChunk / kPage + tile, end = first_page + 2 * kChunk / kPage; page < end && page < h.pages; page += tiles)
    prefetch_bytes(h.keys(page), bytes);
}

// Keys of `count` pages as floats; prefetches the keys of the next chunk.
template <class Kv> void unpack_keys(const KvHead<Kv>& h, int page, int count, float* to) {
  for (int n = 0; n < count; ++n) {
    const typename Kv::Element *k = h.keys(page + n), *next = nullptr;
    if (page + n + kChunk / kPage < h.pages) next = h.keys(page + n + kChunk / kPage);
    for (int i = 0; i < h.head_dim / 2; ++i) {
      const FloatPair key = Kv::key_floats(k, i);
      vstore(to + 2 * i * AttentionBlock::kWidth + 16 * n, key.even);
      vstore(to + (2 * i + 1) * AttentionBlock::kWidth + 16 * n, key.odd);
      if (next) prefetch_bytes(next + i * 2 * kPage, 2 * kPage * int(sizeof(typename Kv::Element)));
    }
  }
}

// Calls unpack(page, count) for the pages of the chunk, kBlockVectors at a time, and then tile(t, page, rows, pages) for
// each tile t that sees some of them; rows and pages are Constants.
template <class Unpack, class Tile> void for_score_tiles(const BlockRows& rows, Unpack unpack, Tile tile) {
  for (int page = rows.skip; page < rows.page_count; page += kBlockVectors) {
    const int count = rows.page_count - page < kBlockVectors ? rows.page_count - page : kBlockVectors;
    unpack(page, count);
    for (int i = 0; i < rows.tiles; ++i) {
      const BlockTile& t = rows.tile[i];
      const int visible = (t.longest + kPage - 1) / kPage - page;  // pages that the tile needs
      if (visible <= 0 || (page + count) * kPage <= t.earliest) continue;
      with_count<kBlockRows>(t.rows, [&](auto r) {
        if (kBlockVectors == 1 || (count == kBlockVectors && visible > 1)) tile(t, page, r, Constant<kBlockVectors>());
        else tile(t, page, r, Constant<1>());
      });
    }
  }
}

// Calls unpack(d, vectors) for the elements of a head, kBlockVectors vectors at a time, and then tile(t, d, rows, vectors)
// for each tile t; rows and vectors are Constants.
template <class Unpack, class Tile> void for_value_tiles(const BlockRows& rows, int head_dim, Unpack unpack, Tile tile) {
  for (int d = 0, vectors; d < head_dim; d += 16 * vectors) {
    vectors = head_dim - d >= 16 * kBlockVectors ? kBlockVectors : 1;
    unpack(d, vectors);
    for (int i = 0; i < rows.tiles; ++i) {
      with_count<kBlockRows>(rows.tile[i].rows, [&](auto r) {
        if (vectors == kBlockVectors) tile(rows.tile[i], d, r, Constant<kBlockVectors>());
        else tile(rows.tile[i], d, r, Constant<1>());
      });
    }
  }
}

// Elements d.. of the values of pages [first, end) of the chunk, as floats; d = 0 prefetches the next chunk.
template <class Kv> void unpack_values(const KvHead<Kv>& h, const BlockRows& rows, int d, int vectors, float* to) {
  for (int page = rows.skip; page < rows.page_count; ++page) {
    const int at = rows.first_page + page, later = at + kChunk / kPage;
    const typename Kv::Element* v = h.values(at);
    float* out = to + page * kPage * AttentionBlock::kWidth;
    if (d == 0 && later < h.pages) prefetch_bytes(h.values(later), kPage * h.head_dim * int(sizeof(typename Kv::Element)));
    for (int t = 0; t < kPage / 2; ++t) {
      for (int n = 0; n < vectors; ++n) {
        const FloatPair value = Kv::value_floats(v, h.head_dim, t, d + 16 * n);
        vstore(out + 2 * t * AttentionBlock::kWidth + 16 * n, value.even);
        vstore(out + (2 * t + 1) * AttentionBlock::kWidth + 16 * n, value.odd);
      }
    }
  }
}

// Adds weight * value of tokens [begin, end) for one row to N vectors at `to`. A token of a pair that the row does not
// see counts as a value of zero.
template <int N> void add_row_values(const float* w, const float* values, int begin, int end, float* to) {
  constexpr int width = AttentionBlock::kWidth;
  for (int n = 0; n < N && begin < end; ++n) {
    V sum = vload(to + 16 * n);
    for (int pair = begin / 2; 2 * pair < end; ++pair) {
      for (int t = 2 * pair + 1; t >= 2 * pair; --t)
        sum = vfma(vset(w[t]), t >= begin && t < end ? vload(values + t * width + 16 * n) : vset(0.0f), sum);
    }
    vstore(to + 16 * n, sum);
  }
}

// partial[r] of elements d.. = sum of weight * value. Pairs that all rows see are computed as a tile; those before and
// after them row by row. The order of additions of a row is the same either way.
template <int R, int N>
void value_tile(const AttentionBlock& m, const BlockRows& rows, const BlockTile& t, int d, float* partials, int stride) {
  const int first = (t.latest + 1) / 2, end = t.shortest / 2 > first ? t.shortest / 2 : first;
  float* to = partials + int64_t(t.row) * stride + kPartialHead + d;
  for (int r = 0; r < R; ++r) {
    for (int n = 0; n < N; ++n) vstore(to + r * stride + 16 * n, vset(0.0f));
    const int stop = rows.end[t.row + r] < 2 * first ? rows.end[t.row + r] : 2 * first;
    add_row_values<N>(m.s[t.row + r], m.unpacked, rows.begin[t.row + r], stop, to + r * stride);
  }
  add_products<R, N, false>(m.s[t.row] + 2 * first, m.unpacked + 2 * first * AttentionBlock::kWidth, end - first, to, stride);
  for (int r = 0; r < R; ++r) add_row_values<N>(m.s[t.row + r], m.unpacked, 2 * end, rows.end[t.row + r], to + r * stride);
}

// Turns the dot products of a row that sees tokens [begin, end) of the chunk into scores; -inf for other tokens.
// score(products, page) is the score of 16 tokens. Returns the maxima of 16 lanes.
template <class Score> V block_row_scores(float* s, int begin, int end, Score score) {
  V maxima;
  for (int page = begin / kPage, start = page * kPage; start < end; ++page, start += kPage) {
    V x = score(s + start, page);
    if (start < begin || start + kPage > end) x = mask_scores(x, begin - start, end - start);
    vstore(s + start, x);
    maxima = start <= begin ? x : vmax(x, maxima);
  }
  return maxima;
}

// Turns products into weights, in two passes, because the maximum of a row has a long latency: the passes of several rows
// overlap.
template <class Softmax>
void block_softmax(const BlockRows& rows, Scoring o, int from, int to, AttentionBlock& m, float* partials, int stride, Softmax softmax) {
  for (int i = from; i < to; ++i)
    partials[int64_t(i) * stride] = vmaximum(block_row_scores(m.s[i], rows.begin[i], rows.end[i], [&](const float* products, int) { return o.score(vload(products)); }));
  for (int i = from; i < to; ++i) {
    float* p = partials + int64_t(i) * stride;
    p[1] = softmax(m.s[i], rows.begin[i] / kPage, (rows.end[i] + kPage - 1) / kPage, p[0]);
  }
}

// Writes the queries of a unit as floats.
template <class Kv> void block_queries(const QueryHead* c, int count, int head_dim, AttentionBlock& m) {
  for (int i = 0; i < count; ++i) {
    for (int d = 0; d < head_dim; d += 16) vstore(m.q[i] + d, Kv::stored(c[i].q, d));
  }
}

// Computes one chunk for rows [from, to) of c, which each see some of it; partial of row i: partials + i * stride.
template <class Kv>
void attend_block(const KvHead<Kv>& h, int chunk, Scoring o, const QueryHead* c, int from, int to, AttentionBlock& m, float* partials, int stride) {
  const BlockRows rows(c, from, to, chunk, kBlockRows);
  for_score_tiles(rows, [&](int page, int count) { unpack_keys(h, rows.first_page + page, count, m.unpacked); },
                  [&](const BlockTile& t, int page, auto r, auto n) {
                    add_products<r.value, n.value, true>(m.q[t.row], m.unpacked, h.head_dim / 2, m.s[t.row] + page * kPage, kBlockStride);
                  });
  block_softmax(rows, o, from, to, m, partials, stride, chunk_softmax<Kv>);
  for_value_tiles(rows, h.head_dim, [&](int d, int vectors) { unpack_values(h, rows, d, vectors, m.unpacked); },
                  [&](const BlockTile& t, int d, auto r, auto n) { value_tile<r.value, n.value>(m, rows, t, d, partials, stride); });
}

}  // namespace
