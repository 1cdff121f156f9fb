// Paged attention. K and V are read from the page in their stored format. Keys are reduced in chunks of 256 positions,
// aligned to absolute position: each chunk has its own maximum, sum and accumulator, and chunks are merged in ascending
// order. So the bits of a row depend only on the positions it sees: not on other rows of the batch, and never on slots
// outside its window or at or beyond its length.
#pragma once
#include "attention/attend_block_bf16.h"
#include "attention/attend_block_int8.h"
#include "attention/attend_block_words.h"

namespace {

template <class Kv> void attend_tile(const KvHead<Kv>& h, int chunk, Scoring o, const QueryHead* c, int count, float* const* partial, PagePrefetch prefetch) {
  switch (count) {
    case 1: return attend_chunk<Kv, 1>(h, chunk, o, c, partial, prefetch);
    case 2: return attend_chunk<Kv, 2>(h, chunk, o, c, partial, prefetch);
    case 3: return attend_chunk<Kv, 3>(h, chunk, o, c, partial, prefetch);
    case 4: return attend_chunk<Kv, 4>(h, chunk, o, c, partial, prefetch);
    case 5: return attend_chunk<Kv, 5>(h, chunk, o, c, partial, prefetch);
    case 6: return attend_chunk<Kv, 6>(h, chunk, o, c, partial, prefetch);
    case 7: return attend_chunk<Kv, 7>(h, chunk, o, c, partial, prefetch);
    case 8: return attend_chunk<Kv, 8>(h, chunk, o, c, partial, prefetch);
    case 10: return attend_chunk<Kv, kTile < 10 ? 8 : 10>(h, chunk, o, c, partial, prefetch);
    default: return attend_chunk<Kv, kTile>(h, chunk, o, c, partial, prefetch);
  }
}

// The pairs of `count` that see some of a chunk: [first, end). Begins and lengths of the pairs ascend.
struct PairsOfChunk {
  int first = 0, end;
  PairsOfChunk(const QueryHead* c, int count, int chunk) : end(count) {
    while (first < count && c[first].length <= chunk * kChunk) ++first;
    while (end > first && c[end - 1].begin >= (chunk + 1) * kChunk) --end;
  }
};

// Merges the partial results of a chunk into the running softmax of its pairs. Order matters: chunks must ascend.
inline void merge_chunk(QueryHead* c, int count, int chunk, const float* partials, int stride, int head_dim) {
  const PairsOfChunk seen(c, count, chunk);
  for (int i = seen.first; i < seen.end; i += 16) {
    alignas(64) float before[16] = {}, now[16] = {}, tops[16], a[16], b[16];
    const int rows = seen.end - i < 16 ? seen.end - i : 16;
    for (int r = 0; r < rows; ++r) {
      before[r] = c[i + r].maximum;
      now[r] = partials[int64_t(i + r) * stride];
    }
    const V top = vmax(vload(before), vload(now));
    vstore(tops, top);
    vstore(a, vexp(vsub(vload(before), top)));
    vstore(b, vexp(vsub(vload(now), top)));
    for (int r = 0; r < rows; ++r) {
      QueryHead& q = c[i + r];
      const float *partial = partials + int64_t(i + r) * stride, *acc = partial + kPartialHead;
      if (chunk == q.begin / kChunk) {
        q.maximum = partial[0];
        q.sum = partial[1];
        memcpy(q.acc, acc, size_t(head_dim) * 4);
        continue;
      }
      q.maximum = tops[r];
      q.sum = num::fma(q.sum, a[r], partial[1] * b[r]);
      for (int d = 0; d < head_dim; d += 16) vstore(q.acc + d, vfma(vload(q.acc + d), vset(a[r]), vmul(vload(acc + d), vset(b[r]))));
    }
  }
}

constexpr int kMinBlockPairs = 2 * kBlockRows;  // pairs from which unpacking keys and values pays

// The memory of a worker for one unit of work.
struct AttentionMemory {
  QueryHead queries[kMaxQueryHeads];
  AttentionBlock block;
  alignas(64) float partials[kMaxQueryHeads][kPartialHead + kMaxHeadDim];
};

// Computes `chunk` for those of the pairs c that see some of it; the partial result of pair i is at
// partials + i * stride. `block` holds the queries of c if there are kMinBlockPairs.
template <class Kv>
void attend_rows(const KvHead<Kv>& h, int chunk, Scoring o, const QueryHead* c, int count, AttentionBlock& block, float* partials, int stride) {
  const PairsOfChunk seen(c, count, chunk);
  if constexpr (Kv::kBlocks) {
    if (count >= kMinBlockPairs) return attend_block(h, chunk, o, c, seen.first, seen.end, block, partials, stride);
  }
  const int all = (seen.end - seen.first + kTile - 1) / kTile;
  for (int left = seen.end - seen.first, tile = 0; left > 0; ++tile) {
    int tiles = (left + kTile - 1) / kTile, rows = (left + tiles - 1) / tiles, at = seen.end - left;
    if (rows > 8 && rows % 2) rows = rows < left ? rows + 1 : 8;  // there are no kernels for 9 and 11 rows
    float* partial[kTile];
    for (int r = 0; r < rows; ++r) partial[r] = partials + int64_t(at + r) * stride;
    attend_tile<Kv>(h, chunk, o, c + at, rows, partial, {tile, all});
    left -= rows;
  }
}

template <class Kv> void unpack_queries(const QueryHead* c, int count, int head_dim, AttentionBlock& block) {
  if constexpr (Kv::kBlocks) {
    if (count >= kMinBlockPairs) block_queries<Kv>(c, count, head_dim, block);
  }
}

// Computes the first `count` pairs of m, all of one sequence and KV head, over all their chunks.
template <class Kv> void attend(const KvHead<Kv>& h, Scoring o, AttentionMemory& m, int count) {
  constexpr int stride = kPartialHead + kMaxHeadDim;
  unpack_queries<Kv>(m.queries, count, h.head_dim, m.block);
  for (int chunk = m.queries[0].begin / kChunk; chunk * kChunk < m.queries[count - 1].length; ++chunk) {
    attend_rows<Kv>(h, chunk, o, m.queries, count, m.block, m.partials[0], stride);
    merge_chunk(m.queries, count, chunk, m.partials[0], stride, h.head_dim);
  }
}

}  // namespace
