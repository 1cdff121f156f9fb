// Threads of one engine: the caller is worker 0, the others spin briefly for work and then sleep.
#pragma once
#include <atomic>
#include <cstdint>

struct Pool;

// Where a worker will read once all have met again: up to two runs of so many bytes. Memory would idle meanwhile.
struct ReadAhead {
  const uint8_t* runs[2];
  int64_t bytes;
};

// A worker's view while a plan runs. Every worker walks the same operations and meets the others at each sync().
struct Worker {
  Pool* pool;
  int id, count;
  uint32_t phase;
  uint8_t* scratch;
  ReadAhead ahead;  // fetched at a meeting
  void sync();
  // Of `units` to share, this worker takes those from id * first_run(units) on without asking.
  int first_run(int units) const { return units / (2 * count); }
  // Calls body(begin, end) for runs of 0..units-1 until all are taken: first its own, then what is left, in runs that
  // shrink as the work runs out. One worker's runs ascend. Ends without a sync.
  template <class Body> void share_runs(int units, Body body);
  // The same, unit by unit: body(i).
  template <class Body> void share(int units, Body body);
};

struct alignas(64) Shared {
  alignas(64) std::atomic<int> next{0};
  alignas(64) std::atomic<int> arrived{0};
  alignas(64) std::atomic<uint32_t> phase{0};
  alignas(64) std::atomic<int> sleepers{0};
};

using Task = void (*)(void* data, Worker& worker);

// Worker i runs on cpus[i % cpu_count] (none given: anywhere). Null where a thread cannot start.
Pool* pool_create(int threads, const int32_t* cpus, int cpu_count);
void pool_destroy(Pool*);
int pool_threads(const Pool*);
Shared& pool_shared(Pool*);
// Runs task on every worker; scratch + id * scratch_bytes is the worker's own memory. Returns when all are done.
void pool_run(Pool*, Task task, void* data, uint8_t* scratch, int64_t scratch_bytes);

// Sleeps while *word is `expected`, up to so long; wakes all who sleep so.
void futex_wait(std::atomic<uint32_t>* word, uint32_t expected, int64_t timeout_ns);
void futex_wake(std::atomic<uint32_t>* word);

template <class Body> void Worker::share_runs(int units, Body body) {
  if (count == 1) {
    if (units > 0) body(0, units);
    return;
  }
  const int own = first_run(units), rest = units - own * count;
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

template <class Body> void Worker::share(int units, Body body) {
  share_runs(units, [&](int begin, int end) {
    for (int i = begin; i < end; ++i) body(i);
  });
}
