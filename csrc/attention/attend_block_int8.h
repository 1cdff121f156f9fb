// Attention of many (row, head) pairs over one chunk of keys and values stored as int8, for instruction sets that keep a
// tile of sums of four products in registers. The sums are exact integers, equal to those of attend_int8.h.
#pragma once
#include "attention/attend_block.h"
#include "attention/attend_int8.h"

#if defined(DRUT_QUAD_TILES)
namespace {

// Products of R rows of quads, `row_bytes` each, with N vectors over quads [begin, end). b(i, n): the address of vector n of
// quad i. Without unit: the rows are signed and b unsigned, and to[r][n] is the integer sum. With unit: the rows are
// unsigned, two for each r, high and low 7 bits, and to[r][n] is the sum times unit[r]. Not inlined, so that the compiler
// keeps all sums in registers.
template <int R, int N, bool weights, class Address>
__attribute__((noinline)) void quad_products(const uint8_t* a, int row_bytes, Address b, int begin, int end, const float* unit, float* to, int stride) {
  I acc[R][N];
DRUT_UNROLL
  for (int r = 0; r < R; ++r) {
DRUT_UNROLL
    for (int n = 0; n < N; ++n) acc[r][n] = iset(0);
  }
  for (int i = begin; i < end; ++i) {
    I y[N];
DRUT_UNROLL
    for (int n = 0; n < N; ++n) y[n] = iload(b(i, n));
DRUT_UNROLL
    for (int r = 0; r < R; ++r) {
      const I x = in_registers(ibroadcast(a + r * row_bytes + 4 * i));
DRUT_UNROLL
      for (int n = 0; n < N; ++n) acc[r][n] = weights ? idot8(acc[r][n], x, y[n]) : idot8(acc[r][n], y[n], x);
    }
  }
DRUT_UNROLL
  for (int r = 0; r < R; r += 1 + weights) {
DRUT_UNROLL
    for (int n = 0; n < N; ++n) {
      const V sum = weights ? vmul(to_float(iadd(ishl(acc[r][n], 7), acc[r + weights][n])), vset(unit[r / 2])) : as_float(acc[r][n]);
      vstore(to + (weights ? r / 2 : r) * stride + 16 * n, sum);
    }
  }
}

// What a block keeps in AttentionBlock::unpacked: scales of the tokens of a chunk, and the weights of a tile in two parts.
struct QuadBlock {
  static constexpr int kStride = kChunk + 64;  // bytes
  float key_scales[kChunk], value_scales[kChunk];
  struct { alignas(64) uint8_t high[kStride], low[kStride]; } weights[kBlockRows];
};
static_assert(sizeof(QuadBlock) <= sizeof(AttentionBlock::unpacked), "");

// Writes the queries of a unit as bytes.
template <> inline void block_queries<KvInt8>(const QueryHead* c, int count, int head_dim, AttentionBlock& m) {
  for (int i = 0; i < count; ++i) memcpy(m.q[i], c[i].q, size_t(head_dim));
}

// Integer products of one tile with the keys that it sees, in place of scores.
template <int R> void quad_scores(const KvHead<KvInt8>& h, const BlockRows& rows, const BlockTile& t, AttentionBlock& m) {
  const int end = (t.longest + kPage - 1) / kPage;
  int page = t.earliest / kPage;
  const auto pages = [&](auto n) {
    constexpr int N = n.value;
    const uint8_t* k[N];
    for (int i = 0; i < N; ++i) k[i] = h.keys(rows.first_page + page + i);
    quad_products<R, N, false>(reinterpret_cast<const uint8_t*>(m.q[t.row]), kBlockStride * 4, [&](int i, int v) { return k[v] + i * 64; }, 0, h.head_dim / 4,
                               nullptr, m.s[t.row] + page * kPage, kBlockStride);
    page += N;
  };
  while (page + kBlockVectors <= end) pages(Constant<kBlockVectors>());
  while (page < end) pages(Constant<1>());
}

// partial[r] of elements d.. = unit[r] * float(sum of weight * value) for R rows of a tile, the first one at `row` of it.
template <int R, int N>
void quad_values(const KvHead<KvInt8>& h, const BlockRows& rows, const BlockTile& t, const QuadBlock& m, int row, int d, const float* unit, float* partials, int stride) {
  float* to = partials + int64_t(t.row + row) * stride + kPartialHead + d;
  const auto value = [&](int quad, int n) { return h.values(rows.first_page + quad / 4) + (quad % 4 * h.head_dim + d + 16 * n) * 4; };
  quad_products<2 * R, N, true>(m.weights[row].high, QuadBlock::kStride, value, t.earliest / kPage * 4, (t.longest + 3) / 4, unit + row, to, stride);
}

// Turns the products of a tile into weights.
inline void quad_softmax(const BlockRows& rows, const BlockTile& t, Scoring o, const QueryHead* c, int head_dim, AttentionBlock& m, QuadBlock& quads, float* unit,
                         float* partials, int stride) {
  for (int i = 0; i < t.rows; ++i) {
    const int row = t.row + i;
    const float* query = c[row].q + head_dim / 4;  // scale, and the initial value of the dot products
    const V scale = vset(query[0] * o.scale);
    const I zero = ibroadcast(query + 1);
    partials[int64_t(row) * stride] = vmaximum(block_row_scores(m.s[row], rows.begin[row], rows.end[row], [&](const float* products, int page) {
      return softcap(vmul(vmul(to_float(iadd(iload(products), zero)), scale), vload(quads.key_scales + page * kPage)), o.softcap);
    }));
  }
  for (int i = 0; i < t.rows; ++i) {
    const int row = t.row + i;
    float* p = partials + int64_t(row) * stride;
    auto& weights = quads.weights[i];
    p[1] = int8_softmax(quads.value_scales, rows.begin[row], rows.end[row], t.earliest / kPage, (t.longest + kPage - 1) / kPage, p[0], m.s[row], unit + i,
                        [&](int page, I codes) {
                          store_bytes(weights.high + page * kPage, ishr(codes, 7));
                          store_bytes(weights.low + page * kPage, iand(codes, iset(127)));
                        });
  }
}

template <>
inline void attend_block<KvInt8>(const KvHead<KvInt8>& h, int chunk, Scoring o, const QueryHead* c, int from, int to, AttentionBlock& m, float* partials, int stride) {
  const BlockRows rows(c, from, to, chunk, kBlockRows);
  QuadBlock& quads = *reinterpret_cast<QuadBlock*>(m.unpacked);
  for (int page = rows.skip; page < rows.page_count; ++page) {
    memcpy(quads.key_scales + page * kPage, KvInt8::scales(h.keys(rows.first_page + page), h.head_dim), kPage * 4);
    memcpy(quads.value_scales + page * kPage, KvInt8::scales(h.keys(rows.first_page + page), h.head_dim) + kPage, kPage * 4);
  }
  for (int i = 0; i < rows.tiles; ++i) {
    const BlockTile& t = rows.tile[i];
    prefetch_next_chunk(h, rows.first_page, i, rows.tiles, 2 * kPage * (h.head_dim + 4));
    float unit[kBlockRows];
    with_count<kBlockRows>(t.rows, [&](auto r) { quad_scores<r.value>(h, rows, t, m); });
    quad_softmax(rows, t, o, c, h.head_dim, m, quads, unit, partials, stride);
    constexpr int half = kBlockRows / 2;  // a row of weights is two rows of a product
    for (int row = 0; row < t.rows; row += half) {
      with_count<half>(t.rows - row < half ? t.rows - row : half, [&](auto r) {
        int d = 0;
        for (; d + 16 * kBlockVectors <= h.head_dim; d += 16 * kBlockVectors) quad_values<r.value, kBlockVectors>(h, rows, t, quads, row, d, unit, partials, stride);
        for (; d < h.head_dim; d += 16) quad_values<r.value, 1>(h, rows, t, quads, row, d, unit, partials, stride);
      });
    }
  }
}

}  // namespace
#endif
