#include "base/pool.h"

#include <linux/futex.h>
#include <pthread.h>
#include <sched.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include <new>
#include <vector>

#if defined(__x86_64__)
#include <immintrin.h>
#elif defined(__aarch64__)
#include "base/arm.h"
#endif

namespace {

inline void cpu_relax() {
#if defined(__x86_64__)
  _mm_pause();
#elif defined(__aarch64__)
  asm volatile("yield");
#endif
}

int64_t now_ns() {
  timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return int64_t(t.tv_sec) * 1000000000 + t.tv_nsec;
}

void futex_wait(std::atomic<uint32_t>* word, uint32_t expected) {
  syscall(SYS_futex, word, FUTEX_WAIT_PRIVATE, expected, nullptr, nullptr, 0);
}

#if defined(__aarch64__)
// FZ. With AFP also AH, which makes FZ test after rounding as FTZ does, and FIZ, which then does what DAZ does. Not a
// static of the function that uses it: its guard would need a C++ runtime.
const uint64_t kFlush = uint64_t(1) << 24 | (arm::has_afp() ? 3 : 0);
#endif

// Treats subnormal operands and results as zero in its scope, and restores the mode of the thread at the end.
struct FlushSubnormals {
#if defined(__x86_64__)
  unsigned saved = _mm_getcsr();
  FlushSubnormals() { _mm_setcsr((saved & ~0x6000u) | 0x8040u); }  // round to nearest, FTZ, DAZ
  ~FlushSubnormals() { _mm_setcsr(saved); }
#elif defined(__aarch64__)
  uint64_t saved;
  FlushSubnormals() {
    asm volatile("mrs %0, fpcr" : "=r"(saved));
    asm volatile("msr fpcr, %0" ::"r"(kFlush));
  }
  ~FlushSubnormals() { asm volatile("msr fpcr, %0" ::"r"(saved)); }
#endif
};

// Decides how long a wait polls before it sleeps. It first pauses, then yields the CPU, and gives up after `yield_ns`
// of yielding. Sleeping early is costly: the host may leave a virtual CPU that slept unscheduled for long, and every
// barrier waits for the last worker.
class SpinThenYield {
 public:
  explicit SpinThenYield(int64_t yield_ns) : yield_ns_(yield_ns) {}
  bool keep_spinning() {
    if (++polls_ < kPauses) {
      cpu_relax();
      return true;
    }
    if (polls_ % 16 == 0) {
      const int64_t now = now_ns();
      if (!deadline_) deadline_ = now + yield_ns_;
      if (now > deadline_) return false;
    }
    sched_yield();
    return true;
  }

 private:
  static constexpr int kPauses = 2000;  // pauses: some tens of microseconds
  const int64_t yield_ns_;
  int64_t deadline_ = 0;
  int polls_ = 0;
};

// Prefetches bytes [at, at + bytes) of both ranges.
void prefetch_part(const Prefetch& prefetch, int64_t at, int64_t bytes) {
  for (const uint8_t* run : prefetch.ranges)
    for (int64_t end = at + bytes, i = at; run && i < end && i < prefetch.bytes; i += 64) __builtin_prefetch(run + i, 0, 2);
}
constexpr int64_t kPrefetchOnArrival = 1024;  // by every worker, also the last to arrive, which does not wait
constexpr int64_t kPrefetchPerPoll = 256;     // by waiting workers, between two polls

constexpr int64_t kBarrierSpinNs = 3000000;  // about the time for which a host deschedules a virtual CPU
constexpr int64_t kIdleSpinNs = 400000;      // longer than the work of the host between two steps

}  // namespace

void futex_wait(std::atomic<uint32_t>* word, uint32_t expected, int64_t timeout_ns) {
  timespec t{time_t(timeout_ns / 1000000000), long(timeout_ns % 1000000000)};
  syscall(SYS_futex, word, FUTEX_WAIT_PRIVATE, expected, &t, nullptr, 0);
}
void futex_wake(std::atomic<uint32_t>* word) { syscall(SYS_futex, word, FUTEX_WAKE_PRIVATE, INT32_MAX, nullptr, nullptr, 0); }

struct Pool {
  Shared shared;
  alignas(64) std::atomic<uint32_t> job{0};
  alignas(64) std::atomic<int> sleepers{0};
  alignas(64) std::atomic<uint32_t> finished{0};
  std::atomic<bool> caller_sleeps{false};
  std::atomic<bool> stop{false};
  Task task = nullptr;
  void* data = nullptr;
  uint8_t* scratch = nullptr;
  int64_t scratch_bytes = 0;
  int count = 1;
  std::vector<pthread_t> threads;
  std::vector<int32_t> cpus;

  void work(int id) {
    FlushSubnormals mode;
    Worker w{this, id, count, shared.phase.load(std::memory_order_relaxed), scratch + id * scratch_bytes, {}};
    task(data, w);
  }

  void serve(int id) {
    uint32_t seen = 0;
    for (;;) {
      await(seen);
      seen = job.load(std::memory_order_acquire);
      if (stop.load(std::memory_order_relaxed)) return;
      work(id);
      // No access to the task's data after this: pool_run returns once all workers are counted.
      finished.fetch_add(1);
      if (caller_sleeps.load()) futex_wake(&finished);
    }
  }

  void await(uint32_t seen) {
    SpinThenYield spin(kIdleSpinNs);
    while (job.load(std::memory_order_acquire) == seen) {
      if (spin.keep_spinning()) continue;
      sleepers.fetch_add(1);
      while (job.load() == seen) futex_wait(&job, seen);
      sleepers.fetch_sub(1);
    }
  }

  void publish() {
    job.fetch_add(1);
    if (sleepers.load()) futex_wake(&job);
  }
};

void Worker::barrier() {
  if (count == 1) return;
  Shared& s = pool_shared(pool);
  uint32_t mine = phase++;
  prefetch_part(prefetch, 0, kPrefetchOnArrival);
  if (s.arrived.fetch_add(1, std::memory_order_acq_rel) + 1 == count) {
    // Both counters must be reset before the new phase is stored: a worker that sees it uses them at once.
    s.next.store(0, std::memory_order_relaxed);
    s.arrived.store(0, std::memory_order_relaxed);
    s.phase.store(mine + 1);
    if (s.sleepers.load()) futex_wake(&s.phase);
    return;
  }
  for (int64_t at = kPrefetchOnArrival; at < prefetch.bytes && s.phase.load(std::memory_order_relaxed) == mine; at += kPrefetchPerPoll)
    prefetch_part(prefetch, at, kPrefetchPerPoll);
  prefetch.bytes = 0;
  // The missing worker may have lost its CPU to this one: yield, then sleep, instead of spinning on. The sleeper count
  // is raised before the phase is read again, and the last worker stores the phase before it reads the count (both
  // sequentially consistent), so either it wakes this worker or the futex wait returns at once.
  SpinThenYield spin(kBarrierSpinNs);
  while (s.phase.load(std::memory_order_acquire) == mine) {
    if (spin.keep_spinning()) continue;
    s.sleepers.fetch_add(1);
    while (s.phase.load() == mine) futex_wait(&s.phase, mine);
    s.sleepers.fetch_sub(1);
  }
}

namespace {

struct Start { Pool* pool; int id; };

void bind(pthread_t thread, int cpu) {
  cpu_set_t set;
  CPU_ZERO(&set);
  CPU_SET(cpu, &set);
  pthread_setaffinity_np(thread, sizeof set, &set);
}

void* serve(void* argument) {
  Start start = *static_cast<Start*>(argument);
  delete static_cast<Start*>(argument);
  start.pool->serve(start.id);
  return nullptr;
}

// Moves the calling thread off the CPUs of the workers, then restores its affinity: a worker that shares its CPU with
// the caller would delay every barrier.
void move_caller_off_worker_cpus(const Pool* p) {
  int here = sched_getcpu();
  for (int id = 1; id < p->count; ++id) {
    if (p->cpus.empty() || p->cpus[id % p->cpus.size()] != here) continue;
    cpu_set_t before;
    if (pthread_getaffinity_np(pthread_self(), sizeof before, &before) == 0 && CPU_ISSET(p->cpus[0], &before)) {
      bind(pthread_self(), p->cpus[0]);
      pthread_setaffinity_np(pthread_self(), sizeof before, &before);
    }
    return;
  }
}

}  // namespace

Pool* pool_create(int threads, const int32_t* cpus, int cpu_count) {
  Pool* p = new (std::nothrow) Pool;
  if (!p) return nullptr;
  p->cpus.assign(cpus, cpus + cpu_count);
  p->count = threads < 1 ? 1 : threads;
  for (int id = 1; id < p->count; ++id) {
    pthread_t thread;
    Start* start = new (std::nothrow) Start{p, id};
    if (!start || pthread_create(&thread, nullptr, serve, start)) {
      delete start;
      pool_destroy(p);
      return nullptr;
    }
    p->threads.push_back(thread);
    // A new thread may stay on the CPU of its creator for long, and the two would alternate.
    if (cpu_count > 1) bind(thread, cpus[id % cpu_count]);
  }
  return p;
}

void pool_destroy(Pool* p) {
  p->stop.store(true);
  p->publish();
  for (pthread_t t : p->threads) pthread_join(t, nullptr);
  delete p;
}

int pool_threads(const Pool* p) { return p->count; }
Shared& pool_shared(Pool* p) { return p->shared; }

void pool_run(Pool* p, Task task, void* data, uint8_t* scratch, int64_t scratch_bytes) {
  p->task = task;
  p->data = data;
  p->scratch = scratch;
  p->scratch_bytes = scratch_bytes;
  p->shared.next.store(0, std::memory_order_relaxed);
  p->finished.store(0, std::memory_order_relaxed);
  move_caller_off_worker_cpus(p);
  p->publish();
  p->work(0);
  const uint32_t others = uint32_t(p->count - 1);
  SpinThenYield spin(kBarrierSpinNs);
  while (p->finished.load(std::memory_order_acquire) != others && spin.keep_spinning()) {}
  p->caller_sleeps.store(true);
  for (uint32_t done; (done = p->finished.load()) != others;) futex_wait(&p->finished, done);
  p->caller_sleeps.store(false);
}
