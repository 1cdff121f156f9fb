// Many rows against a panel: cut into the rows of a kernel, and where it pays into parts of K that are opened for all.
#pragma once
#include "matmul/unpack_panel.h"

namespace {

constexpr int kRowBlock = 96;  // rows of one unit of matrix work, at most: their activations stay in the second-level cache
constexpr int kLeastOpened = 64;  // rows that opening pays for: docs/measurements.md
struct Tile { alignas(64) float of[kRowBlock * kPanel]; };

// Cuts rows into even blocks: body(row, rows, pass, passes). Few rows are bound by memory and want few passes over a
// panel, many want the blocks whose results stay in registers.
template <class Body> void each_block(int count, Body body) {
  const int most = count <= 2 * kMaxRows ? kMaxRows : kRegisterRows;
  const int passes = (count + most - 1) / most;
  for (int pass = 0, row = 0; pass < passes; ++pass) {
    int rows = (count - row + (passes - pass) - 1) / (passes - pass);
    body(row, rows, pass, passes);
    row += rows;
  }
}

// The lines of a panel alike, which is wanted next, that a pass over panel p asks for; none for null.
inline Fetch fetch_panel(const DrutMatrix& m, int p, const uint8_t* next, int pass, int passes) {
  if (!next) return {0, 0};
  const int lines = (Layout(m).group + 63) / 64, first = lines * pass / passes;
  return {next - panel(m, p) + first * 64, lines * (pass + 1) / passes - first};
}

inline void multiply_packed(const DrutMatrix& m, int p, const Acts& a, int row, int count, const uint8_t* next, float* tile) {
  each_block(count, [&](int from, int rows, int pass, int passes) {
    kernel_of(m.kind, rows)(m, panel(m, p), {0, m.k / kGroup}, a, row + from, tile + from * kPanel, fetch_panel(m, p, next, pass, passes));
  });
}

inline void multiply_opened(const DrutMatrix& m, int p, const Acts& a, int row, int count, const uint8_t* next, float* tile) {
  alignas(64) uint8_t opened[kOpenedBytes];
  const int kind = opened_kind(m), all = m.k / kGroup, fit = kOpenedBytes / kind_of(kind).group_bytes();
  const int64_t bytes = panel_bytes(m);
  for (Groups groups{0, 0}; groups.begin < all; groups.begin = groups.end) {
    groups.end = groups.begin + fit < all ? groups.begin + fit : all;
    open_groups(m, panel(m, p), groups, opened);
    each_block(count, [&](int from, int rows, int pass, int passes) {
      kernel_of(kind, rows)(m, opened, groups, a, row + from, tile + from * kPanel, {0, 0});
      if (!next) return;  // an even share of what is wanted next
      const int64_t parts = int64_t(all) * passes, begin = int64_t(groups.begin) * passes + int64_t(groups.end - groups.begin) * pass;
      const int64_t first = bytes * begin / parts, end = bytes * (begin + groups.end - groups.begin) / parts;
      for (int64_t i = first / 64 * 64; i < end; i += 64) __builtin_prefetch(next + i, 0, 2);
    });
  }
}

// Rows row..row + count of a, against panel p, biased, to tile: (count, 32). `next`: the panel alike that is wanted next.
inline void multiply(const DrutMatrix& m, int p, const Acts& a, int row, int count, const uint8_t* next, float* tile) {
  if (count >= kLeastOpened && opened_kind(m) >= 0) multiply_opened(m, p, a, row, count, next, tile);
  else multiply_packed(m, p, a, row, count, next, tile);
  for (int i = 0; m.bias && i < count * kPanel; i += 16) vstore(tile + i, vadd(vload(tile + i), vload(m.bias + p * kPanel + i % kPanel)));
}

// The panel after p, if it is wanted next.
inline const uint8_t* panel_after(const DrutMatrix& m, int p, bool wanted) { return wanted ? panel(m, p + 1) : nullptr; }

}  // namespace
