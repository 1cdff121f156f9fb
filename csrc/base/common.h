// What the instruction-set units share with the rest of the library: one table of functions per unit, and helpers that
// need the C++ library. The units must not instantiate templates of it: a weak symbol compiled for AVX-512 could
// replace the portable one at link time.
#pragma once
#include "base/abi.h"
#include "base/pool.h"

// An operation: name, function, and a function that returns what a worker prefetches of its weights (null: no weights).
struct OpRow {
  const char* name;
  void (*run)(const DrutOp* op, const DrutContext& context, Worker& worker);
  Prefetch (*prefetch)(const DrutOp* op, const Worker& worker);
  DrutLayout layout;
};

struct DrutIsa {
  const char* name;
  const OpRow* ops;  // all instruction sets have the same names and layouts in the same order
  int32_t op_count;
  // Runs one operation on this worker. Every worker must call it with the same arguments, because each operation ends
  // with a barrier. `next`: the next operation with weights, to prefetch them, or null.
  void (*run_op)(const DrutOp* op, const DrutOp* next, const DrutContext& context, Worker& worker);
  // Bytes of scratch per worker for matrices of at most k columns and a vocabulary of `vocab`; for models with experts
  // also for steps of at most `rows` rows and `pairs` (row, expert) pairs.
  int64_t (*scratch_bytes)(int k, int vocab, int rows, int pairs);
  int64_t (*act_row_bytes)(int k);
};

extern const DrutIsa kIsaPortable;
#if defined(__x86_64__)
extern const DrutIsa kIsaAvx2;
extern const DrutIsa kIsaAvxVnni;
extern const DrutIsa kIsaAvx512Vl;
extern const DrutIsa kIsaAvx512;
extern const DrutIsa kIsaAvx512Bf16;
#endif
#if defined(__aarch64__)
extern const DrutIsa kIsaNeon;
extern const DrutIsa kIsaNeonI8mm;
#endif

struct DrutCandidate {
  float value, weight;
  int32_t id;
};
// Sorts by value descending, then id ascending.
void drut_sort_candidates(DrutCandidate* c, int n);
// Returns the k-th largest of z (1 <= k <= n). `copy`: scratch of n floats.
float drut_kth_largest(const float* z, int n, int k, float* copy);
