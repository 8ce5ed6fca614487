#include "cuda/deferred_release.hpp"

#include <climits>
#include <list>
#include <memory>

#include "cuda/device_state.hpp"
#include "cuda/stream.hpp"

namespace gpuinterop::cuda {

namespace {

// Beyond either bound the oldest is waited for: its owner cannot know that we sit on its memory.
constexpr size_t kMostPending = 64;
constexpr int64_t kMostBytes = int64_t(1) << 30;
// Events of one stream pass in order, so a few that have not passed say enough for one look.
constexpr int kPatience = 4;

struct Pending {
  DeviceState* device;
  CUstream stream;
  uint32_t thread;
  bool consumers;
  int64_t bytes;
  Finish finish;
  void* what;
  std::unique_ptr<EventLease> event = nullptr;  // null: a capture did not let us record it yet
};
using List = std::list<Pending>;

std::mutex list_lock;  // of the list; released before driver calls and before finishing
List pending;
std::atomic<size_t> pending_count{0};
std::atomic<int64_t> pending_bytes{0};

// Records the event behind the last use. False when a capture forbids that, or the driver refuses.
bool mark(Pending& p) {
  CUstream stream = living(*p.device, p.stream, p.thread);
  if (capture_id(stream)) return false;
  DeviceGuard guard(p.device->ordinal);
  RelaxedCapture relaxed;
  auto event = std::make_unique<EventLease>(*p.device);
  check(event->code, "cuEventCreate", "release");
  if (p.consumers) {
    if (forbidden_by_capture(record_context(*p.device, event->event))) return false;
  } else if (driver().EventRecord(event->event, stream) != CUDA_SUCCESS) {
    return false;
  }
  p.event = std::move(event);
  return true;
}

// A context that is lost has nothing running either.
bool passed(Pending& p) {
  if (!p.event && !mark(p)) return false;
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

void put_back(List&& rest) noexcept {
  std::lock_guard guard(list_lock);
  for (const Pending& p : rest) pending_bytes.fetch_add(p.bytes);
  pending.splice(pending.begin(), rest);
  pending_count.store(pending.size());
}

bool too_much() noexcept {
  return pending_count.load() > kMostPending || pending_bytes.load() > kMostBytes;
}

// Waits for the first `waits` that are not done.
void finish_some(int waits, int patience = kPatience) noexcept {
  List all = take_all(), done;
  for (auto it = all.begin(); it != all.end() && patience > 0;) {
    auto next = std::next(it);
    try {
      if (waits > 0 && it->event) {
        DeviceGuard guard(it->device->ordinal);
        ScopedGilRelease dropped;
        RelaxedCapture relaxed;
        driver().EventSynchronize(it->event->event);
        --waits;
      }
      if (passed(*it))
        done.splice(done.end(), all, it);
      else
        --patience;
    } catch (...) {  // no event to be had: another time
      --patience;
    }
    it = next;
  }
  put_back(std::move(all));
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
  if (cu.CtxRecordEvent && d.driver_records_context) {
    const CUresult code = cu.CtxRecordEvent(d.primary, event);
    // Refused because of a capture that nobody here has seen, which does not survive the question.
    if (forbidden_by_capture(code)) return code;
    d.driver_records_context = code == CUDA_SUCCESS;
    if (code == CUDA_SUCCESS) return code;
  }
  ScopedGilRelease dropped;
  return cu.CtxSynchronize();  // and an event that is not recorded has passed
}

bool anything_pending() noexcept { return pending_count.load(std::memory_order_relaxed) != 0; }

void run_completed_releases() noexcept {
  if (anything_pending() && holds_gil() && !driver_is_gone()) finish_some(0);
}

void finish_all() noexcept {
  if (anything_pending() && holds_gil() && !driver_is_gone()) finish_some(INT_MAX, INT_MAX);
}

bool is_done(DeviceState& d, const Buffer& b) noexcept {
  try {
    CUstream stream = last_use(b, "release");
    if (capture_id(stream)) return false;  // the question would spoil the capture
    DeviceGuard guard(d.ordinal);
    RelaxedCapture relaxed;
    return driver().StreamQuery(stream) != CUDA_ERROR_NOT_READY;
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
      done = passed(one.front());
    } catch (...) {  // no event to be had: another time
    }
    if (done) return now(what);
    add(std::move(one));
  } catch (...) {
    return;  // what cannot even be remembered is lost: better than used while it is given away
  }
  if (too_much() && holds_gil()) finish_some(1);
}

}  // namespace gpuinterop::cuda
