// The inputs of the first layer: embedding rows of the tokens, and the rope tables of their positions.
#pragma once
#include "base/common.h"
#include "matmul/matrix_ops.h"

struct DrutEmbed {
  DrutOp op;
  const DrutMatrix* table;
  float* x;  // (rows, stride)
  int32_t stride;
  float scale;
};
DRUT_LAYOUT(DrutEmbed, FIELD(op), FIELD(table), FIELD(x), FIELD(stride), FIELD(scale));

struct DrutRopeTable {
  DrutOp op;
  const double* inv_freq;  // (half)
  float* table;            // (rows, 2*half): cosines, then sines
  int32_t half;
  float scale;
};
DRUT_LAYOUT(DrutRopeTable, FIELD(op), FIELD(inv_freq), FIELD(table), FIELD(half), FIELD(scale));

namespace {

void embed(const DrutEmbed& o, const DrutContext& c, Worker& w) {
  Step s(c.step);
  w.parallel_for(s.rows, [&](int r) {
    int token = s.token[r] >= 0 ? s.token[r] : c.relay[s.relay_slot[s.seq[r]]];
    float* x = o.x + int64_t(r) * o.stride;
    unpack_row(*o.table, token, x);
    for (int n = 0; o.scale != 1.0f && n < o.stride; n += 16) vstore(x + n, vmul(vload(x + n), vset(o.scale)));
  });
  w.barrier();
}

void rope_table(const DrutRopeTable& o, const DrutContext& c, Worker& w) {
  Step s(c.step);
  w.parallel_for(s.rows, [&](int r) {
    float* t = o.table + int64_t(r) * 2 * o.half;
    for (int i = 0; i < o.half; ++i) {
      double sine, cosine;
      num::sincos(double(s.position[r]) * o.inv_freq[i], &sine, &cosine);
      t[i] = float(cosine) * o.scale;
      t[o.half + i] = float(sine) * o.scale;
    }
  });
  w.barrier();
}

}  // namespace
