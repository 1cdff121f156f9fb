// The worker threads of one engine. The caller is worker 0; the others spin briefly for work and then sleep.
#pragma once
#include <atomic>
#include <cstdint>

struct Pool;

// Up to two ranges of `bytes` bytes that a worker reads right after the next barrier. It prefetches them while it
// waits, because memory would idle meanwhile. Only a hint: any value is correct.
struct Prefetch {
  const uint8_t* ranges[2];
  int64_t bytes;
};

// A worker's view of a run. Every worker runs the same operations in the same order and waits for the others at each
// barrier(). A worker that skips a barrier blocks the others forever.
struct Worker {
  Pool* pool;
  int id, count;
  uint32_t phase;
  uint8_t* scratch;
  Prefetch prefetch;  // issued at the next barrier
  void barrier();
  // Of `units` units, this worker owns the static_units(units) from id * static_units(units) on; the rest is taken
  // dynamically.
  int static_units(int units) const { return units / (2 * count); }
  // Calls body(begin, end) for ranges that cover 0..units-1: first this worker's static range, then ranges of the rest,
  // which shrink as it runs out. The ranges of one worker ascend. Does not end with a barrier: the results of other
  // workers are visible only after barrier(), which also resets the counter, so at most one loop may run between
  // barriers.
  template <class Body> void parallel_ranges(int units, Body body);
  // The same for single units: body(i).
  template <class Body> void parallel_for(int units, Body body);
};

struct alignas(64) Shared {
  alignas(64) std::atomic<int> next{0};
  alignas(64) std::atomic<int> arrived{0};
  alignas(64) std::atomic<uint32_t> phase{0};
  alignas(64) std::atomic<int> sleepers{0};
};

using Task = void (*)(void* data, Worker& worker);

// Starts a pool. Worker i runs on cpus[i % cpu_count] (cpu_count 0: on any CPU). Returns null if a thread cannot start.
Pool* pool_create(int threads, const int32_t* cpus, int cpu_count);
void pool_destroy(Pool*);
int pool_threads(const Pool*);
Shared& pool_shared(Pool*);
// Runs `task` on every worker and returns when all are done. scratch + id * scratch_bytes is private to worker id. One
// run at a time per pool: callers must not overlap.
void pool_run(Pool*, Task task, void* data, uint8_t* scratch, int64_t scratch_bytes);

// Sleeps while *word equals `expected`, at most timeout_ns; may wake early. futex_wake wakes all sleepers of the word.
void futex_wait(std::atomic<uint32_t>* word, uint32_t expected, int64_t timeout_ns);
void futex_wake(std::atomic<uint32_t>* word);

template <class Body> void Worker::parallel_ranges(int units, Body body) {
  if (count == 1) {
    if (units > 0) body(0, units);
    return;
  }
  const int own = static_units(units), rest = units - own * count;
  if (own) body(id * own, (id + 1) * own);
  std::atomic<int>& next = pool_shared(pool).next;
  for (;;) {
    int begin = next.load(std::memory_order_relaxed), take;
    do {
      if (begin >= rest) return;
      take = (rest - begin) / (2 * count);
      if (take < 1) take = 1;
    } while (!next.compare_exchange_weak(begin, begin + take, std::memory_order_relaxed));
    body(own * count + begin, own * count + begin + take);
  }
}

template <class Body> void Worker::parallel_for(int units, Body body) {
  parallel_ranges(units, [&](int begin, int end) {
    for (int i = begin; i < end; ++i) body(i);
  });
}
