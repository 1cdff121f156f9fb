// The same 256-bit kernels as avxvnni, in the encoding of AVX-512: they run, and are tested, where only that is had.
#if defined(__x86_64__)
#include "simd/simd_avx2.h"
#include "run/ops.h"

extern const DrutIsa kIsaAvx512Vl = isa("avx512vl");
#endif
