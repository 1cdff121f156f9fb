// The operations of a plan: one table, which is all the rest of the library knows of them. Each is walked by every worker
// and ends with a sync. A new one is a header with its struct, the struct's layout and its function, and a row here.
#pragma once
#include "attention/attention_op.h"
#include "base/common.h"
#include "moe/experts.h"
#include "matmul/inputs.h"
#include "matmul/matrix_ops.h"
#include "attention/qkv.h"
#include "moe/routing.h"
#include "sample/sample_op.h"

namespace {

template <class Struct, void (*body)(const Struct&, const DrutContext&, Worker&)>
void run_as(const DrutOp* op, const DrutContext& c, Worker& w) {
  body(*reinterpret_cast<const Struct*>(op), c, w);
}

template <class Struct, ReadAhead (*body)(const Worker&, const Struct&)>
ReadAhead weights_of(const DrutOp* op, const Worker& w) {
  return body(w, *reinterpret_cast<const Struct*>(op));
}

template <class Struct, void (*body)(const Struct&, const DrutContext&, Worker&)>
constexpr OpRow row(const char* name, ReadAhead (*weights)(const DrutOp*, const Worker&) = nullptr) {
  return {name, run_as<Struct, body>, weights, layout_of<Struct>()};
}

// By DrutOp's code. Python finds a code by the operation's name: the order is free.
constexpr OpRow kOps[] = {
    row<DrutEmbed, embed>("embed"),
    row<DrutRopeTable, rope_table>("rope_table"),
    row<DrutQkv, qkv>("qkv", weights_of<DrutQkv, first_of_qkv>),
    row<DrutQkv, store_qkv>("store_qkv"),
    row<DrutAttention, attention>("attention"),
    row<DrutProject, project>("project", weights_of<DrutProject, first_of_one>),
    row<DrutNormalize, normalize_rows>("normalize"),
    row<DrutActivate, activate_rows>("activate"),
    row<DrutAdd, add>("add"),
    row<DrutGateUp, gate_up>("gate_up", weights_of<DrutGateUp, first_of_gate_up>),
    row<DrutRoute, route>("route", weights_of<DrutRoute, first_of_one>),
    row<DrutExpertsGateUp, experts_gate_up>("experts_gate_up", weights_of<DrutExpertsGateUp, first_of_experts>),
    row<DrutExpertsDown, experts_down>("experts_down", weights_of<DrutExpertsDown, first_of_experts>),
    row<DrutHead, head>("head", weights_of<DrutHead, first_of_one>),
    row<DrutSample, sample>("sample"),
};

// The weights of `later` are read ahead where the step's rows are one block.
void run_op(const DrutOp* op, const DrutOp* later, const DrutContext& c, Worker& w) {
  const bool ahead = later && w.count > 1 && Step(c.step).rows <= kRowBlock;
  w.ahead = ahead ? kOps[later->code].weights(later, w) : ReadAhead{};
  kOps[op->code].run(op, c, w);
}

// `rows`, `pairs`: of a step of experts, else 0.
int64_t worker_scratch_bytes(int k, int vocab, int rows, int pairs) {
  int64_t acts = private_bytes(k) + rows * act_row_bytes(k), tiles = int64_t(kDownSpan) * pairs * kPanel * 4;
  int64_t combos = kMaxCombos * int64_t(sizeof(Combo)), picks = sample_scratch_bytes(vocab), most = acts;
  if (combos > most) most = combos;
  if (tiles > most) most = tiles;
  if (picks > most) most = picks;
  return (most + 4095) & ~int64_t(4095);
}

int64_t shared_act_row_bytes(int k) { return act_row_bytes(k) + int64_t(k) * 4; }

constexpr DrutIsa isa(const char* name) {
  return {name, kOps, int32_t(sizeof(kOps) / sizeof(kOps[0])), run_op, worker_scratch_bytes, shared_act_row_bytes};
}

}  // namespace
