// The machine behind the fake driver: devices, memory, streams with a worker thread each, events,
// captures. One lock for everything; work runs without it.
#pragma once

#include <cuda.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <thread>
#include <vector>

namespace fake {

using Clock = std::chrono::steady_clock;
using Work = std::function<void()>;

inline long env(const char* name, long fallback) {
  const char* text = std::getenv(name);
  return text && *text ? std::atol(text) : fallback;
}

struct Stream;
struct Context;

struct Device {
  int ordinal = 0;
  int64_t total = 0, used = 0, reserved = 0;
  uint64_t threshold = 0;
  Context* primary = nullptr;
  int retained = 0;
};

struct Context {
  Device* device;
  bool is_primary;
  unsigned long long id = 0;
  bool exists = true;
  Stream* legacy = nullptr;
  std::vector<Stream*> streams;
};

// Is destroyed together with the last of: the graph, its executables and their launches.
struct GraphBody {
  std::vector<Work> works;
  std::vector<std::pair<CUhostFn, void*>> user_objects;
  ~GraphBody();
};
int count_of_resets();
struct Graph {
  std::shared_ptr<GraphBody> body = std::make_shared<GraphBody>();
  int resets = count_of_resets();
};
struct GraphExec {
  std::shared_ptr<GraphBody> body;
  int resets = count_of_resets();
};
struct UserObject {
  CUhostFn destroy;
  void* data;
};

struct Capture {
  uint64_t id;
  Graph* graph;
  CUstreamCaptureMode mode;
  std::thread::id thread;
  Stream* origin;
  bool invalid = false;
};

struct Dependency {
  Stream* stream;
  uint64_t count;
};
struct Item {
  std::vector<Dependency> after;
  Work work;
};

struct Stream {
  Context* context;
  bool blocking;
  unsigned long long id = 0;
  Stream* heir = nullptr;  // the new stream that got the handle of this one
  bool destroyed = false;
  bool running = false;
  std::deque<Item> queue;
  uint64_t queued = 0, done = 0;
  std::shared_ptr<Capture> capture;
};

struct Event {
  Context* context;
  unsigned flags;
  Stream* stream = nullptr;  // null: never recorded
  uint64_t count = 0;
  std::shared_ptr<Capture> capture;
  std::shared_ptr<Clock::time_point> time;
};

enum class Kind { Device, Pool, Exportable, Pinned, Managed, Mapped, Opened };
struct Allocation {
  char* base;
  size_t bytes;
  Kind kind;
  Device* device;
  Context* context;
  bool freed = false;  // a free is queued
  int descriptor = -1;  // of the file that holds it, if other processes can open it
};

constexpr size_t kZone = 64;  // behind every allocation, checked when it is freed

struct Machine {
  std::mutex lock;
  std::condition_variable moved;
  std::vector<Device*> devices;
  std::set<Stream*> streams;
  std::set<Event*> events;
  std::map<uintptr_t, Allocation> memory;
  std::vector<std::shared_ptr<Capture>> captures;
  uint64_t next_capture = 1;
  unsigned long long next_stream = 1, next_context = 1;
  pid_t pid = getpid();
  bool initialised = false;
  std::atomic<long> delay_us{env("FAKECUDA_DELAY_US", 0)};
  int resets = 0;  // of primary contexts
  std::atomic<size_t> capacity{0};  // of a stream's queue; 0: no bound
  // The real driver destroys user objects on a thread of its own, some time later.
  std::atomic<bool> keeps_user_objects{false};
  std::atomic<int> compute_major{9};
  std::vector<std::string> faults;  // errors that a real device reports later or never

  Machine() {
    long n = env("FAKECUDA_DEVICES", 2), bytes = env("FAKECUDA_MEMORY", long(1) << 30);
    for (int i = 0; i < n; ++i) {
      auto* d = new Device;
      d->ordinal = i;
      d->total = bytes;
      devices.push_back(d);
    }
  }
  void fault(const std::string& what) { faults.push_back(what); }
};

// Never destroyed: worker threads outlive main().
inline Machine& machine() {
  static Machine* m = new Machine;
  return *m;
}

inline int count_of_resets() { return machine().resets; }

inline GraphBody::~GraphBody() {
  if (machine().keeps_user_objects) return;
  for (auto& [destroy, data] : user_objects) destroy(data);
}

inline Stream* new_stream(Context* c, bool blocking) {
  auto* s = new Stream{c, blocking};
  s->id = machine().next_stream++;
  machine().streams.insert(s);
  c->streams.push_back(s);
  return s;
}

inline void worker(Stream* s) {
  Machine& m = machine();
  std::unique_lock lock(m.lock);
  for (;;) {
    m.moved.wait(lock, [&] { return !s->queue.empty(); });
    Item item = std::move(s->queue.front());
    s->queue.pop_front();
    for (const Dependency& d : item.after) m.moved.wait(lock, [&] { return d.stream->done >= d.count; });
    lock.unlock();
    if (long us = m.delay_us.load()) std::this_thread::sleep_for(std::chrono::microseconds(us));
    if (item.work) item.work();
    item.work = nullptr;  // may end a graph, whose callbacks must run without the lock
    lock.lock();
    ++s->done;
    m.moved.notify_all();
  }
}

// With the lock held. A legacy stream's work follows all earlier work of blocking streams and
// precedes all their later work.
inline void enqueue(Stream* s, Work work, std::vector<Dependency> after = {}) {
  if (s->capture) {
    s->capture->graph->body->works.push_back(std::move(work));
    return;
  }
  if (s == s->context->legacy) {
    for (Stream* other : s->context->streams)
      if (other != s && other->blocking) after.push_back({other, other->queued});
  } else if (s->blocking && s->context->legacy) {
    after.push_back({s->context->legacy, s->context->legacy->queued});
  }
  if (size_t most = machine().capacity) {
    std::unique_lock held(machine().lock, std::adopt_lock);
    machine().moved.wait(held, [&] { return s->queue.size() < most; });
    held.release();
  }
  s->queue.push_back({std::move(after), std::move(work)});
  ++s->queued;
  if (!s->running) {
    s->running = true;
    std::thread(worker, s).detach();
  }
  machine().moved.notify_all();
}

inline void wait_for(std::unique_lock<std::mutex>& lock, Stream* s) {
  uint64_t target = s->queued;
  machine().moved.wait(lock, [&] { return s->done >= target; });
}

inline void wait_for(std::unique_lock<std::mutex>& lock, Context* c) {
  for (size_t i = 0; i < c->streams.size(); ++i) wait_for(lock, c->streams[i]);
}

// ---- memory -----------------------------------------------------------------------------------
inline char* add_memory(size_t bytes, Kind kind, Device* d, Context* c) {
  size_t whole = (bytes + kZone + 511) & ~size_t(511);
  const bool shared = kind == Kind::Device || kind == Kind::Exportable;
  const int descriptor = shared ? memfd_create("fakecuda", MFD_CLOEXEC) : -1;
  void* found = !shared ? std::aligned_alloc(512, whole)
                : descriptor < 0 || ftruncate(descriptor, off_t(bytes + kZone))
                    ? nullptr
                    : mmap(nullptr, bytes + kZone, PROT_READ | PROT_WRITE, MAP_SHARED, descriptor, 0);
  if (!found || found == MAP_FAILED) return nullptr;
  auto* p = static_cast<char*>(found);
  // Garbage that hurts: a float32 of these bytes is NaN.
  std::memset(p, 0xFF, bytes < (size_t(64) << 20) ? bytes : 0);
  std::memset(p + bytes, 0xA5, kZone);
  machine().memory[reinterpret_cast<uintptr_t>(p)] = {p, bytes, kind, d, c, false, descriptor};
  return p;
}

inline Allocation* find_memory(const void* ptr) {
  auto& memory = machine().memory;
  auto address = reinterpret_cast<uintptr_t>(ptr);
  auto it = memory.upper_bound(address);
  if (it == memory.begin()) return nullptr;
  Allocation& a = (--it)->second;
  return address < it->first + a.bytes ? &a : nullptr;
}

inline bool covers(const void* ptr, size_t bytes) {
  Allocation* a = find_memory(ptr);
  return a && !a->freed && static_cast<const char*>(ptr) + bytes <= a->base + a->bytes;
}

// With the lock held.
inline void drop_memory(char* base) {
  Machine& m = machine();
  auto it = m.memory.find(reinterpret_cast<uintptr_t>(base));
  if (it == m.memory.end()) return;
  Allocation a = it->second;
  for (size_t i = 0; i < kZone; ++i)
    if (static_cast<unsigned char>(a.base[a.bytes + i]) != 0xA5) {
      m.fault("something wrote behind an allocation of " + std::to_string(a.bytes) + " bytes");
      break;
    }
  const bool own = a.kind == Kind::Device || a.kind == Kind::Exportable;
  if (own || a.kind == Kind::Pool) a.device->used -= int64_t(a.bytes);
  if (own) a.device->reserved -= int64_t(a.bytes);
  m.memory.erase(it);
  if (a.descriptor >= 0) {  // another process may still read it
    close(a.descriptor);
    munmap(a.base, a.bytes + kZone);
    return;
  }
  std::memset(a.base, 0xDD, a.bytes < (size_t(64) << 20) ? a.bytes : 0);
  std::free(a.base);
}

}  // namespace fake
