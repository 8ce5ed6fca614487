#include "devices/deferred_release.hpp"

#include <climits>
#include <list>
#include <memory>

#include "devices/device_state.hpp"
#include "devices/stream.hpp"

namespace gpuinterop::cuda {

namespace {

// Beyond either limit wait for the oldest release, because its owner cannot see that its memory is still held.
constexpr size_t kMostPending = 64;
constexpr int64_t kMostBytes = int64_t(1) << 30;
// Events of one stream complete in order, so stop after a few that have not completed.
constexpr int kMaxUnfinished = 4;

struct Pending {
  DeviceState* device;
  CUstream stream;
  uint32_t thread;
  bool consumers;
  int64_t bytes;
  Finish finish;
  void* what;
  std::unique_ptr<EventLease> event = nullptr;  // null: a capture prevented its recording so far
};
using List = std::list<Pending>;

std::mutex list_lock;  // of the list; released before driver calls and before releases
List pending;
std::atomic<size_t> pending_count{0};
std::atomic<int64_t> pending_bytes{0};

// Records the event after the last use. False when a capture forbids that, or the driver refuses.
bool record_completion(Pending& p) {
  CUstream stream = live_stream(*p.device, p.stream, p.thread);
  if (capture_id(stream)) return false;
  DeviceGuard guard(p.device->ordinal);
  RelaxedCapture relaxed;
  auto event = std::make_unique<EventLease>(*p.device);
  check(event->code, "cuEventCreate", "release");
  if (p.consumers) {
    if (forbidden_by_capture(record_context(*p.device, event->event))) return false;
  } else if (call_blocking([&] { return driver().EventRecord(event->event, stream); }) !=
             CUDA_SUCCESS) {
    return false;
  }
  p.event = std::move(event);
  return true;
}

// Also true in a lost context, which runs nothing.
bool has_completed(Pending& p) {
  if (!context_exists(*p.device)) return true;
  if (!p.event && !record_completion(p)) return false;
  DeviceGuard guard(p.device->ordinal);
  RelaxedCapture relaxed;
  return driver().EventQuery(p.event->event) != CUDA_ERROR_NOT_READY;
}

void add(List&& one) noexcept {
  std::lock_guard guard(list_lock);
  pending_bytes.fetch_add(one.front().bytes);
  pending.splice(pending.end(), one);
  pending_count.store(pending.size());
}

List take_all() noexcept {
  std::lock_guard guard(list_lock);
  List all;
  all.swap(pending);
  pending_count.store(0);
  pending_bytes.store(0);
  return all;
}

void restore_pending(List&& rest) noexcept {
  std::lock_guard guard(list_lock);
  for (const Pending& p : rest) pending_bytes.fetch_add(p.bytes);
  pending.splice(pending.begin(), rest);
  pending_count.store(pending.size());
}

bool over_limit() noexcept {
  return pending_count.load() > kMostPending || pending_bytes.load() > kMostBytes;
}

// Waits for the first `waits` that have not completed.
void complete_some(int waits, int unfinished_left = kMaxUnfinished) noexcept {
  List all = take_all(), done;
  for (auto it = all.begin(); it != all.end() && unfinished_left > 0;) {
    auto next = std::next(it);
    try {
      if (waits > 0 && it->event) {
        DeviceGuard guard(it->device->ordinal);
        call_blocking([&] { return driver().EventSynchronize(it->event->event); });
        --waits;
      }
      if (has_completed(*it))
        done.splice(done.end(), all, it);
      else
        --unfinished_left;
    } catch (...) {  // no event could be made: try again later
      --unfinished_left;
    }
    it = next;
  }
  restore_pending(std::move(all));
  for (Pending& p : done) p.finish(p.what);
}

}  // namespace

bool forbidden_by_capture(CUresult code) noexcept {
  return code >= CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED &&
         code <= CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD;
}

CUresult record_context(DeviceState& d, CUevent event) noexcept {
  const Driver& cu = driver();
  if (any_capture()) return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
  RelaxedCapture relaxed;
  GilRelease released;
  if (cu.CtxRecordEvent) {
    const CUresult code = cu.CtxRecordEvent(d.primary, event);
    // Forbidden: another library's capture is running, and the query has broken it.
    if (code == CUDA_SUCCESS || forbidden_by_capture(code)) return code;
  }
  return cu.CtxSynchronize();  // an event that was never recorded counts as completed
}

bool any_pending_release() noexcept { return pending_count.load(std::memory_order_relaxed) != 0; }

void run_completed_releases() noexcept {
  if (any_pending_release() && holds_gil() && !driver_is_gone()) complete_some(0);
}

void complete_all_releases() noexcept {
  if (any_pending_release() && holds_gil() && !driver_is_gone()) complete_some(INT_MAX, INT_MAX);
}

bool is_done(DeviceState& d, const Buffer& b) noexcept {
  if (!context_exists(d)) return true;
  try {
    CUstream stream = last_use_stream(b, "release");
    if (capture_id(stream)) return false;  // the query would break the capture
    DeviceGuard guard(d.ordinal);
    return call_blocking([&] { return driver().StreamQuery(stream); }) != CUDA_ERROR_NOT_READY;
  } catch (...) {
    return false;
  }
}

void release_when_done(DeviceState& d, const Buffer& b, bool consumers, Finish now, Finish later,
                       void* what) noexcept {
  if (driver_is_gone()) return now(what);
  try {
    List one;
    one.push_back(
        {&d, static_cast<CUstream>(b.stream), b.stream_thread, consumers, b.nbytes, later, what});
    bool done = false;
    try {
      done = has_completed(one.front());
    } catch (...) {  // no event could be made: try again later
    }
    if (done) return now(what);
    add(std::move(one));
  } catch (...) {
    return;  // no memory for the list: a leak is better than a use after release
  }
  if (over_limit() && holds_gil()) complete_some(1);
}

}  // namespace gpuinterop::cuda
