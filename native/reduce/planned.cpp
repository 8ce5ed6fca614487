// Functions of arrays that are one plan, most of them on a GPU alone: later calls with arrays of the same layouts, and
// with the same other arguments, run no Python. A function that Python has made for them may take the place of the plan;
// it reads no argument but the arrays.
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
  uint32_t
      operands;  // the parameters that are operands, as bits; 0: the first one is a list of them
  // Makes a Plan, or a function of the operands, of operands and other arguments; None: Python carries the call out.
  nb::object plan;
  bool on_host, on_gpu;  // of arrays on "cpu", of those on a GPU
  // The class of the tuple of results; None: one result alone, or a tuple of several.
  nb::object tuple;
};

auto& planned = *new std::deque<Planned>;  // never destroyed; references stay valid

PyObject* item_of(PyObject* sequence, Py_ssize_t i) {
  return PyTuple_Check(sequence) ? PyTuple_GetItem(sequence, i) : PyList_GetItem(sequence, i);
}

// A tuple of ints; or a tuple or list of tuples and lists of them, such as the axes of tensordot and the widths of pad. NumPy
// takes no list in place of a tuple of axes.
bool is_sequence_of_ints(PyObject* value, bool nested) {
  const bool list = PyList_CheckExact(value);
  if (!list && !PyTuple_CheckExact(value)) return false;
  for (Py_ssize_t i = 0, n = PySequence_Size(value); i < n; ++i) {
    PyObject* const item = item_of(value, i);
    const bool known =
        PyLong_CheckExact(item) ? nested || !list : !nested && is_sequence_of_ints(item, true);
    if (!known) return false;
  }
  return true;
}

// Whether a key may hold the value. Objects of other classes are dtypes, or raise.
bool has_place(PyObject* value) {
  if (!value) return true;
  const bool sequence = PyTuple_CheckExact(value) || PyList_CheckExact(value);
  return sequence ? is_sequence_of_ints(value, false) : !is_array(value);
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
  } else if (PyTuple_CheckExact(value) || PyList_CheckExact(value)) {
    key.put(PyTuple_CheckExact(value) ? 't' : 'l');
    const Py_ssize_t n = PySequence_Size(value);
    key.put(n);
    for (Py_ssize_t i = 0; i < n; ++i) put_value(key, item_of(value, i));
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
  size_t count = 0;

  template <class Visit>
  void visit_others(Visit&& visit) const {
    for (size_t i = 0; i < f.parameters.names.size(); ++i)
      if (!((f.operands ? f.operands : 1) >> i & 1)) visit(i, values[i]);
  }

  // False: Python carries the call out.
  bool read_operands() {
    if (!f.operands) {
      if (!PyList_CheckExact(values[0]) && !PyTuple_CheckExact(values[0])) return false;
      list = PyRef::checked(PySequence_Tuple(values[0]));
      const auto n = static_cast<size_t>(PyTuple_Size(list.get()));
      if (n < 1 || n > operands.size()) return false;
      while (count < n) {
        operands[count] = PyTuple_GetItem(list.get(), static_cast<Py_ssize_t>(count));
        ++count;
      }
    }
    for (size_t i = 0; f.operands >> i; ++i)
      if (f.operands >> i & 1) operands[count++] = values[i];
    for (size_t i = 0; i < count; ++i) {
      if (!operands[i] || !is_array(operands[i])) return false;
      const Array& a = read_array(operands[i], f.parameters.function.c_str());
      if (!(a.device.is_cuda() ? f.on_gpu : f.on_host) || a.device != unwrap(operands[0]).device)
        return false;
    }
    bool known = true;  // false for an array among the others, such as out=
    visit_others([&](size_t, PyObject* value) { known = known && has_place(value); });
    return known;
  }

  void write_key(ops::CallKey& key, uint32_t number) const {
    key.begin(ops::Subject::Planned, number);
    if (!f.operands) key.put(count);
    for (size_t i = 0; i < count; ++i) key.put_array(operands[i]);
    visit_others([&](size_t, PyObject* value) { put_value(key, value); });
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
    visit_others([&](size_t i, PyObject* value) {
      if (value) others[f.parameters.names[i].c_str()] = nb::handle(value);
    });
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

nb::object make_planned(nb::object plan, std::string parameters, size_t required, uint32_t operands,
                        nb::object tuple, bool on_host, bool on_gpu) {
  return nb::cpp_function([=](nb::callable python) {
    const auto name = nb::cast<std::string>(python.attr("__name__"));
    planned.push_back(
        {Parameters(name, parameters, required), operands, plan, on_host, on_gpu, tuple});
    return make_function(attempt_planned, static_cast<int>(planned.size() - 1), nullptr, python,
                         planned.back().parameters.names[0] == "self");
  });
}

// The parameters that `arrays` names, as bits.
uint32_t bits_of(const std::string& parameters, nb::str arrays) {
  const Parameters all("prepared", parameters, 0);
  uint32_t bits = 0;
  for (nb::handle word : arrays.attr("split")())
    for (size_t i = 0; i < all.names.size(); ++i)
      if (all.names[i] == nb::cast<std::string>(word)) bits |= uint32_t{1} << i;
  return bits;
}

}  // namespace

void register_planned(nb::module_& m) {
  m.def(
      "planned",
      [](nb::object plan, std::string parameters, size_t arrays, nb::object tuple, bool on_host) {
        return make_planned(plan, std::move(parameters), arrays, (uint32_t{1} << arrays) - 1, tuple,
                            on_host, true);
      },
      nb::arg("plan"), nb::arg("parameters"), nb::arg("arrays") = 1, nb::arg("tuple") = nb::none(),
      nb::arg("on_host") = false,
      "Decorator of a function that is one plan for some arrays on a GPU: what "
      "plan(*arrays, **others) returns, None for calls of which there is none. `parameters`: "
      "its names, the arrays first. `tuple`: the class of a tuple of results. `on_host`: of "
      "arrays on \"cpu\" too.");
  m.def(
      "prepared",
      [](nb::object prepare, std::string parameters, nb::str arrays, bool on_gpu) {
        const uint32_t operands = bits_of(parameters, arrays);
        return make_planned(prepare, std::move(parameters), 1, operands, nb::none(), true, on_gpu);
      },
      nb::arg("prepare"), nb::arg("parameters"), nb::arg("arrays"), nb::arg("on_gpu") = false,
      "Decorator of a function that, for arrays on \"cpu\" of known layouts and for known other "
      "arguments, is a function of the arrays: what prepare(*arrays, **others) returns once, None "
      "for other calls. `parameters`: its names; `arrays`: those that are arrays, empty if the "
      "first one is a list of them. `on_gpu`: of arrays on a GPU too.");
}

}  // namespace gpuinterop
