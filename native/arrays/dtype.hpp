// Element types: one table, in DLPack's codes. NumPy objects, typestrs and CUDA names are found by the index of a row.
// Python reads the names in this order (_core.DTYPE_NAMES).
#pragma once

#include <cstdint>
#include <string>

namespace gpuinterop {

struct DTypeRow {
  const char* name;  // NumPy's or ml_dtypes' name
  uint8_t code;      // DLDataTypeCode
  uint8_t bits;      // bits of one element as DLPack counts them
  uint8_t itemsize;  // bytes one element occupies; > bits/8 only for sub-byte types (padded)
  char kind;         // NumPy's typestr letter; 'V' where typestr has none
};

using DTypeId = uint8_t;  // index into the table

extern const DTypeRow kDTypes[];
extern const int kDTypeCount;

constexpr DTypeId kBool = 0, kInt8 = 1, kInt16 = 2, kInt32 = 3, kInt64 = 4, kUInt8 = 5, kUInt16 = 6,
                  kUInt32 = 7, kUInt64 = 8, kFloat16 = 9, kFloat32 = 10, kFloat64 = 11,
                  kComplex64 = 12, kComplex128 = 13, kBFloat16 = 14;

// -1 when the table has no such type.
int dtype_from_dlpack(uint8_t code, uint8_t bits) noexcept;
// NumPy's typestr, or "" for types for which no reader would understand one.
std::string typestr_of(DTypeId id);

inline int64_t itemsize_of(DTypeId id) noexcept { return kDTypes[id].itemsize; }
inline bool is_complex(DTypeId id) noexcept { return kDTypes[id].code == 5; }
// Whether it is an integer of 8 bits or more; bool is not.
inline bool is_integer(DTypeId id) noexcept {
  return kDTypes[id].code <= 1 && kDTypes[id].bits >= 8;
}
inline bool is_subbyte(DTypeId id) noexcept { return kDTypes[id].bits < 8; }

}  // namespace gpuinterop
