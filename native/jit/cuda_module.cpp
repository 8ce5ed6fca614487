#include "jit/cuda_module.hpp"

#include <cstring>

#include "devices/device_state.hpp"

namespace gpuinterop::cuda {

std::shared_ptr<Module> Module::load(int device, const void* image, const char* where) {
  constexpr unsigned kLogBytes = 8192;
  DeviceGuard guard(device);
  auto log = std::make_unique<char[]>(kLogBytes);
  log[0] = 0;
  CUjit_option options[] = {CU_JIT_ERROR_LOG_BUFFER, CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES};
  // The driver takes scalar options in place of the pointer.
  void* values[] = {log.get(), reinterpret_cast<void*>(uintptr_t(kLogBytes))};
  CUmodule handle = nullptr;
  // Loading may allocate, independently of any graph, and may wait for work that needs the GIL.
  const CUresult code =
      call_blocking([&] { return driver().ModuleLoadDataEx(&handle, image, 2, options, values); });
  if (code != CUDA_SUCCESS) {
    log[kLogBytes - 1] = 0;
    try {
      check(code, "cuModuleLoadDataEx", where);
    } catch (Error& e) {
      if (log[0]) e.got += std::string("; its log: ") + log.get();
      throw;
    }
  }
  return std::shared_ptr<Module>(new Module(device, handle));
}

Module::~Module() {
  // Unloading synchronises with the device, which would break a capture, so keep the module loaded during
  // one.
  if (kept_ || driver_is_gone() || any_capture()) return;
  try {
    DeviceGuard guard(device_);
    call_blocking([&] { return driver().ModuleUnload(handle_); });
  } catch (...) {  // no context to unload from
  }
}

Kernel Module::kernel(const char* name, const char* where) const {
  DeviceGuard guard(device_);
  Kernel out{nullptr, device_, name};
  // If modules are loaded lazily, this call loads the module.
  const CUresult code =
      call_blocking([&] { return driver().ModuleGetFunction(&out.function, handle_, name); });
  if (code == CUDA_ERROR_NOT_FOUND)
    fail(Kind::Cuda, where, "a kernel called " + out.name + " in the module", describe(code),
         "name a kernel that the module has");
  check(code, "cuModuleGetFunction", where);
  return out;
}

void allow_shared_memory(const Kernel& kernel, int nbytes, const char* where) {
  DeviceGuard guard(kernel.device);
  RelaxedCapture relaxed;
  check(driver().FuncSetAttribute(kernel.function, CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES,
                                  nbytes),
        "cuFuncSetAttribute", where);
}

int function_attribute(const Kernel& kernel, CUfunction_attribute what, const char* where) {
  DeviceGuard guard(kernel.device);
  RelaxedCapture relaxed;
  int value = 0;
  check(driver().FuncGetAttribute(&value, what, kernel.function), "cuFuncGetAttribute", where);
  return value;
}

std::optional<std::vector<size_t>> parameter_sizes(const Kernel& kernel) {
  if (!driver().FuncGetParamInfo) return std::nullopt;
  DeviceGuard guard(kernel.device);
  RelaxedCapture relaxed;
  std::vector<size_t> sizes;
  for (;;) {
    size_t offset = 0, size = 0;
    const CUresult code = driver().FuncGetParamInfo(kernel.function, sizes.size(), &offset, &size);
    if (code == CUDA_ERROR_INVALID_VALUE) return sizes;  // there are no more
    if (code != CUDA_SUCCESS) return std::nullopt;
    sizes.push_back(size);
  }
}

int compute_capability(int device, const char* where) {
  const CUdevice of = device_state(device, where).device;
  auto get = [&](CUdevice_attribute what) {
    int value = 0;
    check(driver().DeviceGetAttribute(&value, what, of), "cuDeviceGetAttribute", where);
    return value;
  };
  return 10 * get(CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR) +
         get(CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR);
}

namespace {

// From this driver on captures record that a kernel starts while the kernel before it ends.
constexpr int kRecordsOverlaps = 12030;

CUresult launch_overlapping(const Kernel& kernel, const Launch& how, CUstream stream,
                            void** arguments) {
  CUlaunchAttribute overlaps{};
  overlaps.id = CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION;
  overlaps.value.programmaticStreamSerializationAllowed = 1;
  CUlaunchConfig config{};
  config.gridDimX = how.grid[0], config.gridDimY = how.grid[1], config.gridDimZ = how.grid[2];
  config.blockDimX = how.block[0], config.blockDimY = how.block[1], config.blockDimZ = how.block[2];
  config.sharedMemBytes = how.shared_bytes;
  config.hStream = stream;
  config.attrs = &overlaps;
  config.numAttrs = 1;
  return driver().LaunchKernelEx(&config, kernel.function, arguments, nullptr);
}

}  // namespace

void launch_here(const Kernel& kernel, const Launch& how, CUstream stream, void** arguments,
                 const char* where) {
  const bool overlaps =
      how.overlaps && driver().LaunchKernelEx && driver().version >= kRecordsOverlaps;
  CUresult code = overlaps
                      ? launch_overlapping(kernel, how, stream, arguments)
                      : driver().LaunchKernel(kernel.function, how.grid[0], how.grid[1],
                                              how.grid[2], how.block[0], how.block[1], how.block[2],
                                              how.shared_bytes, stream, arguments, nullptr);
  if (code != CUDA_SUCCESS) [[unlikely]]
    check(code, ("cuLaunchKernel of " + kernel.name).c_str(), where);
}

}  // namespace gpuinterop::cuda
