// Many rows times a panel: splits the rows into kernel calls, for many rows unpacks parts of the panel once for all
// calls, and joins the sums of the slices of K.
#pragma once
#include "matmul/unpack_panel.h"

namespace {

constexpr int kRowBlock = 96;  // maximum of rows per unit of work: their activations fit in the second-level cache
constexpr int kMinRowsToUnpack = kNarrowDots ? 16 : 64;  // rows from which unpacking pays: benchmarks/kernels/micro.py
struct Tile { alignas(64) float of[kRowBlock * kPanel]; };

// Splits `count` rows into blocks of nearly equal size and calls body(row, rows, pass, passes). Few rows are bound by
// memory, so they take few passes over the panel; many rows take blocks whose accumulators stay in registers.
template <class Body> void for_row_blocks(int count, Body body) {
  const int max_rows = count <= 2 * kMaxRows ? kMaxRows : kRegisterRows;
  const int passes = (count + max_rows - 1) / max_rows;
  for (int pass = 0, row = 0; pass < passes; ++pass) {
    int rows = (count - row + (passes - pass) - 1) / (passes - pass);
    body(row, rows, pass, passes);
    row += rows;
  }
}

// Prefetch of pass `pass` over panel p: its share of the lines of panel `next`, which has the same layout. Null: none.
inline PanelPrefetch panel_prefetch(const DrutMatrix& m, int p, const uint8_t* next, int pass, int passes) {
  if (!next) return {0, 0};
  const int lines = (Layout(m).group + 63) / 64, first = lines * pass / passes;
  return {next - panel(m, p) + first * 64, lines * (pass + 1) / passes - first};
}

// Sums K in the slices of m and joins them by one binary tree, so that a sum does not depend on how many machines compute
// the slices. Slice i begins at group floor(i * groups / slices) of activations with one scale. body(range, to) computes a
// slice into a tile of `floats` sums; spare: memory for the sums that wait, kSliceDepth tiles. tile: the result.
constexpr int kSliceDepth = 3;
static_assert(1 << kSliceDepth == kMaxSlices, "");
template <class Body> void sum_slices(const DrutMatrix& m, int floats, float* tile, float* spare, Body body) {
  const int all = m.k / kGroup, each = scaled_by_row(m) ? 2 : 1, units = (all + each - 1) / each;  // groups with one scale
  const auto cut = [=](int i) { return units * i / m.slices * each < all ? units * i / m.slices * each : all; };
  int depth = 0;  // complete sums: in tile, then in spare
  for (int i = 0; i < m.slices; ++i) {
    body(GroupRange{cut(i), cut(i + 1), true}, depth ? spare + (depth - 1) * floats : tile);
    ++depth;
    for (int even = i + 1; even % 2 == 0; even /= 2, --depth) {
      float *left = depth > 2 ? spare + (depth - 3) * floats : tile, *right = spare + (depth - 2) * floats;
      for (int n = 0; n < floats; n += 16) vstore(left + n, vadd(vload(left + n), vload(right + n)));
    }
  }
}

inline void multiply_packed(const DrutMatrix& m, int p, const Acts& a, int row, int count, const uint8_t* next, float* tile) {
  const Layout l(m);
  alignas(64) float spare[kSliceDepth * kMaxRows * kPanel];
  for_row_blocks(count, [&](int from, int rows, int pass, int passes) {
    const PanelPrefetch prefetch = panel_prefetch(m, p, next, pass, passes);
    const PanelKernel kernel = kernel_of(kernel_kind(m), rows);
    sum_slices(m, rows * kPanel, tile + from * kPanel, spare, [&](GroupRange groups, float* to) {
      kernel(m, unit_of(l, panel(m, p), groups.begin), groups, a, row + from, to, prefetch);
    });
  });
}

inline void multiply_unpacked(const DrutMatrix& m, int p, const Acts& a, int row, int count, const uint8_t* next, float* tile) {
  alignas(64) uint8_t unpacked[kRowHead + kUnpackedBytes];
  const bool by_row = scaled_by_row(m);
  if (by_row) memcpy(unpacked, panel(m, p) + kPanel * scale_size(m.scale), kPanel);  // zero points, if there are
  alignas(64) float spare[kSliceDepth * kRowBlock * kPanel];
  const int kind = unpacked_kind(m), all = m.k / kGroup, fit = kUnpackedBytes / kind_of(kind).group_bytes() / 2 * 2;
  uint8_t* codes = by_row ? unpacked + kRowHead : unpacked;
  const int64_t bytes = panel_bytes(m);
  sum_slices(m, count * kPanel, tile, spare, [&](GroupRange slice, float* to) {
    const int length = slice.end - slice.begin, parts = (length + fit - 1) / fit;
    const int each = ((length + parts - 1) / parts + 1) / 2 * 2;  // nearly equal parts, of whole pairs of groups
    for (GroupRange groups = slice; groups.begin < slice.end; groups = {groups.end, slice.end, false}) {
      if (groups.begin + each < slice.end) groups.end = groups.begin + each;
      unpack_panel_groups(m, panel(m, p), groups, codes);
      for_row_blocks(count, [&](int from, int rows, int pass, int passes) {
        kernel_of(kind, rows)(m, unpacked, groups, a, row + from, to + from * kPanel, {0, 0});
        if (!next) return;  // an even share of the next panel
        const int64_t shares = int64_t(all) * passes, begin = int64_t(groups.begin) * passes + int64_t(groups.end - groups.begin) * pass;
        const int64_t first = bytes * begin / shares, end = bytes * (begin + groups.end - groups.begin) / shares;
        for (int64_t i = first / 64 * 64; i < end; i += 64) __builtin_prefetch(next + i, 0, 2);
      });
    }
  });
}

// tile (count, 32) = rows row..row + count of a times panel p, plus bias. next: the panel to prefetch, of the same
// layout, or null.
inline void multiply(const DrutMatrix& m, int p, const Acts& a, int row, int count, const uint8_t* next, float* tile) {
  if (count >= kMinRowsToUnpack && unpacked_kind(m) >= 0) multiply_unpacked(m, p, a, row, count, next, tile);
  else multiply_packed(m, p, a, row, count, next, tile);
  if (scaled_by_row(m)) finish_rows(m, panel(m, p), count, tile);
  for (int i = 0; m.bias && i < count * kPanel; i += 16) vstore(tile + i, vadd(vload(tile + i), vload(m.bias + p * kPanel + i % kPanel)));
}

// The panel after p if it is computed next, else null: nothing is prefetched.
inline const uint8_t* next_panel(const DrutMatrix& m, int p, bool wanted) { return wanted ? panel(m, p + 1) : nullptr; }

}  // namespace
