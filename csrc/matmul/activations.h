// Rows on their way into a matrix: normalised, and in the forms the weights' kinds take.
#pragma once
#include "base/abi.h"
#include "base/pool.h"
#include "simd/simd.h"

namespace {

// 32 activations as int8 with what the kernels fold in: the scale, scale * sum, and minus the sum for zero points;
// also of each half, for weights with a scale for 16 elements.
struct alignas(64) ActGroup {
  int8_t q[32];
  float scale, scaled_sum;
  int32_t zero8, zero128;  // -8 * sum, -128 * sum unless idot8 takes that off
  int32_t minus_half[2];   // minus the sum of each half
  float scaled_half[2];
};

// What idot8 takes each code of 8 bits to have too much.
#if defined(DRUT_CENTRED_CODES)
constexpr int kCodeZero = 0;
#else
constexpr int kCodeZero = 128;
#endif

inline int form_of(const DrutMatrix* m) {
  return m->kind == kF32 || m->kind == kF16 || m->kind == kFP8 ? kFloat : m->kind == kBF16 ? kBrain : kInt8;
}

// Rows of k (a multiple of 32) activations. A form not asked for is null.
struct Acts {
  const ActGroup* groups;  // (rows, k/32)
  const float* floats;     // (rows, float_stride)
  const float* brains;     // (rows, k): rounded to bf16
  int k, float_stride;
};

inline int64_t act_row_bytes(int k) { return int64_t(k / kGroup) * sizeof(ActGroup) + int64_t(k) * 8; }

inline void quantize_group(const float* x, ActGroup* out) {
  V a = vload(x), b = vload(x + 16);
  float amax = num::from_bits(uint32_t(imaximum(imax(as_int(vabs(a)), as_int(vabs(b))))));  // a NaN is the largest
  float inverse = amax > 0 ? 127.0f / amax : 0.0f;
  store_int8(out->q, vmul(a, vset(inverse)));
  store_int8(out->q + 16, vmul(b, vset(inverse)));
  out->scale = amax * (1.0f / 127.0f);
  int low = byte_sum(out->q), high = byte_sum(out->q + 16), sum = low + high;
  out->minus_half[0] = -low;
  out->minus_half[1] = -high;
  out->scaled_half[0] = float(low) * out->scale;
  out->scaled_half[1] = float(high) * out->scale;
  out->scaled_sum = float(sum) * out->scale;
  out->zero8 = -8 * sum;
  out->zero128 = -kCodeZero * sum;
}

// out = x / rms(x) * weight over `width` elements; the padding to k stays zero because weight is zero there.
inline void rms_norm(const float* x, const DrutNorm& n, int width, int k, float* out) {
  V sum = vset(0.0f);
  for (int i = 0; i < k; i += 16) sum = vfma(vload(x + i), vload(x + i), sum);
  V inverse = vset(1.0f / __builtin_sqrtf(vsum(sum) / float(width) + n.eps));
  for (int i = 0; i < k; i += 16) vstore(out + i, vmul(vmul(vload(x + i), inverse), vload(n.weight + i)));
}

// out = (x - mean) / sqrt(variance + eps) * weight + bias.
inline void layer_norm(const float* x, const DrutNorm& n, int width, int k, float* out) {
  V sum = vset(0.0f), squares = vset(0.0f);
  for (int i = 0; i < k; i += 16) sum = vadd(sum, vload(x + i));
  const V mean = vset(vsum(sum) / float(width));
  for (int i = 0; i < k; i += 16) {
    const V d = vselect_first(width - i, vsub(vload(x + i), mean), vset(0.0f));
    squares = vfma(d, d, squares);
    vstore(out + i, d);
  }
  const V inverse = vset(1.0f / __builtin_sqrtf(vsum(squares) / float(width) + n.eps));
  for (int i = 0; i < k; i += 16) {
    const V y = vmul(vmul(vload(out + i), inverse), vload(n.weight + i));
    vstore(out + i, n.bias ? vadd(y, vload(n.bias + i)) : y);
  }
}

// x may be out.
inline void normalize(const float* x, const DrutNorm& n, int width, int k, float* out) {
  if (n.centred) layer_norm(x, n, width, k, out);
  else rms_norm(x, n, width, k, out);
}

constexpr DrutNorm kNoNorm{};

// One prepared row, written to `row` of the buffers behind a.
inline void prepare_row(const Acts& a, int forms, const float* x, const DrutNorm& norm, int width, const int32_t* order, int row) {
  const float* y = x;
  if (norm.weight) {
    float* out = const_cast<float*>(a.floats) + int64_t(row) * a.float_stride;
    normalize(x, norm, width, a.k, out);
    y = out;
  }
  if (order) {  // such matrices take nothing but int8, so the room for bf16 is free
    float* ordered = const_cast<float*>(a.brains) + int64_t(row) * a.k;
    for (int i = 0; i < a.k; ++i) ordered[i] = y[order[i]];
    y = ordered;
  }
  if (forms & kInt8) {
    ActGroup* g = const_cast<ActGroup*>(a.groups) + int64_t(row) * (a.k / kGroup);
    for (int i = 0; i < a.k; i += kGroup) quantize_group(y + i, g + i / kGroup);
  }
  if (forms & kBrain) {
    float* b = const_cast<float*>(a.brains) + int64_t(row) * a.k;
    for (int i = 0; i < a.k; i += 16) brain_store(b, i, vround_bf16(vload(y + i)));
  }
}

// Rows that one operation hands to the next as the next one's matrix takes them: `form` is kFloat, or kInt8 for groups
// in the same memory, or kBrain. Group g of a row is its elements from 32 g on.
inline void hand_over(float* out, int stride, int form, int row, int g, const float* x) {
  float* to = out + int64_t(row) * stride;
  if (form == kInt8) {
    quantize_group(x, reinterpret_cast<ActGroup*>(out) + int64_t(row) * (stride / kGroup) + g);
  } else if (form == kBrain) {
    for (int i = 0; i < kGroup; i += 16) brain_store(to, g * kGroup + i, vround_bf16(vload(x + i)));
  } else {
    memcpy(to + g * kGroup, x, kGroup * 4);
  }
}
// Rows of k, as they were handed over.
inline Acts handed_over(const float* in, int k, int form) {
  return {form == kInt8 ? reinterpret_cast<const ActGroup*>(in) : nullptr, form == kFloat ? in : nullptr, form == kBrain ? in : nullptr, k, k};
}

// Few rows: each worker prepares them for itself, which is cheaper than meeting the others.
constexpr int kPrivateRows = 4;
inline int64_t private_bytes(int k) { return kPrivateRows * (act_row_bytes(k) + int64_t(k) * 4); }

// Rows of x (row_of(i) says which) as activations in `forms`, in the order that all matrices reading them take. Ends in
// sync() where rows are shared.
template <class RowOf>
Acts prepare(Worker& w, const DrutContext& c, int forms, const float* x, int stride, int k, const DrutNorm& norm, int width,
             const int32_t* order, int rows, RowOf row_of) {
  bool own = rows <= kPrivateRows;
  uint8_t* base = own ? w.scratch : c.acts;
  Acts a;
  a.k = k;
  a.groups = reinterpret_cast<const ActGroup*>(base);
  base += int64_t(rows) * (k / kGroup) * sizeof(ActGroup);
  a.brains = reinterpret_cast<const float*>(base);
  base += int64_t(rows) * k * 4;
  a.floats = norm.weight ? reinterpret_cast<const float*>(base) : x;
  a.float_stride = norm.weight ? k : stride;
  auto one = [&](int i) { prepare_row(a, forms, x + int64_t(row_of(i)) * stride, norm, width, order, i); };
  if (own) {
    for (int i = 0; i < rows; ++i) one(i);
  } else {
    w.share(rows, one);
    w.sync();
  }
  return a;
}

}  // namespace
