#if defined(__x86_64__)
#include "simd/simd_avx512.h"
#include "run/ops.h"

extern const DrutIsa kIsaAvx512 = isa("avx512");
#endif
