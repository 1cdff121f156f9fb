// Several decoding steps in one call, without the host between them (DrutBurst in base/abi.h).
#pragma once
#include "base/abi.h"

// Ends a step: decides whether another follows, rewrites the descriptor for it, and publishes the outputs of this step
// to the host. Only one worker may call it, between two barriers: the first makes all outputs visible to it, the second
// makes the new descriptor visible to the others.
void end_step(DrutBurst& burst, const DrutContext& context);
bool burst_over(const DrutBurst& burst);
// Advances the output pointers of the context to the next step.
void next_outputs(DrutContext& context);
void burst_wait(DrutBurst& burst, int32_t seen, int64_t timeout_ns);
void burst_abandon(DrutBurst& burst);
