#include "base/common.h"

#include <algorithm>

void drut_sort_candidates(DrutCandidate* c, int n) {
  std::sort(c, c + n, [](const DrutCandidate& a, const DrutCandidate& b) {
    return a.value > b.value || (a.value == b.value && a.id < b.id);
  });
}

float drut_kth_largest(const float* z, int n, int k, float* copy) {
  std::copy(z, z + n, copy);
  std::nth_element(copy, copy + (k - 1), copy + n, [](float a, float b) { return a > b; });
  return copy[k - 1];
}
