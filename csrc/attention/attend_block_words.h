// Attention of many (row, head) pairs over one chunk of keys and values stored as int8, for instruction sets without a
// product of four 8-bit pairs: all operands are unpacked to 16 bits once, and products of two pairs are summed. The sums
// are exact integers, equal to those of attend_int8.h.
#pragma once
#include "attention/attend_block.h"
#include "attention/attend_int8.h"

#if defined(DRUT_WORD_DOTS)
namespace {

constexpr int kWordRows = 4;  // a product takes a register of its own before it is added

// to[r][n] = a[r] . b[n] over words, pairs of 16-bit integers, as 32-bit integers. a: rows of kBlockStride words; b: rows
// of AttentionBlock::kWidth.
template <int R, int N> __attribute__((noinline)) void word_products(const float* a, const float* b, int words, float* to, int stride) {
  I acc[R][N];
DRUT_UNROLL
  for (int r = 0; r < R; ++r) {
DRUT_UNROLL
    for (int n = 0; n < N; ++n) acc[r][n] = iset(0);
  }
  for (int i = 0; i < words; ++i, ++a, b += AttentionBlock::kWidth) {
    I y[N];
DRUT_UNROLL
    for (int n = 0; n < N; ++n) y[n] = iload(b + 16 * n);
DRUT_UNROLL
    for (int r = 0; r < R; ++r) {
      int32_t two;
      memcpy(&two, a + r * kBlockStride, 4);
DRUT_UNROLL
      for (int n = 0; n < N; ++n) acc[r][n] = idot16(acc[r][n], y[n], two);
    }
  }
DRUT_UNROLL
  for (int r = 0; r < R; ++r) {
DRUT_UNROLL
    for (int n = 0; n < N; ++n) vstore(to + r * stride + 16 * n, as_float(acc[r][n]));
  }
}

// Queries and keys have the elements of a quad in this order, because bytes 0 and 2 of a lane are unpacked together.
constexpr int kPairOrder[4] = {0, 2, 1, 3};

// Stores four bytes of each lane, given as two vectors of 16-bit integers (bytes 0 and 2, bytes 1 and 3), as two words.
inline void store_words(I even, I odd, float* first, float* second) {
  vstore(first, as_float(ior(iand(even, iset(0xffff)), ishl(odd, 16))));
  vstore(second, as_float(ior(ishr(even, 16), iand(odd, iset(int32_t(0xffff0000))))));
}

// Writes the queries of a unit as 16-bit integers.
template <> inline void block_queries<KvInt8>(const QueryHead* c, int count, int head_dim, AttentionBlock& m) {
  for (int i = 0; i < count; ++i) {
    int8_t bytes[kMaxHeadDim];
    int16_t words[kMaxHeadDim];
    memcpy(bytes, c[i].q, size_t(head_dim));
    for (int d = 0; d < head_dim; ++d) words[d] = bytes[d / 4 * 4 + kPairOrder[d % 4]];
    memcpy(m.q[i], words, size_t(head_dim) * 2);
  }
}

// Keys of `count` pages as unsigned words; prefetches the keys of the next chunk.
inline void unpack_key_words(const KvHead<KvInt8>& h, int page, int count, float* to) {
  constexpr int width = AttentionBlock::kWidth;
  const I low = iset(0x00ff00ff);
  for (int n = 0; n < count; ++n) {
    const uint8_t *k = h.keys(page + n), *next = page + n + kChunk / kPage < h.pages ? h.keys(page + n + kChunk / kPage) : nullptr;
    for (int i = 0; i < h.head_dim / 4; ++i) {
      const I four = iload(k + 64 * i);
      vstore(to + 2 * i * width + 16 * n, as_float(iand(four, low)));
      vstore(to + (2 * i + 1) * width + 16 * n, as_float(iand(ishr(four, 8), low)));
      if (next) prefetch_bytes(next + 64 * i, 64);
    }
  }
}

// Elements d.. of the values of the chunk as words of two tokens; d = 0 prefetches the next chunk.
inline void unpack_value_words(const KvHead<KvInt8>& h, const BlockRows& rows, int d, int vectors, float* to) {
  constexpr int width = AttentionBlock::kWidth;
  for (int page = rows.skip; page < rows.page_count; ++page) {
    const int at = rows.first_page + page, later = at + kChunk / kPage;
    const uint8_t* v = h.values(at);
    if (d == 0 && later < h.pages) prefetch_bytes(h.values(later), kPage * (h.head_dim + 8));
    for (int i = 0; i < kPage / 4; ++i) {
      float* out = to + (page * kPage / 2 + 2 * i) * width;
      for (int n = 0; n < vectors; ++n) {
        const I four = iload(v + (i * h.head_dim + d + 16 * n) * 4);
        store_words(ieven_bytes(four), iodd_bytes(four), out + 16 * n, out + width + 16 * n);
      }
    }
  }
}

inline void attend_block(const KvHead<KvInt8>& h, int chunk, Scoring o, const QueryHead* c, int from, int to, AttentionBlock& m, float* partials, int stride) {
  const BlockRows rows(c, from, to, chunk, kWordRows);
  float unit[kMaxQueryHeads];
  alignas(64) float value_scales[kChunk];
  for (int page = rows.skip; page < rows.page_count; ++page)
    memcpy(value_scales + page * kPage, KvInt8::scales(h.keys(rows.first_page + page), h.head_dim) + kPage, kPage * 4);
  for_score_tiles(rows, [&](int page, int count) { unpack_key_words(h, rows.first_page + page, count, m.unpacked); },
                  [&](const BlockTile& t, int page, auto r, auto n) {
                    word_products<r.value, n.value>(m.q[t.row], m.unpacked, h.head_dim / 2, m.s[t.row] + page * kPage, kBlockStride);
                  });
  for (int i = from; i < to; ++i) {
    float* p = partials + int64_t(i) * stride;
    const float* query = c[i].q + h.head_dim / 4;  // scale, and the initial value of the dot products
    const V scale = vset(query[0] * o.scale);
    int32_t start;
    memcpy(&start, query + 1, 4);
    const I zero = iset(start);
    p[0] = vmaximum(block_row_scores(m.s[i], rows.begin[i], rows.end[i], [&](const float* products, int page) {
      const V keys = vload(KvInt8::scales(h.keys(rows.first_page + page), h.head_dim));
      return softcap(vmul(vmul(to_float(iadd(iload(products), zero)), scale), keys), o.softcap);
    }));
    // Codes replace scores: those of a page are stored before the scores of the next page.
    int16_t* codes = reinterpret_cast<int16_t*>(m.s[i]);
    p[1] = int8_softmax(value_scales, rows.begin[i], rows.end[i], rows.skip, rows.page_count, p[0], m.s[i], unit + i,
                        [&](int page, I code) { store_int16(codes + page * kPage, code); });
  }
  for_value_tiles(rows, h.head_dim, [&](int d, int vectors) { unpack_value_words(h, rows, d, vectors, m.unpacked); },
                  [&](const BlockTile& t, int d, auto r, auto n) {
                    const int first = t.earliest / 2, end = (t.longest + 1) / 2;
                    float* sums = partials + int64_t(t.row) * stride + kPartialHead + d;
                    word_products<r.value, n.value>(m.s[t.row] + first, m.unpacked + first * AttentionBlock::kWidth, end - first, sums, stride);
                    for (int i = 0; i < r.value; ++i) {
                      for (int v = 0; v < n.value; ++v) vstore(sums + i * stride + 16 * v, vmul(to_float(iload(sums + i * stride + 16 * v)), vset(unit[t.row + i])));
                    }
                  });
}

}  // namespace
#endif
