#if defined(__aarch64__)
#include "simd_neon.h"
#include "ops.h"

extern const DrutIsa kIsaNeon = isa("neon");
#endif
