#include "simd/simd_portable.h"
#include "run/ops.h"

extern const DrutIsa kIsaPortable = isa("portable");
