#if defined(__x86_64__)
#include "simd_avx512.h"
#include "ops.h"

extern const DrutIsa kIsaAvx512{"avx512", run_op, worker_scratch_bytes, shared_act_row_bytes};
#endif
