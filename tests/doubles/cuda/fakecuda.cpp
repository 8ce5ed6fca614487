// libcuda on host memory, for tests: streams run on threads, so a missing synchronisation shows;
// illegal calls during a capture fail and spoil it, as they do on the real driver.
// Build: g++ -std=c++20 -shared -fPIC -O1 -g -I<dir of cuda.h> fakecuda.cpp -o libfakecuda.so
#include <dlfcn.h>
#include <elf.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>

#include <map>

#include "model.hpp"

using namespace fake;

namespace {

struct Injected {
  int code, skip, count;
};
std::mutex log_lock;
std::vector<std::string>* calls = new std::vector<std::string>;
std::map<std::string, int>* counts = new std::map<std::string, int>;
std::map<std::string, Injected>* injected = new std::map<std::string, Injected>;
std::atomic<bool> gone{false};

thread_local std::vector<Context*> stack;
thread_local CUstreamCaptureMode thread_mode = CU_STREAM_CAPTURE_MODE_GLOBAL;
thread_local std::map<Context*, Stream*>* per_thread = nullptr;

// FAKECUDA_FAIL="cuMemAllocAsync=2,cuInit=100": these fail every time.
void read_failures() {
  const char* text = std::getenv("FAKECUDA_FAIL");
  std::string all = text ? text : "";
  for (size_t at = 0; at < all.size();) {
    size_t end = std::min(all.find(',', at), all.size()), eq = all.find('=', at);
    if (eq < end) (*injected)[all.substr(at, eq - at)] = {std::atoi(all.c_str() + eq + 1), 0, 1 << 30};
    at = end + 1;
  }
}

int enter(const char* name) {
  if (gone.load()) return CUDA_ERROR_DEINITIALIZED;
  if (machine().pid != getpid()) {
    std::fprintf(stderr, "fakecuda: %s called in a forked child\n", name);
    return CUDA_ERROR_NOT_INITIALIZED;
  }
  std::lock_guard lock(log_lock);
  static bool once = (read_failures(), true);
  (void)once;
  if (calls->size() < 100000) calls->push_back(name);
  ++(*counts)[name];
  auto it = injected->find(name);
  if (it != injected->end() && it->second.count > 0) {
    if (it->second.skip > 0) {
      --it->second.skip;
    } else {
      --it->second.count;
      return it->second.code;
    }
  }
  if (!machine().initialised && std::strcmp(name, "cuInit") && std::strncmp(name, "cuGetError", 10) &&
      std::strcmp(name, "cuDriverGetVersion"))
    return CUDA_ERROR_NOT_INITIALIZED;
  return CUDA_SUCCESS;
}

struct AtExit {
  ~AtExit() { gone.store(true); }
} at_exit;

Context* current() { return stack.empty() ? nullptr : stack.back(); }

// By their text, because cuda.h has macros of some of these names.
#define ENTER_BY(text) \
  if (int code = enter(text)) return static_cast<CUresult>(code)
#define ENTER(name) ENTER_BY(#name)
#define NEED_CONTEXT()                          \
  Context* context = current();                 \
  if (!context) return CUDA_ERROR_INVALID_CONTEXT; \
  if (!context->exists) return CUDA_ERROR_CONTEXT_IS_DESTROYED
#define LOCKED() std::unique_lock lock(machine().lock)
#define ENTER_CONTEXT(name) \
  ENTER_BY(#name);          \
  NEED_CONTEXT();           \
  LOCKED()

// With the lock held; null when the handle names no living stream of any context.
Stream* resolve(CUstream handle) {
  Context* c = current();
  if (handle == nullptr || handle == CU_STREAM_LEGACY) return c ? c->legacy : nullptr;
  if (handle == CU_STREAM_PER_THREAD) {
    if (!c) return nullptr;
    if (!per_thread) per_thread = new std::map<Context*, Stream*>;
    Stream*& s = (*per_thread)[c];
    if (!s) s = new_stream(c, true);
    return s;
  }
  auto* s = reinterpret_cast<Stream*>(handle);
  while (machine().streams.count(s) && s->heir) s = s->heir;
  if (!machine().streams.count(s) || s->destroyed) {
    machine().fault("use of a destroyed or unknown stream");
    return nullptr;
  }
  return s;
}

void spoil(Context* c) {
  for (auto& capture : machine().captures)
    if (!c || capture->origin->context == c) capture->invalid = true;
}

// The legacy stream may not be used while a blocking stream of its context is being captured.
bool implicit(Stream* s, bool harmless = false) {
  if (s != s->context->legacy) return false;
  for (Stream* other : s->context->streams)
    if (other->blocking && other->capture) {
      if (!harmless) other->capture->invalid = true;
      return true;
    }
  return false;
}

// Calls that might synchronise or allocate are forbidden to this thread by captures in a strict mode,
// and spoil them, whatever stream they name. The real driver's list is not published: this one is
// what was seen of it (queries, pool allocations) and all that is of their kind.
bool unsafe() {
  if (thread_mode == CU_STREAM_CAPTURE_MODE_RELAXED) return false;
  bool found = false;
  for (auto& capture : machine().captures) {
    bool same_thread = capture->thread == std::this_thread::get_id();
    if ((capture->mode == CU_STREAM_CAPTURE_MODE_GLOBAL && (same_thread || thread_mode == CU_STREAM_CAPTURE_MODE_GLOBAL)) ||
        (capture->mode == CU_STREAM_CAPTURE_MODE_THREAD_LOCAL && same_thread)) {
      capture->invalid = true;
      found = true;
    }
  }
  return found;
}

// Whether a call that waits for the stream is refused; it spoils the captures that refuse it.
bool is_captured(Stream* s) {
  if (s->capture) s->capture->invalid = true;
  return s->capture || unsafe();
}

#define STREAM(s, handle)                                        \
  Stream* s = resolve(handle);                                   \
  if (!s) return CUDA_ERROR_INVALID_HANDLE;                      \
  if (implicit(s)) return CUDA_ERROR_STREAM_CAPTURE_IMPLICIT;    \
  if (s->capture && s->capture->invalid) return CUDA_ERROR_STREAM_CAPTURE_INVALIDATED
#define ENTER_STREAM(name, s, handle) \
  ENTER_BY(#name);                    \
  NEED_CONTEXT();                     \
  LOCKED();                           \
  STREAM(s, handle)

// Whether a graph or its executable is older than a reset, which the real driver does not survive.
template <class T>
bool is_lost(T* graph) {
  if (graph->resets == machine().resets) return false;
  machine().fault("use of a graph of a context that was reset");
  return true;
}

char* host(CUdeviceptr p) { return reinterpret_cast<char*>(p); }

bool pinned(const void* p) {
  Allocation* a = find_memory(p);
  return a && a->kind == fake::Kind::Pinned;
}

}  // namespace

extern "C" {

#include "memory.hpp"
#include "streams.hpp"
#include "kernels.hpp"
#include "sharing.hpp"

CUresult cuInit(unsigned) {
  ENTER(cuInit);
  machine().initialised = true;
  return CUDA_SUCCESS;
}
CUresult cuDriverGetVersion(int* v) {
  ENTER(cuDriverGetVersion);
  *v = 13000;
  return CUDA_SUCCESS;
}
CUresult cuGetErrorName(CUresult code, const char** out) {
  static const std::map<int, const char*> names = {
      {1, "CUDA_ERROR_INVALID_VALUE"},      {2, "CUDA_ERROR_OUT_OF_MEMORY"},      {3, "CUDA_ERROR_NOT_INITIALIZED"},
      {4, "CUDA_ERROR_DEINITIALIZED"},      {34, "CUDA_ERROR_STUB_LIBRARY"},      {100, "CUDA_ERROR_NO_DEVICE"},
      {101, "CUDA_ERROR_INVALID_DEVICE"},   {200, "CUDA_ERROR_INVALID_IMAGE"},    {201, "CUDA_ERROR_INVALID_CONTEXT"},
      {400, "CUDA_ERROR_INVALID_HANDLE"},   {500, "CUDA_ERROR_NOT_FOUND"},        {600, "CUDA_ERROR_NOT_READY"},
      {700, "CUDA_ERROR_ILLEGAL_ADDRESS"},  {719, "CUDA_ERROR_LAUNCH_FAILED"},    {900, "CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED"},
      {901, "CUDA_ERROR_STREAM_CAPTURE_INVALIDATED"}, {905, "CUDA_ERROR_STREAM_CAPTURE_ISOLATION"},
      {906, "CUDA_ERROR_STREAM_CAPTURE_IMPLICIT"}};
  auto it = names.find(code);
  *out = it == names.end() ? "CUDA_ERROR_UNKNOWN" : it->second;
  return CUDA_SUCCESS;
}
CUresult cuGetErrorString(CUresult, const char** out) {
  *out = "as told by the fake driver";
  return CUDA_SUCCESS;
}

// ---- devices and contexts ---------------------------------------------------------------------
CUresult cuDeviceGetCount(int* n) {
  ENTER(cuDeviceGetCount);
  *n = int(machine().devices.size());
  return CUDA_SUCCESS;
}
CUresult cuDeviceGet(CUdevice* out, int ordinal) {
  ENTER(cuDeviceGet);
  if (ordinal < 0 || size_t(ordinal) >= machine().devices.size()) return CUDA_ERROR_INVALID_DEVICE;
  *out = ordinal;
  return CUDA_SUCCESS;
}
CUresult cuDeviceGetName(char* out, int n, CUdevice d) {
  ENTER(cuDeviceGetName);
  std::snprintf(out, size_t(n), "Fake GPU %d", d);
  return CUDA_SUCCESS;
}
CUresult cuDeviceGetAttribute(int* out, CUdevice_attribute what, CUdevice) {
  ENTER(cuDeviceGetAttribute);
  static const std::map<int, int> values = {
      {CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_BLOCK, 1024},
      {CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_X, 1024},
      {CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_Y, 1024},
      {CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_Z, 64},
      {CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_X, 2147483647},
      {CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_Y, 65535},
      {CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_Z, 65535},
      {CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK, 49152},
      {CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN, 232448},
      {CU_DEVICE_ATTRIBUTE_TOTAL_CONSTANT_MEMORY, 65536},
      {CU_DEVICE_ATTRIBUTE_WARP_SIZE, 32},
      {CU_DEVICE_ATTRIBUTE_MAX_REGISTERS_PER_BLOCK, 65536},
      {CU_DEVICE_ATTRIBUTE_CLOCK_RATE, 1980000},
      {CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT, 8},
      {CU_DEVICE_ATTRIBUTE_L2_CACHE_SIZE, 1 << 20},
      {CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR, 9},
      {CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR, 0},
      {CU_DEVICE_ATTRIBUTE_UNIFIED_ADDRESSING, 1},
      {CU_DEVICE_ATTRIBUTE_CAN_MAP_HOST_MEMORY, 1},
      {CU_DEVICE_ATTRIBUTE_CONCURRENT_KERNELS, 1},
      {CU_DEVICE_ATTRIBUTE_MEMORY_POOLS_SUPPORTED, 1}};
  auto it = values.find(what);
  *out = it == values.end() ? 0 : it->second;
  if (what == CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR) *out = machine().compute_major;
  return CUDA_SUCCESS;
}
CUresult cuDeviceTotalMem_v2(size_t* out, CUdevice d) {
  ENTER(cuDeviceTotalMem);
  *out = size_t(machine().devices[size_t(d)]->total);
  return CUDA_SUCCESS;
}
CUresult cuDevicePrimaryCtxRetain(CUcontext* out, CUdevice d) {
  ENTER(cuDevicePrimaryCtxRetain);
  LOCKED();
  Device* device = machine().devices[size_t(d)];
  if (!device->primary) {
    device->primary = new Context{device, true, machine().next_context++};
    device->primary->legacy = new_stream(device->primary, true);
  }
  if (!device->primary->exists) {
    device->primary->exists = true;
    device->primary->id = machine().next_context++;
    device->primary->legacy = new_stream(device->primary, true);
  }
  ++device->retained;
  *out = reinterpret_cast<CUcontext>(device->primary);
  return CUDA_SUCCESS;
}
CUresult cuDevicePrimaryCtxRelease_v2(CUdevice d) {
  ENTER(cuDevicePrimaryCtxRelease);
  --machine().devices[size_t(d)]->retained;
  return CUDA_SUCCESS;
}
// The handle stays that of the device's primary context. Everything else in it is lost.
CUresult cuDevicePrimaryCtxReset_v2(CUdevice d) {
  ENTER(cuDevicePrimaryCtxReset);
  LOCKED();
  Device* device = machine().devices[size_t(d)];
  Context* context = device->primary;
  device->retained = 0;
  if (!context) return CUDA_SUCCESS;
  wait_for(lock, context);
  context->exists = false;
  ++machine().resets;
  for (Stream* s : context->streams) s->destroyed = true;
  context->streams.clear();
  for (auto& [address, memory] : machine().memory)
    if (memory.device == device) memory.freed = true;
  std::erase_if(machine().events, [&](Event* e) { return e->context == context; });
  return CUDA_SUCCESS;
}
CUresult cuCtxGetId(CUcontext c, unsigned long long* out) {
  ENTER(cuCtxGetId);
  Context* context = c ? reinterpret_cast<Context*>(c) : current();
  if (!context) return CUDA_ERROR_INVALID_CONTEXT;
  if (!context->exists) return CUDA_ERROR_CONTEXT_IS_DESTROYED;
  *out = context->id;
  return CUDA_SUCCESS;
}
CUresult cuDevicePrimaryCtxGetState(CUdevice d, unsigned* flags, int* active) {
  ENTER(cuDevicePrimaryCtxGetState);
  *flags = 0;
  *active = machine().devices[size_t(d)]->retained > 0;
  return CUDA_SUCCESS;
}
#undef cuCtxCreate
CUresult cuCtxCreate_v2(CUcontext* out, unsigned, CUdevice d) {
  ENTER(cuCtxCreate);
  LOCKED();
  auto* c = new Context{machine().devices[size_t(d)], false, machine().next_context++};
  c->legacy = new_stream(c, true);
  stack.push_back(c);
  *out = reinterpret_cast<CUcontext>(c);
  return CUDA_SUCCESS;
}
// Its streams stay, so that a handle kept by mistake can be distinguished from invalid memory.
CUresult cuCtxDestroy_v2(CUcontext c) {
  ENTER(cuCtxDestroy);
  if (!stack.empty() && stack.back() == reinterpret_cast<Context*>(c)) stack.pop_back();
  return CUDA_SUCCESS;
}
CUresult cuCtxGetCurrent(CUcontext* out) {
  ENTER(cuCtxGetCurrent);
  *out = reinterpret_cast<CUcontext>(current());
  return CUDA_SUCCESS;
}
CUresult cuCtxSetCurrent(CUcontext c) {
  ENTER(cuCtxSetCurrent);
  if (!stack.empty()) stack.pop_back();
  if (c) stack.push_back(reinterpret_cast<Context*>(c));
  return CUDA_SUCCESS;
}
CUresult cuCtxPushCurrent_v2(CUcontext c) {
  ENTER(cuCtxPushCurrent);
  stack.push_back(reinterpret_cast<Context*>(c));
  return CUDA_SUCCESS;
}
CUresult cuCtxPopCurrent_v2(CUcontext* out) {
  ENTER(cuCtxPopCurrent);
  if (stack.empty()) return CUDA_ERROR_INVALID_CONTEXT;
  if (out) *out = reinterpret_cast<CUcontext>(stack.back());
  stack.pop_back();
  return CUDA_SUCCESS;
}
CUresult cuCtxSynchronize() {
  ENTER_CONTEXT(cuCtxSynchronize);
  for (Stream* s : context->streams)
    if (s->capture) {
      spoil(context);
      return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
    }
  if (unsafe()) return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
  wait_for(lock, context);
  return CUDA_SUCCESS;
}
CUresult cuCtxRecordEvent(CUcontext c, CUevent e) {
  ENTER(cuCtxRecordEvent);
  LOCKED();
  auto* context = reinterpret_cast<Context*>(c);
  std::vector<Dependency> after;
  for (Stream* s : context->streams) {
    if (s->capture) {
      spoil(context);
      return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
    }
    after.push_back({s, s->queued});
  }
  // A stream of its own stands for "everything so far".
  Stream* all = new_stream(context, false);
  enqueue(all, nullptr, after);
  auto* event = reinterpret_cast<Event*>(e);
  event->stream = all;
  event->count = all->queued;
  event->capture = nullptr;
  return CUDA_SUCCESS;
}

#include "controls.hpp"
}
