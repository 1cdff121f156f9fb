// Attention as an operation: how a step's rows are cut into units of work, and where their results go.
#pragma once
#include "matmul/activations.h"
#include "attention/attention.h"

struct DrutAttention {
  DrutOp op;
  const float* q;
  float* out;          // (rows, out_stride)
  const float* sinks;  // (heads): a logit that takes a share of the softmax and gives nothing; or null
  int32_t q_stride, out_stride, heads, kv_heads, head_dim, kv_dtype;
  float scale;
  int32_t out_form;
  int32_t window;  // positions a row sees, its own the last; 0: all
  float cap;       // scores are cap * tanh(score / cap); 0: as they are
  int32_t group, reserved;
  int64_t layer_offset;
};
DRUT_LAYOUT(DrutAttention, FIELD(op), FIELD(q), FIELD(out), FIELD(sinks), FIELD(q_stride), FIELD(out_stride),
            FIELD(heads), FIELD(kv_heads), FIELD(head_dim), FIELD(kv_dtype), FIELD(scale), FIELD(out_form),
            FIELD(window), FIELD(cap), FIELD(group), FIELD(reserved), FIELD(layer_offset));

namespace {

// Rows of one sequence that share a unit: enough (row, head) pairs to reuse each load of K and V.
inline int unit_rows(int group) { return group >= kMaxCombos / 2 ? 1 : kMaxCombos / 2 / group; }

// How a step's attention is cut: by sequence, block of rows, KV head, and where such a unit is so much of the step that
// workers would wait for it also by chunk. Then the shares of its chunks are kept in shared memory and joined after a
// sync, in ascending order.
struct AttentionCut {
  const Step& s;
  int block, group, kv_heads, window;
  int64_t most;  // (pair, position)s a unit may have and stay whole

  // The first position that a row at `position` sees.
  int begin(int position) const { return window && position >= window ? position + 1 - window : 0; }
  int first_chunk(int q) const { return begin(s.length[q] - s.row_count[q]) / kChunk; }
  int64_t work(int q) const { return int64_t(pairs(q)) * (s.length[q] - begin(s.length[q] - s.row_count[q])); }
  int64_t total() const {
    int64_t n = 0;
    for (int q = 0; q < s.seqs; ++q) n += work(q) * blocks(q) * kv_heads;
    return n;
  }
  int blocks(int q) const { return (s.row_count[q] + block - 1) / block; }
  int chunks(int q) const { return work(q) > most ? (s.length[q] + kChunk - 1) / kChunk - first_chunk(q) : 1; }
  int pairs(int q) const { return (s.row_count[q] < block ? s.row_count[q] : block) * group; }
  int units(int q) const { return blocks(q) * kv_heads * chunks(q); }
  int64_t shares(int q) const { return chunks(q) > 1 ? int64_t(units(q)) * pairs(q) : 0; }
  int64_t all_shares() const {
    int64_t n = 0;
    for (int q = 0; q < s.seqs; ++q) n += shares(q);
    return n;
  }
};

// Finds the sequence of units, or of cells (a sequence's units of all chunks are one cell), that ascend.
struct UnitWalk {
  const AttentionCut& cut;
  bool cells;
  int seq = 0, before = 0;
  int64_t shares_before = 0;
  int count(int q) const { return cells ? cut.units(q) / cut.chunks(q) : cut.units(q); }
  int total() const {
    int n = 0;
    for (int q = 0; q < cut.s.seqs; ++q) n += count(q);
    return n;
  }
  void find(int unit) {
    for (int n; unit - before >= (n = count(seq)); ++seq) {
      before += n;
      shares_before += cut.shares(seq);
    }
  }
};

// The (row, head) pairs of one block of rows and KV head; returns how many.
inline int gather(const DrutAttention& o, const AttentionCut& cut, int seq, int block, int kv_head, Combo* combos) {
  const Step& s = cut.s;
  int first = s.first_row[seq] + block * cut.block, rows = s.first_row[seq] + s.row_count[seq] - first;
  if (rows > cut.block) rows = cut.block;
  for (int i = 0; i < rows * cut.group; ++i) {
    int row = first + i / cut.group, head = kv_head * cut.group + i % cut.group;
    combos[i].q = o.q + int64_t(row) * o.q_stride + head * o.head_dim;
    combos[i].row = row;
    combos[i].head = head;
    combos[i].begin = cut.begin(s.position[row]);
    combos[i].length = s.position[row] + 1;
  }
  return rows * cut.group;
}

// What the accumulator is multiplied by: 1 / sum, the sum with the head's sink where it has one.
inline float share_of(const DrutAttention& o, const Combo& c) {
  if (!o.sinks) return 1.0f / c.sum;
  const float sink = o.sinks[c.head], top = c.maximum > sink ? c.maximum : sink;
  const float a = sexp(c.maximum - top);
  return a / num::fma(c.sum, a, sexp(sink - top));
}

inline void finish(const DrutAttention& o, const Combo& c) {
  alignas(64) float x[kMaxHeadDim];
  V inverse = vset(share_of(o, c));
  for (int d = 0; d < o.head_dim; d += 16) vstore(x + d, vmul(vload(c.acc + d), inverse));
  if (o.out_form != kInt8) {
    memcpy(o.out + int64_t(c.row) * o.out_stride + c.head * o.head_dim, x, size_t(o.head_dim) * 4);
    return;
  }
  for (int d = 0; d < o.head_dim; d += kGroup) hand_over(o.out, o.out_stride, kInt8, c.row, (c.head * o.head_dim + d) / kGroup, x + d);
}

template <class Kv> void attend_units(const DrutAttention& o, const DrutContext& c, const AttentionCut& cut, Worker& w) {
  const Step& s = cut.s;
  Combo* combos = reinterpret_cast<Combo*>(w.scratch);
  float* shares = reinterpret_cast<float*>(c.acts);
  const int stride = partial_floats(o.head_dim);
  const Scoring scoring{o.scale, o.cap};
  UnitWalk walk{cut, false};
  w.share(walk.total(), [&](int unit) {
    walk.find(unit);
    int q = walk.seq, u = unit - walk.before, chunks = cut.chunks(q), chunk = u % chunks, cell = u / chunks;
    int kv_head = cell % o.kv_heads, count = gather(o, cut, q, cell / o.kv_heads, kv_head, combos);
    const DrutPages& pages = c.pages[o.group];
    Heads<Kv> h{pages.data, pages.page_bytes, o.layer_offset + kv_head * Kv::head_bytes(o.head_dim),
                s.table(o.group, q), o.head_dim, (combos[count - 1].length + kPage - 1) / kPage};
    if (chunks == 1) {
      attend<Kv>(h, scoring, combos, count);
      for (int i = 0; i < count; ++i) finish(o, combos[i]);
      return;
    }
    float* mine = shares + (walk.shares_before + int64_t(u) * cut.pairs(q)) * stride;
    attend_rows<Kv>(h, cut.first_chunk(q) + chunk, scoring, combos, count, [&](int i, int) { return mine + int64_t(i) * stride; }, [](int, const float*) {});
  });
  w.sync();
  if (!cut.all_shares()) return;
  UnitWalk joined{cut, true};
  w.share(joined.total(), [&](int cell) {
    joined.find(cell);
    int q = joined.seq, chunks = cut.chunks(q), u = cell - joined.before, pairs = cut.pairs(q);
    if (chunks == 1) return;
    int count = gather(o, cut, q, u / o.kv_heads, u % o.kv_heads, combos);
    const float* theirs = shares + (joined.shares_before + int64_t(u) * chunks * pairs) * stride;
    for (int i = 0; i < count; ++i) {
      const int own = combos[i].begin / kChunk, first = cut.first_chunk(q);
      for (int chunk = own; chunk * kChunk < combos[i].length; ++chunk)
        absorb(combos + i, theirs + (int64_t(chunk - first) * pairs + i) * stride, chunk == own, o.head_dim);
      finish(o, combos[i]);
    }
  });
  w.sync();
}

void attention(const DrutAttention& o, const DrutContext& c, Worker& w) {
  Step s(c.step);
  int group = o.heads / o.kv_heads;
  AttentionCut cut{s, unit_rows(group), group, o.kv_heads, o.window, INT64_MAX};
  if (w.count > 1) cut.most = cut.total() / (4 * w.count);
  if (cut.all_shares() * partial_floats(o.head_dim) * 4 > c.acts_bytes) cut.most = INT64_MAX;
  if (o.kv_dtype == kKvBf16) attend_units<KvBf16>(o, c, cut, w);
  else if (o.kv_dtype == kKvInt8) attend_units<KvInt8>(o, c, cut, w);
  else attend_units<KvFp32>(o, c, cut, w);
}

}  // namespace
