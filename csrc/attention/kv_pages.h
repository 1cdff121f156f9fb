// The layout of keys and values in pages, and the state of a query while attention passes over them.
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

constexpr int kMaxQueryHeads = 64;  // (row, head) pairs per unit of work
constexpr int kMaxHeadDim = 256;

// One (row, head): its query, the positions that it sees, and its running softmax.
struct QueryHead {
  const float* q;
  int row, head;
  int begin, length;  // it sees positions [begin, length)
  float maximum, sum;
  float acc[kMaxHeadDim];
};

template <class Kv> struct KvHead {  // the pages of one KV head of a sequence
  const uint8_t* pool;
  int64_t page_bytes, offset;
  const int32_t* blocks;
  int head_dim, pages;  // pages: number of pages of the longest row
  const typename Kv::Element* keys(int page) const {
    return reinterpret_cast<const typename Kv::Element*>(pool + blocks[page] * page_bytes + offset);
  }
  const typename Kv::Element* values(int page) const { return keys(page) + kPage * head_dim; }
};

// Divides the prefetch of the next chunk among the tiles of a unit. Pages are scattered, so the CPU's hardware prefetch
// does not follow them. Keys are prefetched while keys are read, and values while values are read, so memory is busy
// all the time.
struct PagePrefetch {
  int tile, tiles;
  bool wants(int page) const { return page % tiles == tile; }
};

inline void prefetch_bytes(const void* p, int bytes) {
  for (int b = 0; b < bytes; b += 64) __builtin_prefetch(static_cast<const char*>(p) + b, 0, 2);
}

// Partial result of one chunk for one (row, head): maximum, sum, and from kPartialHead on the accumulator.
constexpr int kPartialHead = 16;
inline int partial_floats(int head_dim) { return kPartialHead + head_dim; }

// Positions of a chunk that each of R rows sees: [begin, end), relative to the start of the chunk. [earliest, longest)
// is their union and [latest, shortest) their intersection. Pages outside the union may be freed and must not be read.
template <int R> struct VisibleRange {
  int begin[R], end[R], earliest = kChunk, latest = 0, longest = 0, shortest = kChunk, first_page, skip, page_count;
  VisibleRange(const QueryHead* c, int chunk) : first_page(chunk * kChunk / kPage) {
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

// What turns dot products into scores.
struct Scoring {
  float scale, softcap;
  V score(V products) const { return ::softcap(vmul(products, vset(scale)), softcap); }
};

// Keeps the scores of lanes [begin, end) and sets the others to -inf.
inline V mask_scores(V score, int begin, int end) {
  const V hidden = vset(-__builtin_inff());
  score = vselect_first(end, score, hidden);
  return begin > 0 ? vselect_first(begin, hidden, score) : score;
}

}  // namespace
