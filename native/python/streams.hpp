// Streams and events as Python objects. On device "cpu" both exist and do nothing, since work there
// is done when the call returns: programs need no second version of themselves.
#pragma once

#include <nanobind/nanobind.h>

#include <chrono>

#include "cuda/cuda.hpp"

namespace gpuinterop {

class Stream {
 public:
  enum class Origin { Own, Lent, Default };

  Stream(Device device, bool blocking, int priority);  // a new one
  Stream(Device device, CUstream handle,
         nanobind::object owner);  // somebody else's, or a default one
  ~Stream();
  Stream(const Stream&) = delete;
  Stream& operator=(const Stream&) = delete;

  void check_usable(const char* where) const;
  void put_to_use();  // before the first work is queued on a foreign stream
  // The handle is not used from here on. Its owner, if it stays, lives on where buffers need it.
  void let_go(bool owner_stays) noexcept;

  Device device;
  CUstream handle = nullptr;  // null on the CPU only
  Origin origin;
  bool blocking = true;
  int priority = 0;
  nanobind::object owner;

 private:
  void watch_owner() noexcept;
  bool used_ = false;
  nanobind::object watch_, watched_by_;  // a weak reference to the owner, and what it knows us by
};

class Event {
 public:
  Event(Device device, bool timing, bool blocking);
  ~Event();
  Event(const Event&) = delete;
  Event& operator=(const Event&) = delete;

  Device device;
  bool timing;
  bool recorded = false;
  CUevent handle = nullptr;                    // null on the CPU
  std::chrono::steady_clock::time_point time;  // of the record, on the CPU
};

void register_streams(nanobind::module_& m);  // python/stream_bindings.cpp

}  // namespace gpuinterop
