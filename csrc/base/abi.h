// The C ABI: plain structs that Python mirrors with ctypes (src/drut/kernels/native/abi.py). The struct of an operation
// is in the header that computes the operation. Python compares every field at load (layout.h).
#pragma once
#include "base/layout.h"

constexpr int32_t kAbiVersion = 12;
constexpr int32_t kStepVersion = 5;
constexpr int kPage = 16;       // tokens per KV page
constexpr int kChunk = 256;     // tokens per attention chunk
constexpr int kPanel = 32;      // outputs per weight panel
constexpr int kGroup = 32;      // elements per quantization group of activations
constexpr int kMaxSlices = 8;   // maximum of slices in which K is summed
constexpr int kMaxTop = 20;     // maximum of top logprobs per sample
constexpr int kMaxExperts = 1024;

enum DrutKind : int32_t { kF32, kF16, kBF16, kQ4_0, kQ4_1, kQ8_0, kQ5_0, kQ5_1, kQ2_K, kQ3_K, kQ4_K, kQ5_K,
                          kQ6_K, kIQ4_NL, kMXFP4, kIQ4_XS, kW4, kW8, kNVFP4, kFP8 };
enum DrutScale : int32_t { kScaleF16, kScaleBF16, kScaleF32 };
enum DrutKv : int32_t { kKvBf16, kKvFp32, kKvInt8 };
enum DrutActivation : int32_t { kSilu, kGeluTanh, kGeluErf, kClampedSwiglu };

// A packed weight matrix: n rows (outputs) in panels of 32, k columns (inputs) padded to a multiple of 32.
struct DrutMatrix {
  const uint8_t* data;
  const float* bias;     // n floats, padded to whole panels, or null
  const int32_t* order;  // (k): column i reads element order[i] of a row, int8 activations only; null: element i
  int32_t kind, n, k;
  int32_t slices;  // K is summed in so many slices, a power of two up to kMaxSlices, which a binary tree joins
  // kW4, kW8, kFP8 only, else 0. group: elements of K per scale, a multiple of 32, or 0 for one scale per row;
  // scale: type of the scales (DrutScale); zeros: 1 if each scale has a zero point.
  int32_t group, scale, zeros, reserved;
};
DRUT_LAYOUT(DrutMatrix, FIELD(data), FIELD(bias), FIELD(order), FIELD(kind), FIELD(n), FIELD(k),
            FIELD(slices), FIELD(group), FIELD(scale), FIELD(zeros), FIELD(reserved));

// First member of the struct of every operation.
struct DrutOp {
  int32_t code;  // index in the table of operations (run/ops.h)
  int32_t layer;
};
DRUT_LAYOUT(DrutOp, FIELD(code), FIELD(layer));

// Activation formats between an operation that produces rows and the matrices that read them (matmul/activations.h).
// Bits, so that a set of formats is their sum. out_format and in_format of an operation are kActFloat, kActBf16, or
// kActInt8: then the buffer of floats holds quantized groups instead. kActWide: int8 with one scale for two groups.
enum DrutActivationFormat : int32_t { kActInt8 = 1, kActFloat = 2, kActBf16 = 4, kActWide = 8 };

// x / rms(x) * weight; with subtract_mean: (x - mean) / deviation * weight + bias. weight is null: no norm.
struct DrutNorm {
  const float* weight;  // (width)
  const float* bias;    // (width) or null
  float eps;
  int32_t subtract_mean;
};
DRUT_LAYOUT(DrutNorm, FIELD(weight), FIELD(bias), FIELD(eps), FIELD(subtract_mean));

// Routing of the rows of a step to experts. A pair is a row and one of its experts; pairs are sorted by expert, then by
// row.
struct DrutRoutes {
  int32_t* expert;      // (rows, top_k): expert ids in rank order
  float* weight;        // (rows, top_k)
  float* shared;        // (rows): weight of the shared expert, which all rows use
  int32_t* first;       // (experts + 1): index of the first pair of an expert
  int32_t* used;        // (experts): ids of experts with pairs, ascending
  int32_t* row;         // (rows * top_k): row of a pair
  int32_t* pair_index;  // (rows, top_k): index of the pair
  int32_t used_count, experts, top_k, reserved;
};
DRUT_LAYOUT(DrutRoutes, FIELD(expert), FIELD(weight), FIELD(shared), FIELD(first), FIELD(used), FIELD(row),
            FIELD(pair_index), FIELD(used_count), FIELD(experts), FIELD(top_k), FIELD(reserved));

// Page pool of one KV group.
struct DrutPages {
  uint8_t* data;
  int64_t page_bytes;
};
DRUT_LAYOUT(DrutPages, FIELD(data), FIELD(page_bytes));

// What a run reads and writes, other than the buffers in the structs of operations. Pointers must stay valid until the
// run returns.
struct DrutContext {
  const int32_t* step;     // the step descriptor
  const DrutPages* pages;  // by KV group
  uint8_t* acts;           // activations shared by all workers, acts_bytes
  int64_t acts_bytes;
  uint8_t* scratch;        // scratch_bytes for each worker, one block after another
  int64_t scratch_bytes;
  int32_t* tokens;         // sampled ids, by sample
  int32_t* status;         // by sample: 0; 1 if a logit is not finite; 2 if logit edits and the grammar allow no id
  float* logprobs;         // of the sampled token, by sample
  int32_t* ranks;          // of the sampled token, from 1; 0 if not requested
  int32_t* top_ids;        // (samples, kMaxTop): most likely ids, then -1
  float* top_logprobs;     // (samples, kMaxTop)
  int32_t* relay;          // by sequence slot: the last sampled id. At most one sample of a step may write a slot
  int64_t* op_ns;          // nanoseconds of each operation, or null
  const int32_t* chosen;   // indices of the samples to draw, chosen_count of them; null: all
  int32_t chosen_count;
  int32_t barriers_only;   // 1: skip the operations and run only their barriers
};
DRUT_LAYOUT(DrutContext, FIELD(step), FIELD(pages), FIELD(acts), FIELD(acts_bytes), FIELD(scratch),
            FIELD(scratch_bytes), FIELD(tokens), FIELD(status), FIELD(logprobs), FIELD(ranks), FIELD(top_ids),
            FIELD(top_logprobs), FIELD(relay), FIELD(op_ns), FIELD(chosen), FIELD(chosen_count), FIELD(barriers_only));

// Several decoding steps in one call, without the host between them. Every row of the descriptor is the last row of its
// sequence, and row i is sampled by sample i into the relay word of its sequence. Block tables must cover `steps` more
// rows. The outputs of the context have capacity for all steps, one step after another.
struct DrutBurst {
  int32_t steps;             // maximum number of steps
  int32_t progress;          // atomic, a futex: 2 * (steps with complete outputs) + (1 if no further step starts)
  int32_t stop;              // atomic, set by the host: no step starts after the running one
  int32_t reserved;
  const int32_t* end_first;  // (samples + 1): range of each sample's end ids in end_id
  const int32_t* end_id;     // token ids that end a sequence; the burst ends after a step that draws one
};
DRUT_LAYOUT(DrutBurst, FIELD(steps), FIELD(progress), FIELD(stop), FIELD(reserved), FIELD(end_first), FIELD(end_id));

// Header of the step descriptor. The capacities determine the offsets of the arrays (src/drut/kernels/descriptor.py).
struct DrutStepHeader {
  int32_t version, rows, seqs, samples, cap_rows, cap_seqs, cap_samples, cap_blocks, cap_edits, cap_masks, groups, edits;
};
DRUT_LAYOUT(DrutStepHeader, FIELD(version), FIELD(rows), FIELD(seqs), FIELD(samples), FIELD(cap_rows), FIELD(cap_seqs),
            FIELD(cap_samples), FIELD(cap_blocks), FIELD(cap_edits), FIELD(cap_masks), FIELD(groups), FIELD(edits));

namespace {

// View of the arrays of a step descriptor. All words are int32; floats are stored as their bit patterns.
struct Step {
  int rows, seqs, samples, groups, cap_rows, cap_seqs;
  const int32_t *seq, *position, *slots, *token;                                 // by row
  const int32_t *first_row, *row_count, *length, *tables, *relay_slot;           // by sequence
  const int32_t *sample_row, *seed_lo, *seed_hi, *choice, *top_k, *target;       // by sample
  const int32_t *top_logprobs, *edit_first, *edit_count, *mask, *relay;
  const float *temperature, *top_p, *min_p, *repetition, *presence, *frequency;
  const int32_t* blocks;
  const int32_t* edit_id;                                                        // by edit
  const float* edit_bias;
  const int32_t *edit_count_out, *edit_seen;
  const int32_t* masks;                                                          // rows of bits, one per id: 1: allowed
  explicit Step(const int32_t* p) {
    const DrutStepHeader* h = reinterpret_cast<const DrutStepHeader*>(p);
    rows = h->rows; seqs = h->seqs; samples = h->samples;
    groups = h->groups; cap_rows = h->cap_rows; cap_seqs = h->cap_seqs;
    p += sizeof(DrutStepHeader) / 4;
    auto take = [&p](int n) { const int32_t* r = p; p += n; return r; };
    auto floats = [&](int n) { return reinterpret_cast<const float*>(take(n)); };
    int n = h->cap_rows;
    seq = take(n); position = take(n); slots = take(n * groups); token = take(n);
    n = h->cap_seqs;
    first_row = take(n); row_count = take(n); length = take(n); tables = take(n * groups); relay_slot = take(n);
    n = h->cap_samples;
    sample_row = take(n); seed_lo = take(n); seed_hi = take(n); choice = take(n); top_k = take(n); target = take(n);
    top_logprobs = take(n); edit_first = take(n); edit_count = take(n); mask = take(n); relay = take(n);
    temperature = floats(n); top_p = floats(n); min_p = floats(n);
    repetition = floats(n); presence = floats(n); frequency = floats(n);
    blocks = take(h->cap_blocks);
    n = h->cap_edits;
    edit_id = take(n); edit_bias = floats(n); edit_count_out = take(n); edit_seen = take(n);
    masks = p;
  }
  // Slot of the row's key and value in the pages of a KV group, and the group's block table of sequence q. A block
  // table holds -1 for pages that are freed because no row sees them any more: such entries must not be read.
  int32_t slot(int group, int row) const { return slots[group * cap_rows + row]; }
  const int32_t* table(int group, int q) const { return blocks + tables[group * cap_seqs + q]; }
};

}  // namespace
