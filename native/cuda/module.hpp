// Compiled kernels: loading them into a device's primary context, and launching.
#pragma once

#include <atomic>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "cuda/cuda.hpp"

namespace gpuinterop::cuda {

// A kernel of a loaded module. Valid as long as its Module lives.
struct Kernel {
  CUfunction function = nullptr;
  int device = 0;
  std::string name;
};

struct Launch {
  unsigned grid[3] = {1, 1, 1};
  unsigned block[3] = {1, 1, 1};
  unsigned shared_bytes = 0;  // dynamic
};

// A cubin, fatbin or zero-terminated PTX image in one device's primary context. Goes with its last
// owner, except at process exit or in a forked child, where it is left to the driver.
class Module {
 public:
  // The image may be freed afterwards. Kind::Cuda with the driver's log when it does not load; null
  // instead when the image itself is what the driver refuses and it `may_be_refused`.
  static std::shared_ptr<Module> load(int device, const void* image, const char* where,
                                      bool may_be_refused = false);
  ~Module();
  Module(const Module&) = delete;
  Module& operator=(const Module&) = delete;

  Kernel kernel(const char* name, const char* where) const;
  // Address and size of a __device__ or __constant__ variable.
  void* global(const char* name, int64_t* nbytes, const char* where) const;
  int device() const noexcept { return device_; }
  // Never unload it: a CUDA graph, of any library, may hold its functions. Nobody is told of its end.
  void keep_loaded() noexcept { kept_.store(true, std::memory_order_relaxed); }
  bool is_kept_loaded() const noexcept { return kept_.load(std::memory_order_relaxed); }

 private:
  Module(int device, CUmodule handle) : device_(device), handle_(handle) {}
  int device_;
  CUmodule handle_;
  std::atomic<bool> kept_{false};
};

// Loads what compile(false) returns, or else what compile(true) does: an image from a cache may be of
// another time and driver, a fresh one is not.
template <class Compile>
std::shared_ptr<Module> load_or_recompile(int device, Compile compile, const char* where) {
  const auto kept = compile(false);
  if (auto module = Module::load(device, kept.c_str(), where, true)) return module;
  const auto fresh = compile(true);
  return Module::load(device, fresh.c_str(), where);
}

// Kernels may use 48 KiB of dynamic shared memory unless they ask for more.
void allow_shared_memory(const Kernel& kernel, int nbytes, const char* where);
int function_attribute(const Kernel& kernel, CUfunction_attribute what, const char* where);
// Bytes of each parameter; nothing from a driver before 12.4, which cannot tell.
std::optional<std::vector<size_t>> parameter_sizes(const Kernel& kernel);
// Blocks that one multiprocessor holds at a time.
int blocks_per_multiprocessor(const Kernel& kernel, int threads, int shared_bytes,
                              const char* where);

// What launch geometry needs, read once for each device.
struct DeviceLimits {
  int multiprocessors, compute_capability;  // 90 for sm_90
  int max_threads_per_block, max_shared_per_block, max_shared_optin, warp_size;
  int64_t total_bytes, l2_bytes;
};
const DeviceLimits& device_limits(int device, const char* where);

// The driver copies the arguments before it returns. The kernel's name and geometry are in the error.
void launch_failed(const Kernel& kernel, const Launch& how, CUresult code, const char* where);
void launch(const Kernel& kernel, const Launch& how, CUstream stream, void** arguments,
            const char* where);
// The same when the caller already holds a DeviceGuard for the kernel's device.
void launch_here(const Kernel& kernel, const Launch& how, CUstream stream, void** arguments,
                 const char* where);

}  // namespace gpuinterop::cuda
