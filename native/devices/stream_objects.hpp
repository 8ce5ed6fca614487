// Streams and events as Python objects. On device "cpu" both exist and do nothing, because work there is
// complete when the call returns. So programs need no second version for the CPU.
#pragma once

#include <nanobind/nanobind.h>

#include <chrono>
#include <string>

#include "devices/cuda.hpp"
#include "devices/device_objects.hpp"

namespace gpuinterop {

class Stream {
 public:
  enum class Origin { Own, Lent, Default };

  Stream(Device device, bool blocking, int priority);  // a new one
  Stream(Device device, CUstream handle,
         nanobind::object owner);  // an external or a default one
  ~Stream();
  Stream(const Stream&) = delete;
  Stream& operator=(const Stream&) = delete;

  void check_usable(const char* where) const;
  void enter();  // called before it becomes current in a block, and after the block
  void leave() noexcept;

  Device device;
  CUstream handle = nullptr;  // null on the CPU only
  Origin origin;
  bool blocking = true;
  int priority = 0;
  // Keeps the handle alive. Hidden from the garbage collector: in a cycle with this Stream the collector
  // could destroy the owner, and with it the driver's stream, before this Stream has retired the handle.
  // Such a cycle is never freed.
  nanobind::object owner;

 private:
  void retire() noexcept;  // the handle is not used afterwards
  bool used_ = false;
  int blocks_ = 0;
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

// ---- devices/event_bindings.cpp ----
void record_event(Event& e, nanobind::object stream);  // None: the current one
void wait_event(Device d, CUstream stream, const Event& e, const char* where);
void register_events(nanobind::module_& m);

// ---- devices/stream_bindings.cpp ----
std::string stream_repr(const Stream& s);
void register_streams(nanobind::module_& m);

}  // namespace gpuinterop
