// A launch plan: kernels whose parameters are known except for the addresses. Python builds it on the first use
// of a layout; later runs do not call Python.
#pragma once

#include <cuda.h>
#include <nanobind/nanobind.h>

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "arrays/array.hpp"
#include "arrays/few_values.hpp"
#include "elementwise/call_cache.hpp"
#include "jit/cuda_module.hpp"

namespace gpuinterop::ops {

enum class Slot : uint8_t { Input = 0, Output = 1, Scratch = 2, BlockCounters = 3 };

// An address to write into a kernel's parameters: that of an operand, plus `shift` bytes.
struct Patch {
  uint32_t offset;
  Slot slot;
  uint8_t index;
  int64_t shift;
};

struct PlannedLaunch {
  cuda::Kernel kernel;
  cuda::Launch how;
  std::string params;  // one struct by value
  std::vector<Patch> patches;
};

struct PlannedOutput {
  // Of a fresh result; borrowed, see Resolution in elementwise/calls.cpp. Null: that of a result for the first input.
  PyTypeObject* type;
  DTypeId dtype;
  Layout layout;
  bool counted;  // the first axis has as many elements as Plan::work counts
};

constexpr int kMaxPlanned = 16;         // inputs, and as many outputs
constexpr int64_t kMaxCounters = 4096;  // block counters of a launch
// CUDA's own limit until 12.1.
constexpr size_t kMaxPlannedParams = 4096;

// An entry of the call cache for exact layouts of the operands, on either device.
struct Plan : Prepared {
  Device device;
  std::vector<PlannedOutput> outputs;
  // Runs first, on the same operands. Its result is memory that ends with the length of the counted outputs, and this
  // plan's last operand. The host waits for the length. Null if all shapes are known.
  std::shared_ptr<const Plan> work;

  // `outs` are arrays of the planned layouts, or null for fresh ones; returns the result (a tuple when there
  // are several). New reference. Throws. Waits until no other library reads the memory of `outs`.
  PyObject* run(PyObject* const* ins, int n_ins, PyObject* const* outs, const char* where) const;

 protected:
  // `fresh`: for each output, whether it is a new array.
  virtual void compute(const MaybeArray* ins, int n_ins, const MaybeArray* outs, const bool* fresh,
                       const char* where) const = 0;

 private:
  Array run_work(const MaybeArray* ins, int n_ins, int64_t* count, const char* where) const;
};

struct LaunchPlan : Plan {
  int64_t scratch_bytes = 0;
  std::vector<PlannedLaunch> launches;
  bool counts = false;  // some launch has a patch of Slot::BlockCounters

 protected:
  // Queues the launches on the current stream.
  void compute(const MaybeArray* ins, int n_ins, const MaybeArray* outs, const bool* fresh,
               const char* where) const override;
};

// ---- plans by the layouts of their operands: the part of the call cache that belongs to one Python object

// The objects of a call, borrowed; `outs` is null if none are given.
struct PlanCall {
  PyObject* const* ins;
  int n_ins;
  PyObject* const* outs;
  int n_outs;
};

struct PlanCache {
  uint32_t number;
  nanobind::object miss;  // (operands, outputs or None) -> Plan, or the finished result
  std::string where;      // name of the function in errors

  PlanCache(nanobind::object function, std::string name)
      : miss(std::move(function)), where(std::move(name)) {
    static uint32_t caches = 0;
    number = caches++;
  }
  ~PlanCache() { forget_calls(Subject::PlanCache, number); }

  // Runs the plan for these layouts, which `miss` makes once.
  nanobind::object run(const PlanCall& call) const;

  // `miss` is usually a method of the object that holds this cache. Plans refer only to classes of results.
  int traverse(visitproc visit, void* arg) const {
    Py_VISIT(miss.ptr());
    return 0;
  }
  void clear() { miss.reset(); }
};

}  // namespace gpuinterop::ops
