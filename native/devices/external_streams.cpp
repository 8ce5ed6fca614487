// Lifetime states of other libraries' streams. A buffer stores the handle of its last stream, which its
// owner may destroy meanwhile; the driver must not get the handle of a destroyed stream.
#include <algorithm>
#include <unordered_map>
#include <unordered_set>

#include "devices/deferred_release.hpp"
#include "devices/device_state.hpp"
#include "devices/stream.hpp"

namespace gpuinterop::cuda {

namespace {

enum class Ownership : uint8_t {
  Borrowed,   // its owner keeps it alive while gpuinterop uses it
  Untracked,  // work is queued on it, and its owner may destroy it at any time
  Retired,    // never used again; the device's drain stream waits for its work
};
struct TrackedStream {
  Ownership ownership = Ownership::Retired;
  int users = 0;              // Stream objects
  unsigned long long id = 0;  // the driver's id of the stream; 0: unknown
  uint64_t capture = 0;       // Untracked: the capture that it took part in
  uint32_t uses = 0;          // Untracked: how often work was queued on it
};

std::mutex streams_lock;  // guards the variables below
std::unordered_map<CUstream, TrackedStream> tracked;
std::unordered_set<CUstream> process_lifetime;  // gpuinterop's own streams and torch's
std::atomic<size_t> tracked_count{0};  // so that programs without such streams take no lock

// With the lock held.
TrackedStream* find_tracked(CUstream stream) noexcept {
  auto it = tracked.find(stream);
  return it == tracked.end() ? nullptr : &it->second;
}
TrackedStream& track_stream(CUstream stream) {
  TrackedStream& f = tracked[stream];
  tracked_count.store(tracked.size(), std::memory_order_release);
  return f;
}

bool is_retired(CUstream stream) noexcept {
  std::lock_guard lock(streams_lock);
  const TrackedStream* f = find_tracked(stream);
  return f && f->ownership == Ownership::Retired;
}

// The driver reuses handles but not ids. 0: a captured stream, because the query would break its capture.
unsigned long long stream_id_of(int device, CUstream stream) {
  unsigned long long id = 0;
  DeviceGuard guard(device);
  if (capture_id(stream)) return 0;
  RelaxedCapture relaxed;
  return driver().StreamGetId(stream, &id) == CUDA_SUCCESS ? id : 0;
}

// The drain stream has waited for the work that was queued on `stream` at the count `uses`.
void retire_if_unused_since(CUstream stream, uint32_t uses) noexcept {
  std::lock_guard lock(streams_lock);
  TrackedStream* f = find_tracked(stream);
  if (f && f->ownership == Ownership::Untracked && f->uses == uses)
    f->ownership = Ownership::Retired;
}

}  // namespace

void wait_for_all(int device, CUstream stream, const char* where) {
  DeviceState& d = device_state(device, where);
  DeviceGuard guard(device);
  EventLease lease(d);
  check(lease.code, "cuEventCreate", where);
  check(record_context(d, lease.event), "cuCtxRecordEvent", where);
  GilRelease released;
  check(driver().StreamWaitEvent(stream, lease.event, CU_EVENT_WAIT_DEFAULT), "cuStreamWaitEvent",
        where);
}

bool lives_until_exit(CUstream stream) noexcept {
  std::lock_guard lock(streams_lock);
  return process_lifetime.count(stream) != 0;
}

void note_process_lifetime(CUstream stream) noexcept {
  std::lock_guard lock(streams_lock);
  try {
    process_lifetime.insert(stream);
    tracked.erase(stream);
  } catch (...) {
  }
}

bool is_known_live(CUstream stream) noexcept {
  if (is_default(stream)) return true;
  std::lock_guard lock(streams_lock);
  const TrackedStream* f = find_tracked(stream);
  return f ? f->ownership == Ownership::Borrowed : process_lifetime.count(stream) != 0;
}

bool any_known_live(bool (*holds)(CUstream) noexcept) noexcept {
  std::lock_guard lock(streams_lock);
  return std::any_of(process_lifetime.begin(), process_lifetime.end(), holds) ||
         std::any_of(tracked.begin(), tracked.end(), [holds](const auto& item) {
           return item.second.ownership == Ownership::Borrowed && holds(item.first);
         });
}

void borrow_stream(int device, CUstream stream, bool again, const char* where) {
  if (lives_until_exit(stream)) return;
  const unsigned long long id = stream_id_of(device, stream);
  const uint64_t capture = id ? 0 : capture_id(stream);
  bool replaced = false, retired = false;
  {
    std::lock_guard lock(streams_lock);
    if (const TrackedStream* f = find_tracked(stream)) {
      const bool same = (id && f->id == id) || (capture && f->capture == capture);
      retired = f->ownership == Ownership::Retired;
      replaced = !retired && !same && (f->ownership == Ownership::Untracked || (f->id && id));
    }
  }
  // The handle may belong to a new stream, so wait for the work of the old one first.
  if (replaced)
    wait_for_all(device, stream, where);
  else if (retired)
    wait(device, stream, device_state(device, where).drain, where);
  std::lock_guard lock(streams_lock);
  TrackedStream& f = track_stream(stream);
  f.ownership = Ownership::Borrowed;
  if (!again) ++f.users;
  if (id) f.id = id;
}

void retire_stream(int device, CUstream stream) noexcept {
  const DeviceState* d = started_device(device);
  if (!d || is_default(stream) || lives_until_exit(stream) || driver_is_gone() ||
      !context_exists(*d))
    return;
  try {
    const uint64_t capture = capture_id(stream);
    std::lock_guard lock(streams_lock);
    TrackedStream& f = track_stream(stream);
    if (f.ownership == Ownership::Borrowed && --f.users > 0) return;
    f.ownership = Ownership::Untracked;
    f.capture = capture;
    ++f.uses;
  } catch (...) {  // no memory for the entry
    return;
  }
  end_untracked_use(device, stream);
}

void begin_untracked_use(int device, CUstream stream, const char* where) {
  if (is_known_live(stream)) return;
  if (is_retired(stream)) wait(device, stream, device_state(device, where).drain, where);
  const unsigned long long id = stream_id_of(device, stream);
  const uint64_t capture = id ? 0 : capture_id(stream);
  std::lock_guard lock(streams_lock);
  TrackedStream& f = track_stream(stream);
  if (f.ownership == Ownership::Borrowed && f.users > 0) return;
  f.ownership = Ownership::Untracked;
  f.id = id;
  f.capture = capture;
  ++f.uses;
}

void end_untracked_use(int device, CUstream stream) noexcept {
  DeviceState* d = started_device(device);
  if (!d || driver_is_gone() || !context_exists(*d)) return;
  uint32_t uses;
  {
    std::lock_guard lock(streams_lock);
    const TrackedStream* f = find_tracked(stream);
    if (!f || f->ownership != Ownership::Untracked) return;
    uses = f->uses;
  }
  if (capture_id(stream)) return;
  if (link(*d, d->drain, *d, stream) == CUDA_SUCCESS) retire_if_unused_since(stream, uses);
}

CUstream live_stream(DeviceState& d, CUstream stream, uint32_t token, const char* where) {
  stream = reachable_stream(stream, token);
  if (tracked_count.load(std::memory_order_acquire) == 0 || is_default(stream)) return stream;
  TrackedStream found;
  {
    std::lock_guard lock(streams_lock);
    const TrackedStream* f = find_tracked(stream);
    if (!f || f->ownership == Ownership::Borrowed) return stream;
    found = *f;
  }
  if (found.ownership == Ownership::Untracked) {
    // The stream may be destroyed, and its work cannot be waited for on its own.
    wait_for_all(d.ordinal, d.drain, where);
    retire_if_unused_since(stream, found.uses);
  }
  return d.drain;
}

CUstream last_use_stream(const Buffer& b, const char* where) {
  const auto last = static_cast<CUstream>(last_stream(b));
  if (!last) return CU_STREAM_LEGACY;
  return live_stream(device_state(b.device.id, where), last, b.stream_thread, where);
}

}  // namespace gpuinterop::cuda
