// What a row of raw logits says of its token (docs/numerics.md, "Sampling"): its log probability and rank, and the
// likeliest ids.
#pragma once
#include "sample/vocab.h"

namespace {

struct Report {
  float* logprob;
  int32_t* rank;
  int32_t* top_ids;  // (kMaxTop)
  float* top_logprobs;
};

// 1 + the ids ahead of `id`: those of a larger logit, and lower ids of the same.
inline int rank_of(const float* l, int n, int id) {
  float x = l[id];
  V limit = vset(x), one = vset(1.0f), zero = vset(0.0f), ahead = zero;
  int rank = 1, i = 0;
  for (; i + 16 <= id; i += 16) ahead = vadd(ahead, vselect_lt(vload(l + i), limit, zero, one));
  for (; i < id; ++i) rank += l[i] >= x;
  for (; i + 16 <= n; i += 16) ahead = vadd(ahead, vselect_lt(limit, vload(l + i), one, zero));
  for (; i < n; ++i) rank += l[i] > x;
  return rank + int(vsum(ahead));
}

// Fills `out`: with wanted < 0 by nothing (0, 0, -1s, 0s), else by the token and the `wanted` likeliest ids. top and
// room.maxima are a scan's; room.w, copy and candidates are overwritten.
inline void report(const float* l, int vocab, float top, int token, int wanted, const SampleRoom& room, const Report& out) {
  *out.logprob = 0.0f;
  *out.rank = 0;
  for (int i = 0; i < kMaxTop; ++i) {
    out.top_ids[i] = -1;
    out.top_logprobs[i] = 0.0f;
  }
  if (wanted < 0) return;
  float log_sum = num::log(exp_weights(l, vocab, top, room.w));
  *out.logprob = (l[token] - top) - log_sum;
  *out.rank = rank_of(l, vocab, token);
  int n = wanted ? largest(l, vocab, wanted, room.maxima, room.copy, room.candidates) : 0;
  for (int i = 0; i < n; ++i) {
    out.top_ids[i] = room.candidates[i].id;
    out.top_logprobs[i] = (room.candidates[i].value - top) - log_sum;
  }
}

}  // namespace
