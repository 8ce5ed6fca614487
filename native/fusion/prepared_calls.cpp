// PreparedCalls: a callable that finds the operation for its arguments by their classes, dtypes and
// numbers of dimensions or shapes, and by the values of constants. A call without an entry goes to the method
// `_prepare` of the Python subclass, which adds the entry.
#include <nanobind/nanobind.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/vector.h>

#include <algorithm>
#include <cmath>
#include <memory>
#include <optional>
#include <tuple>
#include <utility>
#include <vector>

#include "arrays/array.hpp"
#include "arrays/few_values.hpp"
#include "interpreter/collected.hpp"
#include "interpreter/error_translation.hpp"
#include "interpreter/register.hpp"

namespace nb = nanobind;

namespace gpuinterop {

namespace {

constexpr size_t kMostEntries = 8;  // calls with further signatures go through Python

// Of a number: its bounds. Of an array or a constant: nothing.
using Limits = std::optional<std::pair<double, double>>;

struct ExpectedArgument {
  PyRef type, constant;        // a type for arrays and numbers, otherwise a constant
  int dtype = -1, ndim = 0;    // of an array; dtype is -1 for a number
  std::vector<int64_t> shape;  // of an array, if the operation depends on it; otherwise empty
  double low = 0, high = 0;    // of a number

  ExpectedArgument(PyObject* argument, const Limits& limits, bool by_shape) {
    if (is_array(argument)) {
      const Array& a = unwrap(argument);
      dtype = a.dtype;
      ndim = a.layout.ndim();
      if (by_shape) shape.assign(a.layout.shape(), a.layout.shape() + ndim);
    } else if (limits) {
      std::tie(low, high) = *limits;
    } else {
      constant = PyRef::borrow(argument);
      return;
    }
    type = PyRef::borrow(reinterpret_cast<PyObject*>(Py_TYPE(argument)));
  }

  bool accepts(PyObject* argument) const {
    if (constant) {
      if (argument == constant.get()) return true;
      // Other constants may be equal and yet differ, such as 0.0 and -0.0, so Python compares them.
      return PyUnicode_CheckExact(argument) && PyUnicode_CheckExact(constant.get()) &&
             PyUnicode_Compare(argument, constant.get()) == 0;
    }
    if (reinterpret_cast<PyObject*>(Py_TYPE(argument)) != type.get()) return false;
    if (dtype >= 0) {
      const Array& a = unwrap(argument);
      return a.dtype == dtype && a.layout.ndim() == ndim &&
             std::equal(shape.begin(), shape.end(), a.layout.shape());
    }
    if (std::isinf(low) && std::isinf(high)) return true;
    const double number = PyFloat_AsDouble(argument);
    if (PyErr_Occurred()) {  // an integer beyond all floats
      PyErr_Clear();
      return false;
    }
    return low <= number && number <= high;
  }
};

struct Operand {
  int position;  // of an argument; kObject; or kComputed from the tuple of arguments by the object
  PyRef object;
};
constexpr int kObject = -1, kComputed = -2;

struct PreparedCall {
  std::vector<ExpectedArgument> expected;
  std::vector<Operand> operands;
  PyRef operation, rebuild;  // rebuild: null where the operation's result is the call's
};

struct PreparedCalls {
  bool binds = false;  // as an attribute of a class it takes the instance as its first argument
  std::vector<std::shared_ptr<const PreparedCall>> entries;  // shared: Python may run during a call

  std::shared_ptr<const PreparedCall> find(PyObject* args) const {
    const auto n = static_cast<size_t>(PyTuple_Size(args));
    for (const auto& entry : entries) {
      bool accepted = entry->expected.size() == n;
      for (size_t i = 0; i < n && accepted; ++i)
        accepted = entry->expected[i].accepts(PyTuple_GetItem(args, static_cast<Py_ssize_t>(i)));
      if (accepted) return entry;
    }
    return nullptr;
  }

  int traverse(visitproc visit, void* arg) const {
    for (const auto& entry : entries) {
      for (const auto& argument : entry->expected) {
        Py_VISIT(argument.type.get());
        Py_VISIT(argument.constant.get());
      }
      for (const auto& operand : entry->operands) Py_VISIT(operand.object.get());
      Py_VISIT(entry->operation.get());
      Py_VISIT(entry->rebuild.get());
    }
    return 0;
  }
  void clear() {
    const auto dropped = std::exchange(entries, {});  // destructors may use the object again
  }
};

PyRef call_with(PyObject* function, PyObject* argument) {
  return PyRef::checked(PyObject_CallFunctionObjArgs(function, argument, nullptr));
}

PyRef run_entry(const PreparedCall& entry, PyObject* args, PyObject* out) {
  static PyObject* const names = PyRef::checked(Py_BuildValue("(s)", "out")).release();
  const size_t n = entry.operands.size();
  std::vector<PyRef> computed;
  ops::FewValues<PyObject*, 4> values(static_cast<int>(n) + 1);
  for (size_t i = 0; i < n; ++i) {
    const Operand& operand = entry.operands[i];
    if (operand.position == kComputed) computed.push_back(call_with(operand.object.get(), args));
    values[int(i)] = operand.position >= 0         ? PyTuple_GetItem(args, operand.position)
                     : operand.position == kObject ? operand.object.get()
                                                   : computed.back().get();
  }
  values[int(n)] = out;  // borrowed, like the others
  PyRef result = PyRef::checked(
      PyObject_Vectorcall(entry.operation.get(), values.get(), n, out ? names : nullptr));
  return entry.rebuild ? call_with(entry.rebuild.get(), result.get()) : result;
}

PyObject* call_prepared(PyObject* self, PyObject* args, PyObject* kwargs) {
  if (!nb::inst_ready(self)) {
    PyErr_SetString(PyExc_TypeError, "PreparedCalls.__init__ was not called");
    throw PythonError();
  }
  const Py_ssize_t named = kwargs ? PyDict_Size(kwargs) : 0;
  PyObject* out = named == 1 ? PyDict_GetItemString(kwargs, "out") : nullptr;
  if (named == 0 || out)
    if (const auto entry = nb::inst_ptr<PreparedCalls>(self)->find(args))
      return run_entry(*entry, args, out).release();
  const PyRef prepare = PyRef::checked(PyObject_GetAttrString(self, "_prepare"));
  return PyObject_Call(prepare.get(), args, kwargs);
}

PyObject* bind(PyObject* self, PyObject* instance, PyObject*) {
  if (!instance || !nb::inst_ready(self) || !nb::inst_ptr<PreparedCalls>(self)->binds)
    return Py_NewRef(self);
  // The stable ABI has no PyMethod_New, so a method is made as types.MethodType.
  static PyObject* method = nullptr;
  if (!method) {
    const PyRef types = PyRef::steal(PyImport_ImportModule("types"));
    method = types ? PyObject_GetAttrString(types.get(), "MethodType") : nullptr;
  }
  return method ? PyObject_CallFunctionObjArgs(method, self, instance, nullptr) : nullptr;
}

void add_entry(PreparedCalls& calls, std::vector<nb::object> arguments, std::vector<Limits> limits,
               std::vector<std::pair<int, nb::object>> operands, nb::object operation,
               nb::object rebuild, bool by_shape) {
  auto entry = std::make_shared<PreparedCall>();
  for (size_t i = 0; i < arguments.size(); ++i)
    entry->expected.emplace_back(arguments[i].ptr(), limits.at(i), by_shape);
  for (auto& [position, object] : operands)
    entry->operands.push_back({position, PyRef::borrow(object.ptr())});
  entry->operation = PyRef::borrow(operation.ptr());
  if (!rebuild.is_none()) entry->rebuild = PyRef::borrow(rebuild.ptr());
  std::shared_ptr<const PreparedCall> dropped;  // destroyed last: Python code may run then
  if (calls.entries.size() == kMostEntries) {
    dropped = std::move(calls.entries.front());
    calls.entries.erase(calls.entries.begin());
  }
  calls.entries.push_back(std::move(entry));
}

}  // namespace

void register_prepared_calls(nb::module_& m) {
  const Collected<PreparedCalls> collected({Py_tp_call, slot(guarded<call_prepared>)},
                                           {Py_tp_descr_get, slot(bind)});
  nb::class_<PreparedCalls>(m, "PreparedCalls", nb::type_slots(collected.slots),
                            "A callable that finds a prepared operation by its arguments.")
      .def(
          "__init__", [](PreparedCalls* self, bool binds) { new (self) PreparedCalls{binds, {}}; },
          nb::arg("binds") = false)
      .def("_add", &add_entry, nb::arg("arguments"), nb::arg("limits"), nb::arg("operands"),
           nb::arg("operation"), nb::arg("rebuild") = nb::none(), nb::arg("by_shape") = false,
           "Call the operation for arguments like these. `limits`: (low, high) for a number, None "
           "for "
           "a constant, either for an array. `operands`: (position, None), (-1, object), or (-2, "
           "function of the tuple of arguments).");
}

}  // namespace gpuinterop
