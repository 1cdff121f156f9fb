// What an AArch64 CPU offers beyond the baseline, as the kernel tells it.
#pragma once
#include <sys/auxv.h>

namespace arm {

// Bits of AT_HWCAP and AT_HWCAP2, which older C libraries do not name.
inline bool has_dotprod() { return getauxval(AT_HWCAP) >> 20 & 1; }
inline bool has_i8mm() { return has_dotprod() && (getauxval(AT_HWCAP2) >> 13 & 1); }
inline bool has_afp() { return getauxval(AT_HWCAP2) >> 20 & 1; }

}  // namespace arm
