#include "devices/driver.hpp"

#include <dlfcn.h>

#include <cstdlib>
#include <mutex>
#include <vector>

#include "devices/cuda.hpp"
#include "devices/device_state.hpp"

namespace gpuinterop::cuda {

namespace {

Driver table;
std::once_flag loaded;

template <class F>
bool resolve(void* library, const char* symbol, F& slot) noexcept {
  slot = reinterpret_cast<F>(dlsym(library, symbol));
  return slot != nullptr;
}

// Fills the table; returns the first symbol that is missing, null when all are there.
const char* fill(void* library) {
  const char* missing = nullptr;
  // Not through another macro, which would expand the symbol to the version that cuda.h prefers.
#define X(name, symbol, arguments) \
  if (!resolve(library, #symbol, table.name) && !missing) missing = #symbol;
  GPUINTEROP_DRIVER_REQUIRED(X)
#undef X
#define X(name, symbol, arguments) resolve(library, #symbol, table.name);
  GPUINTEROP_DRIVER_OPTIONAL(X)
#undef X
  return missing;
}

void start(const std::string& path) {
  table.path = path;
  CUresult code = table.Init(0);
  if (code != CUDA_SUCCESS) {
    table.reason = path + ": cuInit returned " + describe(code);
    return;
  }
  table.initialised = true;
  watch_forks();
  table.DriverGetVersion(&table.version);
  code = table.DeviceGetCount(&table.devices);
  if (code != CUDA_SUCCESS) {
    table.devices = 0;
    table.reason = path + ": cuDeviceGetCount returned " + describe(code);
    return;
  }
  if (table.devices > kMaxDevices) table.devices = kMaxDevices;
  table.ok = table.devices > 0;
  if (!table.ok)
    table.reason = path + ": the driver works but reports no device (CUDA_VISIBLE_DEVICES?)";
}

void load() {
  const char* override_path = std::getenv("GPUINTEROP_LIBCUDA");
  std::vector<std::string> candidates;
  if (override_path && *override_path) {
    candidates = {override_path};  // named explicitly, so try no other library
  } else {
    // The second is where the Windows subsystem for Linux mounts the host's driver.
    candidates = {"libcuda.so.1", "/usr/lib/wsl/lib/libcuda.so.1"};
  }
  std::string tried;
  for (const std::string& name : candidates) {
    void* library = dlopen(name.c_str(), RTLD_NOW | RTLD_LOCAL);
    if (!library) {
      const char* why = dlerror();
      tried += (tried.empty() ? "" : "; ") + (why ? std::string(why) : name + ": not found");
      continue;
    }
    const char* missing = fill(library);
    if (!missing) {
      start(name);  // the library stays open, because its handles are stored everywhere
      return;
    }
    tried +=
        (tried.empty() ? "" : "; ") + name + ": too old or no CUDA driver, it lacks " + missing;
    table = Driver{};  // nothing may point into a closed library
    dlclose(library);
  }
  table.reason = "tried " + tried;
}

}  // namespace

std::atomic<const Driver*> loaded_driver{nullptr};

const Driver& load_driver() noexcept {
  std::call_once(loaded, [] {
    try {
      load();
    } catch (...) {
      table.ok = false;  // out of memory while composing the reason
    }
    loaded_driver.store(&table, std::memory_order_release);
  });
  return table;
}

std::string describe(CUresult code) {
  const char *name = nullptr, *text = nullptr;
  if (table.GetErrorName) table.GetErrorName(code, &name);
  if (table.GetErrorString) table.GetErrorString(code, &text);
  std::string out = name ? name : "unknown error";
  out += " (" + std::to_string(int(code)) + ")";
  if (text) out += std::string(": ") + text;
  return out;
}

bool available() noexcept { return driver().ok && !forked(); }
int device_count() noexcept { return available() ? driver().devices : 0; }

std::string unavailable_reason() {
  if (forked())
    return "this process was forked after its parent had initialised CUDA, and a driver does not "
           "survive a fork";
  return driver().reason;
}

void require(const char* where) {
  if (available()) [[likely]]
    return;
  if (forked())
    fail(Kind::Cuda, where, "a process that may use CUDA", unavailable_reason(),
         "start workers with multiprocessing.get_context(\"spawn\"), or fork before CUDA is used "
         "first");
  fail(
      driver().initialised ? Kind::Cuda : Kind::Library, where, "a working CUDA driver",
      unavailable_reason(),
      "install the NVIDIA driver, or use device=\"cpu\"; GPUINTEROP_LIBCUDA names another libcuda");
}

}  // namespace gpuinterop::cuda
