// State per device, process flags and helpers that the files of this folder share.
#pragma once

#include <atomic>
#include <cstdint>
#include <map>
#include <mutex>
#include <utility>
#include <vector>

#include "devices/block_cache.hpp"
#include "devices/cuda.hpp"
#include "devices/driver.hpp"
#include "interpreter/error.hpp"
#include "interpreter/gil.hpp"

namespace gpuinterop::cuda {

struct DeviceState {
  int ordinal = 0;
  CUdevice device = 0;
  // Retained once and never released: other libraries may still use it at exit.
  CUcontext primary = nullptr;
  unsigned long long context_id = 0;  // after a reset the same handle names another context
  CUmemoryPool pool = nullptr;        // the device's default pool
  BlockCache cache;                   // of freed blocks, in front of the pool
  // The GPU reads pageable memory itself, after the call has returned.
  bool host_page_tables = false;

  std::mutex event_lock;
  std::vector<CUevent> events;  // without timing, idle

  std::mutex stream_lock;
  // gpuinterop's own streams, for reuse, by whether they are blocking and by priority.
  std::map<std::pair<bool, int>, std::vector<CUstream>> idle_streams;
  // Internal streams, made with the device: never current, never captured.
  CUstream drain = nullptr;      // waits for every external stream that has been retired
  CUstream allocator = nullptr;  // allocates for captures; runs no kernels
  CUstream copies = nullptr;     // staged copies (devices/staging.hpp)
};

// Makes sure the primary context is retained. Kind::Device for an ordinal that does not exist.
DeviceState& device_state(int ordinal, const char* where);
// The same for an ordinal that has already been used; null otherwise. Never throws.
DeviceState* started_device(int ordinal) noexcept;
// Whether the context still exists. After a reset by another library (cuDevicePrimaryCtxReset) all handles of
// streams, events, kernels and graphs are invalid, and the driver may end the process when it gets one.
// Functions that may run without a DeviceGuard, which checks this, call it before they use a handle.
bool context_exists(const DeviceState& d) noexcept;
void require_context(const DeviceState& d, const char* where);  // Kind::Context error
bool all_contexts_exist() noexcept;                             // of the devices in use

// ---- process ----------------------------------------------------------------------------------
bool forked() noexcept;       // CUDA was initialised in the parent of this process
void watch_forks() noexcept;  // called once, after cuInit
// Set by Python's atexit. From then on nothing is returned to the driver, because its exit handlers, and
// those of other libraries that may reset the device, run in an unknown order.
bool exiting() noexcept;
void set_exiting() noexcept;
inline bool driver_is_gone() noexcept { return exiting() || forked(); }

// ---- capture ----------------------------------------------------------------------------------
// Lets this thread make calls that a capture of another stream, in global or thread-local mode, would
// forbid: an allocation, a query, a wait. Otherwise the driver returns an error and breaks that capture,
// although the calls do not use its stream. Calls on the captured stream stay forbidden in every mode,
// so check before whether the stream is captured.
class RelaxedCapture {
 public:
  RelaxedCapture() noexcept { driver().ThreadExchangeStreamCaptureMode(&mode_); }
  ~RelaxedCapture() { driver().ThreadExchangeStreamCaptureMode(&mode_); }
  RelaxedCapture(const RelaxedCapture&) = delete;

 private:
  CUstreamCaptureMode mode_ = CU_STREAM_CAPTURE_MODE_RELAXED;
};

// Makes a driver call that may wait for the device.
template <class Call>
CUresult call_blocking(Call&& call) {
  GilRelease released;
  RelaxedCapture relaxed;
  return call();
}

// Id of the capture that `stream` takes part in, 0 for none. `graph` is that being built.
uint64_t capture_id(CUstream stream, CUgraph* graph = nullptr) noexcept;
// For streams that can no longer be queried: the user synchronises, or memory has run out.
void presume_captures_over() noexcept;

// ---- streams ----------------------------------------------------------------------------------
bool is_default(CUstream stream) noexcept;  // legacy or per thread
// The stream on which the calling thread can wait for the work of `stream`.
CUstream reachable_stream(CUstream stream, uint32_t token) noexcept;
// Lets `stream` wait for everything in the context. Kind::Capture where a capture forbids that.
void wait_for_all(int device, CUstream stream, const char* where);
// Event order without any capture rules.
CUresult link(DeviceState& d, CUstream waiter, DeviceState& producer_device,
              CUstream producer) noexcept;

// ---- memory -----------------------------------------------------------------------------------
// Frees blocks that waited for the end of a capture, if no capture is running.
void drain_deferred() noexcept;

}  // namespace gpuinterop::cuda
