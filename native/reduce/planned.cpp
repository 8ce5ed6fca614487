// Functions of arrays that are one plan, most of them on a GPU alone: later calls with arrays of the same layouts, and
// with the same other arguments, run no Python. On "cpu" a function that Python has made for them may take the place of
// the plan; it reads no argument but the arrays.
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
  // The number of operands, which are the first parameters; 0: the first one is a list of them.
  size_t arrays;
  // Makes a Plan, or a function of the operands, of operands and other arguments; None: Python carries the call out.
  nb::object plan;
  bool on_host, on_gpu;  // of arrays on "cpu", of those on a GPU
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

// What Python made for a key: a plan, a function, or neither.
struct Answer : ops::Prepared {
  std::shared_ptr<const Plan> plan;
  PyRef function;
};

// The arguments of one call; the operands are borrowed from them, or from the tuple of a list.
struct PlannedCall {
  const Planned& f;
  Values values;
  PyRef list;
  std::array<PyObject*, ops::kMaxPlanned> operands{};
  size_t count = 0, first_other = 0;

  // False: Python carries the call out.
  bool read_operands() {
    first_other = std::max<size_t>(f.arrays, 1);
    if (f.arrays) {
      std::copy_n(values.begin(), count = f.arrays, operands.begin());
    } else {
      if (!PyList_CheckExact(values[0]) && !PyTuple_CheckExact(values[0])) return false;
      list = PyRef::checked(PySequence_Tuple(values[0]));
      count = static_cast<size_t>(PyTuple_Size(list.get()));
      if (count < 1 || count > operands.size()) return false;
      for (size_t i = 0; i < count; ++i)
        operands[i] = PyTuple_GetItem(list.get(), static_cast<Py_ssize_t>(i));
    }
    for (size_t i = 0; i < count; ++i) {
      if (!operands[i] || !is_array(operands[i])) return false;
      const Array& a = read_array(operands[i], f.parameters.function.c_str());
      if (!(a.device.is_cuda() ? f.on_gpu : f.on_host) || a.device != unwrap(operands[0]).device)
        return false;
    }
    for (size_t i = first_other; i < values.size(); ++i)
      if (values[i] && is_array(values[i])) return false;  // such as out=
    return true;
  }

  void write_key(ops::CallKey& key, uint32_t number) const {
    key.begin(ops::Subject::Planned, number);
    if (!f.arrays) key.put(count);
    for (size_t i = 0; i < count; ++i) key.put_array(operands[i]);
    for (size_t i = first_other; i < f.parameters.names.size(); ++i) put_value(key, values[i]);
  }

  // A function may last as long as the classes of the package, so it is for these alone.
  bool has_known_classes() const {
    return std::all_of(operands.begin(), operands.begin() + count, [](PyObject* x) {
      return Py_TYPE(x) == result_type(kBool) || Py_TYPE(x) == result_type(kFloat32);
    });
  }

  std::shared_ptr<const Answer> prepare() const {
    nb::list arrays;
    nb::dict others;
    for (size_t i = 0; i < count; ++i) arrays.append(nb::handle(operands[i]));
    for (size_t i = first_other; i < f.parameters.names.size(); ++i)
      if (values[i]) others[f.parameters.names[i].c_str()] = nb::handle(values[i]);
    const nb::object made = f.plan(*arrays, **others);
    const auto answer = std::make_shared<Answer>();
    std::shared_ptr<Plan> plan;
    if (nb::try_cast(made, plan))
      answer->plan = std::move(plan);
    else if (!made.is_none() && has_known_classes())
      answer->function = PyRef::borrow(made.ptr());
    return answer;
  }
};

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
  const Planned& f = planned[number];
  const char* where = f.parameters.function.c_str();
  PlannedCall call{f, f.parameters.read(args, nargs, names)};
  if (!call.read_operands()) return nullptr;
  const auto answer =
      ops::find_or_prepare<Answer>([&](ops::CallKey& key) { call.write_key(key, number); },
                                   [&] { return call.prepare(); }, where);
  if (answer->function) {
    // Python's way reports copies and errors under the right name, and has what a capture records.
    if (ops::recorder || watching.load(std::memory_order_relaxed)) return nullptr;
    return PyObject_Vectorcall(answer->function.get(), call.operands.data(), call.count, nullptr);
  }
  const Plan* const plan = answer->plan.get();
  if (!plan || (plan->work && !may_wait(plan->device))) return nullptr;
  PyRef made =
      PyRef::steal(plan->run(call.operands.data(), static_cast<int>(call.count), nullptr, where));
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
                        bool on_host, bool on_gpu) {
  return nb::cpp_function([=](nb::callable python) {
    const auto name = nb::cast<std::string>(python.attr("__name__"));
    planned.push_back({Parameters(name, parameters, std::max<size_t>(arrays, 1)), arrays, plan,
                       on_host, on_gpu, tuple});
    return make_function(attempt_planned, static_cast<int>(planned.size() - 1), nullptr, python,
                         planned.back().parameters.names[0] == "self");
  });
}

}  // namespace

void register_planned(nb::module_& m) {
  m.def(
      "planned",
      [](nb::object plan, std::string parameters, size_t arrays, nb::object tuple, bool on_host) {
        return make_planned(plan, std::move(parameters), arrays, tuple, on_host, true);
      },
      nb::arg("plan"), nb::arg("parameters"), nb::arg("arrays") = 1, nb::arg("tuple") = nb::none(),
      nb::arg("on_host") = false,
      "Decorator of a function that is one plan for some arrays on a GPU: what "
      "plan(*arrays, **others) returns, None for calls of which there is none. `parameters`: "
      "its names, the arrays first. `tuple`: the class of a tuple of results. `on_host`: of "
      "arrays on \"cpu\" too.");
  m.def(
      "prepared",
      [](nb::object prepare, std::string parameters, size_t arrays) {
        return make_planned(prepare, std::move(parameters), arrays, nb::none(), true, false);
      },
      nb::arg("prepare"), nb::arg("parameters"), nb::arg("arrays") = 1,
      "Decorator of a function that, for arrays on \"cpu\" of known layouts and for known other "
      "arguments, is a function of the arrays: what prepare(*arrays, **others) returns once, None "
      "for other calls. `parameters`: its names, the arrays first; with arrays=0 the first one is "
      "a list of them.");
}

}  // namespace gpuinterop
