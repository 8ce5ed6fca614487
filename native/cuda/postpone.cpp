#include "cuda/postpone.hpp"

#include <list>
#include <memory>

#include "cuda/state.hpp"
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

std::mutex lock;  // of the list; released before driver calls and before finishing
List pending;
std::atomic<size_t> pending_count{0};
std::atomic<int64_t> pending_bytes{0};

// Records the event behind the last use. False when a capture forbids that, or the driver refuses.
bool mark(Pending& p) {
  const Driver& cu = driver();
  CUstream stream = living(*p.device, p.stream, p.thread);
  if (capture_id(stream) || (p.consumers && any_capture())) return false;
  DeviceGuard guard(p.device->ordinal);
  RelaxedCapture relaxed;
  auto event = std::make_unique<EventLease>(*p.device);
  check(event->code, "cuEventCreate", "release");
  if (p.consumers) {
    if (!cu.CtxRecordEvent || cu.CtxRecordEvent(p.device->primary, event->event) != CUDA_SUCCESS) {
      GilDropped dropped;  // a driver that cannot record a context
      cu.CtxSynchronize();
    }
  } else if (cu.EventRecord(event->event, stream) != CUDA_SUCCESS) {
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
  std::lock_guard guard(lock);
  pending_bytes.fetch_add(one.front().bytes);
  pending.splice(pending.end(), one);
  pending_count.store(pending.size());
}

List take_all() noexcept {
  std::lock_guard guard(lock);
  List all;
  all.swap(pending);
  pending_count.store(0);
  pending_bytes.store(0);
  return all;
}

void put_back(List&& rest) noexcept {
  std::lock_guard guard(lock);
  for (const Pending& p : rest) pending_bytes.fetch_add(p.bytes);
  pending.splice(pending.begin(), rest);
  pending_count.store(pending.size());
}

bool too_much() noexcept {
  return pending_count.load() > kMostPending || pending_bytes.load() > kMostBytes;
}

void finish_some(bool wait) noexcept {
  List all = take_all(), done;
  int patience = kPatience;
  for (auto it = all.begin(); it != all.end() && patience > 0;) {
    auto next = std::next(it);
    try {
      if (wait && it->event) {
        DeviceGuard guard(it->device->ordinal);
        GilDropped dropped;
        RelaxedCapture relaxed;
        driver().EventSynchronize(it->event->event);
        wait = false;
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

bool anything_pending() noexcept { return pending_count.load(std::memory_order_relaxed) != 0; }

void finish_done() noexcept {
  if (anything_pending() && holds_gil() && !driver_is_gone()) finish_some(false);
}

bool is_done(DeviceState& d, const Buffer& b) noexcept {
  try {
    CUstream stream = living(d, static_cast<CUstream>(b.stream), b.stream_thread);
    if (capture_id(stream)) return false;  // the question would spoil the capture
    DeviceGuard guard(d.ordinal);
    RelaxedCapture relaxed;
    return driver().StreamQuery(stream) != CUDA_ERROR_NOT_READY;
  } catch (...) {
    return false;
  }
}

void when_done(DeviceState& d, const Buffer& b, bool consumers, Finish finish,
               void* what) noexcept {
  if (driver_is_gone()) return finish(what);
  try {
    List one;
    one.push_back(
        {&d, static_cast<CUstream>(b.stream), b.stream_thread, consumers, b.nbytes, finish, what});
    if (passed(one.front())) return finish(what);
    add(std::move(one));
  } catch (...) {
    return;  // what cannot even be remembered is lost: better than used while it is given away
  }
  if (too_much() && holds_gil()) finish_some(true);
}

}  // namespace gpuinterop::cuda
