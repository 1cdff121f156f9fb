// Paged attention. K and V are read from the page in their stored format. Keys are reduced in chunks of 256 positions,
// aligned to absolute position: each chunk has its own maximum, sum and accumulator, and chunks are merged in ascending
// order. So the bits of a row depend only on the positions it sees: not on other rows of the batch, and never on slots
// outside its window or at or beyond its length.
#pragma once
#include "attention/attend_float.h"
#include "attention/attend_int8.h"

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

// Merges the partial result of the next chunk into the running softmax of a row. Order matters: chunks must ascend.
inline void merge_partial(QueryHead* c, const float* partial, bool first, int head_dim) {
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

// Computes `chunk` for those of `count` (row, head) pairs that see some of it, tile by tile. Begins and lengths of the
// pairs ascend. where(i, r) returns the buffer for the partial of pair i, the r-th of its tile; done(i, partial) is
// called with it once it is computed.
template <class Kv, class Where, class Done>
void attend_rows(const KvHead<Kv>& h, int chunk, Scoring o, const QueryHead* c, int count, Where where, Done done) {
  int first = 0, end = count;
  while (first < count && c[first].length <= chunk * kChunk) ++first;
  while (end > first && c[end - 1].begin >= (chunk + 1) * kChunk) --end;
  const int all = (end - first + kTile - 1) / kTile;
  for (int left = end - first, tile = 0; left > 0; ++tile) {
    int tiles = (left + kTile - 1) / kTile, rows = (left + tiles - 1) / tiles, at = end - left;
    if (rows > 8 && rows % 2) rows = rows < left ? rows + 1 : 8;  // there are no kernels for 9 and 11 rows
    float* partial[kTile];
    for (int r = 0; r < rows; ++r) partial[r] = where(at + r, r);
    attend_tile<Kv>(h, chunk, o, c + at, rows, partial, {tile, all});
    for (int r = 0; r < rows; ++r) done(at + r, partial[r]);
    left -= rows;
  }
}

// Computes `count` (row, head) pairs of one sequence and KV head over all their chunks. Begins and lengths ascend.
template <class Kv> void attend(const KvHead<Kv>& h, Scoring o, QueryHead* c, int count) {
  alignas(64) float partial_of[kTile][kPartialHead + kMaxHeadDim];
  for (int chunk = c[0].begin / kChunk; chunk * kChunk < c[count - 1].length; ++chunk)
    attend_rows<Kv>(h, chunk, o, c, count, [&](int, int r) { return partial_of[r]; },
                    [&](int i, const float* partial) { merge_partial(c + i, partial, chunk == c[i].begin / kChunk, h.head_dim); });
}

}  // namespace
