// The router: chooses the experts of each row and their weights, and sorts the rows by expert.
#pragma once
#include "matmul/matrix_ops.h"

struct DrutRoute {
  DrutOp op;
  const float* x;
  DrutNorm norm;
  const DrutMatrix* weight;
  const float* score_bias;   // (experts): added to scores for the choice only (e_score_correction_bias), or null
  const float* shared_gate;  // (width) or null
  float* logits;             // (rows, logits_stride)
  DrutRoutes* routes;
  int64_t* loads;       // (experts): rows since the start
  int32_t* used_count;  // number of experts with rows in this step
  int32_t width, stride, logits_stride, sigmoid, normalize, groups, kept_groups;
  float scale;
};
DRUT_LAYOUT(DrutRoute, FIELD(op), FIELD(x), FIELD(norm), FIELD(weight), FIELD(score_bias), FIELD(shared_gate),
            FIELD(logits), FIELD(routes), FIELD(loads), FIELD(used_count), FIELD(width), FIELD(stride),
            FIELD(logits_stride), FIELD(sigmoid), FIELD(normalize), FIELD(groups), FIELD(kept_groups), FIELD(scale));

namespace {

// Keeps the `room` largest values offered, in descending order. Ids must be offered ascending, so that ties keep the
// lower id. NaN counts as -inf.
struct TopK {
  int32_t* ids;
  const int room;
  int count = 0;
  float values[kMaxExperts];
  TopK(int32_t* ids, int room) : ids(ids), room(room) {}
  void offer(int id, float value) {
    if (!(value == value)) value = -__builtin_inff();
    if (count == room && !(value > values[count - 1])) return;
    int at = count < room ? count++ : count - 1;
    for (; at > 0 && value > values[at - 1]; --at) {
      values[at] = values[at - 1];
      ids[at] = ids[at - 1];
    }
    values[at] = value;
    ids[at] = id;
  }
};

// Offers the experts of the `kept` groups that have the largest sums of their two largest values.
void offer_by_group(const float* values, int experts, int groups, int kept, TopK& best) {
  const int each = experts / groups;
  int32_t chosen[kMaxExperts], pair[2];
  TopK of_groups(chosen, kept);
  for (int g = 0; g < groups; ++g) {
    TopK two(pair, 2);
    for (int i = 0; i < each; ++i) two.offer(i, values[g * each + i]);
    of_groups.offer(g, two.count == 2 ? two.values[0] + two.values[1] : two.values[0]);
  }
  bool in[kMaxExperts] = {};
  for (int i = 0; i < of_groups.count; ++i) in[chosen[i]] = true;
  for (int i = 0; i < experts; ++i)
    if (in[i / each]) best.offer(i, values[i]);
}

// The expert ids of one row in rank order, and their weights. `logits` has space for whole panels and is overwritten.
void choose_experts(const DrutRoute& o, float* logits, int32_t* ids, float* weights) {
  const int experts = o.routes->experts, top_k = o.routes->top_k;
  alignas(64) float scores[kMaxExperts];
  const float* values = logits;
  if (o.sigmoid) {
    const V one = vset(1.0f);
    for (int i = 0; i < experts; i += 16) vstore(scores + i, vdiv(one, vadd(one, vexp(vsub(vset(0.0f), vload(logits + i))))));
    for (int i = 0; i < experts; ++i) logits[i] = o.score_bias ? scores[i] + o.score_bias[i] : scores[i];
  }
  TopK best(ids, top_k);
  if (o.groups > 1) offer_by_group(values, experts, o.groups, o.kept_groups, best);
  else for (int i = 0; i < experts; ++i) best.offer(i, values[i]);
  if (!o.sigmoid) {
    float top = logits[0];
    for (int i = 1; i < experts; ++i) top = logits[i] > top ? logits[i] : top;
    for (int i = 0; i < experts; i += 16) vstore(scores + i, vexp(vsub(vload(logits + i), vset(top))));
  }
  float total = o.sigmoid ? 1e-20f : 0.0f;
  if (o.normalize) {
    for (int j = 0; j < top_k; ++j) total = total + scores[ids[j]];
  } else if (o.sigmoid) {
    total = 1.0f;
  } else {
    V sum = vset(0.0f);
    for (int i = experts; i % 16; ++i) scores[i] = 0.0f;
    for (int i = 0; i < experts; i += 16) sum = vadd(sum, vload(scores + i));
    total = vsum(sum);
  }
  for (int j = 0; j < top_k; ++j) weights[j] = scores[ids[j]] / total * o.scale;
}

// Sigmoid of the dot product of a row with the shared expert's gate, summed in 16 lanes.
inline float shared_weight(const float* row, const float* gate, int k) {
  V sum = vset(0.0f);
  for (int i = 0; i < k; i += 16) sum = vfma(vload(row + i), vload(gate + i), sum);
  return 1.0f / (1.0f + sexp(0.0f - vsum(sum)));
}

// Sorts the pairs by expert, then by row.
void sort_pairs(const DrutRoute& o, int rows) {
  DrutRoutes& t = *o.routes;
  const int pairs = rows * t.top_k;
  for (int e = 0; e <= t.experts; ++e) t.first[e] = 0;
  for (int i = 0; i < pairs; ++i) ++t.first[t.expert[i] + 1];
  t.used_count = 0;
  for (int e = 0; e < t.experts; ++e) {
    if (t.first[e + 1]) t.used[t.used_count++] = e;
    o.loads[e] += t.first[e + 1];
    t.first[e + 1] += t.first[e];
  }
  *o.used_count = t.used_count;
  int32_t next[kMaxExperts];
  for (int e = 0; e < t.experts; ++e) next[e] = t.first[e];
  for (int i = 0; i < pairs; ++i) {
    t.pair_index[i] = next[t.expert[i]]++;
    t.row[t.pair_index[i]] = i / t.top_k;
  }
}

void route(const DrutRoute& o, const DrutContext& c, Worker& w) {
  Step s(c.step);
  DrutRoutes& t = *o.routes;
  Acts a = prepare(w, c, activation_format(o.weight), o.x, o.stride, o.weight->k, o.norm, o.width, nullptr, s.rows, identity);
  parallel_matrix(w, panels(*o.weight), s.rows, [&](int p, int begin, int end, bool next) {
    Tile tile;
    multiply(*o.weight, p, a, begin, end - begin, next_panel(*o.weight, p, next), tile.of);
    const float* from = tile.of;
    for (int row = begin; row < end; ++row, from += kPanel) memcpy(o.logits + int64_t(row) * o.logits_stride + p * kPanel, from, kPanel * 4);
  });
  w.barrier();
  w.parallel_for(s.rows, [&](int r) {
    choose_experts(o, o.logits + int64_t(r) * o.logits_stride, t.expert + r * t.top_k, t.weight + r * t.top_k);
    if (o.shared_gate) t.shared[r] = shared_weight(a.floats + int64_t(r) * a.float_stride, o.shared_gate, a.k);
  });
  w.barrier();
  if (w.id == 0) sort_pairs(o, s.rows);
  w.barrier();
}

}  // namespace
