// Functions of arrays that are one plan, most of them on a GPU alone: later calls with arrays of the same layouts, and
// with the same other arguments, run no Python.
#include <nanobind/nanobind.h>
#include <nanobind/stl/shared_ptr.h>

#include <deque>
#include <memory>
#include <utility>

#include "arrays/type.hpp"
#include "captures/recorder.hpp"
#include "devices/cuda.hpp"
#include "interpreter/attempt.hpp"
#include "interpreter/error.hpp"
#include "interpreter/register.hpp"
#include "interpreter/served.hpp"
#include "reduce/launch_plan.hpp"

namespace nb = nanobind;

namespace gpuinterop {

using ops::Plan;

namespace {

struct Planned {
  Parameters parameters;
  // The number of operands, which are the first parameters.
  size_t arrays;
  // Makes a Plan of operands and other arguments; None: Python carries the call out.
  nb::object plan;
  bool on_host;  // also of arrays on "cpu"
  // The class of the tuple of results; None: one result alone, or a tuple of several.
  nb::object tuple;
};

auto& planned = *new std::deque<Planned>;  // never destroyed; references stay valid

bool is_tuple_of_ints(PyObject* value) {
  if (!PyTuple_CheckExact(value)) return false;
  for (Py_ssize_t i = 0, n = PyTuple_Size(value); i < n; ++i)
    if (!PyLong_CheckExact(PyTuple_GetItem(value, i))) return false;
  return true;
}

// Throws for a value that has no place in a key.
void put_value(ops::CallKey& key, PyObject* value) {
  if (!value || value == Py_None || PyBool_Check(value)) {
    key.put('o');
    key.put(value);
  } else if (PyLong_CheckExact(value)) {
    key.put('i');
    key.put(as_int64(value, "plan"));
  } else if (PyFloat_CheckExact(value)) {
    key.put('f');
    key.put(PyFloat_AsDouble(value));
  } else if (is_tuple_of_ints(value)) {
    key.put('t');
    const Py_ssize_t n = PyTuple_Size(value);
    key.put(n);
    for (Py_ssize_t i = 0; i < n; ++i) key.put(as_int64(PyTuple_GetItem(value, i), "plan"));
  } else if (PyUnicode_CheckExact(value)) {
    Py_ssize_t n;
    const char* const text = PyUnicode_AsUTF8AndSize(value, &n);
    if (!text) throw PythonError();
    key.put('s');
    key.put(n);
    key.append(text, static_cast<size_t>(n));
  } else {
    key.put('d');
    key.put(read_dtype(value, "plan"));
  }
}

nb::object plan_from_python(const Planned& f, const Values& values) {
  nb::list operands;
  nb::dict others;
  for (size_t i = 0; i < f.parameters.names.size(); ++i)
    if (i < f.arrays)
      operands.append(nb::handle(values[i]));
    else if (values[i])
      others[f.parameters.names[i].c_str()] = nb::handle(values[i]);
  return f.plan(*operands, **others);
}

bool on_one_device(const Values& values, const Planned& f, const char* where) {
  for (size_t i = 0; i < f.arrays; ++i) {
    if (!values[i] || !is_array(values[i])) return false;
    const Array& a = read_array(values[i], where);
    if (!(f.on_host || a.device.is_cuda()) || a.device != unwrap(values[0]).device) return false;
  }
  return true;
}

// A tuple of class `cls`, tuple or one with names, of one result or of those in a tuple.
PyObject* as_tuple(nb::handle cls, PyRef made) {
  if (!PyTuple_Check(made.get())) made = PyRef::checked(PyTuple_Pack(1, made.get()));
  if (cls.ptr() == reinterpret_cast<PyObject*>(&PyTuple_Type)) return made.release();
  return PyRef::checked(PyObject_Call(cls.ptr(), made.get(), nullptr)).release();
}

// Whether the host may wait; Python refuses calls that have to.
bool may_wait(const Device& device) {
  return !ops::recorder && !cuda::is_capturing(cuda::current_stream(device.id));
}

// Null: Python carries the call out.
PyObject* run_planned(uint32_t number, PyObject* const* args, Py_ssize_t nargs, PyObject* names) {
  // Calls without a plan have this one, so that Python is asked once.
  static const auto declined = std::make_shared<const ops::LaunchPlan>();
  const Planned& f = planned[number];
  const char* where = f.parameters.function.c_str();
  const Values values = f.parameters.read(args, nargs, names);
  if (!on_one_device(values, f, where)) return nullptr;
  auto write_key = [&](ops::CallKey& key) {
    key.begin(ops::Subject::Planned, number);
    for (size_t i = 0; i < f.parameters.names.size(); ++i)
      i < f.arrays ? key.put_array(values[i]) : put_value(key, values[i]);
  };
  auto prepare = [&]() -> std::shared_ptr<const Plan> {
    const nb::object made = plan_from_python(f, values);
    if (made.is_none()) return declined;
    return nb::cast<std::shared_ptr<Plan>>(made);
  };
  const auto plan = ops::find_or_prepare<Plan>(write_key, prepare, where);
  if (plan == declined || (plan->work && !may_wait(plan->device))) return nullptr;
  const auto arrays = static_cast<int>(f.arrays);
  PyRef made = PyRef::steal(plan->run(values.data(), arrays, nullptr, where));
  return f.tuple.is_none() ? made.release() : as_tuple(f.tuple, std::move(made));
}

PyObject* attempt_planned(const PublicFunction& self, PyObject* const* args, Py_ssize_t nargs,
                          PyObject* names) {
  return guard((PyObject*)nullptr, [&] {
    return attempt_in_core(
        [&] { return run_planned(static_cast<uint32_t>(self.number), args, nargs, names); });
  });
}

nb::object make_planned(nb::object plan, std::string parameters, size_t arrays, nb::object tuple,
                        bool on_host) {
  return nb::cpp_function([=](nb::callable python) {
    const auto name = nb::cast<std::string>(python.attr("__name__"));
    planned.push_back({Parameters(name, parameters, arrays), arrays, plan, on_host, tuple});
    return make_function(attempt_planned, static_cast<int>(planned.size() - 1), nullptr, python,
                         planned.back().parameters.names[0] == "self");
  });
}

}  // namespace

void register_planned(nb::module_& m) {
  m.def("planned", &make_planned, nb::arg("plan"), nb::arg("parameters"), nb::arg("arrays") = 1,
        nb::arg("tuple") = nb::none(), nb::arg("on_host") = false,
        "Decorator of a function that is one plan for some arrays on a GPU: what "
        "plan(*arrays, **others) returns, None for calls of which there is none. `parameters`: "
        "its names, the arrays first. `tuple`: the class of a tuple of results. `on_host`: of "
        "arrays on \"cpu\" too.");
}

}  // namespace gpuinterop
