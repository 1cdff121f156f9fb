// Experts as a grouped matrix product: an expert's rows in a step are one product, so each used expert is read once.
#pragma once
#include "matmul/matrix_ops.h"

struct DrutExpertsGateUp {  // out[pair] = activation(norm(x) . gate, norm(x) . up)
  DrutOp op;
  const float* x;
  DrutNorm norm;
  const DrutMatrix* gate;  // (experts), all alike
  const DrutMatrix* up;
  const DrutRoutes* routes;
  float* out;  // (rows * top_k, out_stride)
  int32_t width, stride, out_stride, out_form, activation, reserved;
};
DRUT_LAYOUT(DrutExpertsGateUp, FIELD(op), FIELD(x), FIELD(norm), FIELD(gate), FIELD(up), FIELD(routes), FIELD(out),
            FIELD(width), FIELD(stride), FIELD(out_stride), FIELD(out_form), FIELD(activation), FIELD(reserved));

struct DrutExpertsDown {  // x[row] += sum of weight * (source[pair] . down), by rank
  DrutOp op;
  const float* source;
  const DrutMatrix* down;  // (experts), all alike
  const DrutRoutes* routes;
  float* x;
  int32_t in_stride, stride, in_form, reserved;
};
DRUT_LAYOUT(DrutExpertsDown, FIELD(op), FIELD(source), FIELD(down), FIELD(routes), FIELD(x), FIELD(in_stride),
            FIELD(stride), FIELD(in_form), FIELD(reserved));

namespace {

// The rows of one expert side by side: copied together as a worker comes to it, a lone row as it lies.
class ExpertRows {
 public:
  ExpertRows(const Acts& all, int forms, const DrutRoutes& routes, uint8_t* room) : all_(all), forms_(forms), routes_(routes), room_(room) {}
  // `first`: the expert's first row in what is returned.
  const Acts& of(int expert, int* first) {
    const int begin = routes_.first[expert], count = routes_.first[expert + 1] - begin;
    *first = count == 1 ? routes_.row[begin] : 0;
    if (count == 1) return all_;
    if (expert != held_) gather(routes_.row + begin, count);
    held_ = expert;
    return copy_;
  }

 private:
  void gather(const int32_t* rows, int count) {
    uint8_t* to = room_;
    auto take = [&](const void* from, int64_t stride, int64_t bytes, bool wanted) -> uint8_t* {
      if (!wanted) return nullptr;
      uint8_t* begin = to;
      for (int i = 0; i < count; ++i, to += bytes) memcpy(to, static_cast<const uint8_t*>(from) + rows[i] * stride, bytes);
      return begin;
    };
    const int k = all_.k;
    const int64_t groups = int64_t(k / kGroup) * sizeof(ActGroup);
    copy_.groups = reinterpret_cast<const ActGroup*>(take(all_.groups, groups, groups, forms_ & kInt8));
    copy_.brains = reinterpret_cast<const float*>(take(all_.brains, int64_t(k) * 4, int64_t(k) * 4, forms_ & kBrain));
    copy_.floats = reinterpret_cast<const float*>(take(all_.floats, int64_t(all_.float_stride) * 4, int64_t(k) * 4, forms_ & kFloat));
    copy_.k = copy_.float_stride = k;
  }

  const Acts& all_;
  const int forms_;
  const DrutRoutes& routes_;
  uint8_t* const room_;
  Acts copy_{};
  int held_ = -1;
};

// Which experts have rows is not known before they are routed.
template <class Struct> ReadAhead first_of_experts(const Worker&, const Struct&) { return {}; }

// out[pair] = activation(norm(x) . gate, norm(x) . up) of the pair's expert.
void experts_gate_up(const DrutExpertsGateUp& o, const DrutContext& c, Worker& w) {
  Step s(c.step);
  const DrutRoutes& t = *o.routes;
  const int forms = form_of(o.gate) | form_of(o.up), k = o.gate->k, each = panels(*o.gate);
  Acts all = prepare(w, c, forms, o.x, o.stride, k, o.norm, o.width, nullptr, s.rows, identity);
  ExpertRows rows_of(all, forms, t, w.scratch + private_bytes(k));
  w.share_runs(t.used_count * each, [&](int from, int to) {
    for (int i = from; i < to; ++i) {
      const int e = t.used[i / each], p = i % each, pair = t.first[e], count = t.first[e + 1] - pair;
      const DrutMatrix &gate = o.gate[e], &up = o.up[e];
      const int e2 = i + 1 < to ? t.used[(i + 1) / each] : -1, p2 = (i + 1) % each;
      const uint8_t *next_gate = e2 < 0 ? nullptr : panel(o.gate[e2], p2), *next_up = e2 < 0 ? nullptr : panel(o.up[e2], p2);
      int first;
      const Acts& a = rows_of.of(e, &first);
      for (int begin = 0; begin < count; begin += kRowBlock) {
        const int end = begin + kRowBlock < count ? begin + kRowBlock : count;
        const bool last = end == count;
        Tile y, z;
        multiply(gate, p, a, first + begin, end - begin, last ? next_gate : nullptr, y.of);
        multiply(up, p, a, first + begin, end - begin, last ? next_up : nullptr, z.of);
        for (int row = begin, at = 0; row < end; ++row, at += kPanel) {
          activate(o.activation, y.of + at, z.of + at);
          hand_over(o.out, o.out_stride, o.out_form, pair + row, p, y.of + at);
        }
      }
    }
  });
  w.sync();
}

constexpr int kDownSpan = 4;  // panels of outputs that a worker takes together: an expert's rows are read once for them

// x[row] += sum of weight * (source[pair] . down of the pair's expert), in rank order.
void experts_down(const DrutExpertsDown& o, const DrutContext& c, Worker& w) {
  Step s(c.step);
  const DrutRoutes& t = *o.routes;
  const int pairs = s.rows * t.top_k, all = panels(*o.down), share = all / (4 * w.count);
  const int span = share < 1 ? 1 : share < kDownSpan ? share : kDownSpan;
  const Acts a = handed_over(o.source, o.down->k, o.in_form);
  float* tiles = reinterpret_cast<float*>(w.scratch);  // (span, pairs, 32)
  w.share(
      (all + span - 1) / span, [&](int unit) {
        const int first = unit * span, end = first + span < all ? first + span : all;
        for (int u = 0; u < t.used_count; ++u) {
          const int e = t.used[u], from = t.first[e], to = t.first[e + 1];
          const DrutMatrix& m = o.down[e];
          for (int begin = from; begin < to; begin += kRowBlock) {
            const int stop = begin + kRowBlock < to ? begin + kRowBlock : to;
            for (int p = first; p < end; ++p) {
              const uint8_t* next = p + 1 < end ? panel(m, p + 1) : stop < to ? nullptr : u + 1 < t.used_count ? panel(o.down[t.used[u + 1]], first) : nullptr;
              multiply(m, p, a, begin, stop - begin, next, tiles + (int64_t(p - first) * pairs + begin) * kPanel);
            }
          }
        }
        for (int r = 0; r < s.rows; ++r)
          for (int p = first; p < end; ++p)
            for (int n = 0; n < kPanel; n += 16) {
              V sum = vset(0.0f);
              for (int j = r * t.top_k; j < (r + 1) * t.top_k; ++j)
                sum = vfma(vset(t.weight[j]), vload(tiles + (int64_t(p - first) * pairs + t.place[j]) * kPanel + n), sum);
              float* x = o.x + int64_t(r) * o.stride + p * kPanel + n;
              vstore(x, vadd(vload(x), sum));
            }
      });
  w.sync();
}

}  // namespace
