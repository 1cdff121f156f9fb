// Paged attention. K and V are read from the page in its stored format; keys are reduced in chunks of 256 positions
// aligned to absolute position (chunk-local maximum, sum and accumulator), merged in ascending order. A row's result
// depends on its own length only: not on the rows computed beside it, and never on slots at or past its length.
//
// A page of one layer and KV head: K then V, 16 tokens each.
//   bf16  K [d/2][16 tokens][2]   V [8 pairs of tokens][d][2]
//   fp32  K [d][16 tokens]        V [16 tokens][d]
#pragma once
#include "abi.h"
#include "pool.h"
#include "simd.h"

namespace {

constexpr int kTile = 8;          // (row, head) pairs that share a load of K or V
constexpr int kMaxCombos = 64;    // (row, head) pairs of one unit of work
constexpr int kMaxHeadDim = 256;

// A KV format: how a page is read (pairs of adjacent elements) and written, and how the other operand is kept.
struct KvBf16 {
  using Element = uint16_t;
  using Pair = Brain2;
  static V round(V x) { return vround_bf16(x); }
  static void store(float* row, int i, V rounded) { brain_store(row, i, rounded); }
  static V dot(V acc, Pair p, const float* row, int pair) { return brain2_dot(acc, p, row, pair); }
  static Pair even(Pair p) { return brain2_even(p); }
  static Pair keys(const Element* k, int pair) { return brain2_load(k + pair * 32); }
  static Pair values(const Element* v, int head_dim, int pair, int d) { return brain2_load(v + (pair * head_dim + d) * 2); }
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
  using Element = float;
  struct Pair { V odd, even; };
  static V round(V x) { return x; }
  static void store(float* row, int i, V x) { vstore(row + i, x); }
  static V dot(V acc, Pair p, const float* row, int pair) {
    return vfma(vset(row[2 * pair]), p.even, vfma(vset(row[2 * pair + 1]), p.odd, acc));
  }
  static Pair even(Pair p) { return {vset(0.0f), p.even}; }
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

// One (row, head): its query, how many positions it sees, and its running softmax.
struct Combo {
  const float* q;
  int row, head;
  int length;
  float maximum, sum;
  float acc[kMaxHeadDim];
};

template <class Kv> struct Heads {  // where one KV head's pages lie
  const uint8_t* pool;
  int64_t page_bytes, offset;
  const int32_t* blocks;
  int head_dim, pages;  // pages: of the longest row
  const typename Kv::Element* keys(int page) const {
    return reinterpret_cast<const typename Kv::Element*>(pool + blocks[page] * page_bytes + offset);
  }
  const typename Kv::Element* values(int page) const { return keys(page) + kPage * head_dim; }
};

// The pages of the next chunk are asked for while this one is computed: they lie apart, where the CPU's own prefetch does
// not follow. The tiles of a unit divide the pages among them, and keys are asked for while keys are read, values while
// values are, so that memory is busy all along.
struct Ahead {
  int tile, tiles;
  bool wants(int page) const { return page % tiles == tile; }
};

inline void fetch_bytes(const void* p, int bytes) {
  for (int b = 0; b < bytes; b += 64) __builtin_prefetch(static_cast<const char*>(p) + b, 0, 2);
}

// What one chunk gives one (row, head): maximum, sum, and from kPartialHead on the accumulator.
constexpr int kPartialHead = 16;
inline int partial_floats(int head_dim) { return kPartialHead + head_dim; }

// scores[r][t] = scale * (q_r . k_t) for P pages of the chunk; -inf at and past the row's length.
template <class Kv, int R, int P>
void page_scores(const Heads<Kv>& h, int first_page, int page, float scale, const Combo* c, const float (*q)[kMaxHeadDim],
                 float (*scores)[kChunk], Ahead ahead) {
  constexpr int line = 2 * kPage;  // elements of one pair of the head's
  const typename Kv::Element *k[P], *next[P];
  V acc[P][R];
DRUT_UNROLL
  for (int p = 0; p < P; ++p) {
    const int at = first_page + page + p, later = at + kChunk / kPage;
    k[p] = h.keys(at);
    next[p] = ahead.wants(at) && later < h.pages ? h.keys(later) : nullptr;
DRUT_UNROLL
    for (int r = 0; r < R; ++r) acc[p][r] = vset(0.0f);
  }
  for (int i = 0; i < h.head_dim / 2; ++i) {
    typename Kv::Pair key[P];
DRUT_UNROLL
    for (int p = 0; p < P; ++p) {
      key[p] = Kv::keys(k[p], i);
      if (next[p]) fetch_bytes(next[p] + i * line, line * int(sizeof(typename Kv::Element)));
    }
DRUT_UNROLL
    for (int r = 0; r < R; ++r) {
DRUT_UNROLL
      for (int p = 0; p < P; ++p) acc[p][r] = Kv::dot(acc[p][r], key[p], q[r], i);
    }
  }
  const V hidden = vset(-__builtin_inff());
DRUT_UNROLL
  for (int p = 0; p < P; ++p) {
    int start = (first_page + page + p) * kPage;
DRUT_UNROLL
    for (int r = 0; r < R; ++r)
      vstore(&scores[r][(page + p) * kPage], vselect_first(c[r].length - start, vmul(acc[p][r], vset(scale)), hidden));
  }
}

template <class Kv, int R>
void chunk_scores(const Heads<Kv>& h, int first_page, int page_count, float scale, const Combo* c, float (*scores)[kChunk], Ahead ahead) {
  alignas(64) float q[R][kMaxHeadDim];  // side by side, so that one register leads to all
  for (int r = 0; r < R; ++r) memcpy(q[r], c[r].q, size_t(h.head_dim) * 4);
  int page = 0;
  for (; page + abreast(R) <= page_count; page += abreast(R)) page_scores<Kv, R, abreast(R)>(h, first_page, page, scale, c, q, scores, ahead);
  for (; page < page_count; ++page) page_scores<Kv, R, 1>(h, first_page, page, scale, c, q, scores, ahead);
}

// scores become weights exp(s - maximum), rounded as the KV format takes them; returns maximum and sum.
template <class Kv> void chunk_softmax(float* s, int page_count, float* maximum, float* sum) {
  V m = vload(s);
  for (int p = 1; p < page_count; ++p) m = vmax(vload(s + p * kPage), m);
  *maximum = vmaximum(m);
  V shift = vset(*maximum), total = vset(0.0f);
  for (int p = 0; p < page_count; ++p) {
    V w = Kv::round(vexp(vsub(vload(s + p * kPage), shift)));
    Kv::store(s, p * kPage, w);
    total = vadd(total, w);
  }
  *sum = vsum(total);
}

// out[r][n] = sum over tokens of weight * value for elements d + 16n..: pairs of tokens ascending, in a pair the odd
// one first.
template <class Kv, int R, int N>
void chunk_values(const Heads<Kv>& h, int first_page, const int* tokens, int shared_pairs, const float (*w)[kChunk], int d, float* const* partial, Ahead ahead) {
  V acc[R][N];
DRUT_UNROLL
  for (int r = 0; r < R; ++r) {
DRUT_UNROLL
    for (int n = 0; n < N; ++n) acc[r][n] = vset(0.0f);
  }
  for (int t = 0; t < shared_pairs; ++t) {
    const int page = first_page + t / 8, later = page + kChunk / kPage;
    const typename Kv::Element* v = h.values(page);
    if (d == 0 && ahead.wants(page) && later < h.pages)
      fetch_bytes(h.values(later) + t % 8 * 2 * h.head_dim, 2 * h.head_dim * int(sizeof(typename Kv::Element)));
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
  // What each row sees beyond the shared pairs, alone: slots past its length are not touched.
  for (int r = 0; r < R; ++r) {
    for (int n = 0; n < N && 2 * shared_pairs < tokens[r]; ++n) {
      float* to = partial[r] + kPartialHead + d + 16 * n;
      V rest = vload(to);
      for (int t = shared_pairs; 2 * t < tokens[r]; ++t) {
        typename Kv::Pair value = Kv::values(h.values(first_page + t / 8), h.head_dim, t % 8, d + 16 * n);
        if (2 * t + 1 == tokens[r]) value = Kv::even(value);
        rest = Kv::dot(rest, value, w[r], t);
      }
      vstore(to, rest);
    }
  }
}

// One chunk for R rows that all see some of it; partial[r] takes row r's share.
template <class Kv, int R> void attend_chunk(const Heads<Kv>& h, int chunk, float scale, const Combo* c, float* const* partial, Ahead ahead) {
  alignas(64) float s[kTile][kChunk];
  int start = chunk * kChunk, tokens[kTile], longest = 0, shortest = kChunk;
  for (int r = 0; r < R; ++r) {
    int left = c[r].length - start;
    tokens[r] = left < kChunk ? left : kChunk;
    longest = tokens[r] > longest ? tokens[r] : longest;
    shortest = tokens[r] < shortest ? tokens[r] : shortest;
  }
  int first_page = start / kPage, page_count = (longest + kPage - 1) / kPage;
  chunk_scores<Kv, R>(h, first_page, page_count, scale, c, s, ahead);
  for (int r = 0; r < R; ++r) chunk_softmax<Kv>(s[r], (tokens[r] + kPage - 1) / kPage, partial[r], partial[r] + 1);
  int d = 0;
  for (; d + 16 * abreast(R) <= h.head_dim; d += 16 * abreast(R))
    chunk_values<Kv, R, abreast(R)>(h, first_page, tokens, shortest / 2, s, d, partial, ahead);
  for (; d < h.head_dim; d += 16) chunk_values<Kv, R, 1>(h, first_page, tokens, shortest / 2, s, d, partial, ahead);
}

template <class Kv> void attend_tile(const Heads<Kv>& h, int chunk, float scale, const Combo* c, int count, float* const* partial, Ahead ahead) {
  switch (count) {
    case 1: return attend_chunk<Kv, 1>(h, chunk, scale, c, partial, ahead);
    case 2: return attend_chunk<Kv, 2>(h, chunk, scale, c, partial, ahead);
    case 3: return attend_chunk<Kv, 3>(h, chunk, scale, c, partial, ahead);
    case 4: return attend_chunk<Kv, 4>(h, chunk, scale, c, partial, ahead);
    case 5: return attend_chunk<Kv, 5>(h, chunk, scale, c, partial, ahead);
    case 6: return attend_chunk<Kv, 6>(h, chunk, scale, c, partial, ahead);
    case 7: return attend_chunk<Kv, 7>(h, chunk, scale, c, partial, ahead);
    default: return attend_chunk<Kv, 8>(h, chunk, scale, c, partial, ahead);
  }
}

// The next chunk's share of a row joins what the chunks before it gave.
inline void absorb(Combo* c, const float* partial, bool first, int head_dim) {
  const float maximum = partial[0], sum = partial[1], *acc = partial + kPartialHead;
  if (first) {
    c->maximum = maximum;
    c->sum = sum;
    memcpy(c->acc, acc, size_t(head_dim) * 4);
    return;
  }
  float top = c->maximum > maximum ? c->maximum : maximum;
  float a = sexp(c->maximum - top), b = sexp(maximum - top);
  c->maximum = top;
  c->sum = num::fma(c->sum, a, sum * b);
  for (int d = 0; d < head_dim; d += 16) vstore(c->acc + d, vfma(vload(c->acc + d), vset(a), vmul(vload(acc + d), vset(b))));
}

// The rows of `count` (row, head) pairs, lengths ascending, that see some of `chunk`, tile by tile.
// share(first, partials) is called with the pairs' index and where their shares lie once they are computed.
template <class Kv, class Where, class Share>
void attend_rows(const Heads<Kv>& h, int chunk, float scale, const Combo* c, int count, Where where, Share share) {
  int first = 0;
  while (first < count && c[first].length <= chunk * kChunk) ++first;
  const int all = (count - first + kTile - 1) / kTile;
  for (int left = count - first, tiles = all; left > 0; --tiles) {
    int rows = (left + tiles - 1) / tiles, at = count - left;
    float* partial[kTile];
    for (int r = 0; r < rows; ++r) partial[r] = where(at + r, r);
    attend_tile<Kv>(h, chunk, scale, c + at, rows, partial, {all - tiles, all});
    for (int r = 0; r < rows; ++r) share(at + r, partial[r]);
    left -= rows;
  }
}

// `count` (row, head) pairs of one sequence and KV head, lengths ascending, over all their chunks.
template <class Kv> void attend(const Heads<Kv>& h, float scale, Combo* c, int count) {
  alignas(64) float room[kTile][kPartialHead + kMaxHeadDim];
  for (int chunk = 0; chunk * kChunk < c[count - 1].length; ++chunk)
    attend_rows<Kv>(h, chunk, scale, c, count, [&](int, int r) { return room[r]; },
                    [&](int i, const float* partial) { absorb(c + i, partial, chunk == 0, h.head_dim); });
}

}  // namespace
