// Features of an AArch64 CPU beyond the baseline, as the kernel reports them.
#pragma once
#include <sys/auxv.h>
#include <cstdint>

namespace arm {

// Bits of AT_HWCAP and AT_HWCAP2. Older C libraries have no names for them.
inline bool has_dotprod() { return getauxval(AT_HWCAP) >> 20 & 1; }
inline bool has_i8mm() { return has_dotprod() && (getauxval(AT_HWCAP2) >> 13 & 1); }

// Alternate floating-point behaviour (Armv8.7), from ID_AA64MMFR1_EL1. The kernel reports in AT_HWCAP whether programs
// may read that register. The capability bit of AFP itself is not used, because emulators do not set it.
inline bool has_afp() {
  if (!(getauxval(AT_HWCAP) >> 11 & 1)) return false;
  uint64_t features;
  asm("mrs %0, s3_0_c0_c7_1" : "=r"(features));
  return features >> 44 & 15;
}

}  // namespace arm
