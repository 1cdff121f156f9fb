// Packs a tensor of the file into panels (packing.h). src_row[i] says which row of the file becomes row i.
#include "packing.h"
#include "common.h"
#include "pool.h"

#include <cstring>

namespace {

uint32_t load32(const uint8_t* p) { uint32_t v; memcpy(&v, p, 4); return v; }

// A row's 32 elements into lane `lane` of a block.
void pack_block(int kind, const uint8_t* src, int lane, uint8_t* block) {
  int at = lane / 16 * 64 + lane % 16 * 4;
  switch (kind) {
    case kQ4_0: case kQ4_1: {
      const uint8_t* codes = src + (kind == kQ4_0 ? 2 : 4);
      for (int j = 0; j < 4; ++j) {  // octet j of k: elements 8j..8j+7, in the low nibbles for j < 2
        uint32_t a = load32(codes + 8 * (j & 1)), b = load32(codes + 8 * (j & 1) + 4);
        uint32_t low = 0x0f0f0f0f, word = j < 2 ? (a & low) | (b & low) << 4 : (a >> 4 & low) | (b & ~low);
        memcpy(block + j * 128 + at, &word, 4);
      }
      memcpy(block + 512 + lane * 2, src, 2);
      if (kind == kQ4_1) memcpy(block + 576 + lane * 2, src + 2, 2);
      break;
    }
    case kQ8_0:
      for (int j = 0; j < 8; ++j) {
        uint32_t word = load32(src + 2 + 4 * j) ^ 0x80808080u;
        memcpy(block + j * 128 + at, &word, 4);
      }
      memcpy(block + 1024 + lane * 2, src, 2);
      break;
    case kF32:
      for (int k = 0; k < 32; ++k) memcpy(block + (k * 32 + lane) * 4, src + k * 4, 4);
      break;
    case kF16:
      for (int k = 0; k < 32; ++k) memcpy(block + (k * 32 + lane) * 2, src + k * 2, 2);
      break;
    case kBF16:
      for (int k = 0; k < 32; k += 2) memcpy(block + (k * 32 + lane * 2) * 2, src + k * 2, 4);
      break;
  }
}

}  // namespace

struct PackTask {
  int32_t kind, n, k;
  const uint8_t* src;
  const int32_t* src_row;
  uint8_t* dst;
};

static void pack_rows(void* data, Worker& w) {
  const PackTask& t = *static_cast<const PackTask*>(data);
  int width = t.kind == kF32 ? 4 : 2;
  bool quantized = t.kind >= kQ4_0;
  int64_t row_bytes = quantized ? int64_t(t.k / 32) * row_block_bytes(t.kind) : int64_t(t.k) * width;
  int blocks = (t.k + 31) / 32;
  w.share((t.n + kPanel - 1) / kPanel, [&](int p) {
    uint8_t* out = t.dst + int64_t(p) * blocks * block_bytes(t.kind);
    for (int b = 0; b < blocks; ++b, out += block_bytes(t.kind)) {
      int lanes = t.n - p * kPanel < kPanel ? t.n - p * kPanel : kPanel;
      if (lanes < kPanel) memset(out, t.kind == kQ8_0 ? 0x80 : 0, size_t(t.kind == kQ8_0 ? 1024 : block_bytes(t.kind)));
      if (lanes < kPanel && t.kind == kQ8_0) memset(out + 1024, 0, 64);
      for (int lane = 0; lane < lanes; ++lane) {
        int row = p * kPanel + lane;
        const uint8_t* src = t.src + int64_t(t.src_row ? t.src_row[row] : row) * row_bytes + int64_t(b) * row_block_bytes(t.kind);
        uint8_t tail[128] = {};
        if (!quantized && (b + 1) * 32 > t.k) {  // columns past k are zero
          memcpy(tail, src, size_t((t.k - b * 32) * width));
          src = tail;
        }
        pack_block(t.kind, src, lane, out);
      }
    }
  });
  w.sync();
}

#define DRUT_API extern "C" __attribute__((visibility("default")))

DRUT_API int64_t drut_packed_bytes(int32_t kind, int32_t n, int32_t k) {
  return int64_t((n + kPanel - 1) / kPanel) * ((k + 31) / 32) * block_bytes(kind);
}

DRUT_API void drut_pack(Pool* pool, int32_t kind, int32_t n, int32_t k, const uint8_t* src, const int32_t* src_row, uint8_t* dst) {
  PackTask t{kind, n, k, src, src_row, dst};
  pool_run(pool, pack_rows, &t, nullptr, 0);
}
