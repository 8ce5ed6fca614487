// Queues work on a stream of the fake driver, so that it has its place there and in a graph; for its fake libraries.
#pragma once

#include <dlfcn.h>

#include <cstdlib>
#include <deque>
#include <functional>
#include <mutex>
#include <utility>

inline void queue(void* stream, std::function<void()> work) {
  static std::deque<std::function<void()>> kept;  // a graph may run its work at any later time
  static auto* launch = [] {
    void* driver = dlopen(std::getenv("GPUINTEROP_LIBCUDA"), RTLD_NOW);
    return reinterpret_cast<int (*)(void*, void (*)(void*), void*)>(
        driver ? dlsym(driver, "cuLaunchHostFunc") : nullptr);
  }();
  static std::mutex lock;
  std::lock_guard<std::mutex> guard(lock);
  kept.push_back(std::move(work));
  auto run = [](void* given) { (*static_cast<std::function<void()>*>(given))(); };
  if (launch) launch(stream, run, &kept.back());
}
