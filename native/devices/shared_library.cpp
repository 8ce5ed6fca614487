#include "devices/shared_library.hpp"

#include <dlfcn.h>

#include "interpreter/error.hpp"

namespace gpuinterop {

namespace {

// A version of CUDA 12 or 13 that works with the driver.
constexpr const char* kFix =
    "see gpuinterop.doctor() for the versions in use, and install the library for this CUDA";

}  // namespace

void* open_library(const std::string& path, const char* title) {
  void* handle = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (!handle) {
    const char* reason = dlerror();
    fail(Kind::Library, title, std::string(title) + " of CUDA 12 or 13", reason ? reason : path,
         kFix);
  }
  return handle;
}

void* find_symbol(void* library, const char* symbol) noexcept { return dlsym(library, symbol); }

void* require_symbol(void* library, const char* symbol, const char* title) {
  void* found = find_symbol(library, symbol);
  if (!found)
    fail(Kind::Library, title, std::string(title) + " of CUDA 12 or 13",
         std::string("a library without ") + symbol, kFix);
  return found;
}

void require_success(int status, int out_of_memory, const char* type, const char* call,
                     const char* where) {
  if (status == 0) return;
  const bool memory = status == out_of_memory;
  fail(memory ? Kind::OutOfMemory : Kind::Cuda, where, std::string(call) + " to succeed",
       std::string(type) + " " + std::to_string(status),
       memory ? "free memory: gpuinterop.empty_cache()"
              : "see gpuinterop.doctor() for the versions in use");
}

}  // namespace gpuinterop
