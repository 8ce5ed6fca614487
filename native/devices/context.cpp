// Primary contexts, the guard that makes one current, fork and exit.
#include <Python.h>
#include <pthread.h>

#include <algorithm>
#include <string>

#include "devices/deferred_release.hpp"
#include "devices/device_state.hpp"
#include "devices/staging.hpp"
#include "devices/stream.hpp"
#include "interpreter/gil.hpp"

namespace gpuinterop::cuda {

namespace {

std::atomic<DeviceState*> states[kMaxDevices];
std::mutex start_lock;
std::atomic<bool> forked_flag{false}, exiting_flag{false};

// By default the pool returns all memory to the system at every synchronisation, and mapping it again takes
// many times as long as writing to it. Keeping a quarter of the GPU, arrays in use included, makes all but
// the largest arrays cheap and leaves the rest to other libraries, whose cudaMalloc cannot use the pool. The
// cache in front of the pool may hold a sixteenth.
void open_pool(DeviceState& d, const char* where) {
  const Driver& cu = driver();
  size_t total = 0;
  check(cu.DeviceTotalMem(&total, d.device), "cuDeviceTotalMem", where);
  check(cu.DeviceGetDefaultMemPool(&d.pool, d.device), "cuDeviceGetDefaultMemPool", where);
  cuuint64_t keep = total / 4;
  check(cu.MemPoolSetAttribute(d.pool, CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, &keep),
        "cuMemPoolSetAttribute", where);
  d.cache.set_limit(std::min(int64_t(total / 16), int64_t(2) << 30));
}

void make_internal_streams(DeviceState& d, const char* where) {
  const Driver& cu = driver();
  check(cu.CtxPushCurrent(d.primary), "cuCtxPushCurrent", where);
  CUresult code = CUDA_SUCCESS;
  for (CUstream* stream : {&d.drain, &d.allocator, &d.copies}) {
    if (code == CUDA_SUCCESS) code = cu.StreamCreateWithPriority(stream, CU_STREAM_NON_BLOCKING, 0);
    if (code == CUDA_SUCCESS) note_process_lifetime(*stream);
  }
  CUcontext popped;
  cu.CtxPopCurrent(&popped);
  check(code, "cuStreamCreateWithPriority", where);
}

DeviceState& start_device(int ordinal, const char* where) {
  require(where);
  const Driver& cu = driver();
  if (ordinal < 0 || ordinal >= cu.devices)
    fail_with("no_such_device", where, {int64_t{cu.devices}, int64_t{ordinal}});
  std::lock_guard lock(start_lock);
  if (DeviceState* d = states[ordinal].load()) return *d;
  auto* d = new DeviceState;  // never freed: streams, events and memory refer to it until exit
  d->ordinal = ordinal;
  RelaxedCapture relaxed;  // the context's memory is not a part of the graph
  try {
    check(cu.DeviceGet(&d->device, ordinal), "cuDeviceGet", where);
    check(cu.DevicePrimaryCtxRetain(&d->primary, d->device), "cuDevicePrimaryCtxRetain", where);
    check(cu.CtxGetId(d->primary, &d->context_id), "cuCtxGetId", where);
    open_pool(*d, where);
    make_internal_streams(*d, where);
  } catch (...) {
    delete d;
    throw;
  }
  int uses = 0;
  cu.DeviceGetAttribute(&uses, CU_DEVICE_ATTRIBUTE_PAGEABLE_MEMORY_ACCESS_USES_HOST_PAGE_TABLES,
                        d->device);
  d->host_page_tables = uses != 0;
  states[ordinal].store(d, std::memory_order_release);
  return *d;
}

const char* advice(CUresult code) {
  switch (code) {
    case CUDA_ERROR_CONTEXT_IS_DESTROYED:
    case CUDA_ERROR_INVALID_CONTEXT:
    case CUDA_ERROR_INVALID_HANDLE:
      return "a stream, event, module or context was destroyed or reset (cudaDeviceReset, "
             "numba.cuda.close), or is of a context that is not the primary one (PyCUDA: import "
             "pycuda.autoprimaryctx instead of pycuda.autoinit)";
    case CUDA_ERROR_INVALID_IMAGE:
    case CUDA_ERROR_NO_BINARY_FOR_GPU:
    case CUDA_ERROR_INVALID_PTX:
    case CUDA_ERROR_UNSUPPORTED_PTX_VERSION:
      return "the kernel was compiled for another GPU, or by a compiler that is too new for "
             "this driver: update the driver or install an older NVRTC";
    default:
      return "if an earlier kernel has failed, the context is lost: restart the process; "
             "CUDA_LAUNCH_BLOCKING=1 or compute-sanitizer names the kernel";
  }
}

}  // namespace

DeviceState& device_state(int ordinal, const char* where) {
  if (DeviceState* d = started_device(ordinal)) [[likely]] {
    if (forked()) require(where);
    return *d;
  }
  return start_device(ordinal, where);
}

DeviceState* started_device(int ordinal) noexcept {
  return unsigned(ordinal) < unsigned(kMaxDevices) ? states[ordinal].load(std::memory_order_acquire)
                                                   : nullptr;
}

bool context_exists(const DeviceState& d) noexcept {
  unsigned long long id = 0;
  return driver().CtxGetId(d.primary, &id) == CUDA_SUCCESS && id == d.context_id;
}

void require_context(const DeviceState& d, const char* where) {
  if (context_exists(d)) [[likely]]
    return;
  fail(Kind::Context, where,
       "the CUDA context of cuda:" + std::to_string(d.ordinal) + " in which gpuinterop works",
       "a context that was reset: its arrays, streams and kernels are lost",
       "restart the process, and do not reset a device in use, as numba.cuda.close(), "
       "cuDevicePrimaryCtxReset and cudaDeviceReset do");
}

bool all_contexts_exist() noexcept {
  for (int i = 0; i < driver().devices; ++i)
    if (const DeviceState* d = started_device(i); d && !context_exists(*d)) return false;
  return true;
}

DeviceGuard::DeviceGuard(int ordinal) {
  DeviceState& d = device_state(ordinal, "gpuinterop");
  CUcontext context = nullptr;
  unsigned long long current = 0;
  // Without a current context cuCtxGetId would fail, which takes 1.2 us.
  if (driver().CtxGetCurrent(&context) == CUDA_SUCCESS && context &&
      driver().CtxGetId(nullptr, &current) == CUDA_SUCCESS && current == d.context_id) [[likely]]
    return;
  require_context(d, "gpuinterop");
  check(driver().CtxPushCurrent(d.primary), "cuCtxPushCurrent", "gpuinterop");
  pushed_ = true;
}

DeviceGuard::~DeviceGuard() {
  CUcontext popped;
  if (pushed_) driver().CtxPopCurrent(&popped);
}

void check(CUresult code, const char* call, const char* where) {
  if (code == CUDA_SUCCESS) [[likely]]
    return;
  for (int i = 0; i < driver().devices; ++i)
    if (const DeviceState* d = started_device(i)) require_context(*d, where);
  std::string got = std::string(call) + " returned " + describe(code);
  if (code == CUDA_ERROR_OUT_OF_MEMORY)
    fail(Kind::OutOfMemory, where, "enough device memory", got,
         "delete arrays that are no longer used, or call gpuinterop.devices.empty_cache()");
  if (forbidden_by_capture(code))
    fail(
        Kind::Capture, where, "a call that is legal while a graph is captured", got,
        "do this before the capture begins, or after it has ended and gpuinterop.synchronize() was "
        "called");
  fail(Kind::Cuda, where, std::string(call) + " to succeed", got, advice(code));
}

// ---- process ----------------------------------------------------------------------------------
bool forked() noexcept { return forked_flag.load(std::memory_order_relaxed); }
void watch_forks() noexcept {
  pthread_atfork(nullptr, nullptr, [] { forked_flag.store(true); });
}
bool exiting() noexcept { return exiting_flag.load(std::memory_order_relaxed); }
void set_exiting() noexcept {
  exiting_flag.store(true);
  finish_staging();
}

}  // namespace gpuinterop::cuda
