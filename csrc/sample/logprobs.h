// Logprob and rank of a token in a row of raw logits, and the most likely ids (docs/numerics.md, "Sampling").
#pragma once
#include "sample/vocab.h"

namespace {

struct Report {
  float* logprob;
  int32_t* rank;
  int32_t* top_ids;  // (kMaxTop)
  float* top_logprobs;
};

// 1 + the number of ids ahead of `id`: with a larger logit, or with an equal logit and a lower id.
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

// Fills `out` with logprob and rank of the token and the `wanted` most likely ids; if wanted < 0 with zeros and ids of
// -1. top and scratch.maxima must be results of scan() on l. Overwrites scratch.w, copy and candidates.
inline void report(const float* l, int vocab, float top, int token, int wanted, const SampleScratch& scratch, const Report& out) {
  *out.logprob = 0.0f;
  *out.rank = 0;
  for (int i = 0; i < kMaxTop; ++i) {
    out.top_ids[i] = -1;
    out.top_logprobs[i] = 0.0f;
  }
  if (wanted < 0) return;
  float log_sum = num::log(exp_weights(l, vocab, top, scratch.w));
  *out.logprob = (l[token] - top) - log_sum;
  *out.rank = rank_of(l, vocab, token);
  int n = wanted ? largest(l, vocab, wanted, scratch.maxima, scratch.copy, scratch.candidates) : 0;
  for (int i = 0; i < n; ++i) {
    out.top_ids[i] = scratch.candidates[i].id;
    out.top_logprobs[i] = (scratch.candidates[i].value - top) - log_sum;
  }
}

}  // namespace
