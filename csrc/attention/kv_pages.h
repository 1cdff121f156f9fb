// Where keys and values lie, and what attention keeps of a row on its way through them.
//
// A page of one layer and KV head: K then V, 16 tokens each.
//   bf16  K [d/2][16 tokens][2]   V [8 pairs of tokens][d][2]
//   fp32  K [d][16 tokens]        V [16 tokens][d]
//   int8  K [d/4][16 tokens][4], code + 128   V [4 quads of tokens][d][4]   then float scales: 16 of K, 16 of V
#pragma once
#include "base/abi.h"
#include "base/pool.h"
#include "simd/simd.h"

namespace {

constexpr int kMaxCombos = 64;    // (row, head) pairs of one unit of work
constexpr int kMaxHeadDim = 256;

// One (row, head): its query, the positions it sees, and its running softmax.
struct Combo {
  const float* q;
  int row, head;
  int begin, length;  // of the positions: the first, and the end
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

// Which positions of a chunk each of R rows sees: begin to end, both counted from the chunk's first. The extremes say
// where some row sees, and where all do. Pages no row sees may be gone.
template <int R> struct Seen {
  int begin[R], end[R], earliest = kChunk, latest = 0, longest = 0, shortest = kChunk, first_page, skip, page_count;
  Seen(const Combo* c, int chunk) : first_page(chunk * kChunk / kPage) {
    for (int r = 0; r < R; ++r) {
      const int from = c[r].begin - chunk * kChunk, left = c[r].length - chunk * kChunk;
      begin[r] = from > 0 ? from : 0;
      end[r] = left < kChunk ? left : kChunk;
      earliest = begin[r] < earliest ? begin[r] : earliest;
      latest = begin[r] > latest ? begin[r] : latest;
      longest = end[r] > longest ? end[r] : longest;
      shortest = end[r] < shortest ? end[r] : shortest;
    }
    skip = earliest / kPage;
    page_count = (longest + kPage - 1) / kPage;
  }
};

// What a dot becomes before the softmax.
struct Scoring { float scale, cap; };

// Lanes from `begin` on and before `end`; the others are hidden.
inline V visible(V score, int begin, int end) {
  const V hidden = vset(-__builtin_inff());
  score = vselect_first(end, score, hidden);
  return begin > 0 ? vselect_first(begin, hidden, score) : score;
}

}  // namespace
