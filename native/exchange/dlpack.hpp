// DLPack's ABI as this project uses it: the header from the build-time wheel, the names of capsules
// and attributes, and the translation of devices and dtypes.
#pragma once

#include <dlpack/dlpack.h>

#include <cstddef>
#include <cstdint>
#include <string>

#include "arrays/array.hpp"
#include "interpreter/gil.hpp"

namespace gpuinterop::exchange {

#if DLPACK_MAJOR_VERSION != 1 || DLPACK_MINOR_VERSION < 3
#error "gpuinterop is written against DLPack 1.3: update the wheel that carries dlpack/dlpack.h"
#endif

// Other libraries read these structs at fixed offsets, so a header that differs must not compile.
static_assert(sizeof(DLTensor) == 48 && offsetof(DLTensor, byte_offset) == 40);
static_assert(sizeof(DLManagedTensor) == 64 && offsetof(DLManagedTensor, deleter) == 56);
static_assert(sizeof(DLManagedTensorVersioned) == 80 &&
              offsetof(DLManagedTensorVersioned, dl_tensor) == 32);
static_assert(sizeof(DLPackExchangeAPI) == 56);

constexpr uint32_t kMajor = 1, kMinor = 3;  // the highest supported version

// PyCapsule keeps the pointer, not the text, so these must exist until the process ends.
inline constexpr char kLegacyName[] = "dltensor";
inline constexpr char kLegacyUsed[] = "used_dltensor";
inline constexpr char kVersionedName[] = "dltensor_versioned";
inline constexpr char kVersionedUsed[] = "used_dltensor_versioned";
inline constexpr char kApiCapsule[] = "dlpack_exchange_api";

inline DLDevice to_dl(Device d) noexcept {
  return DLDevice{static_cast<DLDeviceType>(d.type), d.id};
}
inline DLDataType to_dl(DTypeId id) noexcept {
  return DLDataType{kDTypes[id].code, kDTypes[id].bits, 1};
}

// Treat pinned and plain host memory alike: a pinned torch tensor reports either.
inline bool is_host(int32_t device_type) noexcept {
  return device_type == kDLCPU || device_type == kDLCUDAHost || device_type == kDLROCMHost;
}
inline bool is_cuda(int32_t device_type) noexcept {
  return device_type == kDLCUDA || device_type == kDLCUDAManaged;
}
std::string device_text(int32_t device_type, int32_t device_id);  // also of other types

// Calls the deleter of a struct that a producer may own. If the deleter throws, only the struct is lost.
template <class Managed>
void call_deleter(Managed* m) noexcept {
  try {
    if (m->deleter) m->deleter(m);
  } catch (...) {
  }
}

}  // namespace gpuinterop::exchange
