// Prepares rows for a matrix: normalizes them, and converts them to the activation formats of the weight kinds.
#pragma once
#include "base/abi.h"
#include "base/pool.h"
#include "simd/simd.h"
#include "weights/kinds.h"

namespace {

// 32 activations quantized to int8, with the values that the kernels need: the scale, scale * sum, and minus the sum
// for zero points; the same for each half, for weights with one scale per 16 elements.
struct alignas(64) ActGroup {
  int8_t q[32];
  float scale, scaled_sum;
  int32_t zero8, zero128;  // -8 * sum; -128 * sum, or 0 if idot8 subtracts 128 itself
  int32_t minus_half[2];   // minus the sum of each half
  float scaled_half[2];
#if defined(DRUT_NARROW_DOTS)
  int16_t words[32];  // q as code_pairs has its elements: 0, 2, 1, 3, 4, 6, 5, 7, ...
#endif
};
static_assert(sizeof(ActGroup) <= kGroup * sizeof(float), "stored groups fit in a buffer of floats");

// Zero point that remains in 8-bit codes after idot8.
#if defined(DRUT_CENTRED_CODES)
constexpr int kCodeZero = 0;
#else
constexpr int kCodeZero = 128;
#endif

inline int activation_format(const DrutMatrix* m) {
  if (m->kind == kF32 || m->kind == kF16 || m->kind == kFP8) return kActFloat;
  return m->kind == kBF16 ? kActBf16 : scaled_by_row(*m) ? kActWide : kActInt8;
}

// Rows of k activations, k a multiple of 32, in one or more formats. Formats that are not needed are null.
struct Acts {
  const ActGroup* groups;  // (rows, k/32)
  const ActGroup* wide;    // (rows, k/32): pairs of groups have one scale
  const float* floats;     // (rows, float_stride)
  const float* bf16;       // (rows, k): rounded to bf16
  int k, float_stride;
};

inline int64_t act_row_bytes(int k) { return int64_t(k / kGroup) * 2 * sizeof(ActGroup) + int64_t(k) * 8; }

inline I largest_bits(const float* x) { return imax(as_int(vabs(vload(x))), as_int(vabs(vload(x + 16)))); }

// Quantizes a group whose scale is amax / 127.
inline void quantize_to(const float* x, float amax, ActGroup* out) {
  V a = vload(x), b = vload(x + 16);
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
#if defined(DRUT_NARROW_DOTS)
  store_quad_words(out->words, out->q);
#endif
}

inline void quantize_group(const float* x, ActGroup* out) {
  quantize_to(x, num::from_bits(uint32_t(imaximum(largest_bits(x)))), out);  // a NaN is the largest
}

// Two groups with one scale.
inline void quantize_pair(const float* x, ActGroup* out) {
  const float amax = num::from_bits(uint32_t(imaximum(imax(largest_bits(x), largest_bits(x + kGroup)))));
  quantize_to(x, amax, out);
  quantize_to(x + kGroup, amax, out + 1);
}

// out = x / rms(x) * weight over `width` elements. The padding up to k stays zero because weight is zero there.
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

// x and out may be the same.
inline void normalize(const float* x, const DrutNorm& n, int width, int k, float* out) {
  if (n.subtract_mean) layer_norm(x, n, width, k, out);
  else rms_norm(x, n, width, k, out);
}

constexpr DrutNorm kNoNorm{};

// Prepares one row into `row` of the buffers of a. The buffers are written although Acts has const pointers.
inline void prepare_row(const Acts& a, int formats, const float* x, const DrutNorm& norm, int width, const int32_t* order, int row) {
  const float* y = x;
  if (norm.weight) {
    float* out = const_cast<float*>(a.floats) + int64_t(row) * a.float_stride;
    normalize(x, norm, width, a.k, out);
    y = out;
  }
  if (order) {  // such matrices read only int8, so the memory for bf16 is free
    float* ordered = const_cast<float*>(a.bf16) + int64_t(row) * a.k;
    for (int i = 0; i < a.k; ++i) ordered[i] = y[order[i]];
    y = ordered;
  }
  if (formats & kActInt8) {
    ActGroup* g = const_cast<ActGroup*>(a.groups) + int64_t(row) * (a.k / kGroup);
    for (int i = 0; i < a.k; i += kGroup) quantize_group(y + i, g + i / kGroup);
  }
  if (formats & kActWide) {
    ActGroup* g = const_cast<ActGroup*>(a.wide) + int64_t(row) * (a.k / kGroup);
    int i = 0;
    for (; i + kGroup < a.k; i += 2 * kGroup) quantize_pair(y + i, g + i / kGroup);
    if (i < a.k) quantize_group(y + i, g + i / kGroup);
  }
  if (formats & kActBf16) {
    float* b = const_cast<float*>(a.bf16) + int64_t(row) * a.k;
    for (int i = 0; i < a.k; i += 16) store_bf16(b, i, vround_bf16(vload(y + i)));
  }
}

// Groups that store_activations writes in one call, except for the last of a row.
inline int groups_at_once(int format) { return format == kActWide ? 2 : 1; }

// Writes group g (elements 32g to 32g+31) of a row in the format in which the next operation reads it: kActFloat,
// kActBf16, or kActInt8, which stores quantized groups in the same memory; for kActWide also group g + 1, `second`, if
// the row has it.
inline void store_activations(float* out, int stride, int format, int row, int g, const float* x, const float* second = nullptr) {
  float* to = out + int64_t(row) * stride;
  ActGroup* groups = reinterpret_cast<ActGroup*>(out) + int64_t(row) * (stride / kGroup) + g;
  if (second) {
    alignas(64) float both[2 * kGroup];
    memcpy(both, x, kGroup * 4);
    memcpy(both + kGroup, second, kGroup * 4);
    quantize_pair(both, groups);
  } else if (format == kActInt8 || format == kActWide) {
    quantize_group(x, groups);
  } else if (format == kActBf16) {
    for (int i = 0; i < kGroup; i += 16) store_bf16(to, g * kGroup + i, vround_bf16(vload(x + i)));
  } else {
    memcpy(to + g * kGroup, x, kGroup * 4);
  }
}
// Rows of k that store_activations wrote in this format.
inline Acts stored_activations(const float* in, int k, int format) {
  const ActGroup* groups = reinterpret_cast<const ActGroup*>(in);
  return {format == kActInt8 ? groups : nullptr, format == kActWide ? groups : nullptr, format == kActFloat ? in : nullptr, format == kActBf16 ? in : nullptr, k, k};
}

// Up to so many rows, each worker prepares all rows for itself: that costs less than a barrier.
constexpr int kPrivateRows = 4;
inline int64_t private_bytes(int k) { return kPrivateRows * (act_row_bytes(k) + int64_t(k) * 4); }

// Prepares `rows` rows of x (row i is row row_of(i) of x) in `formats`, with the column order that all matrices which
// read them share. With more than kPrivateRows rows the result is in c.acts and the call ends with a barrier; else it
// is in w.scratch. It is valid until the operation ends.
template <class RowOf>
Acts prepare(Worker& w, const DrutContext& c, int formats, const float* x, int stride, int k, const DrutNorm& norm, int width,
             const int32_t* order, int rows, RowOf row_of) {
  bool own = rows <= kPrivateRows;
  uint8_t* base = own ? w.scratch : c.acts;
  Acts a;
  a.k = k;
  a.groups = reinterpret_cast<const ActGroup*>(base);
  base += int64_t(rows) * (k / kGroup) * sizeof(ActGroup);
  a.wide = reinterpret_cast<const ActGroup*>(base);
  base += int64_t(rows) * (k / kGroup) * sizeof(ActGroup);
  a.bf16 = reinterpret_cast<const float*>(base);
  base += int64_t(rows) * k * 4;
  a.floats = norm.weight ? reinterpret_cast<const float*>(base) : x;
  a.float_stride = norm.weight ? k : stride;
  auto one = [&](int i) { prepare_row(a, formats, x + int64_t(row_of(i)) * stride, norm, width, order, i); };
  if (own) {
    for (int i = 0; i < rows; ++i) one(i);
  } else {
    w.parallel_for(rows, one);
    w.barrier();
  }
  return a;
}

}  // namespace
