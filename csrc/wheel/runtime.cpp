// The parts of a C++ runtime that the kernels use, for wheels only, so that the library needs no libstdc++. Linking it
// statically is no alternative: it requires the symbols of the glibc with which it was built.
#include <stdlib.h>

#include <new>

namespace {
void* taken(void* memory) {
  if (memory == nullptr) abort();
  return memory;
}

size_t rounded(size_t bytes, std::align_val_t alignment) {
  size_t a = static_cast<size_t>(alignment);
  return (bytes + a - 1) / a * a;
}
}  // namespace

const std::nothrow_t std::nothrow{};

void* operator new(size_t bytes) { return taken(malloc(bytes != 0 ? bytes : 1)); }
void* operator new(size_t bytes, const std::nothrow_t&) noexcept { return malloc(bytes != 0 ? bytes : 1); }
void* operator new(size_t bytes, std::align_val_t alignment, const std::nothrow_t&) noexcept {
  return aligned_alloc(static_cast<size_t>(alignment), rounded(bytes != 0 ? bytes : 1, alignment));
}
void operator delete(void* memory) noexcept { free(memory); }
void operator delete(void* memory, size_t) noexcept { free(memory); }
void operator delete(void* memory, std::align_val_t) noexcept { free(memory); }
void operator delete(void* memory, size_t, std::align_val_t) noexcept { free(memory); }

namespace std {
[[noreturn]] void __throw_length_error(const char*) { abort(); }
}  // namespace std
