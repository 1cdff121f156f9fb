// The C functions of the library: choice of instruction set, pools, running a list of operations.
#include "run/burst.h"
#include "base/common.h"
#include "base/pool.h"
#include "simd/numerics.h"

#if defined(__aarch64__)
#include "base/arm.h"
#endif
#include <time.h>
#include <cstring>

#define DRUT_API extern "C" __attribute__((visibility("default")))

namespace {

#if defined(__x86_64__)
bool has_avx512() {
  return __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512vl") &&
         __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vnni") && __builtin_cpu_supports("f16c") &&
         __builtin_cpu_supports("fma");
}
bool has_avx2() { return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") && __builtin_cpu_supports("f16c"); }
bool has_avxvnni() { return has_avx2() && __builtin_cpu_supports("avxvnni"); }
bool has_avx512bf16() { return has_avx512() && __builtin_cpu_supports("avx512bf16"); }
#endif
bool always() { return true; }

struct IsaChoice {
  const DrutIsa* isa;
  bool (*supported)();
};
// Best first on AMD CPUs.
const IsaChoice kIsaChoices[] = {
#if defined(__x86_64__)
    {&kIsaAvx512Bf16, has_avx512bf16},
    {&kIsaAvx512, has_avx512},
    {&kIsaAvxVnni, has_avxvnni},
    {&kIsaAvx512Vl, has_avx512},
    {&kIsaAvx2, has_avx2},
#elif defined(__aarch64__)
    {&kIsaNeonI8mm, arm::has_i8mm},
    {&kIsaNeon, arm::has_dotprod},
#endif
    {&kIsaPortable, always},
};

// The i-th choice. A product of bf16 pairs has twice the rate of a fused multiply-add on AMD CPUs. In a prototype on a
// Xeon it was slower than two multiply-adds of unpacked floats: there avx512 comes before avx512bf16.
const IsaChoice& isa_choice(int i) {
#if defined(__x86_64__)
  if (i < 2 && !__builtin_cpu_is("amd")) return kIsaChoices[1 - i];
#endif
  return kIsaChoices[i];
}

struct Run {
  const DrutIsa* isa;
  const DrutOp* const* ops;
  int32_t count;
  const DrutContext* context;
  DrutBurst* burst;
};

// The next operation after i that has weights to prefetch, or null.
const DrutOp* next_prefetchable(const Run& run, int i) {
  for (++i; i < run.count; ++i)
    if (run.isa->ops[run.ops[i]->code].prefetch) return run.ops[i];
  return nullptr;
}

void barrier_only(Worker& w) {
  w.prefetch = Prefetch{};
  w.barrier();
}

int64_t now_ns() {
  timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return int64_t(t.tv_sec) * 1000000000 + t.tv_nsec;
}

void run_ops(const Run& run, const DrutContext& c, Worker& w) {
  bool timed = c.op_ns && w.id == 0;
  int64_t before = timed ? now_ns() : 0;
  for (int i = 0; i < run.count; ++i) {
    if (c.barriers_only) barrier_only(w);
    else run.isa->run_op(run.ops[i], next_prefetchable(run, i), c, w);
    if (timed) {
      int64_t now = now_ns();
      c.op_ns[i] = now - before;
      before = now;
    }
  }
}

void run_step(void* data, Worker& w) {
  const Run& run = *static_cast<const Run*>(data);
  run_ops(run, *run.context, w);
}

void run_steps(void* data, Worker& w) {
  const Run& run = *static_cast<const Run*>(data);
  DrutContext c = *run.context;
  for (;;) {
    run_ops(run, c, w);  // ends with a barrier: the outputs of the step are complete
    if (w.id == 0) end_step(*run.burst, c);
    w.barrier();
    if (burst_over(*run.burst)) return;
    next_outputs(c);
  }
}

}  // namespace

DRUT_API int32_t drut_abi_version() { return kAbiVersion; }
DRUT_API int32_t drut_step_version() { return kStepVersion; }

// The i-th struct of the ABI, or null past the end: first the shared structs, then the struct of each operation.
DRUT_API const DrutLayout* drut_layout(int32_t i) {
  static constexpr DrutLayout kShared[] = {layout_of<DrutMatrix>(), layout_of<DrutOp>(), layout_of<DrutNorm>(),
                                           layout_of<DrutRoutes>(), layout_of<DrutPages>(), layout_of<DrutContext>(),
                                           layout_of<DrutBurst>(), layout_of<DrutStepHeader>()};
  constexpr int32_t shared = sizeof(kShared) / sizeof(kShared[0]);
  if (i < 0 || i >= shared + kIsaPortable.op_count) return nullptr;
  return i < shared ? &kShared[i] : &kIsaPortable.ops[i - shared].layout;
}

// Name of the operation with this code, or null past the last one.
DRUT_API const char* drut_op_name(int32_t code) {
  return code < 0 || code >= kIsaPortable.op_count ? nullptr : kIsaPortable.ops[code].name;
}

// The i-th instruction set of this build, best first, or null past the end. *supported: whether this CPU has it.
DRUT_API const char* drut_isa_name(int32_t i, int32_t* supported) {
  if (i < 0 || i >= int32_t(sizeof(kIsaChoices) / sizeof(kIsaChoices[0]))) return nullptr;
  *supported = isa_choice(i).supported();
  return isa_choice(i).isa->name;
}

DRUT_API const DrutIsa* drut_isa(const char* name) {
  for (const IsaChoice& c : kIsaChoices)
    if (!strcmp(c.isa->name, name) && c.supported()) return c.isa;
  return nullptr;
}

DRUT_API Pool* drut_pool_create(int32_t threads, const int32_t* cpus, int32_t cpu_count) { return pool_create(threads, cpus, cpu_count); }
DRUT_API void drut_pool_destroy(Pool* p) { pool_destroy(p); }

DRUT_API int64_t drut_scratch_bytes(const DrutIsa* isa, int32_t k, int32_t vocab, int32_t rows, int32_t pairs) {
  return isa->scratch_bytes(k, vocab, rows, pairs);
}
DRUT_API int64_t drut_act_row_bytes(const DrutIsa* isa, int32_t k) { return isa->act_row_bytes(k); }

DRUT_API void drut_run(Pool* pool, const DrutIsa* isa, const DrutOp* const* ops, int32_t count, const DrutContext* c) {
  Run run{isa, ops, count, c, nullptr};
  pool_run(pool, run_step, &run, c->scratch, c->scratch_bytes);
}

// Runs the operations repeatedly: burst->steps times, or until a sequence ends or the host sets burst->stop.
DRUT_API void drut_run_burst(Pool* pool, const DrutIsa* isa, const DrutOp* const* ops, int32_t count, const DrutContext* c,
                             DrutBurst* burst) {
  Run run{isa, ops, count, c, burst};
  pool_run(pool, run_steps, &run, c->scratch, c->scratch_bytes);
}
// Waits until more than `seen` steps are complete, the burst is over, or timeout_ns has passed. May be called from any
// thread.
DRUT_API void drut_burst_wait(DrutBurst* burst, int32_t seen, int64_t timeout_ns) { burst_wait(*burst, seen, timeout_ns); }
// Ends a burst that no thread runs any more, and wakes a host that waits for it.
DRUT_API void drut_burst_abandon(DrutBurst* burst) { burst_abandon(*burst); }

DRUT_API float drut_gumbel(uint64_t seed, uint32_t position, uint32_t choice, uint32_t token, uint32_t purpose) {
  return num::gumbel(seed, position, choice, token, purpose);
}
DRUT_API void drut_philox(uint32_t k0, uint32_t k1, uint32_t* counter) { num::philox(k0, k1, counter); }
DRUT_API float drut_soft_fma(float a, float b, float c) { return num::soft_fma(a, b, c); }
DRUT_API float drut_log(float x) { return num::log(x); }
DRUT_API void drut_sincos(double x, double* s, double* c) { num::sincos(x, s, c); }
