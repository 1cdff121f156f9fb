// The operations of a plan. Each is walked by every worker and ends with a sync.
#pragma once
#include "attention_op.h"
#include "common.h"
#include "experts.h"
#include "logprobs.h"
#include "matrix_ops.h"
#include "qkv.h"
#include "routing.h"
#include "sampling.h"

namespace {

void embed(const DrutEmbed& o, const DrutContext& c, Worker& w) {
  Step s(c.step);
  w.share(s.rows, [&](int r) {
    int token = s.token[r] >= 0 ? s.token[r] : c.relay[s.relay_slot[s.seq[r]]];
    float* x = o.x + int64_t(r) * o.stride;
    unpack_row(*o.table, token, x);
    for (int n = 0; o.scale != 1.0f && n < o.stride; n += 16) vstore(x + n, vmul(vload(x + n), vset(o.scale)));
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

void sample(const DrutSample& o, const DrutContext& c, Worker& w) {
  Step s(c.step);
  w.share(c.chosen ? c.chosen_count : s.samples, [&](int which) {
    const int i = c.chosen ? c.chosen[which] : which;
    SampleRoom room(w.scratch, o.vocab);
    const float* logits = o.logits + int64_t(i) * o.logits_stride;
    bool finite, given = s.target[i] >= 0;
    float top = scan(logits, o.vocab, room.maxima, &finite);
    int token = given ? s.target[i] : 0;
    bool left = !finite || given || choose(logits, o.vocab, top, s, i, room, &token);
    c.status[i] = !finite ? 1 : left ? 0 : 2;
    c.tokens[i] = token;
    if (!given) c.relay[s.relay_slot[s.seq[s.sample_row[i]]]] = token;
    report(logits, o.vocab, top, token, c.status[i] ? -1 : s.top_logprobs[i], room,
           {c.logprobs + i, c.ranks + i, c.top_ids + i * kMaxTop, c.top_logprobs + i * kMaxTop});
  });
  w.sync();
}

// Where this worker begins in an operation that reads matrices, if its rows are one block.
ReadAhead look_ahead(const DrutOp* op, const DrutContext& c, const Worker& w) {
  if (w.count == 1 || Step(c.step).rows > kRowBlock) return {};
  switch (op->code) {
    case kQkv: return read_ahead_in_qkv(w, *reinterpret_cast<const DrutQkv*>(op));
    case kProject: {
      const DrutMatrix* m = reinterpret_cast<const DrutProject*>(op)->weight;
      return read_ahead_in(w, panels(*m), 1, m);
    }
    case kGateUp: {
      const DrutGateUp& o = *reinterpret_cast<const DrutGateUp*>(op);
      return read_ahead_in(w, panels(*o.up), 1, o.up, o.gate);
    }
    case kRoute: {
      const DrutMatrix* m = reinterpret_cast<const DrutRoute*>(op)->weight;
      return read_ahead_in(w, panels(*m), 1, m);
    }
    case kHead: {
      const DrutMatrix* m = reinterpret_cast<const DrutHead*>(op)->weight;
      return read_ahead_in(w, panels(*m), 1, m);
    }
    default: return {};
  }
}

void run_op(const DrutOp* op, const DrutOp* later, const DrutContext& c, Worker& w) {
  w.ahead = later ? look_ahead(later, c, w) : ReadAhead{};
  switch (op->code) {
    case kEmbed: return embed(*reinterpret_cast<const DrutEmbed*>(op), c, w);
    case kRopeTable: return rope_table(*reinterpret_cast<const DrutRopeTable*>(op), c, w);
    case kQkv: return qkv(*reinterpret_cast<const DrutQkv*>(op), c, w);
    case kAttention: return attention(*reinterpret_cast<const DrutAttention*>(op), c, w);
    case kProject: return project(*reinterpret_cast<const DrutProject*>(op), c, w);
    case kGateUp: return gate_up(*reinterpret_cast<const DrutGateUp*>(op), c, w);
    case kRoute: return route(*reinterpret_cast<const DrutRoute*>(op), c, w);
    case kExpertsGateUp: return experts_gate_up(*reinterpret_cast<const DrutExpertsGateUp*>(op), c, w);
    case kExpertsDown: return experts_down(*reinterpret_cast<const DrutExpertsDown*>(op), c, w);
    case kAdd: return add(*reinterpret_cast<const DrutAdd*>(op), c, w);
    case kNormalize: return normalize_rows(*reinterpret_cast<const DrutNormalize*>(op), c, w);
    case kStoreQkv: return store_qkv(*reinterpret_cast<const DrutQkv*>(op), c, w);
    case kActivate: return activate_rows(*reinterpret_cast<const DrutActivate*>(op), c, w);
    case kHead: return head(*reinterpret_cast<const DrutHead*>(op), c, w);
    case kSample: return sample(*reinterpret_cast<const DrutSample*>(op), c, w);
    default: return w.sync();
  }
}

// `rows`, `pairs`: of a step of experts, else 0.
int64_t worker_scratch_bytes(int k, int vocab, int rows, int pairs) {
  int64_t acts = private_bytes(k) + rows * act_row_bytes(k), tiles = int64_t(kDownSpan) * pairs * kPanel * 4;
  int64_t combos = kMaxCombos * int64_t(sizeof(Combo)), picks = sample_scratch_bytes(vocab), most = acts;
  if (combos > most) most = combos;
  if (tiles > most) most = tiles;
  if (picks > most) most = picks;
  return (most + 4095) & ~int64_t(4095);
}

int64_t shared_act_row_bytes(int k) { return act_row_bytes(k) + int64_t(k) * 4; }

}  // namespace
