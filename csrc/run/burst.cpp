#include "run/burst.h"

#include "base/pool.h"

namespace {

// The words of the struct cross the C ABI, so they are plain there; all accesses here are atomic.
std::atomic<uint32_t>& atomic(const int32_t& word) {
  static_assert(sizeof(std::atomic<uint32_t>) == 4 && std::atomic<uint32_t>::is_always_lock_free, "words are futexes");
  return *reinterpret_cast<std::atomic<uint32_t>*>(const_cast<int32_t*>(&word));
}

bool is_end_id(const DrutBurst& b, int sample, int32_t token) {
  for (int e = b.end_first[sample]; e < b.end_first[sample + 1]; ++e)
    if (b.end_id[e] == token) return true;
  return false;
}

bool any_sequence_ended(const DrutBurst& b, const DrutContext& c, int samples) {
  for (int i = 0; i < samples; ++i)
    if (c.status[i] || is_end_id(b, i, c.tokens[i])) return true;
  return false;
}

// Rewrites the descriptor for the next step: each row moves to the next position and takes its token from the relay. No
// worker may read the descriptor meanwhile.
void advance_rows(const Step& s) {
  for (int row = 0; row < s.rows; ++row) {
    const int seq = s.seq[row], position = s.position[row] + 1;
    const_cast<int32_t&>(s.position[row]) = position;
    for (int g = 0; g < s.groups; ++g)
      const_cast<int32_t&>(s.slots[g * s.cap_rows + row]) = s.table(g, seq)[position / kPage] * kPage + position % kPage;
    const_cast<int32_t&>(s.token[row]) = -1;
    const_cast<int32_t&>(s.length[seq]) = position + 1;
  }
}

}  // namespace

void end_step(DrutBurst& b, const DrutContext& c) {
  Step s(c.step);
  const uint32_t done = atomic(b.progress).load(std::memory_order_relaxed) / 2 + 1;
  const bool over = int32_t(done) >= b.steps || atomic(b.stop).load() || any_sequence_ended(b, c, s.samples);
  if (!over) advance_rows(s);
  atomic(b.progress).store(2 * done + over);
  futex_wake(&atomic(b.progress));
}

bool burst_over(const DrutBurst& b) { return atomic(b.progress).load() % 2; }

void next_outputs(DrutContext& c) {
  const int64_t samples = Step(c.step).samples;
  c.tokens += samples;
  c.status += samples;
  c.logprobs += samples;
  c.ranks += samples;
  c.top_ids += samples * kMaxTop;
  c.top_logprobs += samples * kMaxTop;
}

void burst_wait(DrutBurst& b, int32_t seen, int64_t timeout_ns) { futex_wait(&atomic(b.progress), 2 * uint32_t(seen), timeout_ns); }

void burst_abandon(DrutBurst& b) {
  atomic(b.progress).fetch_or(1);
  futex_wake(&atomic(b.progress));
}
