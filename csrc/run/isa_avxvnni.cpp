#if defined(__x86_64__)
#include "simd/simd_avx2.h"
#include "run/ops.h"

extern const DrutIsa kIsaAvxVnni = isa("avxvnni");
#endif
