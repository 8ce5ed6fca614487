// What the files of this folder share: per-device state, process flags, the event pool.
#pragma once

#include <atomic>
#include <cstdint>
#include <map>
#include <mutex>
#include <utility>
#include <vector>

#include "array/error.hpp"
#include "cuda/cuda.hpp"
#include "cuda/driver.hpp"

namespace gpuinterop::cuda {

struct DeviceState {
  int ordinal = 0;
  CUdevice device = 0;
  CUcontext primary =
      nullptr;  // retained once and never given back: others may still use it at exit
  CUmemoryPool pool = nullptr;  // the device's default pool; null when it has none
  int64_t total_bytes = 0;
  bool host_page_tables =
      false;  // the GPU reads pageable memory itself, after the call has returned
  std::atomic<bool> driver_records_context{true};  // cuCtxRecordEvent: until it has failed

  std::mutex event_lock;
  std::vector<CUevent> events;  // without timing, idle

  std::mutex stream_lock;
  // Of this library, waiting to be handed out again, by whether they are blocking and by priority.
  std::map<std::pair<bool, int>, std::vector<CUstream>> idle_streams;
  // Of this library's own use: never current, never captured.
  CUstream heir = nullptr;       // waits for every foreign stream that has been retired
  CUstream allocator = nullptr;  // allocates for captures; carries nothing that takes time
};

// Makes sure the primary context is retained. Kind::Device for an ordinal that does not exist.
DeviceState& device_state(int ordinal, const char* where);
// The same for an ordinal that has already been used; null otherwise. Never throws.
DeviceState* started_device(int ordinal) noexcept;

// ---- process ----------------------------------------------------------------------------------
bool forked() noexcept;       // CUDA was initialised in the parent of this process
void watch_forks() noexcept;  // called once, after cuInit
// Set by Python's atexit: from here on nothing is given back to the driver, whose own exit handlers
// (and those of other libraries, which may reset the device) run in an order nobody controls.
bool exiting() noexcept;
void set_exiting() noexcept;
inline bool driver_is_gone() noexcept { return exiting() || forked(); }

// ---- the GIL ----------------------------------------------------------------------------------
bool holds_gil() noexcept;
// Drops the GIL for a blocking driver call when this thread holds it: a host callback that the
// driver must run first may be waiting for it.
class ScopedGilRelease {
 public:
  ScopedGilRelease();
  ~ScopedGilRelease();
  ScopedGilRelease(const ScopedGilRelease&) = delete;

 private:
  void* saved_ = nullptr;
};

// ---- capture ----------------------------------------------------------------------------------
// Lets this thread make calls that a capture of another stream, in global or thread-local mode, would
// forbid: an allocation, a query, a wait. The driver answers those with an error and spoils the
// capture as well, though they do not touch it. What does touch it stays forbidden in every mode, so
// whoever takes this has asked before whether the stream at hand is captured.
class RelaxedCapture {
 public:
  RelaxedCapture() noexcept { driver().ThreadExchangeStreamCaptureMode(&mode_); }
  ~RelaxedCapture() { driver().ThreadExchangeStreamCaptureMode(&mode_); }
  RelaxedCapture(const RelaxedCapture&) = delete;

 private:
  CUstreamCaptureMode mode_ = CU_STREAM_CAPTURE_MODE_RELAXED;
};

// Id of the capture that `stream` takes part in, 0 for none. `graph` is that being built.
uint64_t capture_id(CUstream stream, CUgraph* graph = nullptr) noexcept;
// Whether some capture is known to run in the process, so that synchronising could break it.
bool any_capture() noexcept;
// Of streams that nobody can ask any more: the user synchronises, or too much waits for their end.
void presume_captures_over() noexcept;
void presume_capture_over(CUstream stream) noexcept;  // of one whose owner has gone

// ---- streams ----------------------------------------------------------------------------------
bool is_default(CUstream stream) noexcept;  // legacy or per thread
// A small number for the calling thread, never given twice.
uint32_t thread_token() noexcept;
// The stream on which what was queued on `stream` can be waited for from the calling thread.
CUstream reachable(CUstream stream, uint32_t token) noexcept;
CUstream drain_stream(DeviceState& d, const char* where);
CUstream allocator_stream(DeviceState& d, const char* where);
// Event order without any capture rules.
CUresult link(DeviceState& d, CUstream waiter, DeviceState& producer_device,
              CUstream producer) noexcept;

// ---- memory -----------------------------------------------------------------------------------
// Frees what had to wait for the end of a capture, if there is any and it can be done now.
void drain_deferred() noexcept;
int64_t cached_bytes(int ordinal) noexcept;

}  // namespace gpuinterop::cuda
