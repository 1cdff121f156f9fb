// Decoding steps that follow each other without the host (DrutBurst in abi.h).
#pragma once
#include "base/abi.h"

// After a step: says whether another follows, rewrites the descriptor for it, and lets the host have the outputs of
// the one that ended. One worker calls it, between two meetings.
void end_step(DrutBurst& burst, const DrutContext& context);
bool burst_over(const DrutBurst& burst);
// Moves the context's outputs on to the next step's.
void next_outputs(DrutContext& context);
void burst_wait(DrutBurst& burst, int32_t seen, int64_t timeout_ns);
void burst_abandon(DrutBurst& burst);
