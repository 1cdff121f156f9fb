// The C ABI: plain structs that Python mirrors with ctypes (src/drut/kernels/native/abi.py). Sizes are checked at load.
#pragma once
#include <cstdint>

constexpr int32_t kAbiVersion = 9;
constexpr int32_t kStepVersion = 4;
constexpr int kPage = 16;       // tokens of a KV page
constexpr int kChunk = 256;     // tokens of an attention chunk
constexpr int kPanel = 32;      // outputs of a weight panel
constexpr int kGroup = 32;      // elements of an activation group
constexpr int kMaxTop = 20;     // likeliest ids reported for a sample
constexpr int kMaxExperts = 1024;

enum DrutKind : int32_t { kF32, kF16, kBF16, kQ4_0, kQ4_1, kQ8_0, kQ5_0, kQ5_1, kQ2_K, kQ3_K, kQ4_K, kQ5_K,
                          kQ6_K, kIQ4_NL, kMXFP4, kIQ4_XS, kW4, kW8, kNVFP4, kFP8 };
enum DrutScale : int32_t { kScaleF16, kScaleBF16, kScaleF32 };
enum DrutOpCode : int32_t { kEmbed, kRopeTable, kQkv, kAttention, kProject, kGateUp, kHead, kSample, kNop, kAdd, kRoute,
                            kExpertsGateUp, kExpertsDown, kNormalize, kStoreQkv, kActivate };
enum DrutKv : int32_t { kKvBf16, kKvFp32, kKvInt8 };
enum DrutActivation : int32_t { kSilu, kGeluTanh, kGeluErf, kClampedSwiglu };

extern "C" {

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

struct DrutOp { int32_t code, layer; };

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

struct DrutEmbed {
  DrutOp op;
  const DrutMatrix* table;
  float* x;  // (rows, stride)
  int32_t stride;
  float scale;
};

struct DrutRopeTable {
  DrutOp op;
  const double* inv_freq;  // (half)
  float* table;            // (rows, 2*half): cosines, then sines
  int32_t half;
  float scale;
};

struct DrutQkv {  // kStoreQkv: q, k and v are there, and neither x nor the projections are read
  DrutOp op;
  const float* x;
  DrutNorm norm, q_norm, k_norm;  // q_norm, k_norm: of each head, or where they are wide of all together
  const DrutMatrix* q_proj;
  const DrutMatrix* k_proj;
  const DrutMatrix* v_proj;
  const float* rope;  // (rows, 2*half)
  float* q;  // (rows, q_stride)
  float* k;  // (rows, kv_stride)
  float* v;
  int32_t width, stride, q_stride, kv_stride, heads, kv_heads, head_dim, rope_half, kv_dtype;
  int32_t wide_norm;
  int32_t growth_span;  // q is times 1 + growth * log(1 + position / span), the quotient an integer; 0: it is not
  float growth;
  int32_t group, reserved;  // of KV: whose pages and block table
  int64_t layer_offset;     // bytes of this layer inside a page
};

struct DrutAttention {
  DrutOp op;
  const float* q;
  float* out;          // (rows, out_stride)
  const float* sinks;  // (heads): a logit that takes a share of the softmax and gives nothing; or null
  int32_t q_stride, out_stride, heads, kv_heads, head_dim, kv_dtype;
  float scale;
  int32_t out_form;
  int32_t window;  // positions a row sees, its own the last; 0: all
  float cap;       // scores are cap * tanh(score / cap); 0: as they are
  int32_t group, reserved;
  int64_t layer_offset;
};

struct DrutProject {  // x += scale * (in . W), or x = in . W
  DrutOp op;
  const float* in;
  const DrutMatrix* weight;
  float* x;
  const float* row_scale;  // (rows): also times this, or null
  int32_t in_stride, stride, in_form, add;
  float scale;
  int32_t reserved;
};

struct DrutNormalize {  // out = norm(x)
  DrutOp op;
  const float* x;
  DrutNorm norm;
  float* out;
  int32_t width, stride, out_stride, reserved;
};

struct DrutActivate {  // out = activation(gate) * up, or activation(up)
  DrutOp op;
  const float* gate;  // (rows, stride) or null
  const float* up;
  float* out;
  int32_t stride, activation;
};

struct DrutAdd {  // x += scale * norm(in)
  DrutOp op;
  const float* in;
  DrutNorm norm;
  float* x;
  int32_t width, in_stride, stride;
  float scale;
};

struct DrutGateUp {  // out = activation(norm(x) . gate) * (norm(x) . up), or activation(norm(x) . up)
  DrutOp op;
  const float* x;
  DrutNorm norm;
  const DrutMatrix* gate;  // or null
  const DrutMatrix* up;
  float* out;
  int32_t width, stride, out_stride, out_form, activation, reserved;
};

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

struct DrutRoute {
  DrutOp op;
  const float* x;
  DrutNorm norm;
  const DrutMatrix* weight;
  const float* correction;   // (experts), added to what experts are chosen by, or null
  const float* shared_gate;  // (width) or null
  float* logits;             // (rows, logits_stride)
  DrutRoutes* routes;
  int64_t* loads;       // (experts): rows since the start
  int32_t* used_count;  // experts with rows in this step
  int32_t width, stride, logits_stride, sigmoid, normalize, groups, kept_groups;
  float scale;
  int32_t reserved;
};

struct DrutExpertsGateUp {  // out[pair] = activation(norm(x) . gate, norm(x) . up)
  DrutOp op;
  const float* x;
  DrutNorm norm;
  const DrutMatrix* gate;  // (experts), all alike
  const DrutMatrix* up;
  const DrutRoutes* routes;
  float* out;  // (rows * top_k, out_stride)
  int32_t width, stride, out_stride, out_form, activation, reserved;
};

struct DrutExpertsDown {  // x[row] += sum of weight * (in[pair] . down), by rank
  DrutOp op;
  const float* in;
  const DrutMatrix* down;  // (experts), all alike
  const DrutRoutes* routes;
  float* x;
  int32_t in_stride, stride, in_form, reserved;
};

struct DrutHead {  // logits of the sampled rows: scale * (norm(x) . weight), capped like scores of attention
  DrutOp op;
  const float* x;
  DrutNorm norm;
  const DrutMatrix* weight;
  float* logits;  // (samples, logits_stride)
  int32_t width, stride, logits_stride;
  float scale, cap;
  int32_t reserved;
};

struct DrutSample {
  DrutOp op;
  const float* logits;
  int32_t logits_stride, vocab;
};

// The pages of one KV group.
struct DrutPages {
  uint8_t* data;
  int64_t page_bytes;
};

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
  int32_t* relay;          // last sampled id, by sequence slot
  int64_t* op_ns;          // time of each operation, or null
  const int32_t* chosen;   // the samples to draw, `chosen_count` of them; null: all
  int32_t chosen_count;
  int32_t empty;           // 1: operations meet at their syncs and do nothing else
};

// Decoding steps that follow each other without the host. Every row of the descriptor is its sequence's last one and is
// sampled in order; its block table reaches as far as `steps` rows more. The context's outputs have room for all steps:
// those of one step lie behind those of the step before.
struct DrutBurst {
  int32_t steps;             // at most so many
  int32_t progress;          // atomic, a futex: twice the steps whose outputs are there, and 1 where no other begins
  int32_t stop;              // atomic, set by the host: the running step is the last
  int32_t reserved;
  const int32_t* end_first;  // (samples + 1): where the ids that end each sample's sequence lie in end_id
  const int32_t* end_id;     // a step that draws one, or logits that are not finite, is the last
};

// Header of the step descriptor; capacities fix where the arrays lie (src/drut/kernels/descriptor.py).
struct DrutStepHeader {
  int32_t version, rows, seqs, samples, cap_rows, cap_seqs, cap_samples, cap_blocks, cap_edits, cap_masks, groups, edits;
};
}

namespace {

// The descriptor's arrays, all int32.
struct Step {
  int rows, seqs, samples, groups, cap_rows, cap_seqs;
  const int32_t *seq, *position, *slots, *token, *flags, *adapter;                // by row
  const int32_t *first_row, *row_count, *length, *tables, *relay_slot;           // by sequence
  const int32_t *sample_row, *seed_lo, *seed_hi, *choice, *top_k, *target;       // by sample
  const int32_t *top_logprobs, *edit_first, *edit_count, *mask;
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
    seq = take(n); position = take(n); slots = take(n * groups); token = take(n); flags = take(n); adapter = take(n);
    n = h->cap_seqs;
    first_row = take(n); row_count = take(n); length = take(n); tables = take(n * groups); relay_slot = take(n);
    n = h->cap_samples;
    sample_row = take(n); seed_lo = take(n); seed_hi = take(n); choice = take(n); top_k = take(n); target = take(n);
    top_logprobs = take(n); edit_first = take(n); edit_count = take(n); mask = take(n);
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
