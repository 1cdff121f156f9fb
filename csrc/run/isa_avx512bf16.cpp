#if defined(__x86_64__)
#define DRUT_NATIVE_BF16
#include "simd/simd_avx512.h"
#include "run/ops.h"

extern const DrutIsa kIsaAvx512Bf16 = isa("avx512bf16");
#endif
