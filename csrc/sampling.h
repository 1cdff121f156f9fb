// One token from one row of logits (docs/numerics.md, "Sampling"): argmax over the kept ids of logit/T + Gumbel noise.
// Order: temperature, top-k, top-p, min-p. Ties take the lowest id.
#pragma once
#include "abi.h"
#include "common.h"
#include "simd.h"

namespace {

constexpr int kVocabBlock = 1024;  // vocabulary sums run in blocks of this many ids
// The noise lies in [-2.82, 16.64]: an id this far below the best cannot win, so its noise is not drawn.
constexpr float kNoiseReach = 20.0f;

struct SampleParams {
  float temperature, top_p, min_p;
  int32_t top_k;
  uint64_t seed;
  uint32_t position, choice;
};

// The maximum over padded-by-vocab logits; *finite is false where any logit is NaN or infinite.
inline float scan_logits(const float* l, int n, bool* finite) {
  float top = l[0], probe = 0.0f;
  V m = vset(l[0]), z = vset(0.0f);
  int i = 0;
  for (; i + 16 <= n; i += 16) {
    V x = vload(l + i);
    m = vmax(x, m);
    z = vfma(x, vset(0.0f), z);
  }
  top = vmaximum(m);
  probe = vsum(z);
  for (; i < n; ++i) {
    top = l[i] > top ? l[i] : top;
    probe = num::fma(l[i], 0.0f, probe);
  }
  *finite = probe == 0.0f;
  return top;
}

inline int first_equal(const float* l, int n, float top) {
  for (int i = 0; i < n; ++i)
    if (l[i] == top) return i;
  return 0;
}

// w = exp(z - top) for n values (w has room for n rounded up to 16); returns their sum in blocks of kVocabBlock.
inline float exp_weights(const float* z, int n, float top, float* w) {
  float total = 0.0f;
  for (int block = 0; block < n; block += kVocabBlock) {
    V sum = vset(0.0f);
    int end = block + kVocabBlock < n ? block + kVocabBlock : n;
    for (int i = block; i < end; i += 16) {
      V x = end - i >= 16 ? vload(z + i) : vset(0.0f);
      if (end - i < 16) {
        float f[16];
        for (int j = 0; j < 16; ++j) f[j] = j < end - i ? z[i + j] : top - 100.0f;
        x = vload(f);
      }
      x = vexp(vsub(x, vset(top)));
      if (end - i < 16) x = vselect_first(end - i, x, vset(0.0f));
      vstore(w + i, x);
      sum = vadd(sum, x);
    }
    total = total + vsum(sum);
  }
  return total;
}

// The nucleus: of candidates in rank order the shortest prefix whose weight reaches p of the total.
inline int nucleus(const DrutCandidate* c, int n, float p, float total) {
  float need = p * total, sum = 0.0f;
  for (int i = 0; i < n; ++i) {
    sum = sum + c[i].weight;
    if (sum >= need) return i + 1;
  }
  return n;
}

// Fills c with the ids that survive the filters and returns how many. z, w: vocab floats each, rounded up to 16.
inline int filter(const SampleParams& s, float* z, float* w, int vocab, float top, DrutCandidate* c) {
  float total = exp_weights(z, vocab, top, w);
  float floor = 0.0f;
  int n = 0;
  if (s.top_k > 0 && s.top_k < vocab) {
    float limit = drut_kth_largest(z, vocab, s.top_k, w + ((vocab + 15) & ~15));
    for (int i = 0; i < vocab; ++i)
      if (z[i] >= limit) c[n++] = {z[i], w[i], i};
    drut_sort_candidates(c, n);
    n = n < s.top_k ? n : s.top_k;
    total = 0.0f;
    for (int i = 0; i < n; ++i) total = total + c[i].weight;
  } else {
    // Ids lighter than this weigh together less than what the nucleus may leave out.
    if (s.top_p < 1.0f) floor = (1.0f - s.top_p) * total / float(vocab);
    floor = floor > s.min_p ? floor : s.min_p;
    for (int i = 0; i < vocab; ++i)
      if (w[i] >= floor) c[n++] = {z[i], w[i], i};
    if (s.top_p < 1.0f) drut_sort_candidates(c, n);
  }
  if (s.top_p < 1.0f) n = nucleus(c, n, s.top_p, total);
  int kept = 0;
  for (int i = 0; i < n; ++i)
    if (c[i].weight >= s.min_p) c[kept++] = c[i];
  return kept;
}

inline int64_t sample_scratch_bytes(int vocab) {
  int64_t padded = (vocab + 15) & ~15;
  return padded * (3 * 4 + int64_t(sizeof(DrutCandidate)));
}

// scratch: sample_scratch_bytes(vocab). *status is 1, and the token 0, where the logits are not finite.
inline int sample_row(const float* logits, int vocab, const SampleParams& s, uint8_t* scratch, int32_t* status) {
  bool finite;
  float top = scan_logits(logits, vocab, &finite);
  *status = finite ? 0 : 1;
  if (!finite) return 0;
  if (s.temperature == 0.0f) return first_equal(logits, vocab, top);
  float scaled = top / s.temperature;
  // Past the largest float all differences dwarf the noise: greedy.
  if (!(scaled - scaled == 0.0f)) return first_equal(logits, vocab, top);
  top = scaled;
  int padded = (vocab + 15) & ~15;
  float* z = reinterpret_cast<float*>(scratch);
  for (int i = 0; i < vocab; ++i) z[i] = logits[i] / s.temperature;
  auto score = [&](float value, int id) {
    return value + num::gumbel(s.seed, s.position, s.choice, uint32_t(id), 0);
  };
  float best = -__builtin_inff();
  int winner = 0;
  auto consider = [&](float value, int id) {
    if (value < top - kNoiseReach) return;
    float x = score(value, id);
    if (x > best || (x == best && id < winner)) { best = x; winner = id; }
  };
  bool filtered = (s.top_k > 0 && s.top_k < vocab) || s.top_p < 1.0f || s.min_p > 0.0f;
  if (!filtered) {
    for (int i = 0; i < vocab; ++i) consider(z[i], i);
    return winner;
  }
  DrutCandidate* c = reinterpret_cast<DrutCandidate*>(z + 3 * int64_t(padded));
  int n = filter(s, z, z + padded, vocab, top, c);
  for (int i = 0; i < n; ++i) consider(c[i].value, c[i].id);
  return winner;
}

}  // namespace
