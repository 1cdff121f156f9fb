// The packed formats of weights: the memory layout of a panel of 32 outputs, unit by unit along K.
//
// A unit of an integer kind is one group of 32 elements of K, or a super-block: a head and 8 groups.
//   head    per output f16 d (and f16 dmin); super-blocks only
//   group   512 B nibbles [4 octets of k][2 halves of 16 outputs][16][4 k]: low nibble k, high nibble k + 4
//           5 bits: 128 B [2 halves][16][4 k], bit q of a byte: fifth bit of quad q
//           6 bits: 256 B [2 halves][2][16][4 k], bits 2f and 2f+1 of byte [v]: bits 4 and 5 of quad 4v + f
//           8 bits: 1024 B [8 quads][2 halves][16][4 k] instead of nibbles, code + 128
//           then the scales: per output f16 scale (and f16 minimum), or u8 / i8 scales (and u8 minima), one of each
//           for every 32 or 16 elements; or the exponent byte of E8M0
//   F32     [32 k][32 outputs]   F16 the same   BF16 [16 pairs of k][32 outputs][2]
//
// Kinds with variable units: a unit is the group that shares a scale, of a size that the file defines, or a whole row.
//   head    per output a scale (f16, bf16 or f32); with zero points, per output an int8 relative to the middle code
//   W4      groups of 512 B nibbles as above
//   W8      groups of 1024 B
//   FP8     (E4M3) groups [16 pairs of k][32 outputs][2]
//   NVFP4   the unit is a row: head f32, then groups of 512 B nibbles and 64 B E4M3, one for every 16 elements
// E4M3 values are used times 2^-8 and E2M1 values times 2 (docs/numerics.md); the f32 of NVFP4 is stored times 2^7.
#pragma once
#include "base/abi.h"

namespace {

enum class Scale { kHalf, kSuper, kExponent, kGroup, kE4M3, kFloat, kRow };

// How codes are stored: as weights are packed; one byte each, in the order of 8-bit codes; or as 16-bit integers, [8
// quads][even, odd][2 halves of 16 outputs][16][elements 0 and 2 of the quad, or 1 and 3].
enum Storage { kPacked, kBytes, kWords };

struct Kind {
  int bits;         // bits per code: 4, 5, 6 or 8
  int zero;         // zero point, subtracted from the code
  int parts;        // scales per group of 32: 1, or 2 for 16 elements each
  Scale scale;
  bool minimum;
  int table;        // 0 none, 1 IQ4_NL, 2 E2M1; entries are stored + 128, so zero is 128
  int file_block;   // elements and bytes per block of the file
  int file_bytes;
  Storage storage = kPacked;

  constexpr int groups() const { return scale == Scale::kSuper ? 8 : 1; }
  constexpr bool variable_units() const { return scale == Scale::kGroup || scale == Scale::kE4M3; }  // see Layout
  constexpr bool wide_codes() const { return bits == 8 || table; }  // or looked up as 8 bits
  constexpr int code_bytes() const { return storage == kWords ? 2048 : storage == kBytes || bits == 8 ? 1024 : 512; }
  constexpr int plane_bytes() const { return storage != kPacked ? 0 : bits == 5 ? 128 : bits == 6 ? 256 : 0; }
  constexpr int head_bytes() const { return scale == Scale::kSuper ? (minimum ? 128 : 64) : 0; }
  constexpr int scale_bytes() const {
    if (scale == Scale::kGroup || scale == Scale::kRow) return 0;
    if (scale == Scale::kFloat) return kPanel * 4 * parts * (minimum ? 2 : 1);
    return scale == Scale::kE4M3 ? 64 : scale == Scale::kExponent ? 32 : scale == Scale::kHalf ? (minimum ? 128 : 64) : 32 * parts * (minimum ? 2 : 1);
  }
  constexpr int group_bytes() const { return code_bytes() + plane_bytes() + scale_bytes(); }
  constexpr int unit_bytes() const { return head_bytes() + groups() * group_bytes(); }
};

// Kinds that only kernels have. Groups are unpacked to kUnpacked + minimum + 2 * halves + 4 * width for many rows
// (matmul/unpack_panel.h); zero points are those of the matrix, or 128 if codes are widened to 8 bits. kRow: kW4 and kW8
// with one scale per row, packed and unpacked.
enum : int { kUnpacked = 100, kUnpackedEnd = 120, kRowW4, kRowW8, kRowWide, kRowBytes, kRowWords };
enum Width : int { kWide, kFour, kFive, kSix, kSixteen };
constexpr int unpacked_to(Width width, int parts, bool minimum) { return kUnpacked + minimum + 2 * (parts - 1) + 4 * width; }

constexpr Kind kind_of(int kind) {
  if (kind >= kUnpacked && kind < kUnpackedEnd) {
    const int width = (kind - kUnpacked) / 4, parts = 1 + (kind - kUnpacked) / 2 % 2;
    const bool minimum = (kind - kUnpacked) % 2;
    return {width == kFour ? 4 : width == kFive ? 5 : width == kSix ? 6 : 8, width == kWide ? 128 : 0, parts, Scale::kFloat,
            minimum, 0, 0, 0, width == kSixteen ? kWords : kBytes};
  }
  switch (kind) {
    case kRowW4: return {4, 8, 1, Scale::kRow, false, 0, 0, 0};
    case kRowW8: return {8, 128, 1, Scale::kRow, false, 0, 0, 0};
    case kRowWide: return {8, 128, 1, Scale::kRow, false, 0, 0, 0, kBytes};
    case kRowBytes: return {4, 8, 1, Scale::kRow, false, 0, 0, 0, kBytes};
    case kRowWords: return {8, 128, 1, Scale::kRow, false, 0, 0, 0, kWords};
    case kQ4_0: return {4, 8, 1, Scale::kHalf, false, 0, 32, 18};
    case kQ4_1: return {4, 0, 1, Scale::kHalf, true, 0, 32, 20};
    case kQ5_0: return {5, 16, 1, Scale::kHalf, false, 0, 32, 22};
    case kQ5_1: return {5, 0, 1, Scale::kHalf, true, 0, 32, 24};
    case kQ8_0: return {8, 128, 1, Scale::kHalf, false, 0, 32, 34};
    case kQ2_K: return {4, 0, 2, Scale::kSuper, true, 0, 256, 84};
    case kQ3_K: return {4, 4, 2, Scale::kSuper, false, 0, 256, 110};
    case kQ4_K: return {4, 0, 1, Scale::kSuper, true, 0, 256, 144};
    case kQ5_K: return {5, 0, 1, Scale::kSuper, true, 0, 256, 176};
    case kQ6_K: return {6, 32, 2, Scale::kSuper, false, 0, 256, 210};
    case kIQ4_NL: return {4, 128, 1, Scale::kHalf, false, 1, 32, 18};
    case kMXFP4: return {4, 128, 1, Scale::kExponent, false, 2, 32, 17};
    case kIQ4_XS: return {4, 128, 1, Scale::kSuper, false, 1, 256, 136};
    case kW4: return {4, 8, 1, Scale::kGroup, false, 0, 0, 0};
    case kW8: return {8, 128, 1, Scale::kGroup, false, 0, 0, 0};
    case kNVFP4: return {4, 128, 2, Scale::kE4M3, false, 2, 0, 0};
    case kFP8: return {0, 0, 0, Scale::kGroup, false, 0, 0, 0};
  }
  return {0, 0, 0, Scale::kHalf, false, 0, 1, kind == kF32 ? 4 : 2};
}

inline bool is_integer(int kind) { return kind >= kQ4_0 && kind != kFP8; }

// Integer codes with one scale per row, for which activations are quantized in groups of 64.
inline bool scaled_by_row(const DrutMatrix& m) { return (m.kind == kW4 || m.kind == kW8) && !m.group; }

template <int K> struct Constant { static constexpr int value = K; };

// Calls f with an integer kind of a file as a Constant, so that the kind is a template argument.
template <class F> auto with_integer_kind(int kind, F f) {
  switch (kind) {
    case kQ4_0: return f(Constant<kQ4_0>());
    case kQ4_1: return f(Constant<kQ4_1>());
    case kQ8_0: return f(Constant<kQ8_0>());
    case kQ5_0: return f(Constant<kQ5_0>());
    case kQ5_1: return f(Constant<kQ5_1>());
    case kQ2_K: return f(Constant<kQ2_K>());
    case kQ3_K: return f(Constant<kQ3_K>());
    case kQ4_K: return f(Constant<kQ4_K>());
    case kQ5_K: return f(Constant<kQ5_K>());
    case kQ6_K: return f(Constant<kQ6_K>());
    case kIQ4_NL: return f(Constant<kIQ4_NL>());
    case kMXFP4: return f(Constant<kMXFP4>());
    case kIQ4_XS: return f(Constant<kIQ4_XS>());
    case kW4: return f(Constant<kW4>());
    case kW8: return f(Constant<kW8>());
    default: return f(Constant<kNVFP4>());
  }
}

constexpr int scale_size(int scale) { return scale == kScaleF32 ? 4 : 2; }

// Layout of a panel of one matrix: units of a head and `span` groups of 32 elements; the last unit may have fewer
// groups.
struct Layout {
  int head, span, group;  // bytes, groups, bytes of a group

  explicit Layout(const DrutMatrix& m) {
    const Kind t = kind_of(m.kind);
    span = t.groups();
    head = t.head_bytes();
    group = is_integer(m.kind) ? t.group_bytes() : kGroup * kPanel * (m.kind == kFP8 ? 1 : t.file_bytes);
    if (t.scale == Scale::kGroup) {
      span = (m.group ? m.group : m.k) / kGroup;
      head = kPanel * (scale_size(m.scale) + (m.zeros ? 1 : 0));
    } else if (t.scale == Scale::kE4M3) {
      span = m.k / kGroup;
      head = kPanel * 4;
    }
  }
  int64_t bytes(int groups) const { return int64_t(groups + span - 1) / span * head + int64_t(groups) * group; }
};
// The unit that has group `group`.
inline const uint8_t* unit_of(const Layout& l, const uint8_t* panel, int group) {
  return panel + group / l.span * (l.head + int64_t(l.span) * l.group);
}
inline int panels(const DrutMatrix& m) { return (m.n + kPanel - 1) / kPanel; }
inline int64_t panel_bytes(const DrutMatrix& m) { return Layout(m).bytes(m.k / kGroup); }
inline const uint8_t* panel(const DrutMatrix& m, int p) { return m.data + p * panel_bytes(m); }

// Table entries + 128: the integer kernels take codes as unsigned bytes with zero point 128.
alignas(16) constexpr uint8_t kTables[2][16] = {
    {1, 24, 45, 63, 79, 93, 106, 118, 129, 141, 153, 166, 181, 197, 217, 241},
    {128, 129, 130, 131, 132, 134, 136, 140, 128, 127, 126, 125, 124, 122, 120, 116}};

}  // namespace
