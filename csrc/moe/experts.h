// Experts as a grouped matrix product: all rows of an expert in a step are one product, so each used expert is read
// once.
#pragma once
#include "matmul/matrix_ops.h"

struct DrutExpertsGateUp {  // out[pair] = activation(norm(x) . gate, norm(x) . up)
  DrutOp op;
  const float* x;
  DrutNorm norm;
  const DrutMatrix* gate;  // (experts), all of the same layout
  const DrutMatrix* up;
  const DrutRoutes* routes;
  float* out;  // (rows * top_k, out_stride)
  int32_t width, stride, out_stride, out_format, activation, reserved;
};
DRUT_LAYOUT(DrutExpertsGateUp, FIELD(op), FIELD(x), FIELD(norm), FIELD(gate), FIELD(up), FIELD(routes), FIELD(out),
            FIELD(width), FIELD(stride), FIELD(out_stride), FIELD(out_format), FIELD(activation), FIELD(reserved));

struct DrutExpertsDown {  // x[row] += sum of weight * (source[pair] . down), in rank order
  DrutOp op;
  const float* source;
  const DrutMatrix* down;  // (experts), all of the same layout
  const DrutRoutes* routes;
  float* x;
  int32_t in_stride, stride, in_format, reserved;
};
DRUT_LAYOUT(DrutExpertsDown, FIELD(op), FIELD(source), FIELD(down), FIELD(routes), FIELD(x), FIELD(in_stride),
            FIELD(stride), FIELD(in_format), FIELD(reserved));

namespace {

// Gathers the rows of one expert into contiguous memory when a worker comes to it. A single row is used in place.
class ExpertRows {
 public:
  ExpertRows(const Acts& all, int formats, const DrutRoutes& routes, uint8_t* scratch) : all_(all), formats_(formats), routes_(routes), scratch_(scratch) {}
  // `first`: index of the expert's first row in the returned activations, which are valid until the next call.
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
    uint8_t* to = scratch_;
    auto take = [&](const void* from, int64_t stride, int64_t bytes, bool wanted) -> uint8_t* {
      if (!wanted) return nullptr;
      uint8_t* begin = to;
      for (int i = 0; i < count; ++i, to += bytes) memcpy(to, static_cast<const uint8_t*>(from) + rows[i] * stride, bytes);
      return begin;
    };
    const int k = all_.k;
    const int64_t groups = int64_t(k / kGroup) * sizeof(ActGroup);
    copy_.groups = reinterpret_cast<const ActGroup*>(take(all_.groups, groups, groups, formats_ & kActInt8));
    copy_.wide = reinterpret_cast<const ActGroup*>(take(all_.wide, groups, groups, formats_ & kActWide));
    copy_.bf16 = reinterpret_cast<const float*>(take(all_.bf16, int64_t(k) * 4, int64_t(k) * 4, formats_ & kActBf16));
    copy_.floats = reinterpret_cast<const float*>(take(all_.floats, int64_t(all_.float_stride) * 4, int64_t(k) * 4, formats_ & kActFloat));
    copy_.k = copy_.float_stride = k;
  }

  const Acts& all_;
  const int formats_;
  const DrutRoutes& routes_;
  uint8_t* const scratch_;
  Acts copy_{};
  int held_ = -1;
};

// No prefetch: the experts of the rows are not known before routing.
template <class Struct> Prefetch prefetch_of_experts(const Worker&, const Struct&) { return {}; }

// out[pair] = activation(norm(x) . gate, norm(x) . up) with the matrices of the pair's expert.
void experts_gate_up(const DrutExpertsGateUp& o, const DrutContext& c, Worker& w) {
  Step s(c.step);
  const DrutRoutes& t = *o.routes;
  const int formats = activation_format(o.gate) | activation_format(o.up), k = o.gate->k;
  const int all = panels(*o.gate), span = groups_at_once(o.out_format), each = (all + span - 1) / span;
  Acts rows = prepare(w, c, formats, o.x, o.stride, k, o.norm, o.width, nullptr, s.rows, identity);
  ExpertRows rows_of(rows, formats, t, w.scratch + private_bytes(k));
  w.parallel_ranges(t.used_count * each, [&](int from, int to) {
    for (int i = from; i < to; ++i) {
      const int e = t.used[i / each], from_panel = i % each * span, pair = t.first[e], count = t.first[e + 1] - pair;
      const int stop = from_panel + span < all ? from_panel + span : all;
      const DrutMatrix &gate = o.gate[e], &up = o.up[e];
      const int e2 = i + 1 < to ? t.used[(i + 1) / each] : -1, p2 = (i + 1) % each * span;
      const uint8_t *next_gate = e2 < 0 ? nullptr : panel(o.gate[e2], p2), *next_up = e2 < 0 ? nullptr : panel(o.up[e2], p2);
      int first;
      const Acts& a = rows_of.of(e, &first);
      for (int begin = 0; begin < count; begin += kRowBlock) {
        const int end = begin + kRowBlock < count ? begin + kRowBlock : count;
        const bool last = end == count;
        Tile y[2], z;
        for (int p = from_panel; p < stop; ++p) {
          const bool ahead = last && p + 1 == stop;
          float* of = y[p - from_panel].of;
          multiply(gate, p, a, first + begin, end - begin, ahead ? next_gate : nullptr, of);
          multiply(up, p, a, first + begin, end - begin, ahead ? next_up : nullptr, z.of);
          for (int at = 0; at < (end - begin) * kPanel; at += kPanel) activate(o.activation, of + at, z.of + at);
        }
        for (int row = begin, at = 0; row < end; ++row, at += kPanel)
          store_activations(o.out, o.out_stride, o.out_format, pair + row, from_panel, y[0].of + at, stop - from_panel == 2 ? y[1].of + at : nullptr);
      }
    }
  });
  w.barrier();
}

constexpr int kDownSpan = 4;  // maximum of output panels per unit: the rows of an expert are read once for them

// x[row] += sum of weight * (source[pair] . down of the pair's expert), in rank order.
void experts_down(const DrutExpertsDown& o, const DrutContext& c, Worker& w) {
  Step s(c.step);
  const DrutRoutes& t = *o.routes;
  const int pairs = s.rows * t.top_k, all = panels(*o.down), share = all / (4 * w.count);
  const int span = share < 1 ? 1 : share < kDownSpan ? share : kDownSpan;
  const Acts a = stored_activations(o.source, o.down->k, o.in_format);
  float* tiles = reinterpret_cast<float*>(w.scratch);  // (span, pairs, 32)
  w.parallel_for(
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
                sum = vfma(vset(t.weight[j]), vload(tiles + (int64_t(p - first) * pairs + t.pair_index[j]) * kPanel + n), sum);
              float* x = o.x + int64_t(r) * o.stride + p * kPanel + n;
              vstore(x, vadd(vload(x), sum));
            }
      });
  w.barrier();
}

}  // namespace
