// Which handles of streams may be given to the driver. A buffer remembers one for as long as it lives,
// and its stream may be gone by then.
#include <algorithm>
#include <unordered_map>
#include <unordered_set>

#include "cuda/deferred_release.hpp"
#include "cuda/device_state.hpp"
#include "cuda/stream.hpp"

namespace gpuinterop::cuda {

namespace {

enum class Footing : uint8_t {
  Lent,     // its owner keeps it alive for us
  Loose,    // somebody queued work there, and nobody will tell when it goes
  Retired,  // never touched again; its work can be waited for on the device's internal stream
};
struct Foreign {
  Footing footing = Footing::Retired;
  bool lingers = false;       // Lent: by nobody but its owner, who has not gone yet
  int users = 0;              // Stream objects
  unsigned long long id = 0;  // of the stream that the handle named then; 0: nobody can tell
  uint64_t capture = 0;       // Loose: the one that it took part in
  uint32_t times = 0;         // Loose: how often work was queued there
};

std::mutex streams_lock;  // of what follows
std::unordered_map<CUstream, Foreign> foreign;
std::unordered_set<CUstream> lasting;  // never destroyed: this library's own, above all
std::atomic<size_t> foreign_count{0};  // so that programs without such streams take no lock

// With the lock held.
Foreign* find_foreign(CUstream stream) noexcept {
  auto it = foreign.find(stream);
  return it == foreign.end() ? nullptr : &it->second;
}
Foreign& note_foreign(CUstream stream) {
  Foreign& f = foreign[stream];
  foreign_count.store(foreign.size(), std::memory_order_release);
  return f;
}

bool is_retired(CUstream stream) noexcept {
  std::lock_guard lock(streams_lock);
  const Foreign* f = find_foreign(stream);
  return f && f->footing == Footing::Retired;
}

// No handle is given twice this way. 0: an old driver, or a stream that is being captured, whose
// capture would not survive the question.
unsigned long long id_of(int device, CUstream stream) {
  unsigned long long id = 0;
  DeviceGuard guard(device);
  if (!driver().StreamGetId || capture_id(stream)) return 0;
  RelaxedCapture relaxed;
  return driver().StreamGetId(stream, &id) == CUDA_SUCCESS ? id : 0;
}

// Work of a stream that is gone can be told from the rest of the context no more.
void wait_for_all(int device, CUstream stream, const char* where) {
  DeviceState& d = device_state(device, where);
  DeviceGuard guard(device);
  EventLease lease(d);
  check(lease.code, "cuEventCreate", where);
  check(record_context(d, lease.event), "cuCtxRecordEvent", where);
  check(driver().StreamWaitEvent(stream, lease.event, CU_EVENT_WAIT_DEFAULT), "cuStreamWaitEvent",
        where);
}

// The internal stream comes after what had been queued on `stream` by then.
void retire_if_unused_since(CUstream stream, uint32_t times) noexcept {
  std::lock_guard lock(streams_lock);
  Foreign* f = find_foreign(stream);
  if (f && (f->footing == Footing::Loose || f->lingers) && f->times == times) {
    f->footing = Footing::Retired;
    f->lingers = false;
  }
}

// Its capture may be over by now, and then it can go the way that it could not go before.
void retire_if_it_lingers(DeviceState& d, CUstream stream, uint32_t times, const char* where) {
  if (capture_id(stream)) return;
  if (link(d, drain_stream(d, where), d, stream) == CUDA_SUCCESS)
    retire_if_unused_since(stream, times);
}

}  // namespace

bool is_lasting(CUstream stream) noexcept {
  std::lock_guard lock(streams_lock);
  return lasting.count(stream) != 0;
}

void note_lasting(CUstream stream) noexcept {
  std::lock_guard lock(streams_lock);
  try {
    lasting.insert(stream);
    foreign.erase(stream);
  } catch (...) {
  }
}

bool is_known_to_live(CUstream stream) noexcept {
  if (is_default(stream)) return true;
  std::lock_guard lock(streams_lock);
  const Foreign* f = find_foreign(stream);
  return f ? f->footing == Footing::Lent : lasting.count(stream) != 0;
}

bool any_known_to_live(bool (*holds)(CUstream) noexcept) noexcept {
  std::lock_guard lock(streams_lock);
  return std::any_of(lasting.begin(), lasting.end(), holds) ||
         std::any_of(foreign.begin(), foreign.end(), [holds](const auto& item) {
           return item.second.footing == Footing::Lent && holds(item.first);
         });
}

void borrow_stream(int device, CUstream stream, bool again, const char* where) {
  if (is_lasting(stream)) return;  // no owner could destroy it
  const unsigned long long id = id_of(device, stream);
  const uint64_t capture = id ? 0 : capture_id(stream);
  bool replaced = false, retired = false;
  {
    std::lock_guard lock(streams_lock);
    if (const Foreign* f = find_foreign(stream)) {
      const bool same = (id && f->id == id) || (capture && f->capture == capture);
      retired = f->footing == Footing::Retired;
      replaced = !retired && !same && (f->footing == Footing::Loose || (f->id && id));
    }
  }
  // The same handle again, perhaps of a new stream: what the old one had left over comes first.
  if (replaced)
    wait_for_all(device, stream, where);
  else if (retired)
    wait(device, stream, drain_stream(device_state(device, where), where), where);
  std::lock_guard lock(streams_lock);
  Foreign& f = note_foreign(stream);
  f.footing = Footing::Lent;
  f.lingers = false;
  if (!again) ++f.users;
  if (id) f.id = id;
}

bool retire_stream(int device, CUstream stream) noexcept {
  if (!started_device(device) || is_default(stream) || is_lasting(stream) || driver_is_gone())
    return true;
  try {
    const uint64_t capture = capture_id(stream);
    std::lock_guard lock(streams_lock);
    Foreign& f = note_foreign(stream);
    if (f.footing == Footing::Lent && --f.users > 0) return true;
    f.footing = Footing::Loose;
    f.lingers = false;
    f.capture = capture;
    ++f.times;
  } catch (...) {
    return false;
  }
  return end_loose_use(device, stream);
}

bool defer_retirement(CUstream stream) noexcept {
  std::lock_guard lock(streams_lock);
  Foreign* f = find_foreign(stream);
  if (!f || f->footing != Footing::Loose || !f->capture) return false;
  f->footing = Footing::Lent;
  return f->lingers = true;
}

void end_lingering(CUstream stream) noexcept {
  {
    std::lock_guard lock(streams_lock);
    Foreign* f = find_foreign(stream);
    if (!f || !f->lingers) return;
    f->footing = Footing::Loose;
    f->lingers = false;
    ++f->times;
  }
  presume_capture_over(stream);
}

void begin_untracked_use(int device, CUstream stream, const char* where) {
  if (is_default(stream)) return;
  {
    std::lock_guard lock(streams_lock);
    const Foreign* f = find_foreign(stream);
    if (f ? f->footing == Footing::Lent && !f->lingers : lasting.count(stream) != 0) return;
  }
  if (is_retired(stream))
    wait(device, stream, drain_stream(device_state(device, where), where), where);
  const unsigned long long id = id_of(device, stream);
  const uint64_t capture = id ? 0 : capture_id(stream);
  std::lock_guard lock(streams_lock);
  Foreign& f = note_foreign(stream);
  if (f.footing == Footing::Lent && f.users > 0) return;
  f.footing = Footing::Loose;
  f.lingers = false;
  f.id = id;
  f.capture = capture;
  ++f.times;
}

bool end_loose_use(int device, CUstream stream) noexcept {
  DeviceState* d = started_device(device);
  if (!d || driver_is_gone()) return true;
  uint32_t times;
  {
    std::lock_guard lock(streams_lock);
    const Foreign* f = find_foreign(stream);
    if (!f || f->footing != Footing::Loose) return true;
    times = f->times;
  }
  if (capture_id(stream)) return false;
  try {
    if (link(*d, drain_stream(*d, "Stream"), *d, stream) != CUDA_SUCCESS) return false;
  } catch (...) {
    return false;
  }
  retire_if_unused_since(stream, times);
  return true;
}

CUstream living(DeviceState& d, CUstream stream, uint32_t token, const char* where) {
  stream = reachable(stream, token);
  if (foreign_count.load(std::memory_order_acquire) == 0 || is_default(stream)) return stream;
  bool loose, lingers;
  uint32_t times;
  {
    std::lock_guard lock(streams_lock);
    const Foreign* f = find_foreign(stream);
    if (!f || (f->footing == Footing::Lent && !f->lingers)) return stream;
    lingers = f->lingers;
    loose = f->footing == Footing::Loose;
    times = f->times;
  }
  if (lingers) {
    retire_if_it_lingers(d, stream, times, where);
    return stream;
  }
  CUstream heir = drain_stream(d, where);
  if (loose) {
    wait_for_all(d.ordinal, heir, where);
    retire_if_unused_since(stream, times);
  }
  return heir;
}

CUstream last_use(const Buffer& b, const char* where) {
  if (!b.stream) return CU_STREAM_LEGACY;
  return living(device_state(b.device.id, where), static_cast<CUstream>(b.stream), b.stream_thread,
                where);
}

}  // namespace gpuinterop::cuda
