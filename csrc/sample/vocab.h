// Passes over one row of logits: scan, argmax, the k largest, softmax weights. Sums use blocks of fixed size.
#pragma once
#include "base/abi.h"
#include "base/common.h"
#include "simd/simd.h"

namespace {

constexpr int kVocabBlock = 1024;
// scan() keeps the maximum of each lane of each block: 16 groups of 64 ids with stride 16, which later passes can skip.
inline int group_count(int n) { return (n + kVocabBlock - 1) / kVocabBlock * 16; }
inline int wide(int n) { return (n + 63) & ~63; }

// A worker's scratch for one row. z and ids are padded to 64.
struct SampleScratch {
  float *z, *w, *copy, *maxima, *z_maxima;  // maxima: of the groups of the logits; z_maxima: of the groups of z
  int32_t* ids;
  DrutCandidate* candidates;
  SampleScratch(uint8_t* scratch, int vocab) {
    int64_t n = wide(vocab);
    z = reinterpret_cast<float*>(scratch);
    w = z + n;
    copy = w + n;
    ids = reinterpret_cast<int32_t*>(copy);  // shares memory with copy: they are never in use together
    candidates = reinterpret_cast<DrutCandidate*>(copy + n);
    maxima = reinterpret_cast<float*>(candidates + n);
    z_maxima = maxima + group_count(vocab);
  }
};

inline int64_t sample_scratch_bytes(int vocab) {
  return wide(vocab) * int64_t(3 * sizeof(float) + sizeof(DrutCandidate)) + 2 * group_count(vocab) * int64_t(sizeof(float));
}

// The 16 values at i, with `rest` in place of those at n and beyond.
inline V load_until(const float* l, int i, int n, float rest) {
  if (n - i >= 16) return vload(l + i);
  float f[16];
  for (int j = 0; j < 16; ++j) f[j] = i + j < n ? l[i + j] : rest;
  return vload(f);
}

// Returns the maximum of n values, and the maximum of each group in `maxima`. *finite: no value is NaN or infinite.
inline float scan(const float* l, int n, float* maxima, bool* finite) {
  const float lowest = -__builtin_inff();
  V top = vset(lowest), probe = vset(0.0f);
  for (int block = 0; block < n; block += kVocabBlock, maxima += 16) {
    int end = block + kVocabBlock < n ? block + kVocabBlock : n;
    V maximum = vset(lowest);
    for (int i = block; i < end; i += 16) {
      maximum = vmax(load_until(l, i, end, lowest), maximum);
      probe = vfma(load_until(l, i, end, 0.0f), vset(0.0f), probe);
    }
    vstore(maxima, maximum);
    top = vmax(maximum, top);
  }
  *finite = vsum(probe) == 0.0f;
  return vmaximum(top);
}

// Calls body(id) for ids whose value is at least `limit`. Blocks ascend, ids inside a block do not.
template <class Body> void for_each_at_least(const float* l, int n, const float* maxima, float limit, Body body) {
  for (int g = 0, count = group_count(n); g < count; ++g) {
    if (!(maxima[g] >= limit)) continue;
    int begin = g / 16 * kVocabBlock, end = begin + kVocabBlock < n ? begin + kVocabBlock : n;
    for (int i = begin + g % 16; i < end; i += 16)
      if (l[i] >= limit) body(i);
  }
}

// The lowest id whose value is `top`, the maximum.
inline int lowest_id_of(const float* l, int n, const float* maxima, float top) {
  int first = n;
  for_each_at_least(l, n, maxima, top, [&](int i) { first = i < first ? i : first; });
  return first;
}

// Writes the k largest to c, by value descending, then id ascending; weights are not set. Returns their number.
inline int largest(const float* l, int n, int k, const float* maxima, float* copy, DrutCandidate* c) {
  k = k < n ? k : n;
  // At least k values reach this limit: the k-th largest of all values, or of the maxima of the groups.
  int groups = group_count(n), found = 0;
  float limit = k > groups ? drut_kth_largest(l, n, k, copy) : drut_kth_largest(maxima, groups, k, copy);
  for_each_at_least(l, n, maxima, limit, [&](int i) { c[found++] = {l[i], 0.0f, i}; });
  drut_sort_candidates(c, found);
  return k;
}

// w = exp(z - top) for n values (w holds n rounded up to 16). Returns their sum, in blocks of kVocabBlock.
inline float exp_weights(const float* z, int n, float top, float* w) {
  float total = 0.0f;
  for (int block = 0; block < n; block += kVocabBlock) {
    V sum = vset(0.0f);
    int end = block + kVocabBlock < n ? block + kVocabBlock : n;
    for (int i = block; i < end; i += 16) {
      V x = vexp(vsub(load_until(z, i, end, -__builtin_inff()), vset(top)));
      vstore(w + i, x);
      sum = vadd(sum, x);
    }
    total = total + vsum(sum);
  }
  return total;
}

}  // namespace
