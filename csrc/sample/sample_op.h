// The sampling operation: draws a token for each sample, reports its logprobs, and writes the relay words.
#pragma once
#include "base/common.h"
#include "sample/logprobs.h"
#include "sample/sampling.h"

struct DrutSample {
  DrutOp op;
  const float* logits;
  int32_t logits_stride, vocab;
};
DRUT_LAYOUT(DrutSample, FIELD(op), FIELD(logits), FIELD(logits_stride), FIELD(vocab));

namespace {

void sample(const DrutSample& o, const DrutContext& c, Worker& w) {
  Step s(c.step);
  w.parallel_for(c.chosen ? c.chosen_count : s.samples, [&](int which) {
    const int i = c.chosen ? c.chosen[which] : which;
    SampleScratch scratch(w.scratch, o.vocab);
    const float* logits = o.logits + int64_t(i) * o.logits_stride;
    bool finite, given = s.target[i] >= 0;
    float top = scan(logits, o.vocab, scratch.maxima, &finite);
    int token = given ? s.target[i] : 0;
    bool left = !finite || given || draw(logits, o.vocab, top, s, i, scratch, &token);
    c.status[i] = !finite ? 1 : left ? 0 : 2;
    c.tokens[i] = token;
    if (s.relay[i] >= 0) c.relay[s.relay[i]] = token;
    report(logits, o.vocab, top, token, c.status[i] ? -1 : s.top_logprobs[i], scratch,
           {c.logprobs + i, c.ranks + i, c.top_ids + i * kMaxTop, c.top_logprobs + i * kMaxTop});
  });
  w.barrier();
}

}  // namespace
