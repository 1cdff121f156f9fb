// The attention operation: splits the attention of a step into units of work, and writes the results.
#pragma once
#include "matmul/activations.h"
#include "attention/attention.h"

struct DrutAttention {
  DrutOp op;
  const float* q;
  float* out;          // (rows, out_stride)
  const float* sinks;  // (heads): logit that adds to the softmax denominator only (attention sink), or null
  int32_t q_stride, out_stride, heads, kv_heads, head_dim, kv_dtype;
  float scale;
  int32_t out_format;
  int32_t window;  // positions a row sees, including its own; 0: all
  float softcap;   // scores become softcap * tanh(score / softcap); 0: unchanged
  int32_t group, reserved;
  int64_t layer_offset;
};
DRUT_LAYOUT(DrutAttention, FIELD(op), FIELD(q), FIELD(out), FIELD(sinks), FIELD(q_stride), FIELD(out_stride),
            FIELD(heads), FIELD(kv_heads), FIELD(head_dim), FIELD(kv_dtype), FIELD(scale), FIELD(out_format),
            FIELD(window), FIELD(softcap), FIELD(group), FIELD(reserved), FIELD(layer_offset));

namespace {

// Rows of one sequence per unit: enough (row, head) pairs to reuse each load of K and V.
inline int unit_rows(int group) { return group >= kMaxQueryHeads ? 1 : kMaxQueryHeads / group; }

// How the attention of a step is split into units of work (split-KV, as in flash decoding): by sequence, block of rows
// and KV head; and by chunk if the unit would be so large a part of the step that the other workers would wait for it.
// Then the partial results of the chunks go to shared memory, and are merged after a barrier, in ascending order: the
// bits are the same as without the split.
struct SplitKvSchedule {
  const Step& s;
  int block, group, kv_heads, window;
  int64_t max_pairs;  // maximum of (pair, position)s in a unit that is not split

  // First position that a row at `position` sees.
  int begin(int position) const { return window && position >= window ? position + 1 - window : 0; }
  int first_chunk(int q) const { return begin(s.length[q] - s.row_count[q]) / kChunk; }
  int64_t work(int q) const { return int64_t(pairs(q)) * (s.length[q] - begin(s.length[q] - s.row_count[q])); }
  int64_t total() const {
    int64_t n = 0;
    for (int q = 0; q < s.seqs; ++q) n += work(q) * blocks(q) * kv_heads;
    return n;
  }
  int blocks(int q) const { return (s.row_count[q] + block - 1) / block; }
  int chunks(int q) const { return work(q) > max_pairs ? (s.length[q] + kChunk - 1) / kChunk - first_chunk(q) : 1; }
  int pairs(int q) const { return (s.row_count[q] < block ? s.row_count[q] : block) * group; }
  int units(int q) const { return blocks(q) * kv_heads * chunks(q); }
  int64_t partials(int q) const { return chunks(q) > 1 ? int64_t(units(q)) * pairs(q) : 0; }
  int64_t all_partials() const {
    int64_t n = 0;
    for (int q = 0; q < s.seqs; ++q) n += partials(q);
    return n;
  }
};

// Finds the sequence of a unit, or with `cells` of a cell: all units of the same sequence, row block and KV head. The
// units passed to find() must ascend.
struct UnitCursor {
  const SplitKvSchedule& schedule;
  bool cells;
  int seq = 0, before = 0;
  int64_t partials_before = 0;
  int count(int q) const { return cells ? schedule.units(q) / schedule.chunks(q) : schedule.units(q); }
  int total() const {
    int n = 0;
    for (int q = 0; q < schedule.s.seqs; ++q) n += count(q);
    return n;
  }
  void find(int unit) {
    for (int n; unit - before >= (n = count(seq)); ++seq) {
      before += n;
      partials_before += schedule.partials(seq);
    }
  }
};

// Collects the (row, head) pairs of one block of rows and KV head. Returns their number.
inline int gather(const DrutAttention& o, const SplitKvSchedule& schedule, int seq, int block, int kv_head, QueryHead* queries) {
  const Step& s = schedule.s;
  int first = s.first_row[seq] + block * schedule.block, rows = s.first_row[seq] + s.row_count[seq] - first;
  if (rows > schedule.block) rows = schedule.block;
  for (int i = 0; i < rows * schedule.group; ++i) {
    int row = first + i / schedule.group, head = kv_head * schedule.group + i % schedule.group;
    queries[i].q = o.q + int64_t(row) * o.q_stride + head * o.head_dim;
    queries[i].row = row;
    queries[i].head = head;
    queries[i].begin = schedule.begin(s.position[row]);
    queries[i].length = s.position[row] + 1;
  }
  return rows * schedule.group;
}

// The factor of the accumulator: 1 / sum, where the sum includes the sink of the head.
inline float softmax_factor(const DrutAttention& o, const QueryHead& c) {
  if (!o.sinks) return 1.0f / c.sum;
  const float sink = o.sinks[c.head], top = c.maximum > sink ? c.maximum : sink;
  const float a = sexp(c.maximum - top);
  return a / num::fma(c.sum, a, sexp(sink - top));
}

inline void finish(const DrutAttention& o, const QueryHead& c) {
  alignas(64) float x[kMaxHeadDim];
  V inverse = vset(softmax_factor(o, c));
  for (int d = 0; d < o.head_dim; d += 16) vstore(x + d, vmul(vload(c.acc + d), inverse));
  if (!(o.out_format & (kActInt8 | kActWide))) {
    memcpy(o.out + int64_t(c.row) * o.out_stride + c.head * o.head_dim, x, size_t(o.head_dim) * 4);
    return;
  }
  const int step = groups_at_once(o.out_format) * kGroup;
  for (int d = 0; d < o.head_dim; d += step)
    store_activations(o.out, o.out_stride, o.out_format, c.row, (c.head * o.head_dim + d) / kGroup, x + d, step > kGroup ? x + d + kGroup : nullptr);
}

template <class Kv> void attend_units(const DrutAttention& o, const DrutContext& c, const SplitKvSchedule& schedule, Worker& w) {
  const Step& s = schedule.s;
  AttentionMemory& memory = *reinterpret_cast<AttentionMemory*>(w.scratch);
  QueryHead* queries = memory.queries;
  float* partials = reinterpret_cast<float*>(c.acts);  // unused otherwise: attention prepares no activations
  const int stride = partial_floats(o.head_dim);
  const Scoring scoring{o.scale, o.softcap};
  UnitCursor cursor{schedule, false};
  w.parallel_for(cursor.total(), [&](int unit) {
    cursor.find(unit);
    int q = cursor.seq, u = unit - cursor.before, chunks = schedule.chunks(q), chunk = u % chunks, cell = u / chunks;
    int kv_head = cell % o.kv_heads, count = gather(o, schedule, q, cell / o.kv_heads, kv_head, queries);
    const DrutPages& pages = c.pages[o.group];
    KvHead<Kv> h{pages.data, pages.page_bytes, o.layer_offset + kv_head * Kv::head_bytes(o.head_dim),
                s.table(o.group, q), o.head_dim, (queries[count - 1].length + kPage - 1) / kPage};
    if (chunks == 1) {
      attend<Kv>(h, scoring, memory, count);
      for (int i = 0; i < count; ++i) finish(o, queries[i]);
      return;
    }
    float* own = partials + (cursor.partials_before + int64_t(u) * schedule.pairs(q)) * stride;
    unpack_queries<Kv>(queries, count, o.head_dim, memory.block);
    attend_rows<Kv>(h, schedule.first_chunk(q) + chunk, scoring, queries, count, memory.block, own, stride);
  });
  w.barrier();
  if (!schedule.all_partials()) return;
  UnitCursor merged{schedule, true};
  w.parallel_for(merged.total(), [&](int cell) {
    merged.find(cell);
    int q = merged.seq, chunks = schedule.chunks(q), u = cell - merged.before, pairs = schedule.pairs(q);
    if (chunks == 1) return;
    int count = gather(o, schedule, q, u / o.kv_heads, u % o.kv_heads, queries);
    const float* parts = partials + (merged.partials_before + int64_t(u) * chunks * pairs) * stride;
    for (int i = 0; i < chunks; ++i)
      merge_chunk(queries, count, schedule.first_chunk(q) + i, parts + int64_t(i) * pairs * stride, stride, o.head_dim);
    for (int i = 0; i < count; ++i) finish(o, queries[i]);
  });
  w.barrier();
}

void attention(const DrutAttention& o, const DrutContext& c, Worker& w) {
  Step s(c.step);
  int group = o.heads / o.kv_heads;
  SplitKvSchedule schedule{s, unit_rows(group), group, o.kv_heads, o.window, INT64_MAX};
  if (w.count > 1) schedule.max_pairs = schedule.total() / (4 * w.count);
  if (schedule.all_partials() * partial_floats(o.head_dim) * 4 > c.acts_bytes) schedule.max_pairs = INT64_MAX;
  if (o.kv_dtype == kKvBf16) attend_units<KvBf16>(o, c, schedule, w);
  else if (o.kv_dtype == kKvInt8) attend_units<KvInt8>(o, c, schedule, w);
  else attend_units<KvFp32>(o, c, schedule, w);
}

}  // namespace
