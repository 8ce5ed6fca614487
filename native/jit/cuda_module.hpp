// Compiled kernels: loading them into a device's primary context, and launching.
#pragma once

#include <atomic>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "devices/cuda.hpp"

namespace gpuinterop::cuda {

// A kernel of a loaded module. Valid until its Module is destroyed.
struct Kernel {
  CUfunction function = nullptr;
  int device = 0;
  std::string name;
};

struct Launch {
  unsigned grid[3] = {1, 1, 1};
  unsigned block[3] = {1, 1, 1};
  unsigned shared_bytes = 0;  // dynamic
  bool overlaps = false;      // starts while the kernel before it ends, and waits for it itself
};

// A cubin, fatbin or zero-terminated PTX image in one device's primary context. Unloaded with its last
// owner, except at process exit or in a forked child, where the driver frees it.
class Module {
 public:
  // The image may be freed afterwards. Kind::Cuda with the driver's log if loading fails.
  static std::shared_ptr<Module> load(int device, const void* image, const char* where);
  ~Module();
  Module(const Module&) = delete;
  Module& operator=(const Module&) = delete;

  Kernel kernel(const char* name, const char* where) const;
  // Never unload it: a CUDA graph of any library may hold its functions, and does not report its end.
  void keep_loaded() noexcept { kept_.store(true, std::memory_order_relaxed); }
  bool is_kept_loaded() const noexcept { return kept_.load(std::memory_order_relaxed); }

 private:
  Module(int device, CUmodule handle) : device_(device), handle_(handle) {}
  int device_;
  CUmodule handle_;
  std::atomic<bool> kept_{false};
};

// Kernels may use 48 KiB of dynamic shared memory unless this function raises their limit.
void allow_shared_memory(const Kernel& kernel, int nbytes, const char* where);
int function_attribute(const Kernel& kernel, CUfunction_attribute what, const char* where);
// Bytes of each parameter; nothing from a driver before 12.4, which does not report them.
std::optional<std::vector<size_t>> parameter_sizes(const Kernel& kernel);
// 90 for sm_90.
int compute_capability(int device, const char* where);

// Launches in the current context, that of the kernel's device (DeviceGuard). The driver copies the
// arguments before it returns. The kernel's name is in the error.
void launch_here(const Kernel& kernel, const Launch& how, CUstream stream, void** arguments,
                 const char* where);

}  // namespace gpuinterop::cuda
