// The 256-bit kernels of avxvnni in the encoding of AVX-512, to run and test them on CPUs without AVX-VNNI.
#if defined(__x86_64__)
#include "simd/simd_avx2.h"
#include "run/ops.h"

extern const DrutIsa kIsaAvx512Vl = isa("avx512vl");
#endif
