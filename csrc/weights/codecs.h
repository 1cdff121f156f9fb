// Decodes blocks of GGUF files: the codes of 32 elements, and the scale bytes of their group in the order of the packed
// format.
#pragma once
#include "weights/kinds.h"

#include <cstring>

namespace {

// One group of one row: unsigned codes, and the bytes for the panel's scales.
struct FileGroup {
  uint8_t code[32];
  uint8_t scale[4];    // kHalf: f16 scale, f16 minimum; kSuper: one byte per part; kExponent: one byte
  uint8_t minimum[2];  // kSuper: one byte per part
};

inline void read_nibbles(const uint8_t* p, uint8_t* code) {  // elements 0..15 are low nibbles, 16..31 high nibbles
  for (int i = 0; i < 16; ++i) {
    code[i] = p[i] & 15;
    code[16 + i] = p[i] >> 4;
  }
}

inline void add_fifth_bits(const uint8_t* p, uint8_t* code) {
  for (int i = 0; i < 32; ++i) code[i] |= (p[i / 8] >> (i % 8) & 1) << 4;
}

// The 6-bit scale and minimum of group g from the 12 scale bytes of Q4_K and Q5_K.
inline void k_scale(const uint8_t* p, int g, uint8_t* scale, uint8_t* minimum) {
  if (g < 4) {
    *scale = p[g] & 63;
    *minimum = p[g + 4] & 63;
  } else {
    *scale = (p[g + 4] & 15) | (p[g - 4] >> 6) << 4;
    *minimum = (p[g + 4] >> 4) | (p[g] >> 6) << 4;
  }
}

// Scale p (0..15) of Q3_K: 6 bits, minus 32.
inline uint8_t q3_scale(const uint8_t* s, int p) {
  int low = p < 8 ? s[p] & 15 : s[p - 8] >> 4, high = s[8 + p % 4] >> (p / 4 * 2) & 3;
  return uint8_t(int8_t((low | high << 4) - 32));
}

// Reads group g of the block at b.
inline void read_group(int kind, const uint8_t* b, int g, FileGroup* out) {
  uint8_t* code = out->code;
  int chunk = g / 4, shift = g % 4 * 2;  // Q2_K, Q3_K, Q6_K: two halves of 128 elements with four groups each
  switch (kind) {
    case kQ4_0: case kQ4_1: case kQ5_0: case kQ5_1: {
      int scales = kind == kQ4_1 || kind == kQ5_1 ? 4 : 2;
      bool five = kind == kQ5_0 || kind == kQ5_1;
      memcpy(out->scale, b, size_t(scales));
      read_nibbles(b + scales + (five ? 4 : 0), code);
      if (five) add_fifth_bits(b + scales, code);
      break;
    }
    case kQ8_0:
      memcpy(out->scale, b, 2);
      for (int i = 0; i < 32; ++i) code[i] = b[2 + i] ^ 0x80;
      break;
    case kIQ4_NL:
      memcpy(out->scale, b, 2);
      read_nibbles(b + 2, code);
      break;
    case kIQ4_XS: {
      int high = b[2 + g / 4] >> (g % 4 * 2) & 3, low = b[4 + g / 2] >> (g % 2 * 4) & 15;
      out->scale[0] = uint8_t((low | high << 4) - 32);
      read_nibbles(b + 8 + 16 * g, code);
      break;
    }
    case kMXFP4:
      out->scale[0] = b[0];
      read_nibbles(b + 1, code);
      break;
    case kQ2_K:
      for (int i = 0; i < 32; ++i) code[i] = b[16 + 32 * chunk + i] >> shift & 3;
      for (int p = 0; p < 2; ++p) {
        out->scale[p] = b[2 * g + p] & 15;
        out->minimum[p] = b[2 * g + p] >> 4;
      }
      break;
    case kQ3_K:
      for (int i = 0; i < 32; ++i) code[i] = (b[32 + 32 * chunk + i] >> shift & 3) | (b[i] >> g & 1) << 2;
      for (int p = 0; p < 2; ++p) out->scale[p] = q3_scale(b + 96, 2 * g + p);
      break;
    case kQ4_K: case kQ5_K: {
      const uint8_t* q = b + (kind == kQ4_K ? 16 : 48) + 32 * (g / 2);
      for (int i = 0; i < 32; ++i) code[i] = g % 2 ? q[i] >> 4 : q[i] & 15;
      if (kind == kQ5_K)
        for (int i = 0; i < 32; ++i) code[i] |= (b[16 + i] >> g & 1) << 4;
      k_scale(b + 4, g, &out->scale[0], &out->minimum[0]);
      break;
    }
    case kQ6_K: {
      const uint8_t *low = b + 64 * chunk + 32 * (g % 2), *high = b + 128 + 32 * chunk;
      for (int i = 0; i < 32; ++i) code[i] = (g % 4 < 2 ? low[i] & 15 : low[i] >> 4) | (high[i] >> shift & 3) << 4;
      memcpy(out->scale, b + 192 + 2 * g, 2);
      break;
    }
  }
}

// Byte offset of the f16 scale, and of the f16 minimum, in a super-block of the file.
inline int super_scale_at(int kind) { return kind == kQ2_K ? 80 : kind == kQ3_K ? 108 : kind == kQ6_K ? 208 : 0; }
inline int super_minimum_at(int kind) { return kind == kQ2_K ? 82 : 2; }

// Writes a row's group to `lane` of a packed group. The packed group must be zero before: nibbles are ORed in.
inline void write_group(const Kind& t, const FileGroup& f, int lane, uint8_t* g) {
  int half = lane / 16, at = half * 64 + lane % 16 * 4;
  for (int k = 0; k < 32; ++k) {
    int quad = k / 4, byte = at + k % 4, c = f.code[k];
    if (t.bits == 8) {
      g[quad * 128 + byte] = uint8_t(c);
      continue;
    }
    g[quad / 2 * 128 + byte] |= uint8_t((c & 15) << (quad % 2 * 4));
    if (t.bits == 5) g[512 + byte] |= uint8_t((c >> 4) << quad);
    if (t.bits == 6) g[512 + half * 128 + quad / 4 * 64 + lane % 16 * 4 + k % 4] |= uint8_t((c >> 4) << (quad % 4 * 2));
  }
  uint8_t* s = g + t.code_bytes() + t.plane_bytes();
  if (t.scale == Scale::kExponent) {
    s[lane] = f.scale[0];
  } else if (t.scale == Scale::kHalf) {
    memcpy(s + 2 * lane, f.scale, 2);
    if (t.minimum) memcpy(s + 64 + 2 * lane, f.scale + 2, 2);
  } else {
    for (int p = 0; p < t.parts; ++p) {
      s[32 * p + lane] = f.scale[p];
      if (t.minimum) s[32 * (t.parts + p) + lane] = f.minimum[p];
    }
  }
}

}  // namespace
