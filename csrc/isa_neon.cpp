#if defined(__aarch64__)
#include "simd_neon.h"
#include "ops.h"

extern const DrutIsa kIsaNeon{"neon", run_op, worker_scratch_bytes, shared_act_row_bytes};
#endif
