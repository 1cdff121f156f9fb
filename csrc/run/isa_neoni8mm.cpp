#if defined(__aarch64__)
#include "simd/simd_neon.h"
#include "run/ops.h"

extern const DrutIsa kIsaNeonI8mm = isa("neoni8mm");
#endif
