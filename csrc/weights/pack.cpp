// Packs a tensor of the file into panels (kinds.h). Row i of the matrix is row src_row[i] of the file.
#include "weights/codecs.h"
#include "weights/packing.h"
#include "base/pool.h"

namespace {

uint32_t load32(const uint8_t* p) { uint32_t v; memcpy(&v, p, 4); return v; }
bool half_is_finite(const uint8_t* p) { return (load16(p) & 0x7c00) != 0x7c00; }

// Packs the three most common kinds by whole words. Returns false for the others, which are packed code by code.
bool pack_quickly(int kind, const uint8_t* src, int lane, uint8_t* g) {
  int at = lane / 16 * 64 + lane % 16 * 4;
  if (kind == kQ4_0 || kind == kQ4_1) {
    const uint8_t* codes = src + (kind == kQ4_0 ? 2 : 4);
    for (int j = 0; j < 4; ++j) {  // octet j of k: elements 8j..8j+7, low nibbles for j < 2
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

// Packs one file block of a row into a unit. Returns whether its scales are finite.
bool pack_block(int kind, const Kind& t, const uint8_t* src, int lane, uint8_t* unit) {
  bool good = true;
  if (t.head_bytes()) {
    memcpy(unit + 2 * lane, src + super_scale_at(kind), 2);
    good = half_is_finite(unit + 2 * lane);
  }
  if (t.head_bytes() == 128) {
    memcpy(unit + 64 + 2 * lane, src + super_minimum_at(kind), 2);
    good &= half_is_finite(unit + 64 + 2 * lane);
  }
  if (t.scale == Scale::kHalf) good = half_is_finite(src) && (!t.minimum || half_is_finite(src + 2));
  if (t.scale == Scale::kExponent) good = src[0] != 255;
  for (int g = 0; g < t.groups(); ++g) {
    uint8_t* out = unit + t.head_bytes() + g * t.group_bytes();
    if (pack_quickly(kind, src, lane, out)) continue;
    FileGroup f{};
    read_group(kind, src, g, &f);
    write_group(t, f, lane, out);
  }
  return good;
}

// Spreads the low four nibbles of x to one byte each.
uint32_t spread(uint32_t x) {
  x = (x | x << 8) & 0x00ff00ff;
  return (x | x << 4) & 0x0f0f0f0f;
}

// Packs 32 codes of 4 bits, two per byte with the lower one first, into a group.
void pack_nibbles(const uint8_t* codes, int lane, uint8_t* g) {
  for (int j = 0; j < 4; ++j) {
    uint32_t x = load32(codes + 4 * j), word = spread(x & 0xffff) | spread(x >> 16) << 4;
    memcpy(g + j * 128 + lane / 16 * 64 + lane % 16 * 4, &word, 4);
  }
}

bool pack_bytes(const uint8_t* codes, int lane, uint8_t* g) {
  for (int j = 0; j < 8; ++j) memcpy(g + j * 128 + lane / 16 * 64 + lane % 16 * 4, codes + 4 * j, 4);
  return true;
}

bool pack_e4m3(const uint8_t* codes, int lane, uint8_t* g) {
  bool good = true;
  for (int k = 0; k < kGroup; ++k) {
    g[k / 2 * 2 * kPanel + 2 * lane + k % 2] = codes[k];
    good &= (codes[k] & 0x7f) != 0x7f;
  }
  return good;
}

// Packs the scale of a unit into its head, times `factor` if it is f32. Returns whether it is finite.
bool pack_scale(int scale, const uint8_t* src, int lane, float factor, uint8_t* head) {
  if (scale != kScaleF32) {
    memcpy(head + 2 * lane, src, 2);
    return scale == kScaleF16 ? half_is_finite(src) : (load16(src) & 0x7f80) != 0x7f80;
  }
  float x = load_scale(scale, src, 0) * factor;
  memcpy(head + 4 * lane, &x, 4);
  return x - x == 0;
}

// Packs a row whose scales, zero points and codes are stored one after another (formats/encoding.py: planes).
bool pack_planes(const DrutMatrix& m, const Layout& l, const uint8_t* src, int lane, uint8_t* out) {
  const int groups = m.k / kGroup, units = (groups + l.span - 1) / l.span, size = scale_size(m.scale);
  const uint8_t *scales = src, *zeros = scales + units * size, *codes = zeros + (m.zeros ? units : 0);
  bool good = true;
  for (int u = 0; u < units; ++u) {
    good &= pack_scale(m.scale, scales + u * size, lane, 1.0f, out);
    if (m.zeros) out[kPanel * size + lane] = zeros[u];
    out += l.head;
    for (int g = u * l.span; g < (u + 1) * l.span && g < groups; ++g, out += l.group) {
      if (m.kind == kW4) pack_nibbles(codes + g * 16, lane, out);
      else good &= (m.kind == kW8 ? pack_bytes : pack_e4m3)(codes + g * kGroup, lane, out);
    }
  }
  return good;
}

// Packs a row of NVFP4: the scale of the row, then a scale for every 16 elements, then codes.
bool pack_nvfp4(const DrutMatrix& m, const Layout& l, const uint8_t* src, int lane, uint8_t* out) {
  const uint8_t *scales = src + 4, *codes = scales + m.k / 16;
  bool good = pack_scale(kScaleF32, src, lane, 128.0f, out);
  out += l.head;
  for (int g = 0; g < m.k / kGroup; ++g, out += l.group) {
    pack_nibbles(codes + g * 16, lane, out);
    for (int part = 0; part < 2; ++part) {
      uint8_t s = out[512 + 32 * part + lane] = scales[2 * g + part];
      good &= (s & 0x7f) != 0x7f;
    }
  }
  return good;
}

// Packs 32 elements of a row: the first `count` are stored, the rest stays zero.
void pack_floats(int kind, const uint8_t* src, int count, int lane, uint8_t* unit) {
  int width = kind == kF32 ? 4 : 2;
  for (int k = 0; k < count; ++k) {
    int at = kind == kBF16 ? k / 2 * 64 + lane * 2 + k % 2 : k * 32 + lane;
    memcpy(unit + at * width, src + k * width, size_t(width));
  }
}

struct PackTask {
  const DrutMatrix* matrix;
  int32_t stored;      // columns in the file
  int64_t row_bytes;   // in the file
  const uint8_t* src;
  const int32_t* src_row;
  uint8_t* dst;
  int64_t bad;         // rows, or blocks of rows, with a scale that is not finite; atomic
};

// Packs the lanes of one panel; for kinds with file blocks unit by unit, so that a unit is written while it is in the
// cache. Returns the number of rows, or blocks of rows, with a scale that is not finite.
int pack_panel(const PackTask& p, const Kind& t, const Layout& l, int panel, uint8_t* out) {
  const DrutMatrix& m = *p.matrix;
  const int lanes = m.n - panel * kPanel < kPanel ? m.n - panel * kPanel : kPanel, elements = l.span * kGroup;
  const uint8_t* src[kPanel];
  for (int lane = 0; lane < lanes; ++lane) {
    int row = panel * kPanel + lane;
    src[lane] = p.src + int64_t(p.src_row ? p.src_row[row] : row) * p.row_bytes;
  }
  int bad = 0;
  for (int lane = 0; t.variable_units() && lane < lanes; ++lane)
    bad += !(m.kind == kNVFP4 ? pack_nvfp4 : pack_planes)(m, l, src[lane], lane, out);
  if (t.variable_units()) return bad;
  for (int k = 0; k < m.k; k += elements, out += l.head + l.span * l.group) {
    for (int lane = 0; lane < lanes; ++lane) {
      if (is_integer(m.kind)) {
        bad += !pack_block(m.kind, t, src[lane], lane, out);
        src[lane] += elements / t.file_block * t.file_bytes;
      } else {
        pack_floats(m.kind, src[lane], p.stored - k < elements ? p.stored - k : elements, lane, out);
        src[lane] += elements * t.file_bytes;
      }
    }
  }
  return bad;
}

void pack_panels(void* data, Worker& w) {
  PackTask& p = *static_cast<PackTask*>(data);
  const Kind t = kind_of(p.matrix->kind);
  const Layout l(*p.matrix);
  const int64_t bytes = panel_bytes(*p.matrix);
  w.parallel_for(panels(*p.matrix), [&](int panel) {
    int bad = pack_panel(p, t, l, panel, p.dst + panel * bytes);
    if (bad) __atomic_fetch_add(&p.bad, bad, __ATOMIC_RELAXED);
  });
  w.barrier();
}

}  // namespace

#define DRUT_API extern "C" __attribute__((visibility("default")))

DRUT_API int64_t drut_packed_bytes(const DrutMatrix* m) { return int64_t(panels(*m)) * panel_bytes(*m); }

// Packs `src` to dst, which must be drut_packed_bytes(m) zero bytes. `stored`: columns in the file; m->k is that padded
// to a multiple of 32. Returns 0 if all scales are finite.
DRUT_API int64_t drut_pack(Pool* pool, const DrutMatrix* m, int32_t stored, int64_t row_bytes, const uint8_t* src,
                           const int32_t* src_row, uint8_t* dst) {
  PackTask t{m, stored, row_bytes, src, src_row, dst, 0};
  pool_run(pool, pack_panels, &t, nullptr, 0);
  return t.bad;
}
