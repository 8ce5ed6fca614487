// Plans by the layouts of their operands, and what of an operand a plan depends on, as bytes.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <unordered_map>

#include "array/array.hpp"
#include "array/error.hpp"
#include "ops/launch_plan.hpp"

namespace gpuinterop {

inline void append_key(std::string& key, PyObject* array) {
  const Array& a = unwrap(array);
  struct {
    PyTypeObject* type;
    int32_t device;
    DTypeId dtype;
    uint8_t ndim, alignment, readonly;
  } head = {};
  head.type = Py_TYPE(array);
  head.device = a.device.is_cuda() ? a.device.id : -1;
  head.dtype = a.dtype;
  head.ndim = static_cast<uint8_t>(a.layout.ndim());
  head.alignment = static_cast<uint8_t>(reinterpret_cast<uintptr_t>(a.data) & 15);
  head.readonly = a.readonly;
  key.append(reinterpret_cast<const char*>(&head), sizeof head);
  // shape and strides lie side by side
  key.append(reinterpret_cast<const char*>(a.layout.shape()),
             2 * sizeof(int64_t) * a.layout.ndim());
}

// What is planned for one layout must not run on another.
[[noreturn]] inline void fail_changed(const std::string& where) {
  fail(Kind::Bounds, where, "operands that keep their layout during the call",
       "one whose shape or strides changed meanwhile",
       "change no array in a finaliser or in another thread");
}

struct KeyHash {
  using is_transparent = void;
  size_t operator()(std::string_view s) const noexcept { return std::hash<std::string_view>()(s); }
};
using PlanMap =
    std::unordered_map<std::string, std::shared_ptr<ops::LaunchPlan>, KeyHash, std::equal_to<>>;
constexpr size_t kMaxPlans = 8192;  // more layouts than this: start afresh rather than grow

inline void remember(PlanMap& map, std::string_view key, std::shared_ptr<ops::LaunchPlan> plan,
                     PyObject* const* operands, int n) {
  for (int i = 0; i < n; ++i)
    plan->seen.push_back(PyRef::borrow(reinterpret_cast<PyObject*>(Py_TYPE(operands[i]))));
  PlanMap dropped;  // at the end: Python code may run as classes go
  if (map.size() >= kMaxPlans) dropped.swap(map);
  map.emplace(std::string(key), std::move(plan));
}

}  // namespace gpuinterop
