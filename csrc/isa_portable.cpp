#include "simd_portable.h"
#include "ops.h"

extern const DrutIsa kIsaPortable{"portable", run_op, worker_scratch_bytes, shared_act_row_bytes};
