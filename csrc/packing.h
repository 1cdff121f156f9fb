// How weights lie in memory: panels of 32 outputs, each a run of blocks of 32 along K. One stream a panel.
//   4-bit   512 B nibbles [4 octets of k][2 halves of 16 outputs][16][4]: low nibble k, high nibble k + 4
//           then 32 f16 scales (and for Q4_1 32 f16 minima)
//   8-bit   1024 B [8 quads of k][2 halves][16][4], stored as code + 128, then 32 f16 scales
//   F32     [32 k][32 outputs]   F16 the same   BF16 [16 pairs of k][32 outputs][2]
#pragma once
#include "abi.h"
#include "numerics.h"

namespace {

inline int block_bytes(int kind) {
  switch (kind) {
    case kQ4_0: return 512 + 64;
    case kQ4_1: return 512 + 128;
    case kQ8_0: return 1024 + 64;
    case kF32: return 4096;
    case kF16: case kBF16: return 2048;
  }
  return 0;
}
inline int row_block_bytes(int kind) {  // the file's bytes of 32 elements of one row
  switch (kind) {
    case kQ4_0: return 18;
    case kQ4_1: return 20;
    case kQ8_0: return 34;
    case kF32: return 128;
    case kF16: case kBF16: return 64;
  }
  return 0;
}
inline int panels(const DrutMatrix& m) { return (m.n + kPanel - 1) / kPanel; }
inline int64_t panel_bytes(const DrutMatrix& m) { return int64_t(m.k / kGroup) * block_bytes(m.kind); }
inline const uint8_t* panel(const DrutMatrix& m, int p) { return m.data + p * panel_bytes(m); }

inline uint16_t load16(const uint8_t* p) { uint16_t v; memcpy(&v, p, 2); return v; }

// Row `n` of a packed matrix as floats: code * scale (+ minimum), as formats/decode.py defines it.
inline void unpack_row(const DrutMatrix& m, int n, float* out) {
  const uint8_t* b = panel(m, n / kPanel);
  int lane = n % kPanel, half = lane / 16, l = lane % 16;
  for (int g = 0; g < m.k / kGroup; ++g, b += block_bytes(m.kind), out += 32) {
    if (m.kind == kF32) {
      for (int k = 0; k < 32; ++k) memcpy(out + k, b + (k * 32 + lane) * 4, 4);
    } else if (m.kind == kF16) {
      for (int k = 0; k < 32; ++k) out[k] = num::half_to_float(load16(b + (k * 32 + lane) * 2));
    } else if (m.kind == kBF16) {
      for (int k = 0; k < 32; ++k) out[k] = num::bf16_to_float(load16(b + ((k / 2) * 64 + lane * 2 + k % 2) * 2));
    } else if (m.kind == kQ8_0) {
      float d = num::half_to_float(load16(b + 1024 + lane * 2));
      for (int k = 0; k < 32; ++k) out[k] = float(int(b[(k / 4) * 128 + half * 64 + l * 4 + k % 4]) - 128) * d;
    } else {
      float d = num::half_to_float(load16(b + 512 + lane * 2));
      float lowest = m.kind == kQ4_1 ? num::half_to_float(load16(b + 576 + lane * 2)) : 0.0f;
      int zero = m.kind == kQ4_0 ? 8 : 0;
      for (int k = 0; k < 32; ++k) {
        uint8_t byte = b[(k / 8) * 128 + half * 64 + l * 4 + k % 4];
        float x = float((k % 8 < 4 ? byte & 15 : byte >> 4) - zero) * d;
        out[k] = m.kind == kQ4_1 ? x + lowest : x;
      }
    }
  }
}

}  // namespace
