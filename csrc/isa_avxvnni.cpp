#if defined(__x86_64__)
#include "simd_avx2.h"
#include "ops.h"

extern const DrutIsa kIsaAvxVnni = isa("avxvnni");
#endif
