// The operations of a plan. Each is walked by every worker and ends with a sync.
#pragma once
#include "attention.h"
#include "common.h"
#include "gemm.h"
#include "logprobs.h"
#include "sampling.h"

namespace {

constexpr int kRowBlock = 96;  // rows of one unit of matrix work: their activations stay in the second-level cache
inline int row_blocks(int rows) { return (rows + kRowBlock - 1) / kRowBlock; }

// Calls body(panel, begin, end) over panels and row blocks, a panel's blocks side by side.
template <class Body> void share_matrix(Worker& w, int panel_count, int rows, Body body) {
  int blocks = row_blocks(rows);
  w.share(panel_count * blocks, [&](int unit) {
    int begin = unit % blocks * kRowBlock, end = begin + kRowBlock < rows ? begin + kRowBlock : rows;
    body(unit / blocks, begin, end);
  });
}

inline int identity(int i) { return i; }

void embed(const DrutEmbed& o, const DrutContext& c, Worker& w) {
  Step s(c.step);
  w.share(s.rows, [&](int r) {
    int token = s.token[r] >= 0 ? s.token[r] : c.relay[s.relay_slot[s.seq[r]]];
    unpack_row(*o.table, token, o.x + int64_t(r) * o.stride);
  });
  w.sync();
}

void rope_table(const DrutRopeTable& o, const DrutContext& c, Worker& w) {
  Step s(c.step);
  w.share(s.rows, [&](int r) {
    float* t = o.table + int64_t(r) * 2 * o.half;
    for (int i = 0; i < o.half; ++i) {
      double sine, cosine;
      num::sincos(double(s.position[r]) * o.inv_freq[i], &sine, &cosine);
      t[i] = float(cosine) * o.scale;
      t[o.half + i] = float(sine) * o.scale;
    }
  });
  w.sync();
}

// Pairs (i, i + half) of a head turn by the row's angle; elements past 2*half stay.
inline void rotate(float* x, const float* table, int half) {
  for (int i = 0; i < half; ++i) {
    float a = x[i], b = x[half + i], cosine = table[i], sine = table[half + i];
    x[i] = num::fma(a, cosine, -(b * sine));
    x[half + i] = num::fma(b, cosine, a * sine);
  }
}

template <class Kv> void finish_heads(const DrutQkv& o, const DrutContext& c, const Step& s, int row, int head) {
  bool is_query = head < o.heads;
  int kv_head = head - o.heads;
  float* x = is_query ? o.q + int64_t(row) * o.q_stride + head * o.head_dim
                      : o.k + int64_t(row) * o.kv_stride + kv_head * o.head_dim;
  const float* norm = is_query ? o.q_norm : o.k_norm;
  if (norm) rms_norm(x, norm, o.head_dim, o.head_dim, o.eps, x);
  rotate(x, o.rope + int64_t(row) * 2 * o.rope_half, o.rope_half);
  if (is_query) {
    for (int d = 0; d < o.head_dim; d += 16) Kv::store(x, d, Kv::round(vload(x + d)));
    return;
  }
  using Element = typename Kv::Element;
  int slot = s.slot[row], head_elements = 2 * kPage * o.head_dim;
  Element* k = reinterpret_cast<Element*>(c.kv + int64_t(slot / kPage) * c.page_bytes + o.layer_offset) + int64_t(kv_head) * head_elements;
  Kv::write(k, k + kPage * o.head_dim, o.head_dim, slot % kPage, x, o.v + int64_t(row) * o.kv_stride + kv_head * o.head_dim);
}

void qkv(const DrutQkv& o, const DrutContext& c, Worker& w) {
  Step s(c.step);
  const DrutMatrix* parts[3] = {o.q_proj, o.k_proj, o.v_proj};
  float* outs[3] = {o.q, o.k, o.v};
  int strides[3] = {o.q_stride, o.kv_stride, o.kv_stride};
  int ends[3] = {panels(*parts[0]), panels(*parts[0]) + panels(*parts[1]), 0};
  ends[2] = ends[1] + panels(*parts[2]);
  int forms = form_of(parts[0]) | form_of(parts[1]) | form_of(parts[2]);
  Acts a = prepare(w, c, forms, o.x, o.stride, parts[0]->k, o.norm, o.width, o.eps, s.rows, identity);
  share_matrix(w, ends[2], s.rows, [&](int unit, int begin, int end) {
    int part = unit < ends[0] ? 0 : unit < ends[1] ? 1 : 2, p = unit - (part ? ends[part - 1] : 0);
    float* out = outs[part] + p * kPanel;
    multiply(*parts[part], p, a, begin, end, [&](int row, int rows, const float* tile) {
      for (int r = 0; r < rows; ++r) memcpy(out + int64_t(row + r) * strides[part], tile + r * kPanel, kPanel * 4);
    });
  });
  w.sync();
  int heads = o.heads + o.kv_heads;
  w.share(s.rows * heads, [&](int unit) {
    if (o.kv_dtype == kKvBf16) finish_heads<KvBf16>(o, c, s, unit / heads, unit % heads);
    else finish_heads<KvFp32>(o, c, s, unit / heads, unit % heads);
  });
  w.sync();
}

// Rows of one sequence that share a unit: enough (row, head) pairs to reuse each load of K and V.
inline int unit_rows(int group) { return group >= kMaxCombos / 2 ? 1 : kMaxCombos / 2 / group; }

// How a step's attention is cut: by sequence, block of rows, KV head, and where a sequence has several chunks also by
// chunk. Then the shares of the chunks are kept in shared memory and joined after a sync, in ascending order.
struct AttentionCut {
  const Step& s;
  int block, group, kv_heads;
  bool by_chunk;

  int blocks(int q) const { return (s.row_count[q] + block - 1) / block; }
  int chunks(int q) const { return by_chunk ? (s.length[q] + kChunk - 1) / kChunk : 1; }
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
    combos[i].out = o.out + int64_t(row) * o.out_stride + head * o.head_dim;
    combos[i].length = s.position[row] + 1;
  }
  return rows * cut.group;
}

template <class Kv> void attend_units(const DrutAttention& o, const DrutContext& c, const AttentionCut& cut, Worker& w) {
  const Step& s = cut.s;
  Combo* combos = reinterpret_cast<Combo*>(w.scratch);
  float* shares = reinterpret_cast<float*>(c.acts);
  const int stride = partial_floats(o.head_dim);
  UnitWalk walk{cut, false};
  w.share(walk.total(), [&](int unit) {
    walk.find(unit);
    int q = walk.seq, u = unit - walk.before, chunks = cut.chunks(q), chunk = u % chunks, cell = u / chunks;
    int kv_head = cell % o.kv_heads, count = gather(o, cut, q, cell / o.kv_heads, kv_head, combos);
    Heads<Kv> h{c.kv, c.page_bytes, o.layer_offset + int64_t(kv_head) * 2 * kPage * o.head_dim * int64_t(sizeof(typename Kv::Element)),
                s.blocks + s.table[q], o.head_dim, (combos[count - 1].length + kPage - 1) / kPage};
    if (chunks == 1) return attend<Kv>(h, o.scale, combos, count);
    float* mine = shares + (walk.shares_before + int64_t(u) * cut.pairs(q)) * stride;
    attend_rows<Kv>(h, chunk, o.scale, combos, count, [&](int i, int) { return mine + int64_t(i) * stride; }, [](int, const float*) {});
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
      for (int chunk = 0; chunk * kChunk < combos[i].length; ++chunk)
        absorb(combos + i, theirs + (int64_t(chunk) * pairs + i) * stride, chunk == 0, o.head_dim);
      finish(combos[i], o.head_dim);
    }
  });
  w.sync();
}

void attention(const DrutAttention& o, const DrutContext& c, Worker& w) {
  Step s(c.step);
  int group = o.heads / o.kv_heads;
  AttentionCut cut{s, unit_rows(group), group, o.kv_heads, w.count > 1};
  // Many rows at depth have more shares than room, and enough units without.
  if (cut.all_shares() * partial_floats(o.head_dim) * 4 > c.acts_bytes) cut.by_chunk = false;
  if (o.kv_dtype == kKvBf16) attend_units<KvBf16>(o, c, cut, w);
  else attend_units<KvFp32>(o, c, cut, w);
}

void project(const DrutProject& o, const DrutContext& c, Worker& w) {
  Step s(c.step);
  Acts a = prepare(w, c, form_of(o.weight), o.in, o.in_stride, o.weight->k, nullptr, 0, 0, s.rows, identity);
  share_matrix(w, panels(*o.weight), s.rows, [&](int p, int begin, int end) {
    multiply(*o.weight, p, a, begin, end, [&](int row, int rows, const float* tile) {
      for (int r = 0; r < rows; ++r) {
        float* x = o.x + int64_t(row + r) * o.stride + p * kPanel;
        for (int n = 0; n < kPanel; n += 16) vstore(x + n, vadd(vload(x + n), vload(tile + r * kPanel + n)));
      }
    });
  });
  w.sync();
}

void gate_up(const DrutGateUp& o, const DrutContext& c, Worker& w) {
  Step s(c.step);
  Acts a = prepare(w, c, form_of(o.gate) | form_of(o.up), o.x, o.stride, o.gate->k, o.norm, o.width, o.eps, s.rows, identity);
  share_matrix(w, panels(*o.gate), s.rows, [&](int p, int begin, int end) {
    float* out = o.out + p * kPanel;
    multiply(*o.gate, p, a, begin, end, [&](int row, int rows, const float* tile) {
      for (int r = 0; r < rows; ++r)
        for (int n = 0; n < kPanel; n += 16) vstore(out + int64_t(row + r) * o.out_stride + n, vsilu(vload(tile + r * kPanel + n)));
    });
    multiply(*o.up, p, a, begin, end, [&](int row, int rows, const float* tile) {
      for (int r = 0; r < rows; ++r) {
        float* y = out + int64_t(row + r) * o.out_stride;
        for (int n = 0; n < kPanel; n += 16) vstore(y + n, vmul(vload(y + n), vload(tile + r * kPanel + n)));
      }
    });
  });
  w.sync();
}

void head(const DrutHead& o, const DrutContext& c, Worker& w) {
  Step s(c.step);
  Acts a = prepare(w, c, form_of(o.weight), o.x, o.stride, o.weight->k, o.norm, o.width, o.eps, s.samples,
                   [&](int i) { return s.sample_row[i]; });
  share_matrix(w, panels(*o.weight), s.samples, [&](int p, int begin, int end) {
    multiply(*o.weight, p, a, begin, end, [&](int row, int rows, const float* tile) {
      for (int r = 0; r < rows; ++r) memcpy(o.logits + int64_t(row + r) * o.logits_stride + p * kPanel, tile + r * kPanel, kPanel * 4);
    });
  });
  w.sync();
}

void sample(const DrutSample& o, const DrutContext& c, Worker& w) {
  Step s(c.step);
  w.share(s.samples, [&](int i) {
    SampleRoom room(w.scratch, o.vocab);
    const float* logits = o.logits + int64_t(i) * o.logits_stride;
    bool finite, given = s.target[i] >= 0;
    float top = scan(logits, o.vocab, room.maxima, &finite);
    int token = given ? s.target[i] : 0;
    if (finite && !given) finite = choose(logits, o.vocab, top, s, i, room, &token);
    c.status[i] = !finite;
    c.tokens[i] = token;
    if (!given) c.relay[s.relay_slot[s.seq[s.sample_row[i]]]] = token;
    report(logits, o.vocab, top, token, finite ? s.top_logprobs[i] : -1, room,
           {c.logprobs + i, c.ranks + i, c.top_ids + i * kMaxTop, c.top_logprobs + i * kMaxTop});
  });
  w.sync();
}

void run_op(const DrutOp* op, const DrutContext& c, Worker& w) {
  switch (op->code) {
    case kEmbed: return embed(*reinterpret_cast<const DrutEmbed*>(op), c, w);
    case kRopeTable: return rope_table(*reinterpret_cast<const DrutRopeTable*>(op), c, w);
    case kQkv: return qkv(*reinterpret_cast<const DrutQkv*>(op), c, w);
    case kAttention: return attention(*reinterpret_cast<const DrutAttention*>(op), c, w);
    case kProject: return project(*reinterpret_cast<const DrutProject*>(op), c, w);
    case kGateUp: return gate_up(*reinterpret_cast<const DrutGateUp*>(op), c, w);
    case kHead: return head(*reinterpret_cast<const DrutHead*>(op), c, w);
    case kSample: return sample(*reinterpret_cast<const DrutSample*>(op), c, w);
    default: return w.sync();
  }
}

int64_t worker_scratch_bytes(int k, int vocab) {
  int64_t acts = kPrivateRows * act_row_bytes(k) + kPrivateRows * int64_t(k) * 4;
  int64_t combos = kMaxCombos * int64_t(sizeof(Combo)), picks = sample_scratch_bytes(vocab), most = acts;
  if (combos > most) most = combos;
  if (picks > most) most = picks;
  return (most + 4095) & ~int64_t(4095);
}

int64_t shared_act_row_bytes(int k) { return act_row_bytes(k) + int64_t(k) * 4; }

}  // namespace
