#include "arrays/dtype.hpp"

#include <string_view>

namespace gpuinterop {

// clang-format off
constexpr DTypeRow kDTypes[] = {
    {"bool", 6, 8, 1, 'b'},           {"int8", 0, 8, 1, 'i'},
    {"int16", 0, 16, 2, 'i'},         {"int32", 0, 32, 4, 'i'},
    {"int64", 0, 64, 8, 'i'},         {"uint8", 1, 8, 1, 'u'},
    {"uint16", 1, 16, 2, 'u'},        {"uint32", 1, 32, 4, 'u'},
    {"uint64", 1, 64, 8, 'u'},        {"float16", 2, 16, 2, 'f'},
    {"float32", 2, 32, 4, 'f'},       {"float64", 2, 64, 8, 'f'},
    {"complex64", 5, 64, 8, 'c'},     {"complex128", 5, 128, 16, 'c'},
    {"bfloat16", 4, 16, 2, 'V'},      {"float8_e3m4", 7, 8, 1, 'V'},
    {"float8_e4m3", 8, 8, 1, 'V'},    {"float8_e4m3b11fnuz", 9, 8, 1, 'V'},
    {"float8_e4m3fn", 10, 8, 1, 'V'}, {"float8_e4m3fnuz", 11, 8, 1, 'V'},
    {"float8_e5m2", 12, 8, 1, 'V'},   {"float8_e5m2fnuz", 13, 8, 1, 'V'},
    {"float8_e8m0fnu", 14, 8, 1, 'V'}, {"float6_e2m3fn", 15, 6, 1, 'V'},
    {"float6_e3m2fn", 16, 6, 1, 'V'}, {"float4_e2m1fn", 17, 4, 1, 'V'},
    {"int4", 0, 4, 1, 'V'},           {"uint4", 1, 4, 1, 'V'},
    {"int2", 0, 2, 1, 'V'},           {"uint2", 1, 2, 1, 'V'},
    {"int1", 0, 1, 1, 'V'},           {"uint1", 1, 1, 1, 'V'},
    {"complex32", 5, 32, 4, 'V'},
};
// clang-format on
static_assert(std::string_view(kDTypes[kInt64].name) == "int64" &&
              std::string_view(kDTypes[kUInt64].name) == "uint64" &&
              std::string_view(kDTypes[kFloat64].name) == "float64" &&
              std::string_view(kDTypes[kComplex128].name) == "complex128" &&
              std::string_view(kDTypes[kBFloat16].name) == "bfloat16");
const int kDTypeCount = sizeof(kDTypes) / sizeof(kDTypes[0]);

int dtype_from_dlpack(uint8_t code, uint8_t bits) noexcept {
  if (code == 2 && bits == 32) return kFloat32;
  for (int i = 0; i < kDTypeCount; ++i)
    if (kDTypes[i].code == code && kDTypes[i].bits == bits) return i;
  return -1;
}

std::string typestr_of(DTypeId id) {
  const DTypeRow& row = kDTypes[id];
  if (row.kind != 'V')
    return std::string(row.itemsize == 1 ? "|" : "<") + row.kind + std::to_string(row.itemsize);
  return id == kBFloat16 ? "<V2" : "";
}

}  // namespace gpuinterop
