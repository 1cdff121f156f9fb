#include "simd_portable.h"
#include "ops.h"

extern const DrutIsa kIsaPortable = isa("portable");
