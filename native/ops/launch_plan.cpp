#include "ops/launch_plan.hpp"

#include <optional>

#include "array/error.hpp"
#include "cuda/cuda.hpp"
#include "cuda/driver.hpp"
#include "ops/block_counters.hpp"
#include "ops/graph.hpp"

namespace gpuinterop::ops {

PyObject* LaunchPlan::run(PyObject* const* ins, int n_ins, PyObject* const* outs,
                          const char* where) const {
  const size_t n_outs = outputs.size();
  PyRef results[kMaxPlannedOutputs];
  // As they are now: Python code that allocating may run could give the objects another address.
  std::optional<Array> inputs[kMaxPlannedInputs], targets[kMaxPlannedOutputs];
  for (int i = 0; i < n_ins; ++i) inputs[i] = unwrap(ins[i]);
  for (size_t j = 0; j < n_outs && outs; ++j)
    if (outs[j]) targets[j] = unwrap(outs[j]);
  for (size_t j = 0; j < n_outs; ++j) {
    if (targets[j]) {
      results[j] = PyRef::borrow(outs[j]);
      continue;
    }
    const PlannedOutput& o = outputs[j];
    PyObject* fresh =
        wrap(o.type, make_empty({DeviceType::Cuda, device}, o.dtype, o.layout, where));
    if (!fresh) throw PythonError();
    results[j] = PyRef::steal(fresh);
    targets[j] = unwrap(fresh);
  }
  cuda::DeviceGuard guard(device);
  CUstream stream = cuda::current_stream(device);
  BufferRef scratch;
  if (scratch_bytes > 0) scratch = allocate({DeviceType::Cuda, device}, scratch_bytes, where);
  BlockCounters counters;
  if (counts) counters = tickets(device, stream, where);
  Buffer* used[kMaxPlannedInputs + kMaxPlannedOutputs + 2] = {scratch.get(), counters.buffer};
  int n_used = 2;
  for (int i = 0; i < n_ins; ++i) {
    used[n_used++] = inputs[i]->buffer.get();
    note_use(*inputs[i]);
  }
  for (size_t j = 0; j < n_outs; ++j) {
    used[n_used++] = targets[j]->buffer.get();
    if (outs && outs[j]) {
      note_use(*targets[j]);
    } else {
      note_fresh(*targets[j]);
    }
  }
  cuda::order_all(used, n_used, stream, where);

  alignas(16) char params[kMaxPlannedParams];
  for (const PlannedLaunch& launch : launches) {
    std::memcpy(params, launch.params.data(), launch.params.size());
    for (const Patch& p : launch.patches) {
      char* address = nullptr;
      switch (p.slot) {
        case Slot::Input: address = inputs[p.index]->data; break;
        case Slot::Output: address = targets[p.index]->data; break;
        case Slot::Scratch: address = scratch->ptr; break;
        case Slot::BlockCounters: address = counters.buffer->ptr; break;
      }
      address += p.shift;
      std::memcpy(params + p.offset, &address, sizeof address);
    }
    void* arguments[] = {params};
    cuda::check(cuda::driver().LaunchKernel(launch.function, launch.grid_x, launch.grid_y, 1,
                                            launch.block, 1, 1, 0, stream, arguments, nullptr),
                "cuLaunchKernel", where);
  }
  if (n_outs == 1) return results[0].release();
  PyObject* tuple = PyTuple_New(static_cast<Py_ssize_t>(n_outs));
  if (!tuple) throw PythonError();
  for (size_t j = 0; j < n_outs; ++j)
    PyTuple_SetItem(tuple, static_cast<Py_ssize_t>(j), results[j].release());
  return tuple;
}

}  // namespace gpuinterop::ops
