// Captured sequences. On CUDA a capture is a CUDA graph; on the CPU it is a list of calls. Neither runs
// anything while it records: results have values after the first replay.
#pragma once

#include <Python.h>
#include <cuda.h>

#include <functional>
#include <memory>
#include <mutex>
#include <utility>
#include <vector>

#include "arrays/array.hpp"
#include "arrays/loans.hpp"

namespace gpuinterop::ops {

// What each replay of a capture on the host repeats. Created, run and destroyed with the GIL held.
struct HostWork {
  std::vector<Array> inputs, outs;  // as they were recorded
  std::function<void(const HostWork&)> compute;
  PyRef object = {};             // a Python object that compute() needs, or null
  std::string where = "replay";  // the name in errors

  void run() const;  // checks that the inputs have values
  int traverse(visitproc visit, void* arg) const;
};

constexpr size_t kIndexFlagBytes = 64;

class Recorder {
 public:
  explicit Recorder(Device device) : device_(device) {}
  ~Recorder();
  Recorder(const Recorder&) = delete;

  // Makes this thread record. `self` is the Python object that contains this recorder. It is kept alive
  // until the same thread stops, because the thread holds a pointer to the recorder.
  void begin(PyObject* self);
  void end();             // stops recording; the graph is ready afterwards
  void leave() noexcept;  // stops without a graph on the recording thread; does nothing on others
  // Runs the graph. If this thread records on the same device, adds it to that capture instead.
  void replay();

  // An operand that the graph will read or write at every replay. It is kept alive.
  void use(const Array& array);
  // What kernels of the graph read at every replay beside arrays, such as a library's tables. It is kept alive.
  void keep(std::shared_ptr<const void> needed) { kept_.push_back(std::move(needed)); }
  // A result made inside the capture. Its memory belongs to the graph, and a later result of the same
  // capture may reuse it once only the graph holds it.
  void fresh(const Array& array);
  // Host memory made inside a host capture. It holds zeros, and reading it raises, until the first replay or
  // a write from outside.
  void unset(const Array& array);
  // An array that every replay writes to.
  void write(const Array& array);
  // Memory in which kernels record an index out of range (IndexFlags in index/elements.cpp): kIndexFlagBytes of pinned
  // memory. A later replay() throws for it.
  char* index_flags(const char* where);
  // Kind::Capture error for work on another device: it would run now and not at a replay.
  void require_device(Device device) const;
  // On the host: what every replay does, in order.
  void add(HostWork work) { calls_.push_back(std::make_shared<const HostWork>(std::move(work))); }

  bool on_host() const noexcept { return !device_.is_cuda(); }
  Device device() const noexcept { return device_; }
  int64_t references(const Buffer* buffer) const noexcept;  // how many this recorder has
  size_t nodes() const;  // kernels, copies, fills; calls on the host
  bool ready() const noexcept { return ready_; }
  int traverse(visitproc visit, void* arg);
  void clear();

 private:
  PyRef stop() noexcept;
  CUresult end_stream_capture() noexcept;
  void make_executable();
  void destroy_graph() noexcept;
  void drop_unused();
  void run_calls();
  void require_no_index_flag();

  Device device_;
  bool ready_ = false;
  CUstream stream_ = nullptr, outer_stream_ = nullptr;
  CUgraph graph_ = nullptr;
  CUgraphExec exec_ = nullptr;
  // The driver's graph objects serve one thread at a time. Taken inside cuda::queue, with the GIL released.
  std::mutex launch_lock_;
  uint64_t capture_ = 0;            // the driver's id of the capture
  CUstream last_stream_ = nullptr;  // of the last launch
  uint32_t last_thread_ = 0;
  PyRef self_;                                          // while a thread records
  std::vector<std::shared_ptr<const HostWork>> calls_;  // shared with captures that replay this one
  std::vector<Array> used_, fresh_;
  std::vector<Array> written_;  // without those in fresh_
  std::vector<BufferRef> unset_;
  std::vector<std::shared_ptr<const void>> kept_;
  BufferRef index_flags_;                 // of this graph; null if none of its kernels needs them
  std::vector<BufferRef> checked_flags_;  // these, and those of captures replayed inside
  std::vector<Buffer*> buffers_;          // those of used_ and fresh_, each once
  size_t inner_nodes_ = 0;                // of captures replayed inside, less one for each
};

// Of the capture of this thread, null if there is none. Every call reads it: with this model, without a function call.
extern constinit thread_local Recorder* recorder [[gnu::tls_model("initial-exec")]];
inline void note_use(const Array& array) {
  if (recorder) [[unlikely]]
    recorder->use(array);
}
inline void note_fresh(const Array& array) {
  if (recorder) [[unlikely]]
    recorder->fresh(array);
}
inline void require_recorded(Device device) {
  if (recorder) [[unlikely]]
    recorder->require_device(device);
}
// True while this thread records on the host: operations are then left to the replays.
inline bool recording_on_host() noexcept { return recorder && recorder->on_host(); }

// How errors name a capture.
constexpr const char* kCapture = "gpuinterop.capture";

// Kind::Capture errors: while this thread records on the host, because `where` needs values now; and for a
// result of a host capture, on any thread, that has not been computed yet.
void require_values(const char* where, const Array& array);
// The second check alone: for operations, which a capture of this thread records.
void require_set(const char* where, const Array& array);
// Called once the arguments of a write are checked, before anything is computed: waits until no other library
// reads the memory. A capture waits at each replay.
inline void prepare_write(const Array& array, const char* where) {
  if (recorder) [[unlikely]]
    return recorder->write(array);
  require_returned(array, where);
}
// A write outside a capture gives the array values.
inline void note_write(const Array& array) noexcept {
  if (array.buffer && array.buffer->unset && !recording_on_host()) array.buffer->unset = false;
}

}  // namespace gpuinterop::ops
