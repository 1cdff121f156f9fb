// Paged attention. K and V are read from the page in its stored format; keys are reduced in chunks of 256 positions
// aligned to absolute position (chunk-local maximum, sum and accumulator), merged in ascending order. A row's result
// depends on what it sees only: not on the rows computed beside it, and never on slots outside its window or at or past
// its length.
#pragma once
#include "attention/attend_float.h"
#include "attention/attend_int8.h"

namespace {

template <class Kv> void attend_tile(const Heads<Kv>& h, int chunk, Scoring o, const Combo* c, int count, float* const* partial, Ahead ahead) {
  switch (count) {
    case 1: return attend_chunk<Kv, 1>(h, chunk, o, c, partial, ahead);
    case 2: return attend_chunk<Kv, 2>(h, chunk, o, c, partial, ahead);
    case 3: return attend_chunk<Kv, 3>(h, chunk, o, c, partial, ahead);
    case 4: return attend_chunk<Kv, 4>(h, chunk, o, c, partial, ahead);
    case 5: return attend_chunk<Kv, 5>(h, chunk, o, c, partial, ahead);
    case 6: return attend_chunk<Kv, 6>(h, chunk, o, c, partial, ahead);
    case 7: return attend_chunk<Kv, 7>(h, chunk, o, c, partial, ahead);
    case 8: return attend_chunk<Kv, 8>(h, chunk, o, c, partial, ahead);
    case 10: return attend_chunk<Kv, kTile < 10 ? 8 : 10>(h, chunk, o, c, partial, ahead);
    default: return attend_chunk<Kv, kTile>(h, chunk, o, c, partial, ahead);
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

// The rows of `count` (row, head) pairs, begins and lengths ascending, that see some of `chunk`, tile by tile.
// share(first, partials) is called with the pairs' index and where their shares lie once they are computed.
template <class Kv, class Where, class Share>
void attend_rows(const Heads<Kv>& h, int chunk, Scoring o, const Combo* c, int count, Where where, Share share) {
  int first = 0, end = count;
  while (first < count && c[first].length <= chunk * kChunk) ++first;
  while (end > first && c[end - 1].begin >= (chunk + 1) * kChunk) --end;
  const int all = (end - first + kTile - 1) / kTile;
  for (int left = end - first, tile = 0; left > 0; ++tile) {
    int tiles = (left + kTile - 1) / kTile, rows = (left + tiles - 1) / tiles, at = end - left;
    if (rows > 8 && rows % 2) rows = rows < left ? rows + 1 : 8;  // there is no kernel for 9 and 11
    float* partial[kTile];
    for (int r = 0; r < rows; ++r) partial[r] = where(at + r, r);
    attend_tile<Kv>(h, chunk, o, c + at, rows, partial, {tile, all});
    for (int r = 0; r < rows; ++r) share(at + r, partial[r]);
    left -= rows;
  }
}

// `count` (row, head) pairs of one sequence and KV head, begins and lengths ascending, over all their chunks.
template <class Kv> void attend(const Heads<Kv>& h, Scoring o, Combo* c, int count) {
  alignas(64) float room[kTile][kPartialHead + kMaxHeadDim];
  for (int chunk = c[0].begin / kChunk; chunk * kChunk < c[count - 1].length; ++chunk)
    attend_rows<Kv>(h, chunk, o, c, count, [&](int, int r) { return room[r]; },
                    [&](int i, const float* partial) { absorb(c + i, partial, chunk == c[i].begin / kChunk, h.head_dim); });
}

}  // namespace
