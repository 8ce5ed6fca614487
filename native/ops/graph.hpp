// Captured sequences. On CUDA a capture is a CUDA graph; on the CPU it is a list of calls. Both run
// nothing while they record: the first results exist after the first replay.
#pragma once

#include <Python.h>
#include <cuda.h>

#include <memory>
#include <vector>

#include "array/array.hpp"

namespace gpuinterop::ops {

class Recorder {
 public:
  Recorder(Device device, bool on_host);
  ~Recorder();
  Recorder(const Recorder&) = delete;

  // Makes this thread record. `self` is the object that holds this: it stays alive until the same
  // thread stops, because the thread's pointer leads here.
  void begin(PyObject* self);
  void end();             // and stop; the graph is ready afterwards
  void leave() noexcept;  // stop without a graph, where this thread records; nothing elsewhere
  // Runs it, or, where this thread records on its device, makes it part of that capture.
  void replay();

  // An operand that the graph will read or write at every replay. It is kept alive.
  void use(const Array& array);
  // A result made inside the capture: its memory belongs to the graph, and may serve a later
  // result of the same capture once nobody else holds it.
  void fresh(const Array& array);
  // Host memory made inside a host capture. It holds zeros, and no reader gets it, until the first
  // replay or a write from outside.
  void unset(const Array& array);
  // Kind::Capture error for work on another device: it would run now and at no replay.
  void require_device(Device device) const;
  // Host: what every replay does, in order.
  void add_call(PyObject* callable);
  void add_copy(const Array& dst, const Array& src);

  bool on_host() const noexcept { return on_host_; }
  Device device() const noexcept { return device_; }
  size_t nodes() const;  // kernels, copies, fills; calls on the host
  bool ready() const noexcept { return ready_; }
  int traverse(visitproc visit, void* arg);
  void clear();

 private:
  void drop_unused();
  void run_calls();

  Device device_;
  bool on_host_;
  bool active_ = false, ready_ = false;
  CUstream stream_ = nullptr, outer_stream_ = nullptr;
  CUgraph graph_ = nullptr;
  CUgraphExec exec_ = nullptr;
  PyRef self_;  // while active
  struct Call {
    PyRef callable;  // null: a copy
    Array dst, src;
  };
  std::vector<Call> calls_;
  std::vector<Array> used_, fresh_;
  std::vector<BufferRef> unset_;
  std::vector<BufferRef> buffers_;  // those of used_ and fresh_, each once
  size_t inner_nodes_ = 0;          // of captures replayed inside, beyond one for each
};

extern thread_local Recorder* recorder;  // of the innermost capture of this thread
inline void note_use(const Array& array) {
  if (recorder) [[unlikely]]
    recorder->use(array);
}
inline void note_fresh(const Array& array) {
  if (recorder) [[unlikely]]
    recorder->fresh(array);
}
inline void note_unset(const Array& array) {
  if (recorder) [[unlikely]]
    recorder->unset(array);
}
inline void require_recorded(Device device) {
  if (recorder) [[unlikely]]
    recorder->require_device(device);
}
// True while this thread records on the host: operations then leave the work to the replays.
inline bool recording_on_host() noexcept { return recorder && recorder->on_host(); }

// Kind::Capture errors: while this thread records on the host, because `where` needs values now; and
// for a result of a host capture, this thread's or another's, that nothing has filled yet.
void require_values(const char* where, const Array& array);
// The second of them alone: for operations, which a capture of this thread records.
void require_set(const char* where, const Array& array);
// A write now gives the array values.
inline void note_write(const Array& array) noexcept {
  if (array.buffer && array.buffer->unset && !recording_on_host()) array.buffer->unset = false;
}

}  // namespace gpuinterop::ops
