// The C ABI: plain structs that Python mirrors with ctypes (src/drut/kernels/native/abi.py). An operation's struct lies in
// the header that computes it. Every field is checked at load (layout.h).
#pragma once
#include "base/layout.h"

constexpr int32_t kAbiVersion = 10;
constexpr int32_t kStepVersion = 5;
constexpr int kPage = 16;       // tokens of a KV page
constexpr int kChunk = 256;     // tokens of an attention chunk
constexpr int kPanel = 32;      // outputs of a weight panel
constexpr int kGroup = 32;      // elements of an activation group
constexpr int kMaxTop = 20;     // likeliest ids reported for a sample
constexpr int kMaxExperts = 1024;

enum DrutKind : int32_t { kF32, kF16, kBF16, kQ4_0, kQ4_1, kQ8_0, kQ5_0, kQ5_1, kQ2_K, kQ3_K, kQ4_K, kQ5_K,
                          kQ6_K, kIQ4_NL, kMXFP4, kIQ4_XS, kW4, kW8, kNVFP4, kFP8 };
enum DrutScale : int32_t { kScaleF16, kScaleBF16, kScaleF32 };
enum DrutKv : int32_t { kKvBf16, kKvFp32, kKvInt8 };
enum DrutActivation : int32_t { kSilu, kGeluTanh, kGeluErf, kClampedSwiglu };

// A packed weight: n rows in panels of 32, k columns padded to a multiple of 32.
struct DrutMatrix {
  const uint8_t* data;
  const float* bias;     // n floats, padded to whole panels, or null
  const int32_t* order;  // (k): column i takes element order[i] of a row; null: the same. Int8 activations only
  int32_t kind, n, k;
  // kW4, kW8, kFP8: what one scale serves along K, a multiple of 32, or 0 for a row; of what type it is (DrutScale);
  // whether each has a zero point beside it. Else 0.
  int32_t group, scale, zeros;
};
DRUT_LAYOUT(DrutMatrix, FIELD(data), FIELD(bias), FIELD(order), FIELD(kind), FIELD(n), FIELD(k), FIELD(group),
            FIELD(scale), FIELD(zeros));

// What every operation's struct begins with.
struct DrutOp {
  int32_t code;  // its row in the table of operations (ops.h)
  int32_t layer;
};
DRUT_LAYOUT(DrutOp, FIELD(code), FIELD(layer));

// The forms in which matrices take rows (activations.h). An operation's out_form and in_form are kFloat, or kInt8 for
// groups in the floats' place.
enum DrutForm : int32_t { kInt8 = 1, kFloat = 2, kBrain = 4 };

// x / rms(x) * weight; centred: (x - mean) / deviation * weight + bias. None where the weight is null.
struct DrutNorm {
  const float* weight;  // (width)
  const float* bias;    // (width) or null
  float eps;
  int32_t centred;
};
DRUT_LAYOUT(DrutNorm, FIELD(weight), FIELD(bias), FIELD(eps), FIELD(centred));

// The experts of a step's rows. A pair is a row and one of its experts; pairs lie by expert, then by row.
struct DrutRoutes {
  int32_t* expert;  // (rows, top_k): ids in rank order
  float* weight;    // (rows, top_k)
  float* shared;    // (rows): weight of the expert that all rows go to
  int32_t* first;   // (experts + 1): where an expert's pairs begin
  int32_t* used;    // (experts): ids with pairs, ascending
  int32_t* row;     // (rows * top_k): a pair's row
  int32_t* place;   // (rows, top_k): where a pair lies
  int32_t used_count, experts, top_k, reserved;
};
DRUT_LAYOUT(DrutRoutes, FIELD(expert), FIELD(weight), FIELD(shared), FIELD(first), FIELD(used), FIELD(row),
            FIELD(place), FIELD(used_count), FIELD(experts), FIELD(top_k), FIELD(reserved));

// The pages of one KV group.
struct DrutPages {
  uint8_t* data;
  int64_t page_bytes;
};
DRUT_LAYOUT(DrutPages, FIELD(data), FIELD(page_bytes));

// What one run reads and writes beside the operations' own buffers.
struct DrutContext {
  const int32_t* step;     // the step descriptor
  const DrutPages* pages;  // by KV group
  uint8_t* acts;           // shared activations, acts_bytes
  int64_t acts_bytes;
  uint8_t* scratch;        // one block of scratch_bytes a worker
  int64_t scratch_bytes;
  int32_t* tokens;         // sampled ids, by sample
  int32_t* status;         // by sample: 0, 1 where the logits are not finite, 2 where edits and grammar leave no id
  float* logprobs;         // of the token, by sample
  int32_t* ranks;          // of the token, from 1; 0 where not asked for
  int32_t* top_ids;        // (samples, kMaxTop): the likeliest, then -1
  float* top_logprobs;     // (samples, kMaxTop)
  int32_t* relay;          // by sequence slot, the id of the one sample of a step that writes it
  int64_t* op_ns;          // time of each operation, or null
  const int32_t* chosen;   // the samples to draw, `chosen_count` of them; null: all
  int32_t chosen_count;
  int32_t empty;           // 1: operations meet at their syncs and do nothing else
};
DRUT_LAYOUT(DrutContext, FIELD(step), FIELD(pages), FIELD(acts), FIELD(acts_bytes), FIELD(scratch),
            FIELD(scratch_bytes), FIELD(tokens), FIELD(status), FIELD(logprobs), FIELD(ranks), FIELD(top_ids),
            FIELD(top_logprobs), FIELD(relay), FIELD(op_ns), FIELD(chosen), FIELD(chosen_count), FIELD(empty));

// Decoding steps that follow each other without the host. Every row of the descriptor is its sequence's last one and is
// sampled in order, each sample into its sequence's relay word; its block table reaches as far as `steps` rows more. The
// context's outputs have room for all steps: those of one step lie behind those of the step before.
struct DrutBurst {
  int32_t steps;             // at most so many
  int32_t progress;          // atomic, a futex: twice the steps whose outputs are there, and 1 where no other begins
  int32_t stop;              // atomic, set by the host: the running step is the last
  int32_t reserved;
  const int32_t* end_first;  // (samples + 1): where the ids that end each sample's sequence lie in end_id
  const int32_t* end_id;     // a step that draws one, or logits that are not finite, is the last
};
DRUT_LAYOUT(DrutBurst, FIELD(steps), FIELD(progress), FIELD(stop), FIELD(reserved), FIELD(end_first), FIELD(end_id));

// Header of the step descriptor; capacities fix where the arrays lie (src/drut/kernels/descriptor.py).
struct DrutStepHeader {
  int32_t version, rows, seqs, samples, cap_rows, cap_seqs, cap_samples, cap_blocks, cap_edits, cap_masks, groups, edits;
};
DRUT_LAYOUT(DrutStepHeader, FIELD(version), FIELD(rows), FIELD(seqs), FIELD(samples), FIELD(cap_rows), FIELD(cap_seqs),
            FIELD(cap_samples), FIELD(cap_blocks), FIELD(cap_edits), FIELD(cap_masks), FIELD(groups), FIELD(edits));

namespace {

// The descriptor's arrays, all int32.
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
  const int32_t* masks;                                                          // rows of bits, one an id
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
  // Where a row's keys and values go in a group's pages, and the group's block table of a sequence. Entries of pages
  // that no row sees any more are holes, -1.
  int32_t slot(int group, int row) const { return slots[group * cap_rows + row]; }
  const int32_t* table(int group, int q) const { return blocks + tables[group * cap_seqs + q]; }
};

}  // namespace
