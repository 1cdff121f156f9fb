// Describes the structs of the C ABI to Python, which mirrors them: the name, offset and size of each field.
#pragma once
#include <cstddef>
#include <cstdint>

struct DrutField {
  const char* name;
  int32_t offset, size;
};
struct DrutLayout {
  const char* name;
  const DrutField* fields;
  int32_t count, size;
};

namespace {

// True if the fields are in order and cover every byte: a missing field or hidden padding does not compile.
template <int N> constexpr bool covers(const DrutField (&fields)[N], int32_t size) {
  int32_t end = 0;
  for (int i = 0; i < N; ++i) {
    if (fields[i].offset != end) return false;
    end += fields[i].size;
  }
  return end == size;
}

template <class Struct> struct Fields;

template <class Struct> constexpr DrutLayout layout_of() {
  using F = Fields<Struct>;
  static_assert(covers(F::all, sizeof(Struct)), "every byte of the struct is a field of its layout, in order");
  return {F::name, F::all, int32_t(sizeof(F::all) / sizeof(F::all[0])), int32_t(sizeof(Struct))};
}

}  // namespace

// Usage: DRUT_LAYOUT(Struct, FIELD(first), FIELD(second), ...);
#define FIELD(name) {#name, int32_t(offsetof(Self, name)), int32_t(sizeof(Self::name))}
#define DRUT_LAYOUT(Struct, ...)                       \
  namespace {                                          \
  template <> struct Fields<Struct> {                  \
    using Self = Struct;                               \
    static constexpr const char* name = #Struct;       \
    static constexpr DrutField all[] = {__VA_ARGS__};  \
  };                                                   \
  }                                                    \
  static_assert(true, "takes the semicolon")
