// The table of operations of a plan; the rest of the library knows operations only through it. Every worker runs each
// operation, which ends with a barrier. A new operation is a header with its struct, layout and function, and a row
// here.
#pragma once
#include "attention/attention_op.h"
#include "base/common.h"
#include "moe/experts.h"
#include "matmul/inputs.h"
#include "matmul/matrix_ops.h"
#include "attention/qkv.h"
#include "moe/routing.h"
#include "run/tap.h"
#include "sample/sample_op.h"

namespace {

template <class Struct, void (*body)(const Struct&, const DrutContext&, Worker&)>
void run_as(const DrutOp* op, const DrutContext& c, Worker& w) {
  body(*reinterpret_cast<const Struct*>(op), c, w);
}

template <class Struct, Prefetch (*body)(const Worker&, const Struct&)>
Prefetch prefetch_as(const DrutOp* op, const Worker& w) {
  return body(w, *reinterpret_cast<const Struct*>(op));
}

template <class Struct, void (*body)(const Struct&, const DrutContext&, Worker&)>
constexpr OpRow row(const char* name, Prefetch (*prefetch)(const DrutOp*, const Worker&) = nullptr) {
  return {name, run_as<Struct, body>, prefetch, layout_of<Struct>()};
}

// Indexed by DrutOp's code. Python looks codes up by name, so the order is free.
constexpr OpRow kOps[] = {
    row<DrutEmbed, embed>("embed"),
    row<DrutRopeTable, rope_table>("rope_table"),
    row<DrutQkv, qkv>("qkv", prefetch_as<DrutQkv, prefetch_of_qkv>),
    row<DrutQkv, store_qkv>("store_qkv"),
    row<DrutAttention, attention>("attention"),
    row<DrutProject, project>("project", prefetch_as<DrutProject, prefetch_of_matrix>),
    row<DrutNormalize, normalize_rows>("normalize"),
    row<DrutActivate, activate_rows>("activate"),
    row<DrutAdd, add>("add"),
    row<DrutNormalize, tap>("tap"),
    row<DrutGateUp, gate_up>("gate_up", prefetch_as<DrutGateUp, prefetch_of_gate_up>),
    row<DrutRoute, route>("route", prefetch_as<DrutRoute, prefetch_of_matrix>),
    row<DrutExpertsGateUp, experts_gate_up>("experts_gate_up", prefetch_as<DrutExpertsGateUp, prefetch_of_experts>),
    row<DrutExpertsDown, experts_down>("experts_down", prefetch_as<DrutExpertsDown, prefetch_of_experts>),
    row<DrutHead, head>("head", prefetch_as<DrutHead, prefetch_of_matrix>),
    row<DrutSample, sample>("sample"),
};

// Runs op. Prefetches the weights of `next` at the barriers of op, if the rows of the step are a single block.
void run_op(const DrutOp* op, const DrutOp* next, const DrutContext& c, Worker& w) {
  const bool prefetch = next && w.count > 1 && Step(c.step).rows <= kRowBlock;
  w.prefetch = prefetch ? kOps[next->code].prefetch(next, w) : Prefetch{};
  kOps[op->code].run(op, c, w);
}

// `rows`, `pairs`: limits of a step for models with experts, else 0.
int64_t worker_scratch_bytes(int k, int vocab, int rows, int pairs) {
  int64_t acts = private_bytes(k) + rows * act_row_bytes(k), tiles = int64_t(kDownSpan) * pairs * kPanel * 4;
  int64_t attention = int64_t(sizeof(AttentionMemory)), picks = sample_scratch_bytes(vocab), bytes = acts;
  if (attention > bytes) bytes = attention;
  if (tiles > bytes) bytes = tiles;
  if (picks > bytes) bytes = picks;
  return (bytes + 4095) & ~int64_t(4095);
}

int64_t shared_act_row_bytes(int k) { return act_row_bytes(k) + int64_t(k) * 4; }

constexpr DrutIsa isa(const char* name) {
  return {name, kOps, int32_t(sizeof(kOps) / sizeof(kOps[0])), run_op, worker_scratch_bytes, shared_act_row_bytes};
}

}  // namespace
