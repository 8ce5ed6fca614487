// The warm call of a fused function: what it mentions from outside is as it was, and the arguments are of
// a kind that was met before, so the kernel is called without Python's looking at either.
#include <nanobind/nanobind.h>

#include <cstring>
#include <memory>
#include <vector>

#include "array/array.hpp"
#include "array/gil.hpp"
#include "python/error_translation.hpp"
#include "python/register.hpp"

namespace nb = nanobind;

namespace gpuinterop {

namespace {

constexpr size_t kMostWarmKinds = 8;  // of arguments; a function that meets more asks Python

// A name and what it was bound to: null for nothing. Without a name a cell of a closure.
struct WatchedName {
  PyRef where, name, bound;

  bool holds() const {
    if (name) {
      PyObject* now = PyDict_GetItemWithError(where.get(), name.get());
      if (!now && PyErr_Occurred()) throw PythonError();
      return now == bound.get();
    }
    const PyRef now = PyRef::steal(PyObject_GetAttrString(where.get(), "cell_contents"));
    if (!now) PyErr_Clear();  // the cell is empty
    return now.get() == bound.get();
  }
};

// Equal: of one type of Python's own. Bits: of a float.
enum class Asks : int { Type = 0, Equal = 1, Bits = 2 };

struct ExpectedArgument {
  Asks asks;
  PyRef value;

  bool met(PyObject* given) const {
    if (asks == Asks::Type) return reinterpret_cast<PyObject*>(Py_TYPE(given)) == value.get();
    if (Py_TYPE(given) != Py_TYPE(value.get())) return false;
    if (asks == Asks::Equal) return PyObject_RichCompareBool(given, value.get(), Py_EQ) == 1;
    const double a = PyFloat_AsDouble(given), b = PyFloat_AsDouble(value.get());
    return std::memcmp(&a, &b, sizeof a) == 0;
  }
};

// An operand: the argument at a place, an object, or what the object makes of all arguments.
struct WarmOperand {
  int place;  // -1: the object; -2: what it gives when it is called
  PyRef object;
};

struct WarmKind {
  std::vector<ExpectedArgument> expected;
  std::vector<WarmOperand> operands;
  PyRef operation, rebuild;  // rebuild: null where the result is what the function returns
};

struct WarmCalls {
  std::vector<WatchedName> names;
  std::vector<std::shared_ptr<const WarmKind>> kinds;  // shared: Python may run during a call
  size_t next = 0;

  std::shared_ptr<const WarmKind> find(PyObject* args, size_t n) const {
    for (const auto& kind : kinds) {
      bool met = kind->expected.size() == n;
      for (size_t i = 0; i < n && met; ++i)
        met = kind->expected[i].met(PyTuple_GetItem(args, static_cast<Py_ssize_t>(i)));
      if (met) return kind;
    }
    return nullptr;
  }

  bool holds() const {
    for (const WatchedName& name : names)
      if (!name.holds()) return false;
    return true;
  }

  int visit(visitproc visit, void* arg) const {
    for (const WatchedName& name : names) {
      Py_VISIT(name.where.get());
      Py_VISIT(name.name.get());
      Py_VISIT(name.bound.get());
    }
    for (const auto& kind : kinds) {
      for (const auto& argument : kind->expected) Py_VISIT(argument.value.get());
      for (const auto& operand : kind->operands) Py_VISIT(operand.object.get());
      Py_VISIT(kind->operation.get());
      Py_VISIT(kind->rebuild.get());
    }
    return 0;
  }
};

PyRef or_throw(PyObject* made) {
  if (!made) throw PythonError();
  return PyRef::steal(made);
}

PyRef called(PyObject* function, PyObject* argument) {
  return or_throw(
      run_python([&] { return PyObject_CallFunctionObjArgs(function, argument, nullptr); }));
}

PyRef ref_unless_none(nb::handle o) { return o.is_none() ? PyRef() : PyRef::borrow(o.ptr()); }

nb::object call_warm(const WarmCalls& calls, nb::tuple args, nb::handle out) {
  const auto kind = calls.find(args.ptr(), args.size());
  if (!kind || !calls.holds()) return nb::borrow(nb::handle(Py_NotImplemented));
  static PyObject* names = nullptr;  // the GIL guards it: making it may let another thread in
  if (!names) names = or_throw(Py_BuildValue("(s)", "out")).release();
  std::vector<PyRef> computed;
  std::vector<PyObject*> operands;
  operands.reserve(kind->operands.size() + 1);
  for (const WarmOperand& operand : kind->operands) {
    if (operand.place >= 0) {
      operands.push_back(PyTuple_GetItem(args.ptr(), operand.place));
    } else if (operand.place == -1) {
      operands.push_back(operand.object.get());
    } else {
      computed.push_back(called(operand.object.get(), args.ptr()));
      operands.push_back(computed.back().get());
    }
  }
  const size_t n = operands.size();
  operands.push_back(out.ptr());
  PyRef result = or_throw(run_python([&] {
    return PyObject_Vectorcall(kind->operation.get(), operands.data(), n,
                               out.is_none() ? nullptr : names);
  }));
  if (kind->rebuild) result = called(kind->rebuild.get(), result.get());
  return nb::steal(result.release());
}

int warm_calls_traverse(PyObject* self, visitproc visit, void* arg) {
  Py_VISIT(Py_TYPE(self));
  return nb::inst_ready(self) ? nb::inst_ptr<WarmCalls>(self)->visit(visit, arg) : 0;
}

int warm_calls_clear(PyObject* self) {
  if (nb::inst_ready(self)) {
    const WarmCalls dropped =
        std::move(*nb::inst_ptr<WarmCalls>(self));  // destructors may come back
  }
  return 0;
}

}  // namespace

void register_fuse(nb::module_& m) {
  PyType_Slot slots[] = {{Py_tp_traverse, reinterpret_cast<void*>(warm_calls_traverse)},
                         {Py_tp_clear, reinterpret_cast<void*>(warm_calls_clear)},
                         {0, nullptr}};
  nb::class_<WarmCalls>(m, "WarmCalls", nb::type_slots(slots),
                        "Calls of a fused function for which nothing is to be decided.")
      .def(
          "__init__",
          [](WarmCalls* self, nb::list places) {
            new (self) WarmCalls();
            for (nb::handle place : places)
              self->names.push_back(
                  {PyRef::borrow(nb::object(place[0]).ptr()), ref_unless_none(place[1]),
                   nb::len(place) > 2 ? PyRef::borrow(nb::object(place[2]).ptr()) : PyRef()});
          },
          nb::arg("places"),
          "`places`: (cell, None, value) or (globals, name, value), without value where none is "
          "bound.")
      .def(
          "add",
          [](WarmCalls& self, nb::list expected, nb::list operands, nb::object operation,
             nb::object rebuild) {
            auto kind = std::make_shared<WarmKind>();
            for (nb::handle e : expected)
              kind->expected.push_back(
                  {static_cast<Asks>(nb::cast<int>(e[0])), PyRef::borrow(nb::object(e[1]).ptr())});
            for (nb::handle o : operands)
              kind->operands.push_back(
                  {nb::cast<int>(o[0]), PyRef::borrow(nb::object(o[1]).ptr())});
            kind->operation = PyRef::borrow(operation.ptr());
            kind->rebuild = ref_unless_none(rebuild);
            if (self.kinds.size() < kMostWarmKinds) {
              self.kinds.push_back(std::move(kind));
            } else {
              std::shared_ptr<const WarmKind> made = std::move(kind);
              std::swap(self.kinds[self.next], made);  // the old one is dropped last
              self.next = (self.next + 1) % kMostWarmKinds;
            }
          },
          nb::arg("expected"), nb::arg("operands"), nb::arg("operation"), nb::arg("rebuild").none(),
          "`expected`: (0, type), (1, object) or (2, float) for each argument. `operands`: (place, "
          "None) "
          "for the argument there, (-1, object), or (-2, function of the tuple of arguments).")
      .def("__call__", &call_warm, nb::arg("args"), nb::arg("out").none(),
           "The result, or NotImplemented where Python must decide.")
      .def("__len__", [](const WarmCalls& self) { return self.kinds.size(); });
}

}  // namespace gpuinterop
