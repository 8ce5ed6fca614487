// Current streams, which of them are captured, and the order of work between streams.
#include <sys/uio.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <cstdio>
#include <string>

#include "devices/deferred_release.hpp"
#include "devices/device_state.hpp"
#include "devices/stream.hpp"

namespace gpuinterop::cuda {

namespace {

thread_local CUstream current[kMaxDevices];  // null: nothing set, so legacy

std::string name_of(CUstream stream) {
  if (stream == CU_STREAM_LEGACY) return "the legacy default stream";
  if (stream == CU_STREAM_PER_THREAD) return "the per-thread default stream";
  return "stream " + handle_text(stream);
}

// Raises Kind::Capture where a capture forbids wait(). True: `waiter` is captured and needs work that was
// queued outside the capture.
bool needs_host_wait(CUstream waiter, CUstream producer, const char* where) {
  const uint64_t waiting = capture_id(waiter), producing = capture_id(producer);
  if (producing && waiting != producing)
    fail(Kind::Capture, where,
         "an array that no running capture uses, or a stream that takes part in the capture",
         "its last use is recorded on " + name_of(producer) + ", which is being captured, and " +
             name_of(waiter) + ", current in this thread, is not part of that capture",
         "use it once the capture has ended (results have no values before a replay), take a copy "
         "before it begins, or let this stream join it: stream.wait(captured_stream)");
  if (!waiting || producing) return false;
  CUstreamCaptureStatus status;
  if (is_default(producer) &&
      driver().StreamIsCapturing(producer, &status) == CUDA_ERROR_STREAM_CAPTURE_IMPLICIT)
    fail(Kind::Capture, where, "memory that was last used on a stream other than the legacy one",
         "a blocking stream is being captured, which makes the legacy stream unusable",
         "capture on a non-blocking stream, such as gpuinterop.Stream()");
  return true;
}

}  // namespace

std::string handle_text(const void* address) {
  char text[32];
  std::snprintf(text, sizeof text, "0x%llx",
                (unsigned long long)reinterpret_cast<uintptr_t>(address));
  return text;
}

bool is_default(CUstream stream) noexcept {
  return stream == CU_STREAM_LEGACY || stream == CU_STREAM_PER_THREAD;
}

uint32_t thread_token() noexcept {
  static std::atomic<uint32_t> next{1};
  thread_local uint32_t token = next.fetch_add(1);
  return token;
}

CUstream current_stream(int device) noexcept {
  CUstream s = unsigned(device) < unsigned(kMaxDevices) ? current[device] : nullptr;
  return s ? s : CU_STREAM_LEGACY;
}

void set_current_stream(int device, CUstream stream) noexcept {
  if (unsigned(device) < unsigned(kMaxDevices)) current[device] = stream;
}

// ---- captures ---------------------------------------------------------------------------------

namespace {

// Streams that have been captured. The driver does not report whether anything is being captured, so the
// state of these streams is queried. An external stream that was not borrowed may be destroyed and is not
// queried: its capture counts as running until the stream is passed again, or presume_captures_over().
std::mutex captured_lock;
std::vector<CUstream> captured;
std::atomic<size_t> captured_count{0};

void note_capturing(CUstream stream) noexcept {
  std::lock_guard lock(captured_lock);
  if (std::find(captured.begin(), captured.end(), stream) != captured.end()) return;
  try {
    captured.push_back(stream);
    captured_count.store(captured.size());
  } catch (...) {
  }
}

void forget_capturing(CUstream stream) noexcept {
  std::lock_guard lock(captured_lock);
  captured.erase(std::remove(captured.begin(), captured.end(), stream), captured.end());
  captured_count.store(captured.size());
}

// The default streams are those of the current context: without a context the driver returns an error.
bool can_be_queried(CUstream stream) noexcept {
  CUcontext context = nullptr;
  return !is_default(stream) || (driver().CtxGetCurrent(&context) == CUDA_SUCCESS && context);
}

// As capture_id() != 0, without recording the stream.
bool is_captured(CUstream stream) noexcept {
  CUstreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_NONE;
  return stream != CU_STREAM_LEGACY && can_be_queried(stream) &&
         driver().StreamIsCapturing(stream, &status) == CUDA_SUCCESS &&
         status != CU_STREAM_CAPTURE_STATUS_NONE;
}

}  // namespace

uint64_t capture_id(CUstream stream, CUgraph* graph) noexcept {
  // The legacy stream cannot be captured, and a query would be an error.
  if (stream == CU_STREAM_LEGACY || !can_be_queried(stream)) return 0;
  CUstreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_NONE;
  cuuint64_t id = 0;
  const CUresult code =
      driver().StreamGetCaptureInfo(stream, &status, &id, graph, nullptr, nullptr);
  if (code != CUDA_SUCCESS || status == CU_STREAM_CAPTURE_STATUS_NONE) [[likely]] {
    if (captured_count.load(std::memory_order_relaxed) != 0) forget_capturing(stream);
    return 0;
  }
  note_capturing(stream);
  return status == CU_STREAM_CAPTURE_STATUS_ACTIVE ? id : UINT64_MAX;  // a broken one has no id
}

bool is_capturing(CUstream stream) noexcept {
  return stream != CU_STREAM_LEGACY && driver().ok && all_contexts_exist() &&
         capture_id(stream) != 0;
}

bool any_capture() noexcept {
  const Driver& cu = driver();
  if (!cu.ok || !all_contexts_exist()) return false;
  bool found = false;
  for (int i = 0; i < cu.devices && i < kMaxDevices; ++i)
    if (capture_id(current_stream(i))) found = true;
  if (captured_count.load() != 0) {
    std::lock_guard lock(captured_lock);
    captured.erase(std::remove_if(captured.begin(), captured.end(),
                                  [&](CUstream s) {
                                    const bool active = !is_known_live(s) || is_captured(s);
                                    found = found || active;
                                    return !active;
                                  }),
                   captured.end());
    captured_count.store(captured.size());
  }
  // Another library may have begun a capture on a stream that gpuinterop also uses.
  found = found || any_known_live(is_captured);
  // The driver returns this error, without harm, when a blocking stream of the current context is being
  // captured.
  CUstreamCaptureStatus status;
  return found ||
         (can_be_queried(CU_STREAM_LEGACY) &&
          cu.StreamIsCapturing(CU_STREAM_LEGACY, &status) == CUDA_ERROR_STREAM_CAPTURE_IMPLICIT);
}

void presume_captures_over() noexcept {
  std::lock_guard lock(captured_lock);
  captured.erase(std::remove_if(captured.begin(), captured.end(),
                                [](CUstream s) { return !is_known_live(s); }),
                 captured.end());
  captured_count.store(captured.size());
}

// ---- order ------------------------------------------------------------------------------------
EventLease::EventLease(DeviceState& d) : device(d) {
  {
    std::lock_guard lock(d.event_lock);
    if (!d.events.empty()) {
      event = d.events.back();
      d.events.pop_back();
      return;
    }
  }
  code = call_blocking([&] { return driver().EventCreate(&event, CU_EVENT_DISABLE_TIMING); });
}

EventLease::~EventLease() {
  if (code != CUDA_SUCCESS) return;
  std::lock_guard lock(device.event_lock);
  try {
    device.events.push_back(event);
  } catch (...) {
    call_blocking([&] { return driver().EventDestroy(event); });
  }
}

namespace {

// link() while the primary context of `p` is current.
CUresult link_here(DeviceState& w, CUstream waiter, DeviceState& p, CUstream producer) noexcept {
  const Driver& cu = driver();
  // cuStreamWaitEvent uses the event's current record, so the event can be reused once both calls have
  // returned.
  EventLease lease(p);
  if (lease.code != CUDA_SUCCESS) return lease.code;
  GilRelease released;
  CUresult code = cu.EventRecord(lease.event, producer);
  if (code != CUDA_SUCCESS) return code;
  CUcontext popped;
  if (&w != &p) cu.CtxPushCurrent(w.primary);
  code = cu.StreamWaitEvent(waiter, lease.event, CU_EVENT_WAIT_DEFAULT);
  if (&w != &p) cu.CtxPopCurrent(&popped);
  return code;
}

}  // namespace

CUresult link(DeviceState& w, CUstream waiter, DeviceState& p, CUstream producer) noexcept {
  if (!context_exists(w) || !context_exists(p)) return CUDA_ERROR_CONTEXT_IS_DESTROYED;
  CUresult code = driver().CtxPushCurrent(p.primary);
  if (code != CUDA_SUCCESS) return code;
  code = link_here(w, waiter, p, producer);
  CUcontext popped;
  driver().CtxPopCurrent(&popped);
  return code;
}

void wait(int device, CUstream waiter, CUstream producer, const char* where) {
  if (waiter == producer) return;
  DeviceState& d = device_state(device, where);
  DeviceGuard guard(device);
  // A graph cannot wait for other work at its first launch only, so the host waits for that work now.
  if (needs_host_wait(waiter, producer, where))
    return check(call_blocking([&] { return driver().StreamSynchronize(producer); }),
                 "cuStreamSynchronize", where);
  check(link_here(d, waiter, d, producer), "cuStreamWaitEvent", where);
}

void join(int device, CUstream waiter, CUstream producer, const char* where) {
  DeviceState& d = device_state(device, where);
  if (capture_id(producer)) return check(link(d, waiter, d, producer), "cuStreamWaitEvent", where);
  wait(device, waiter, producer, where);
}

CUstream reachable_stream(CUstream stream, uint32_t token) noexcept {
  // Handle 2 is another stream in every thread. The legacy stream waits for all of them.
  if (stream == CU_STREAM_PER_THREAD && token != thread_token()) return CU_STREAM_LEGACY;
  return stream;
}

bool order_slow(Buffer* b, CUstream stream, const char* where) {
  if (!b->device.is_cuda()) return false;
  const uint32_t token = stream == CU_STREAM_PER_THREAD ? thread_token() : 0;
  auto is_last = [&] { return b->stream == stream && b->stream_thread == token; };
  if (is_last()) return false;
  // The wait lets other threads run, so repeat it until none has used the memory meanwhile.
  for (uint32_t uses = b->uses - 1; uses != b->uses;) {
    uses = b->uses;
    if (is_last()) return true;
    if (last_stream(*b)) wait(b->device.id, stream, last_use_stream(*b, where), where);
  }
  // Work that a borrower queues later on the old stream is not waited for here, but by the release.
  if (b->borrower && b->borrower != thread_token())
    b->foreign_use.fetch_or(kUsedOnLegacy | kUsedElsewhere, std::memory_order_relaxed);
  b->borrower = 0;
  if (b->foreign_use.load(std::memory_order_relaxed) & kUsedElsewhere)
    b->foreign_use.fetch_or(kUsedBeside, std::memory_order_relaxed);
  b->stream = stream;
  b->stream_thread = token;
  return true;
}

void forget_recorded_use(Buffer* b, CUstream stream) noexcept {
  const DeviceState* d = started_device(b->device.id);
  if (b->device.is_cuda() && b->stream == stream && d) b->stream = d->allocator;
}

void synchronize_stream(int device, CUstream stream, const char* where) {
  DeviceGuard guard(device);
  if (capture_id(stream))
    fail(Kind::Capture, where, "a stream that is not being captured", name_of(stream),
         "synchronise before the capture begins or after it ends");
  check(call_blocking([&] { return driver().StreamSynchronize(stream); }), "cuStreamSynchronize",
        where);
  run_completed_releases();
}

// ---- gpuinterop's own streams ------------------------------------------------------------------
CUstream acquire_stream(int device, bool blocking, int priority, const char* where) {
  DeviceState& d = device_state(device, where);
  DeviceGuard guard(device);
  {
    std::lock_guard lock(d.stream_lock);
    auto idle = d.idle_streams.find({blocking, priority});
    if (idle != d.idle_streams.end() && !idle->second.empty()) {
      CUstream stream = idle->second.back();
      idle->second.pop_back();
      return stream;
    }
  }
  CUstream stream;
  unsigned flags = blocking ? CU_STREAM_DEFAULT : CU_STREAM_NON_BLOCKING;
  auto create = [&] { return driver().StreamCreateWithPriority(&stream, flags, priority); };
  check(call_blocking(create), "cuStreamCreateWithPriority", where);
  note_process_lifetime(stream);
  return stream;
}

void recycle_stream(int device, CUstream stream, bool blocking, int priority) noexcept {
  DeviceState* d = started_device(device);
  if (!d || driver_is_gone() || !context_exists(*d)) return;
  // A stream whose capture was never ended is not reused, because the next owner could not use it.
  CUstreamCaptureStatus status;
  if (driver().StreamIsCapturing(stream, &status) != CUDA_SUCCESS ||
      status != CU_STREAM_CAPTURE_STATUS_NONE)
    return;
  std::lock_guard lock(d->stream_lock);
  try {
    d->idle_streams[{blocking, priority}].push_back(stream);
  } catch (...) {
  }
}

[[noreturn]] static void refuse_handle(CUstream stream, const char* where) {
  fail(Kind::Stream, where, "the handle of a live CUDA stream", handle_text(stream),
       "pass the stream object itself, or its handle as an int (torch: .cuda_stream, CuPy: .ptr)");
}

void check_address(CUstream stream, const char* where) {
  thread_local CUstream last = nullptr;  // consumers pass one stream many times in a row
  if (stream == last) return;
  // A handle is the address of memory that the driver has allocated, as malloc aligns it.
  if (reinterpret_cast<uintptr_t>(stream) % alignof(std::max_align_t)) refuse_handle(stream, where);
  char byte;
  iovec into{&byte, 1}, from{stream, 1};
  if (process_vm_readv(getpid(), &into, 1, &from, 1, 0) < 0 && errno == EFAULT)
    refuse_handle(stream, where);
  last = stream;
}

int device_of_stream(uintptr_t handle) {
  const char* where = "stream";
  require(where);
  for (int i = 0; i < device_count(); ++i)
    if (const DeviceState* d = started_device(i)) require_context(*d, where);
  auto stream = reinterpret_cast<CUstream>(handle);
  check_address(stream, where);
  CUcontext context = nullptr;
  const CUresult code = driver().StreamGetCtx(stream, &context);
  if (code == CUDA_ERROR_INVALID_HANDLE) refuse_handle(stream, where);
  check(code, "cuStreamGetCtx", where);
  for (int i = 0; i < device_count(); ++i) {
    unsigned flags = 0;
    int active = 0;
    CUdevice device;
    // Only devices in use can own the stream, and the query must not start the others.
    if (driver().DeviceGet(&device, i) == CUDA_SUCCESS &&
        driver().DevicePrimaryCtxGetState(device, &flags, &active) == CUDA_SUCCESS && active &&
        device_state(i, where).primary == context)
      return i;
  }
  fail_with("foreign_context", where, {"a stream", handle_text(stream)});
}

}  // namespace gpuinterop::cuda
