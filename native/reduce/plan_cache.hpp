// Plans by the layouts of their operands: the part of the call cache that belongs to one Python object.
#pragma once

#include <nanobind/nanobind.h>

#include <string>
#include <utility>

#include "reduce/launch_plan.hpp"

namespace gpuinterop::ops {

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
