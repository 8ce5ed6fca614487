// Devices, memory statistics, streams and events for Python. None of this code is performance-critical.
#include <nanobind/nanobind.h>

#include <string>

#include "devices/cuda.hpp"
#include "devices/device_objects.hpp"
#include "devices/device_state.hpp"
#include "devices/memory.hpp"
#include "devices/pinned.hpp"
#include "interpreter/error_translation.hpp"
#include "interpreter/register.hpp"

namespace nb = nanobind;

namespace gpuinterop {

namespace {

// The names are those of the runtime API's structure, because existing scripts use them.
const struct {
  const char* name;
  CUdevice_attribute what;
} attributes[] = {
    {"major", CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR},
    {"minor", CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR},
    {"multiProcessorCount", CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT},
    {"totalConstMem", CU_DEVICE_ATTRIBUTE_TOTAL_CONSTANT_MEMORY},
    {"sharedMemPerBlock", CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK},
    {"sharedMemPerBlockOptin", CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN},
    {"regsPerBlock", CU_DEVICE_ATTRIBUTE_MAX_REGISTERS_PER_BLOCK},
    {"warpSize", CU_DEVICE_ATTRIBUTE_WARP_SIZE},
    {"maxThreadsPerBlock", CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_BLOCK},
    {"maxThreadsDim0", CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_X},
    {"maxThreadsDim1", CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_Y},
    {"maxThreadsDim2", CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_Z},
    {"maxGridSize0", CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_X},
    {"maxGridSize1", CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_Y},
    {"maxGridSize2", CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_Z},
    {"memPitch", CU_DEVICE_ATTRIBUTE_MAX_PITCH},
    {"textureAlignment", CU_DEVICE_ATTRIBUTE_TEXTURE_ALIGNMENT},
    {"clockRate", CU_DEVICE_ATTRIBUTE_CLOCK_RATE},
    {"memoryClockRate", CU_DEVICE_ATTRIBUTE_MEMORY_CLOCK_RATE},
    {"memoryBusWidth", CU_DEVICE_ATTRIBUTE_GLOBAL_MEMORY_BUS_WIDTH},
    {"l2CacheSize", CU_DEVICE_ATTRIBUTE_L2_CACHE_SIZE},
    {"deviceOverlap", CU_DEVICE_ATTRIBUTE_GPU_OVERLAP},
    {"asyncEngineCount", CU_DEVICE_ATTRIBUTE_ASYNC_ENGINE_COUNT},
    {"kernelExecTimeoutEnabled", CU_DEVICE_ATTRIBUTE_KERNEL_EXEC_TIMEOUT},
    {"integrated", CU_DEVICE_ATTRIBUTE_INTEGRATED},
    {"canMapHostMemory", CU_DEVICE_ATTRIBUTE_CAN_MAP_HOST_MEMORY},
    {"computeMode", CU_DEVICE_ATTRIBUTE_COMPUTE_MODE},
    {"concurrentKernels", CU_DEVICE_ATTRIBUTE_CONCURRENT_KERNELS},
    {"ECCEnabled", CU_DEVICE_ATTRIBUTE_ECC_ENABLED},
    {"tccDriver", CU_DEVICE_ATTRIBUTE_TCC_DRIVER},
    {"memoryPoolsSupported", CU_DEVICE_ATTRIBUTE_MEMORY_POOLS_SUPPORTED},
};

nb::dict device_properties(int ordinal) {
  // Read everything without a context, because creating one takes time and much of the GPU's memory.
  const char* where = "device_properties";
  cuda::require(where);
  const cuda::Driver& cu = cuda::driver();
  if (ordinal < 0 || ordinal >= cu.devices)
    fail_with("no_such_device", where, {int64_t{cu.devices}, int64_t{ordinal}});
  CUdevice device;
  size_t total = 0;
  cuda::check(cu.DeviceGet(&device, ordinal), "cuDeviceGet", where);
  cuda::check(cu.DeviceTotalMem(&total, device), "cuDeviceTotalMem", where);
  nb::dict out;
  char name[256] = "";
  cuda::check(cu.DeviceGetName(name, sizeof name, device), "cuDeviceGetName", where);
  out["name"] = name;
  out["driverVersion"] = cu.version;
  out["totalGlobalMem"] = int64_t(total);
  for (const auto& a : attributes) {
    int value = 0;
    // An attribute that an old driver does not support reads as 0.
    cu.DeviceGetAttribute(&value, a.what, device);
    out[a.name] = value;
  }
  return out;
}

nb::tuple mem_info(int ordinal) {
  cuda::DeviceGuard guard(ordinal);
  size_t free_bytes = 0, total = 0;
  cuda::RelaxedCapture relaxed;
  cuda::check(cuda::driver().MemGetInfo(&free_bytes, &total), "cuMemGetInfo", "mem_info");
  return nb::make_tuple(free_bytes, total);
}

nb::dict memory_statistics(int type, int id) {
  Device device{DeviceType(type), id};
  Statistics& s = statistics(device);
  nb::dict out;
  out["live_bytes"] = s.live_bytes.load();
  out["live_buffers"] = s.live_buffers.load();
  out["peak_bytes"] = s.peak_bytes.load();
  out["live_arrays"] = s.live_arrays.load();
  int64_t cached = 0, reserved = 0;
  if (cuda::DeviceState* d = device.is_cuda() ? cuda::started_device(id) : nullptr) {
    cached = d->cache.bytes();
    cuuint64_t held = 0;
    cuda::RelaxedCapture relaxed;  // querying the pool would break a capture of any stream
    if (cuda::context_exists(*d) &&
        cuda::driver().MemPoolGetAttribute(d->pool, CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT, &held) ==
            CUDA_SUCCESS)
      reserved = int64_t(held);
  }
  out["cached_bytes"] = cached;
  out["pool_bytes"] = reserved;
  return out;
}

void reset_peak(int type, int id) {
  Statistics& s = statistics({DeviceType(type), id});
  s.peak_bytes.store(s.live_bytes.load());
}

void empty_cache(int ordinal) {
  cuda::DeviceGuard guard(ordinal);
  cuda::trim_memory(cuda::device_state(ordinal, "empty_cache"));
  cuda::release_idle_pinned();
}

void synchronize(int ordinal) {
  cuda::DeviceGuard guard(ordinal);
  cuda::presume_captures_over();
  if (cuda::any_capture())
    fail(Kind::Capture, "synchronize", "no graph capture in progress",
         "a graph capture that this call would break",
         "synchronise before the capture begins or after it ends");
  cuda::check(cuda::call_blocking([] { return cuda::driver().CtxSynchronize(); }),
              "cuCtxSynchronize", "synchronize");
  cuda::drain_deferred();
}

uintptr_t current_context() {
  CUcontext current = nullptr;
  if (cuda::available())
    cuda::check(cuda::driver().CtxGetCurrent(&current), "cuCtxGetCurrent", "gpuinterop");
  return reinterpret_cast<uintptr_t>(current);
}

nb::dict inspect_pointer(uintptr_t address) {
  cuda::PointerInfo info = cuda::inspect(reinterpret_cast<void*>(address));
  nb::dict out;
  out["known"] = info.known;
  out["memory"] = memory_name(info.known ? info.memory : Memory::Host);
  out["device"] = info.device;
  out["same_context"] = info.same_context;
  out["start"] = reinterpret_cast<uintptr_t>(info.range_start);
  out["nbytes"] = info.range_bytes;
  return out;
}

}  // namespace

void register_cuda(nb::module_& m) {
  m.def("cuda_available", &cuda::available,
        "Return whether the CUDA driver works and has a device.");
  m.def("cuda_device_count", &cuda::device_count,
        "Return the number of CUDA devices, 0 without a driver.");
  m.def("cuda_unavailable_reason", &cuda::unavailable_reason,
        "Return why CUDA is unavailable, or ''.");
  m.def(
      "cuda_driver_version", [] { return cuda::driver().version; },
      "Return the CUDA version of the driver: 13000 for CUDA 13.0, 0 without a driver.");
  m.def(
      "cuda_library_path", [] { return cuda::driver().path; },
      "Return the path of the loaded libcuda, or ''.");
  m.def("cuda_forked", &cuda::forked,
        "Return whether the parent process had initialised CUDA before it forked this one.");
  m.def("cuda_device_properties", &device_properties, nb::arg("ordinal"),
        "Return the properties of a device by their names in the runtime API.");
  m.def("cuda_mem_info", &mem_info, nb::arg("ordinal"), "Return (free, total) bytes of a device.");
  m.def("memory_statistics", &memory_statistics, nb::arg("device_type"), nb::arg("device_id"),
        "Return the bytes and buffers that gpuinterop holds on a device.");
  m.def("reset_peak", &reset_peak, nb::arg("device_type"), nb::arg("device_id"),
        "Reset the peak to the bytes that are live now.");
  m.def("cuda_empty_cache", &empty_cache, nb::arg("ordinal"),
        "Return cached memory to the driver and the system.");
  m.def("cuda_synchronize", &synchronize, nb::arg("ordinal"),
        "Wait for all work that is queued on a device.");
  m.def(
      "cuda_started", [](int ordinal) { return cuda::started_device(ordinal) != nullptr; },
      nb::arg("ordinal"), "Return whether gpuinterop has used a device in this process.");
  m.def("current_context", &current_context,
        "Return the handle of the CUDA context that is current in this thread, 0 for none.");
  m.def(
      "set_current_context",
      [](uintptr_t handle) {
        // The driver refuses a context that was destroyed meanwhile; then keep the current one.
        if (cuda::available()) cuda::driver().CtxSetCurrent(reinterpret_cast<CUcontext>(handle));
      },
      nb::arg("handle"), "Make another CUDA context current in this thread.");
  m.def("inspect_pointer", &inspect_pointer, nb::arg("address"),
        "Return the driver's data on an address: known, memory, device, same_context, start, "
        "nbytes.");
  m.def(
      "is_pinned_here",
      [](uintptr_t address, int64_t nbytes) {
        return cuda::is_pinned_here(reinterpret_cast<void*>(address), nbytes);
      },
      nb::arg("address"), nb::arg("nbytes"),
      "Return whether these bytes are in memory of pinned_bytes().");
  m.def("capturing", &cuda::any_capture,
        "Return whether a stream is known to be captured into a graph.");
  register_streams(m);
  m.def("_cuda_shutdown", &cuda::set_exiting,
        "Leave all memory to the driver, because the process ends.");
  nb::module_::import_("atexit").attr("register")(m.attr("_cuda_shutdown"));
}

}  // namespace gpuinterop
