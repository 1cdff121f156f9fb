#if defined(__x86_64__)
#define DRUT_NATIVE_BF16
#include "simd_avx512.h"
#include "ops.h"

extern const DrutIsa kIsaAvx512Bf16{"avx512bf16", run_op, worker_scratch_bytes, shared_act_row_bytes};
#endif
