// What the instruction-set units share with the rest of the library: one table of functions each, and helpers that
// need the C++ library, which those units must not instantiate (a weak symbol built for AVX-512 could win at link time).
#pragma once
#include "base/abi.h"
#include "base/pool.h"

// An operation: its name, its function, and where a worker begins to read its weights, or null where it has none.
struct OpRow {
  const char* name;
  void (*run)(const DrutOp* op, const DrutContext& context, Worker& worker);
  ReadAhead (*weights)(const DrutOp* op, const Worker& worker);
  DrutLayout layout;
};

struct DrutIsa {
  const char* name;
  const OpRow* ops;  // the same names and layouts in the same order for every instruction set
  int32_t op_count;
  // Runs one operation on this worker; every worker calls it and each ends it with a sync. `later`: the next one that
  // has weights, or null.
  void (*run_op)(const DrutOp* op, const DrutOp* later, const DrutContext& context, Worker& worker);
  // Bytes of scratch a worker needs for matrices of at most k columns and a vocabulary of `vocab`; with experts, for
  // steps of at most `rows` rows, `pairs` with their experts.
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
// By value descending, then id ascending.
void drut_sort_candidates(DrutCandidate* c, int n);
// The k-th largest of z (1 <= k <= n); copy has room for n floats.
float drut_kth_largest(const float* z, int n, int k, float* copy);
