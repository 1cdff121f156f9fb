#if defined(__x86_64__)
#include "simd/simd_avx2.h"
#include "run/ops.h"

extern const DrutIsa kIsaAvx2 = isa("avx2");
#endif
