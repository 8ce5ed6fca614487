#include "captures/recorder.hpp"

#include <algorithm>
#include <cstring>
#include <utility>

#include "devices/cuda.hpp"
#include "devices/device_state.hpp"
#include "devices/driver.hpp"
#include "devices/memory.hpp"
#include "devices/pinned.hpp"
#include "devices/stream.hpp"
#include "interpreter/error.hpp"

namespace gpuinterop::ops {

constinit thread_local Recorder* recorder [[gnu::tls_model("initial-exec")]] = nullptr;

namespace {

// The driver treats 1 as 0, but idle streams are kept by priority, so a capture never reuses the stream of a
// user's Stream object. An array last used on such a stream would seem to be recorded, and would be refused
// elsewhere.
constexpr int kCapturePriority = 1;

[[noreturn]] void fail_broken(CUresult code) {
  fail(Kind::Capture, kCapture, "only operations that a graph can hold, on streams that rejoin it",
       "a broken capture: " + cuda::describe(code),
       "move calls that wait for the device or allocate through the driver out of the block: "
       "synchronize(), item(), numpy.asarray(x), printing, another library's allocations");
}

// Replaces a graph launch, which the driver does not allow on a captured stream: adds a copy of `inner` as
// one node after what the stream has recorded.
void add_to_capture(CUstream stream, CUgraph inner) {
  const cuda::Driver& cu = cuda::driver();
  CUstreamCaptureStatus status;
  cuuint64_t id = 0;
  CUgraph outer = nullptr;
  const CUgraphNode* last = nullptr;
  size_t count = 0;
  cuda::check(cu.StreamGetCaptureInfo(stream, &status, &id, &outer, &last, &count),
              "cuStreamGetCaptureInfo", "replay");
  if (status != CU_STREAM_CAPTURE_STATUS_ACTIVE || !outer)
    fail_broken(CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
  CUgraphNode node = nullptr;
  cuda::check(cu.GraphAddChildGraphNode(&node, outer, last, count, inner),
              "cuGraphAddChildGraphNode", "replay");
  cuda::check(
      cu.StreamUpdateCaptureDependencies(stream, &node, 1, CU_STREAM_SET_CAPTURE_DEPENDENCIES),
      "cuStreamUpdateCaptureDependencies", "replay");
}

}  // namespace

void HostWork::run() const {
  for (const Array& a : inputs) require_set(where.c_str(), a);
  for (const Array& a : outs) note_write(a);
  compute(*this);
}

int HostWork::traverse(visitproc visit, void* arg) const {
  Py_VISIT(object.get());
  for (const auto* list : {&inputs, &outs})
    for (const Array& a : *list) Py_VISIT(a.base.get());
  return 0;
}

Recorder::~Recorder() { destroy_graph(); }

// Its memory returns to the cache after the last launch.
void Recorder::destroy_graph() noexcept {
  const cuda::DeviceState* d = on_host() ? nullptr : cuda::started_device(device_.id);
  if (!d || cuda::driver_is_gone() || !cuda::context_exists(*d)) return;
  if (const uint64_t capture = std::exchange(capture_, 0))
    cuda::end_graph_memory(device_.id, capture, last_stream_, last_thread_);
  cuda::call_blocking([&] {
    if (exec_) cuda::driver().GraphExecDestroy(exec_);
    if (graph_) cuda::driver().GraphDestroy(graph_);
    return CUDA_SUCCESS;
  });
  exec_ = nullptr;
  graph_ = nullptr;
}

void Recorder::begin(PyObject* self) {
  if (self_ || ready_)
    fail(Kind::Capture, kCapture, "a capture that has not begun", "a capture that has begun",
         "create a new capture: gpuinterop.capture()");
  if (recorder)
    fail(Kind::Capture, kCapture, "no capture around this one in the same thread",
         "a capture inside a capture",
         "record the inner capture first and replay it in the outer block, or write its operations "
         "in the outer block");
  if (!on_host()) {
    cuda::require(kCapture);
    cuda::DeviceGuard guard(device_.id);
    outer_stream_ = cuda::current_stream(device_.id);
    stream_ = cuda::acquire_stream(device_.id, false, kCapturePriority, kCapture);
    // Relaxed: loading a kernel or allocating meanwhile is not part of the graph and does not break it.
    CUresult code = cuda::call_blocking(
        [&] { return cuda::driver().StreamBeginCapture(stream_, CU_STREAM_CAPTURE_MODE_RELAXED); });
    if (code != CUDA_SUCCESS) {
      cuda::recycle_stream(device_.id, stream_, false, kCapturePriority);
      stream_ = nullptr;
      cuda::check(code, "cuStreamBeginCapture", kCapture);
    }
    capture_ = cuda::capture_id(stream_);
    cuda::set_current_stream(device_.id, stream_);
    try {
      cuda::begin_graph_memory(device_.id, capture_);
    } catch (...) {
      end_stream_capture();
      destroy_graph();
      throw;
    }
  }
  self_ = PyRef::borrow(self);
  recorder = this;
  note_made = [](const Array& array) { recorder->unset(array); };
}

void Recorder::end() {
  if (recorder != this)
    fail(Kind::Capture, kCapture, "the end of a capture in the thread that began it",
         self_ ? "another thread, while the first one still records" : "no capture in progress",
         "use it as a with-block, and leave the block in the thread that entered it");
  const PyRef self = stop();
  drop_unused();
  try {
    if (!on_host()) make_executable();
    for (const auto* list : {&used_, &fresh_})
      for (const Array& a : *list)
        if (std::find(buffers_.begin(), buffers_.end(), a.buffer.get()) == buffers_.end())
          buffers_.push_back(a.buffer.get());
  } catch (...) {
    destroy_graph();
    clear();
    throw;
  }
  ready_ = true;
}

void Recorder::leave() noexcept {
  if (recorder != this) return;
  const PyRef self = stop();
  if (!on_host()) end_stream_capture();
  destroy_graph();
  clear();
}

// Returns the reference that keeps this object alive; the caller holds it until it returns.
PyRef Recorder::stop() noexcept {
  recorder = nullptr;
  note_made = nullptr;
  return std::move(self_);
}

// Whatever the driver returns, this thread no longer captures.
CUresult Recorder::end_stream_capture() noexcept {
  cuda::set_current_stream(device_.id, outer_stream_);
  const cuda::DeviceState& d = *cuda::started_device(device_.id);
  auto end = [&] {
    return cuda::context_exists(d) ? cuda::driver().StreamEndCapture(stream_, &graph_)
                                   : CUDA_ERROR_CONTEXT_IS_DESTROYED;
  };
  const CUresult code = cuda::call_blocking(end);
  if (code != CUDA_SUCCESS && cuda::is_capturing(stream_)) cuda::call_blocking(end);
  for (const auto* list : {&used_, &fresh_})
    for (const Array& a : *list) cuda::forget_recorded_use(a.buffer.get(), stream_);
  cuda::recycle_stream(device_.id, stream_, false, kCapturePriority);
  stream_ = nullptr;
  return code;
}

void Recorder::make_executable() {
  CUresult code = end_stream_capture();
  if (code == CUDA_ERROR_STREAM_CAPTURE_INVALIDATED || code == CUDA_ERROR_STREAM_CAPTURE_UNJOINED)
    fail_broken(code);
  cuda::check(code, "cuStreamEndCapture", kCapture);
  cuda::DeviceGuard guard(device_.id);
  code = cuda::call_blocking(
      [&] { return cuda::driver().GraphInstantiateWithFlags(&exec_, graph_, 0); });
  cuda::check(code, "cuGraphInstantiate", kCapture);
}

// Results have values once all calls have run; if one of them fails, the results may be incomplete.
void Recorder::run_calls() {
  std::vector<BufferRef> filled;
  for (BufferRef& b : std::exchange(unset_, {}))
    if (std::exchange(b->unset, false)) filled.push_back(std::move(b));
  try {
    for (const auto& call : calls_) call->run();
  } catch (...) {
    for (const BufferRef& b : filled) b->unset = true;
    unset_.insert(unset_.end(), filled.begin(), filled.end());
    throw;
  }
}

void Recorder::replay() {
  if (!ready_)
    fail(Kind::Capture, "replay", "a finished capture",
         self_ ? "a capture in progress" : "a capture that has not begun, or whose block raised",
         "replay after the with-block");
  require_recorded(device_);
  for (const auto* list : {&written_, &fresh_})
    for (const Array& a : *list) prepare_write(a, "replay");
  if (on_host()) {
    if (recorder) {  // its calls become calls of the capture around it
      recorder->calls_.insert(recorder->calls_.end(), calls_.begin(), calls_.end());
      recorder->unset_.insert(recorder->unset_.end(), unset_.begin(), unset_.end());
      return;
    }
    run_calls();
    return;
  }
  cuda::DeviceGuard guard(device_.id);
  CUstream stream = cuda::current_stream(device_.id);
  const bool captured = cuda::is_capturing(stream);
  if (captured) {
    for (const BufferRef& flags : checked_flags_)
      cuda::note_pinned_use(device_.id, flags->ptr, stream, "replay");
    // The copy may outlive this graph, so the outer graph must hold the memory that it reads and writes.
    if (recorder && !recorder->on_host() && recorder->device_.id == device_.id) {
      for (const auto* list : {&used_, &fresh_})
        for (const Array& array : *list) recorder->use(array);
      recorder->kept_.insert(recorder->kept_.end(), kept_.begin(), kept_.end());
      recorder->inner_nodes_ += nodes() - 1;
      recorder->checked_flags_.insert(recorder->checked_flags_.end(), checked_flags_.begin(),
                                      checked_flags_.end());
    }
  } else {
    require_no_index_flag();
  }
  cuda::queue(buffers_.data(), static_cast<int>(buffers_.size()), stream, "replay", [&] {
    std::lock_guard lock(launch_lock_);
    if (captured) {
      cuda::share_graph_memory(device_.id, capture_, graph_, "replay");
      return add_to_capture(stream, graph_);
    }
    cuda::RelaxedCapture relaxed;  // the first launch of a graph may allocate
    cuda::check(cuda::driver().GraphLaunch(exec_, stream), "cuGraphLaunch", "replay");
  });
  if (captured) return;
  last_stream_ = stream;
  last_thread_ = stream == CU_STREAM_PER_THREAD ? cuda::thread_token() : 0;
}

char* Recorder::index_flags(const char* where) {
  if (!index_flags_) {
    index_flags_ = cuda::allocate_pinned(device_.id, kIndexFlagBytes, where);
    std::memset(index_flags_->ptr, 0, kIndexFlagBytes);
    checked_flags_.push_back(index_flags_);
    // A replay may still run when this recorder is destroyed, so the graph holds the memory.
    cuda::note_pinned_use(device_.id, index_flags_->ptr, stream_, where);
  }
  return index_flags_->ptr;
}

// No wait: a replay that still runs is checked by a later one.
void Recorder::require_no_index_flag() {
  for (const BufferRef& flags : checked_flags_) {
    int64_t noted[kIndexFlagBytes / 8];
    std::memcpy(noted, flags->ptr, kIndexFlagBytes);
    for (int64_t index : noted) {
      if (!index) continue;
      std::memset(flags->ptr, 0, kIndexFlagBytes);
      fail(Kind::Index, "replay", "index arrays whose values are inside their axes at every replay",
           "index " + std::to_string(index) + " in an earlier replay",
           "correct the indices, or capture x.take(indices, mode='clip')");
    }
  }
}

void Recorder::require_device(Device device) const {
  if (device == device_) return;
  const std::string here = device_text(device_), there = device_text(device);
  fail(Kind::Capture, kCapture, "work on " + here + ", which this capture records",
       "work on " + there + ", which would run now and in no replay",
       "pass device=\"" + there + "\" to capture, or move the array first: x.to_device(\"" + here +
           "\")");
}

void Recorder::use(const Array& array) {
  // A graph may hold copies of pinned host memory.
  if (on_host() || array.device.is_cuda()) require_device(array.device);
  if (on_host() || !array.buffer) return;  // host calls hold their arrays
  auto shares = [&](const Array& known) { return known.buffer.get() == array.buffer.get(); };
  const bool needs_base = array.buffer->needs_base;
  auto is_held = [&](const Array& known) {
    return shares(known) && (!needs_base || known.base.get() == array.base.get());
  };
  if (std::any_of(fresh_.begin(), fresh_.end(), shares) ||
      std::any_of(used_.begin(), used_.end(), is_held))
    return;
  used_.push_back(array);
  if (!needs_base)
    used_.back().base = PyRef();  // the memory alone must live, not the object of a view's root
}

void Recorder::fresh(const Array& array) {
  require_device(array.device);
  if (on_host() || !array.buffer) return;
  drop_unused();
  fresh_.push_back(array);
}

void Recorder::unset(const Array& array) {
  if (!on_host() || array.device.is_cuda() || !array.buffer) return;
  std::memset(array.buffer->ptr, 0, static_cast<size_t>(array.buffer->nbytes));
  array.buffer->unset = true;
  unset_.push_back(array.buffer);
  write(array);
}

void Recorder::write(const Array& array) {
  auto shares = [&](const Array& known) { return known.buffer.get() == array.buffer.get(); };
  // A reference here would keep memory of the graph from the later results of the capture.
  if (!array.buffer || std::any_of(fresh_.begin(), fresh_.end(), shares)) return;
  written_.push_back(array);
  if (!array.buffer->needs_base) written_.back().base = PyRef();  // as in use()
}

// If only this list holds the memory, later results of the capture may reuse it.
void Recorder::drop_unused() {
  auto unheld = [](const Array& a) { return a.buffer->refs.load() == 1; };
  fresh_.erase(std::remove_if(fresh_.begin(), fresh_.end(), unheld), fresh_.end());
}

void require_values(const char* where, const Array& array) {
  if (recording_on_host())
    fail(Kind::Capture, where, "a call that does not read array values during a capture",
         "an array that only a replay computes", "read it after the with block and after replay()");
  require_set(where, array);
}

void require_set(const char* where, const Array& array) {
  if (array.buffer && array.buffer->unset && !recording_on_host())
    fail(Kind::Capture, where, "an array that has values",
         "a result of a capture, whose values exist only after a replay",
         "replay() the capture first, after its with-block");
}

int64_t Recorder::references(const Buffer* buffer) const noexcept {
  auto same = [&](const Array& a) { return a.buffer.get() == buffer; };
  return std::count_if(used_.begin(), used_.end(), same) +
         std::count_if(fresh_.begin(), fresh_.end(), same) +
         std::count_if(written_.begin(), written_.end(), same);
}

size_t Recorder::nodes() const {
  if (on_host()) return calls_.size();
  if (!graph_) return inner_nodes_;
  size_t n = 0;
  cuda::DeviceGuard guard(device_.id);
  cuda::check(cuda::driver().GraphGetNodes(graph_, nullptr, &n), "cuGraphGetNodes", kCapture);
  return n + inner_nodes_;
}

int Recorder::traverse(visitproc visit, void* arg) {
  for (const auto& call : calls_) {
    if (call.use_count() > 1) continue;  // a reference has one owner for the garbage collector
    if (const int found = call->traverse(visit, arg)) return found;
  }
  for (const auto* list : {&used_, &fresh_, &written_})
    for (const Array& a : *list) Py_VISIT(a.base.get());
  return 0;
}

void Recorder::clear() {
  ready_ = false;
  buffers_.clear();
  used_.clear();
  fresh_.clear();
  written_.clear();
  unset_.clear();
  kept_.clear();
  checked_flags_.clear();
  calls_.clear();
}

}  // namespace gpuinterop::ops
