#if defined(__aarch64__)
#include "simd/simd_neon.h"
#include "run/ops.h"

extern const DrutIsa kIsaNeon = isa("neon");
#endif
