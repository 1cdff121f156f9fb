#if defined(__aarch64__)
#include "simd_neon.h"
#include "ops.h"

extern const DrutIsa kIsaNeonI8mm = isa("neoni8mm");
#endif
