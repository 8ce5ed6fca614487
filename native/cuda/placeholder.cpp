// Weak stand-ins until the driver layer is in; every strong definition replaces its own.
#include "array/error.hpp"
#include "cuda/cuda.hpp"

#define GI_WEAK __attribute__((weak))

namespace gpuinterop::cuda {

[[noreturn]] static void missing(const char* where) {
  fail(Kind::Library, where, "a CUDA driver", "none", "use device 'cpu'");
}
GI_WEAK DeviceGuard::DeviceGuard(int) { missing("DeviceGuard"); }
GI_WEAK DeviceGuard::~DeviceGuard() {}
GI_WEAK CUstream current_stream(int) noexcept { return nullptr; }
GI_WEAK void order_slow(Buffer*, CUstream, const char* where) { missing(where); }
GI_WEAK void copy_bytes(int, void*, const void*, int64_t, Direction, CUstream, bool, const char* where) {
  missing(where);
}
GI_WEAK void copy_peer(int, void*, int, const void*, int64_t, CUstream, const char* where) {
  missing(where);
}
GI_WEAK void fill_bytes(int, void*, const void*, int, int64_t, CUstream, const char* where) {
  missing(where);
}

}  // namespace gpuinterop::cuda
