// Measures the limits of this machine: memory read bandwidth and multiply-accumulate peaks, by number of threads. This
// file is compiled for the baseline, because instruction sets are chosen at run time.
#include "roof/roof_kernels.h"

#include <sched.h>
#include <time.h>

#include "base/pool.h"
#if defined(__aarch64__)
#include "base/arm.h"
#endif

#define DRUT_API extern "C" __attribute__((visibility("default")))

namespace {

enum Isa : int { kAvx2 = 1, kAvxVnni = 2, kAvx512 = 4, kAvx512Vnni = 8, kAvx512Bf16 = 16, kNeon = 32, kDotprod = 64,
                 kI8mm = 128 };

struct Job {
  const int* cpus;  // one per worker
  roof::Read read;
  roof::Multiply multiply;
  uint8_t* buffer;
  size_t bytes;
  long reps;
};

// Pins each worker to its CPU. A new thread may stay on its creator's CPU for longer than a measurement.
void pin_task(void* data, Worker& w) {
  cpu_set_t set;
  CPU_ZERO(&set);
  CPU_SET(static_cast<Job*>(data)->cpus[w.id], &set);
  sched_setaffinity(0, sizeof set, &set);
}

// A pool whose workers are pinned. The calling thread is worker 0; its affinity is restored at the end.
struct PinnedPool {
  cpu_set_t before;
  Pool* pool;
  PinnedPool(Job& job, int threads) {
    sched_getaffinity(0, sizeof before, &before);
    pool = pool_create(threads, nullptr, 0);
    if (pool) pool_run(pool, pin_task, &job, nullptr, 0);
  }
  ~PinnedPool() {
    if (pool) pool_destroy(pool);
    sched_setaffinity(0, sizeof before, &before);
  }
};

// Worker i's slice of the buffer. Slices are whole blocks and cover all blocks.
struct Slice {
  uint8_t* data;
  size_t bytes;
  Slice(const Job& job, const Worker& w) {
    size_t blocks = job.bytes / roof::kBlock, first = blocks * w.id / w.count, last = blocks * (w.id + 1) / w.count;
    data = job.buffer + first * roof::kBlock;
    bytes = (last - first) * roof::kBlock;
  }
};

// The empty asm counts as a use of the value, so that the compiler keeps the loop.
void read_task(void* data, Worker& w) {
  const Job& job = *static_cast<Job*>(data);
  Slice slice(job, w);
  for (long r = 0; r < job.reps; ++r) {
    uint64_t value = job.read(slice.data, slice.bytes);
    asm volatile("" : : "r"(value) : "memory");
  }
}

void multiply_task(void* data, Worker&) {
  const Job& job = *static_cast<Job*>(data);
  uint64_t value = job.multiply(job.reps);
  asm volatile("" : : "r"(value));
}

void touch_task(void* data, Worker& w) {
  Slice slice(*static_cast<Job*>(data), w);
  for (size_t i = 0; i < slice.bytes; i += 64) slice.data[i] = 1;
}

double now() {
  timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return double(t.tv_sec) + 1e-9 * double(t.tv_nsec);
}

// The maximum of repetitions per second over trials that together take `seconds`. A trial takes an eighth of that, or
// one repetition. The first trials find the number of repetitions per trial, and warm up caches and clocks.
double best_rate(Task task, Job job, int threads, double seconds) {
  PinnedPool pinned(job, threads);
  if (!pinned.pool) return 0;
  double best = 0, end = now() + seconds;
  job.reps = 1;
  int trials = 0;
  do {
    double start = now();
    pool_run(pinned.pool, task, &job, nullptr, 0);
    double took = now() - start;
    if (took > 0 && double(job.reps) / took > best) best = double(job.reps) / took;
    if (took < seconds / 16) job.reps *= 2;
    // On a loaded machine the first trial alone may take all the time.
  } while (++trials < 8 || now() < end);
  return best;
}

struct Peak {
  roof::Multiply multiply;
  double macs;  // per repetition
};

constexpr double kChainSteps = double(roof::kChains) * roof::kUnroll;

// Codes of at most 4 bits, or wider ones, with int8. A sum of four products takes both alike.
Peak integer_peak(int isa, bool narrow) {
#if defined(__x86_64__)
  if (isa & kAvx512Vnni) return {roof::int8_avx512, 64 * kChainSteps};
  if (isa & kAvxVnni) return {roof::int8_avxvnni, 32 * kChainSteps};
  if ((isa & kAvx2) && narrow) return {roof::int4_avx2, 32 * kChainSteps};
  if (isa & kAvx2) return {roof::int8_avx2, 16 * kChainSteps};
#elif defined(__aarch64__)
  if (isa & kI8mm) return {roof::int8_i8mm, 32 * kChainSteps};
  if (isa & kDotprod) return {roof::int8_dotprod, 16 * kChainSteps};
#endif
  (void)isa, (void)narrow;
  return {roof::int8_portable, roof::kPortableMacs};
}

// Floats, or pairs of bf16: without an instruction for these, their product is two fused multiply-adds in binary32.
Peak float_peak(int isa, bool pairs) {
#if defined(__x86_64__)
  if ((isa & kAvx512Bf16) && pairs) return {roof::bf16_avx512, 32 * kChainSteps};
  if (isa & kAvx512) return {roof::float_avx512, 16 * kChainSteps};
  if (isa & kAvx2) return {roof::float_avx2, 8 * kChainSteps};
#elif defined(__aarch64__)
  if (isa & kNeon) return {roof::float_neon, 4 * kChainSteps};
#endif
  (void)isa, (void)pairs;
  return {roof::float_portable, roof::kPortableMacs};
}

double gmacs(Peak peak, const int* cpus, int threads, double seconds) {
  Job job{cpus, nullptr, peak.multiply, nullptr, 0, 1};
  return best_rate(multiply_task, job, threads, seconds) * peak.macs * threads * 1e-9;
}

roof::Read reader(int isa) {
#if defined(__x86_64__)
  if (isa & kAvx512) return roof::read_avx512;
  if (isa & kAvx2) return roof::read_avx2;
#elif defined(__aarch64__)
  if (isa & kNeon) return roof::read_neon;
#endif
  (void)isa;
  return roof::read_portable;
}

}  // namespace

// Instruction sets of this CPU and its operating system, as a sum of Isa bits.
DRUT_API int drut_roof_isa() {
  int isa = 0;
#if defined(__x86_64__)
  __builtin_cpu_init();
  if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma")) isa |= kAvx2;
  if (isa && __builtin_cpu_supports("avxvnni")) isa |= kAvxVnni;
  if (__builtin_cpu_supports("avx512f")) isa |= kAvx512;
  if ((isa & kAvx512) && __builtin_cpu_supports("avx512vnni")) isa |= kAvx512Vnni;
  if ((isa & kAvx512) && __builtin_cpu_supports("avx512bf16")) isa |= kAvx512Bf16;
#elif defined(__aarch64__)
  isa = kNeon;
  if (arm::has_dotprod()) isa |= kDotprod;
  if (arm::has_i8mm()) isa |= kI8mm;
#endif
  return isa;
}

// Writes the whole buffer, each slice from the thread that will read it: pages are allocated near their reader.
DRUT_API void drut_roof_touch(void* buffer, size_t bytes, const int* cpus, int threads) {
  Job job{cpus, nullptr, nullptr, static_cast<uint8_t*>(buffer), bytes, 1};
  PinnedPool pinned(job, threads);
  if (pinned.pool) pool_run(pinned.pool, touch_task, &job, nullptr, 0);
}

// In the following, `isa` is masked by drut_roof_isa(), and thread i runs on CPU cpus[i]. Figures are 0 if threads
// cannot start.

// GB/s at which all threads together read `bytes` (a multiple of 256, aligned to 64), each its own slice.
DRUT_API double drut_roof_read(void* buffer, size_t bytes, int isa, const int* cpus, int threads, double seconds) {
  Job job{cpus, reader(isa & drut_roof_isa()), nullptr, static_cast<uint8_t*>(buffer), bytes, 1};
  return best_rate(read_task, job, threads, seconds) * double(bytes) * 1e-9;
}

// Writes to rates[4] the 10^9 multiply-accumulates per second of all threads together: of codes of at most 4 bits with
// int8, wider codes with int8, binary32, and pairs of bf16. Each loop takes `seconds`; operands with the same loop
// share its figure.
DRUT_API void drut_roof_multiply(int isa, const int* cpus, int threads, double seconds, double* rates) {
  isa &= drut_roof_isa();
  const Peak peaks[] = {integer_peak(isa, true), integer_peak(isa, false),
                        float_peak(isa, false), float_peak(isa, true)};
  for (int i = 0; i < 4; ++i) {
    const bool same = i > 0 && peaks[i].multiply == peaks[i - 1].multiply;
    rates[i] = same ? rates[i - 1] : gmacs(peaks[i], cpus, threads, seconds);
  }
}
