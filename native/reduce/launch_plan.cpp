#include "reduce/launch_plan.hpp"

#include <algorithm>
#include <memory>
#include <utility>
#include <vector>

#include "arrays/type.hpp"
#include "captures/recorder.hpp"
#include "devices/device_state.hpp"
#include "interpreter/error.hpp"

namespace gpuinterop::ops {

namespace {

// Counters in GPU memory by which the blocks of one launch find the last of them (gi_is_last in
// gpuinterop/jit/kernels/last_block.cuh). Every launch leaves them at 0. Two launches that may overlap in
// time must not share counters.
constexpr int64_t kBytes = kMaxCounters * 4;
constexpr size_t kMostStreams = 32;  // with more streams, launches sometimes wait for each other

struct CounterSet {
  std::vector<BufferRef> buffers;
  size_t next = 0;
};

// Never destroyed: at exit the driver may be unloaded before static objects are.
CounterSet* const counter_sets = new CounterSet[kMaxDevices];

// A thread that is about to queue launches holds a second reference.
bool is_idle(const Buffer& b) { return b.refs.load() == 1; }
bool is_last_used_on(const Buffer& b, CUstream stream) {
  return b.stream == stream &&
         (stream != CU_STREAM_PER_THREAD || b.stream_thread == cuda::thread_token());
}

void clear(const BufferRef& b, CUstream stream, const char* where) {
  const int device = b->device.id;
  const char zero = 0;
  Buffer* used[] = {b.get()};
  cuda::queue(used, 1, stream, where,
              [&] { cuda::fill_bytes(device, b->ptr, &zero, 1, kBytes, stream, where); });
}

// Zeroed memory for use on `stream`. This file keeps it, so array statistics do not count it.
BufferRef fresh(int device, CUstream stream, const char* where) {
  auto b = std::make_unique<Buffer>();
  b->device = {DeviceType::Cuda, device};
  b->memory = Memory::Device;
  b->nbytes = kBytes;
  b->stream = stream;
  b->stream_thread = stream == CU_STREAM_PER_THREAD ? cuda::thread_token() : 0;
  b->ptr = static_cast<char*>(cuda::allocate(device, kBytes, stream, where));
  b->release = cuda::release;
  BufferRef memory(b.release());
  clear(memory, stream, where);
  return memory;
}

// A graph has counters of its own, because its replays may overlap any launch. For gpuinterop's graphs they
// are cleared once, outside the capture, and the recorder keeps them as long as the graph can be replayed.
// The lifetime of another library's graph is unknown, so each replay clears them.
BufferRef for_graph(int device, CUstream stream, const char* where) {
  if (!recorder || recorder->on_host() || recorder->device().id != device) {
    BufferRef words = allocate({DeviceType::Cuda, device}, kBytes, where);
    clear(words, stream, where);
    return words;
  }
  CUstream outside = cuda::device_state(device, where).allocator;
  Array words;
  words.dtype = kUInt32;
  words.device = {DeviceType::Cuda, device};
  words.buffer = fresh(device, outside, where);
  words.data = words.buffer->ptr;
  cuda::synchronize_stream(device, outside, where);  // no long-running work is queued on it
  recorder->use(words);
  return words.buffer;
}

// The counters for the next launches on `stream`, the current one of `device`. The caller orders the buffer
// (cuda::queue). Called with the GIL and inside a DeviceGuard.
BufferRef counters_for(int device, CUstream stream, const char* where) {
  if (cuda::is_capturing(stream)) [[unlikely]]
    return for_graph(device, stream, where);
  CounterSet& set = counter_sets[device];
  for (const BufferRef& b : set.buffers)
    if (is_idle(*b.get()) && is_last_used_on(*b.get(), stream)) return b;
  // With many streams take the counters of another one, and wait for the launches that used them last.
  const size_t n = set.buffers.size();
  for (size_t i = 0; n >= kMostStreams && i < n; ++i) {
    const BufferRef& b = set.buffers[set.next++ % n];
    if (is_idle(*b.get())) return b;
  }
  BufferRef made = fresh(device, stream, where);
  set.buffers.push_back(made);
  return made;
}

// The layout of an output whose first axis has `count` elements.
Layout with_length(const Layout& l, int64_t count, const char* where) {
  int64_t shape[kMaxDims];
  std::copy_n(l.shape(), l.ndim(), shape);
  shape[0] = count;
  return Layout::c_order(l.ndim(), shape, where);
}

}  // namespace

Array Plan::run_work(const MaybeArray* ins, int n_ins, int64_t* count, const char* where) const {
  const PlannedOutput& o = work->outputs[0];
  Array made = make_empty(device, o.dtype, o.layout, where);
  MaybeArray target;
  target = made;
  const bool fresh = true;
  work->compute(ins, n_ins, &target, &fresh, where);
  Array last = made, host;
  last.layout = Layout();
  last.dtype = host.dtype = kInt64;
  last.data += made.nbytes() - last.itemsize();
  host.data = reinterpret_cast<char*>(count);
  const Uncounted guard(true);
  copy_elements(host, last, where);
  return made;
}

PyObject* Plan::run(PyObject* const* ins, int n_ins, PyObject* const* outs,
                    const char* where) const {
  const int n_outs = static_cast<int>(outputs.size());
  FewValues<PyRef, 1> results(n_outs);
  FewValues<bool, 1> fresh(n_outs);
  for (int j = 0; j < n_outs; ++j) {
    fresh[j] = !outs || !outs[j];
    if (!fresh[j]) prepare_write(unwrap(outs[j]), where);
  }
  // Read the addresses now: Python code that an allocation may run could change the objects' addresses.
  FewValues<MaybeArray, 3> inputs(n_ins + 1);
  FewValues<MaybeArray, 1> targets(n_outs);
  for (int i = 0; i < n_ins; ++i) inputs[i] = unwrap(ins[i]);
  for (int j = 0; j < n_outs; ++j)
    if (!fresh[j]) targets[j] = unwrap(outs[j]);
  int64_t count = 0;
  std::vector<Array> held;  // other threads may change the objects while this one waits
  if (work) {
    for (int i = 0; i < n_ins; ++i) held.push_back(unwrap(ins[i]));
    held.push_back(run_work(inputs.get(), n_ins, &count, where));
    inputs[n_ins] = held.back();
  }
  for (int j = 0; j < n_outs; ++j) {
    const PlannedOutput& o = outputs[static_cast<size_t>(j)];
    PyTypeObject* const type = o.type ? o.type : class_for(Py_TYPE(ins[0]), o.dtype);
    if (fresh[j]) {
      Layout layout = o.counted ? with_length(o.layout, count, where) : o.layout;
      Array made = make_empty(device, o.dtype, std::move(layout), where);
      results[j] = PyRef::steal(wrap(type, std::move(made)));
      targets[j] = unwrap(results[j].get());
    } else {
      results[j] = PyRef::borrow(outs[j]);
    }
  }
  compute(inputs.get(), n_ins + (work != nullptr), targets.get(), fresh.get(), where);
  return one_or_tuple(results.get(), n_outs);
}

void LaunchPlan::compute(const MaybeArray* inputs, int n_ins, const MaybeArray* targets,
                         const bool* fresh, const char* where) const {
  cuda::DeviceGuard guard(device.id);
  CUstream stream = cuda::current_stream(device.id);
  BufferRef scratch;
  if (scratch_bytes > 0) scratch = allocate(device, scratch_bytes, where);
  BufferRef counters;  // held until the launches are queued, so that no other stream gets them
  if (counts) counters = counters_for(device.id, stream, where);
  Buffer* used[2 * kMaxPlanned + 2] = {scratch.get(), counters.get()};
  int n_used = 2;
  for (int i = 0; i < n_ins; ++i) {
    used[n_used++] = inputs[i]->buffer.get();
    note_use(*inputs[i]);
  }
  for (size_t j = 0; j < outputs.size(); ++j) {
    used[n_used++] = targets[j]->buffer.get();
    fresh[j] ? note_fresh(*targets[j]) : note_use(*targets[j]);
  }
  auto launch_all = [&] {
    alignas(16) char params[kMaxPlannedParams];
    for (const PlannedLaunch& launch : launches) {
      std::memcpy(params, launch.params.data(), launch.params.size());
      for (const Patch& p : launch.patches) {
        char* address = nullptr;
        switch (p.slot) {
          case Slot::Input: address = inputs[p.index]->data; break;
          case Slot::Output: address = targets[p.index]->data; break;
          case Slot::Scratch: address = scratch->ptr; break;
          case Slot::BlockCounters: address = counters->ptr; break;
        }
        address += p.shift;
        std::memcpy(params + p.offset, &address, sizeof address);
      }
      void* arguments[] = {params};
      cuda::launch_here(launch.kernel, launch.how, stream, arguments, where);
    }
  };
  cuda::queue(used, n_used, stream, where, launch_all);
}

}  // namespace gpuinterop::ops
