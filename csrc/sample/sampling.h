// Draws one token from one row of logits (docs/numerics.md, "Sampling"): argmax of logit/T + Gumbel noise over the ids
// that pass the filters. Order: bias, penalties, grammar, temperature, top-k, top-p, min-p. Ties take the lowest id.
#pragma once
#include "simd/philox.h"
#include "sample/vocab.h"

namespace {

struct SampleParams {
  float temperature, top_p, min_p;
  int32_t top_k;
  uint64_t seed;
  uint32_t position, choice;
  SampleParams(const Step& s, int i)
      : temperature(s.temperature[i]), top_p(s.top_p[i]), min_p(s.min_p[i]), top_k(s.top_k[i]),
        seed(uint64_t(uint32_t(s.seed_hi[i])) << 32 | uint32_t(s.seed_lo[i])),
        position(uint32_t(s.position[s.sample_row[i]] + 1)), choice(uint32_t(s.choice[i])) {}
};

// Logits processors: applies bias and penalties to the ids that sample i lists.
inline void apply_edits(const Step& s, int i, float* z) {
  float repetition = s.repetition[i], presence = s.presence[i], frequency = s.frequency[i];
  for (int e = s.edit_first[i], end = e + s.edit_count[i]; e < end; ++e) {
    float x = z[s.edit_id[e]] + s.edit_bias[e];
    if (s.edit_seen[e]) x = x > 0.0f ? x / repetition : x * repetition;
    x = x - frequency * float(s.edit_count_out[e]);
    if (s.edit_count_out[e] > 0) x = x - presence;
    z[s.edit_id[e]] = x;
  }
}

// Applies a grammar mask: sets the logits of ids whose bit is 0 to -inf. 32 ids per word; where text is unconstrained
// most words allow all ids and are skipped.
inline void apply_mask(const int32_t* mask, int vocab, float* z) {
  const float out = -__builtin_inff();
  int begin = 0;
  for (; begin + 32 <= vocab; begin += 32) {
    const uint32_t allowed = uint32_t(mask[begin / 32]);
    if (allowed == ~0u) continue;
    float* x = z + begin;
    for (int j = 0; j < 32; ++j) x[j] = allowed >> j & 1 ? x[j] : out;
  }
  for (int id = begin; id < vocab; ++id)
    if (!(uint32_t(mask[begin / 32]) >> (id - begin) & 1)) z[id] = out;
}

// Length of the nucleus: the shortest prefix of candidates, in rank order, whose weight reaches p of the total.
inline int nucleus(const DrutCandidate* c, int n, float p, float total) {
  float need = p * total, sum = 0.0f;
  for (int i = 0; i < n; ++i) {
    sum = sum + c[i].weight;
    if (sum >= need) return i + 1;
  }
  return n;
}

// The maximum of 64 values.
inline float block_top(const float* x) {
  return vmaximum(vmax(vmax(vload(x), vload(x + 16)), vmax(vload(x + 32), vload(x + 48))));
}

// Fills r.candidates with the ids of r.z that pass the filters. Returns their number.
inline int filter(const SampleParams& s, int vocab, float top, const SampleScratch& r) {
  DrutCandidate* c = r.candidates;
  float total = exp_weights(r.z, vocab, top, r.w);
  int n = 0;
  if (s.top_k > 0 && s.top_k < vocab) {
    bool finite;
    scan(r.z, vocab, r.z_maxima, &finite);
    n = largest(r.z, vocab, s.top_k, r.z_maxima, r.copy, c);
    total = 0.0f;
    for (int i = 0; i < n; ++i) {
      c[i].weight = r.w[c[i].id];
      total = total + c[i].weight;
    }
  } else {
    // All ids lighter than this together weigh less than what the nucleus may leave out.
    float floor = s.top_p < 1.0f ? (1.0f - s.top_p) * total / float(vocab) : 0.0f;
    floor = floor > s.min_p ? floor : s.min_p;
    for (int begin = 0; begin < vocab; begin += 64) {
      int end = begin + 64 < vocab ? begin + 64 : vocab;
      if (end - begin == 64 && block_top(r.w + begin) < floor) continue;
      for (int i = begin; i < end; ++i)
        if (r.w[i] >= floor) c[n++] = {r.z[i], r.w[i], i};
    }
    if (s.top_p < 1.0f) drut_sort_candidates(c, n);
  }
  if (s.top_p < 1.0f) n = nucleus(c, n, s.top_p, total);
  int kept = 0;
  for (int i = 0; i < n; ++i)
    if (c[i].weight >= s.min_p) c[kept++] = c[i];
  return kept;
}

// Argmax of z + noise over n values and their ids, both padded to 64 (z with -inf). Most noise is never computed: an id
// can reach `best` only if exp(z - best) >= -log(u) >= 1 - u, and u is computed directly from its Philox word.
inline int argmax_noisy(const float* z, const int32_t* ids, int n, float top, const SampleParams& s) {
  // The noise is in [-2.82, 16.64]. The slack is many times the rounding errors of z + noise, exp and log.
  float slack = (__builtin_fabsf(top) + 32.0f) * 0x1p-20f + 0.001f, bound = top - 3.0f;
  float best = -__builtin_inff(), lead[64];
  int winner = 0;
  for (int begin = 0; begin < n; begin += 64) {
    const float* x = z + begin;
    if (block_top(x) < bound - slack - 17.0f) continue;
    V max_lead = vset(-1.0f);
    uint32_t word[64];
    float short_of_one[64];  // 1 - u
    philox_words(s.seed, s.position, s.choice, ids + begin, word);
    for (int i = 0; i < 64; ++i) short_of_one[i] = (float((1 << 23) - int(word[i] >> 9)) - 0.5f) * 0x1p-23f;
    for (int i = 0; i < 64; i += 16) {
      V lead_by = vsub(vexp(vadd(vsub(vload(x + i), vset(bound)), vset(slack))), vload(short_of_one + i));
      vstore(lead + i, lead_by);
      max_lead = vmax(lead_by, max_lead);
    }
    if (vmaximum(max_lead) < 0.0f) continue;
    for (int i = 0; i < 64; ++i) {
      if (lead[i] < 0.0f) continue;
      int id = ids[begin + i];
      float score = x[i] + num::gumbel(s.seed, s.position, s.choice, uint32_t(id), 0);
      if (score > best || (score == best && id < winner)) { best = score; winner = id; }
    }
    bound = best > bound ? best : bound;
  }
  return winner;
}

// Draws into *token and returns true; returns false if edits and grammar leave no finite maximum. The logits must be
// finite. top and r.maxima must be results of scan() on them.
inline bool draw(const float* logits, int vocab, float top, const Step& step, int i, const SampleScratch& r, int* token) {
  const float *l = logits, *maxima = r.maxima;
  if (step.edit_count[i] || step.mask[i] >= 0) {
    bool finite;
    memcpy(r.z, logits, size_t(vocab) * 4);
    apply_edits(step, i, r.z);
    if (step.mask[i] >= 0) apply_mask(step.masks + step.mask[i], vocab, r.z);
    top = scan(r.z, vocab, r.z_maxima, &finite);
    if (top - top != 0.0f) return false;
    l = r.z;
    maxima = r.z_maxima;
  }
  SampleParams p(step, i);
  float hot = top / p.temperature;
  if (p.temperature == 0.0f || hot - hot != 0.0f) {  // beyond the largest float all differences exceed the noise
    *token = lowest_id_of(l, vocab, maxima, top);
    return true;
  }
  for (int j = 0; j < vocab; ++j) r.z[j] = l[j] / p.temperature;
  bool filtered = (p.top_k > 0 && p.top_k < vocab) || p.top_p < 1.0f || p.min_p > 0.0f;
  int n = vocab;
  if (filtered) {
    n = filter(p, vocab, hot, r);
    for (int j = 0; j < n; ++j) r.z[j] = r.candidates[j].value;
  }
  for (int j = 0; j < n; ++j) r.ids[j] = filtered ? r.candidates[j].id : j;
  for (int j = n; j < wide(n); ++j) {
    r.z[j] = -__builtin_inff();
    r.ids[j] = 0;
  }
  *token = argmax_noisy(r.z, r.ids, n, hot, p);
  return true;
}

}  // namespace
