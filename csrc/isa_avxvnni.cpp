#if defined(__x86_64__)
#include "simd_avx2.h"
#include "ops.h"

extern const DrutIsa kIsaAvxVnni{"avxvnni", run_op, worker_scratch_bytes, shared_act_row_bytes};
#endif
