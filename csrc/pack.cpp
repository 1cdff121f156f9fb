// Packs a tensor of the file into panels (kinds.h). src_row[i] says which row of the file becomes row i.
#include "codecs.h"
#include "pool.h"

namespace {

uint32_t load32(const uint8_t* p) { uint32_t v; memcpy(&v, p, 4); return v; }

// The three most common kinds by whole words; the rest goes code by code.
bool pack_quickly(int kind, const uint8_t* src, int lane, uint8_t* g) {
  int at = lane / 16 * 64 + lane % 16 * 4;
  if (kind == kQ4_0 || kind == kQ4_1) {
    const uint8_t* codes = src + (kind == kQ4_0 ? 2 : 4);
    for (int j = 0; j < 4; ++j) {  // octet j of k: elements 8j..8j+7, in the low nibbles for j < 2
      uint32_t a = load32(codes + 8 * (j & 1)), b = load32(codes + 8 * (j & 1) + 4);
      uint32_t low = 0x0f0f0f0f, word = j < 2 ? (a & low) | (b & low) << 4 : (a >> 4 & low) | (b & ~low);
      memcpy(g + j * 128 + at, &word, 4);
    }
    memcpy(g + 512 + lane * 2, src, 2);
    if (kind == kQ4_1) memcpy(g + 576 + lane * 2, src + 2, 2);
    return true;
  }
  if (kind != kQ8_0) return false;
  for (int j = 0; j < 8; ++j) {
    uint32_t word = load32(src + 2 + 4 * j) ^ 0x80808080u;
    memcpy(g + j * 128 + at, &word, 4);
  }
  memcpy(g + 1024 + lane * 2, src, 2);
  return true;
}

// One file block of a row into a unit.
void pack_integers(int kind, const Kind& t, const uint8_t* src, int lane, uint8_t* unit) {
  if (t.head_bytes()) memcpy(unit + 2 * lane, src + super_scale_at(kind), 2);
  if (t.head_bytes() == 128) memcpy(unit + 64 + 2 * lane, src + super_minimum_at(kind), 2);
  for (int g = 0; g < t.groups(); ++g) {
    uint8_t* out = unit + t.head_bytes() + g * t.group_bytes();
    if (pack_quickly(kind, src, lane, out)) continue;
    FileGroup f{};
    read_group(kind, src, g, &f);
    write_group(t, f, lane, out);
  }
}

// 32 elements of a row, `count` of them stored and the rest zero.
void pack_floats(int kind, const uint8_t* src, int count, int lane, uint8_t* unit) {
  int width = kind == kF32 ? 4 : 2;
  for (int k = 0; k < count; ++k) {
    int at = kind == kBF16 ? k / 2 * 64 + lane * 2 + k % 2 : k * 32 + lane;
    memcpy(unit + at * width, src + k * width, size_t(width));
  }
}

struct PackTask {
  int32_t kind, n, k;
  const uint8_t* src;
  const int32_t* src_row;
  uint8_t* dst;
};

void pack_panels(void* data, Worker& w) {
  const PackTask& p = *static_cast<const PackTask*>(data);
  const Kind t = kind_of(p.kind);
  const int elements = unit_elements(p.kind), bytes = unit_bytes(p.kind), units = (p.k + elements - 1) / elements;
  const int64_t row_bytes = int64_t(p.k) / t.file_block * t.file_bytes;
  const int64_t step = int64_t(elements) / t.file_block * t.file_bytes;  // of the file, a unit
  w.share((p.n + kPanel - 1) / kPanel, [&](int panel) {
    uint8_t* out = p.dst + int64_t(panel) * units * bytes;
    int lanes = p.n - panel * kPanel < kPanel ? p.n - panel * kPanel : kPanel;
    for (int u = 0; u < units; ++u, out += bytes) {
      for (int lane = 0; lane < lanes; ++lane) {
        int row = panel * kPanel + lane;
        const uint8_t* src = p.src + int64_t(p.src_row ? p.src_row[row] : row) * row_bytes + u * step;
        if (is_integer(p.kind)) pack_integers(p.kind, t, src, lane, out);
        else pack_floats(p.kind, src, p.k - u * elements < elements ? p.k - u * elements : elements, lane, out);
      }
    }
  });
  w.sync();
}

}  // namespace

#define DRUT_API extern "C" __attribute__((visibility("default")))

DRUT_API int64_t drut_packed_bytes(int32_t kind, int32_t n, int32_t k) {
  int elements = unit_elements(kind);
  return int64_t((n + kPanel - 1) / kPanel) * ((k + elements - 1) / elements) * unit_bytes(kind);
}

// dst: drut_packed_bytes of zeros.
DRUT_API void drut_pack(Pool* pool, int32_t kind, int32_t n, int32_t k, const uint8_t* src, const int32_t* src_row, uint8_t* dst) {
  PackTask t{kind, n, k, src, src_row, dst};
  pool_run(pool, pack_panels, &t, nullptr, 0);
}
