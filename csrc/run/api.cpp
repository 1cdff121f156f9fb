// The C ABI: instruction-set choice, an engine's pool, running a list of operations.
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

struct Choice {
  const DrutIsa* isa;
  bool (*supported)();
};
// Best first.
const Choice kChoices[] = {
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

struct Run {
  const DrutIsa* isa;
  const DrutOp* const* ops;
  int32_t count;
  const DrutContext* context;
  DrutBurst* burst;
};

// The next operation after i that has weights, or null.
const DrutOp* later(const Run& run, int i) {
  for (++i; i < run.count; ++i)
    if (run.isa->ops[run.ops[i]->code].weights) return run.ops[i];
  return nullptr;
}

void meet(Worker& w) {
  w.ahead = ReadAhead{};
  w.sync();
}

int64_t now_ns() {
  timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return int64_t(t.tv_sec) * 1000000000 + t.tv_nsec;
}

void walk(const Run& run, const DrutContext& c, Worker& w) {
  bool timed = c.op_ns && w.id == 0;
  int64_t before = timed ? now_ns() : 0;
  for (int i = 0; i < run.count; ++i) {
    if (c.empty) meet(w);
    else run.isa->run_op(run.ops[i], later(run, i), c, w);
    if (timed) {
      int64_t now = now_ns();
      c.op_ns[i] = now - before;
      before = now;
    }
  }
}

void one_step(void* data, Worker& w) {
  const Run& run = *static_cast<const Run*>(data);
  walk(run, *run.context, w);
}

void many_steps(void* data, Worker& w) {
  const Run& run = *static_cast<const Run*>(data);
  DrutContext c = *run.context;
  for (;;) {
    walk(run, c, w);  // its last operation ends with a meeting: all outputs are there
    if (w.id == 0) end_step(*run.burst, c);
    w.sync();
    if (burst_over(*run.burst)) return;
    next_outputs(c);
  }
}

}  // namespace

DRUT_API int32_t drut_abi_version() { return kAbiVersion; }
DRUT_API int32_t drut_step_version() { return kStepVersion; }

// The i-th struct that crosses the boundary, or null past the end: those that operations share, then each operation's own.
DRUT_API const DrutLayout* drut_layout(int32_t i) {
  static constexpr DrutLayout kShared[] = {layout_of<DrutMatrix>(), layout_of<DrutOp>(), layout_of<DrutNorm>(),
                                           layout_of<DrutRoutes>(), layout_of<DrutPages>(), layout_of<DrutContext>(),
                                           layout_of<DrutBurst>(), layout_of<DrutStepHeader>()};
  constexpr int32_t shared = sizeof(kShared) / sizeof(kShared[0]);
  if (i < 0 || i >= shared + kIsaPortable.op_count) return nullptr;
  return i < shared ? &kShared[i] : &kIsaPortable.ops[i - shared].layout;
}

// The name of the operation with this code, or null past the last.
DRUT_API const char* drut_op_name(int32_t code) {
  return code < 0 || code >= kIsaPortable.op_count ? nullptr : kIsaPortable.ops[code].name;
}

// The i-th instruction set this build holds, best first, or null past the end; *supported: whether this CPU has it.
DRUT_API const char* drut_isa_name(int32_t i, int32_t* supported) {
  if (i < 0 || i >= int32_t(sizeof(kChoices) / sizeof(kChoices[0]))) return nullptr;
  *supported = kChoices[i].supported();
  return kChoices[i].isa->name;
}

DRUT_API const DrutIsa* drut_isa(const char* name) {
  for (const Choice& c : kChoices)
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
  pool_run(pool, one_step, &run, c->scratch, c->scratch_bytes);
}

// Runs the operations again and again: burst->steps times, or until a sequence ends or the host says stop.
DRUT_API void drut_run_burst(Pool* pool, const DrutIsa* isa, const DrutOp* const* ops, int32_t count, const DrutContext* c,
                             DrutBurst* burst) {
  Run run{isa, ops, count, c, burst};
  pool_run(pool, many_steps, &run, c->scratch, c->scratch_bytes);
}
// Waits until more than `seen` steps are done, or the burst is over, or the time has passed.
DRUT_API void drut_burst_wait(DrutBurst* burst, int32_t seen, int64_t timeout_ns) { burst_wait(*burst, seen, timeout_ns); }
// Ends a burst that no step runs of any more, for a host that waits.
DRUT_API void drut_burst_abandon(DrutBurst* burst) { burst_abandon(*burst); }

DRUT_API float drut_gumbel(uint64_t seed, uint32_t position, uint32_t choice, uint32_t token, uint32_t purpose) {
  return num::gumbel(seed, position, choice, token, purpose);
}
DRUT_API void drut_philox(uint32_t k0, uint32_t k1, uint32_t* counter) { num::philox(k0, k1, counter); }
DRUT_API float drut_soft_fma(float a, float b, float c) { return num::soft_fma(a, b, c); }
DRUT_API float drut_log(float x) { return num::log(x); }
DRUT_API void drut_sincos(double x, double* s, double* c) { num::sincos(x, s, c); }
