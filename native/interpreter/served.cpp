#include "interpreter/served.hpp"

#include <structmember.h>

#include <deque>
#include <utility>

#include "interpreter/attempt.hpp"
#include "interpreter/register.hpp"

namespace nb = nanobind;
using namespace nb::literals;

namespace gpuinterop {

namespace {

PyTypeObject* function_type = nullptr;

// The slots of the type.
namespace slots {

PublicFunction* cast(PyObject* o) noexcept { return reinterpret_cast<PublicFunction*>(o); }

PyObject* call(PyObject* self, PyObject* const* args, size_t nargs, PyObject* names) {
  const PublicFunction& f = *cast(self);
  if (PyObject* made = f.attempt(f, args, PyVectorcall_NARGS(nargs), names)) return made;
  return PyErr_Occurred() ? nullptr : PyObject_Vectorcall(f.python, args, nargs, names);
}

int traverse(PyObject* self, visitproc visit, void* arg) {
  Py_VISIT(cast(self)->python);
  Py_VISIT(cast(self)->dict);
  Py_VISIT(cast(self)->of);
  Py_VISIT(Py_TYPE(self));
  return 0;
}

int clear(PyObject* self) {
  Py_CLEAR(cast(self)->dict);  // the function stays, for a caller who runs it meanwhile
  return 0;
}

void dealloc(PyObject* self) {
  PyObject_GC_UnTrack(self);
  if (cast(self)->weakrefs) PyObject_ClearWeakRefs(self);
  PyTypeObject* type = Py_TYPE(self);
  Py_XDECREF(cast(self)->python);
  Py_XDECREF(cast(self)->of);
  Py_XDECREF(cast(self)->dict);
  PyObject_GC_Del(self);
  Py_DECREF(type);
}

PyObject* repr(PyObject* self) { return PyObject_Repr(cast(self)->python); }

// A function is not bound to instances, like functions in C; `inspect` and `pydoc` recognise a routine by this slot.
PyObject* get(PyObject* self, PyObject* instance, PyObject*) {
  const bool bound = cast(self)->method && instance && instance != Py_None;
  return bound ? PyMethod_New(self, instance) : PyRef::borrow(self).release();
}

// Pickled by name, as functions are.
PyObject* reduce(PyObject* self, PyObject*) { return PyObject_GetAttrString(self, "__qualname__"); }

PyMethodDef methods[] = {{"__reduce__", reduce, METH_NOARGS, nullptr},
                         {nullptr, nullptr, 0, nullptr}};

PyMemberDef members[] = {
    {"__vectorcalloffset__", T_PYSSIZET, offsetof(PublicFunction, call), READONLY, nullptr},
    {"__dictoffset__", T_PYSSIZET, offsetof(PublicFunction, dict), READONLY, nullptr},
    {"__weaklistoffset__", T_PYSSIZET, offsetof(PublicFunction, weakrefs), READONLY, nullptr},
    {nullptr, 0, 0, 0, nullptr},
};

}  // namespace slots

// ---- functions by name ----------------------------------------------------------------------------

auto& table = *new std::deque<Served>;  // never destroyed; references stay valid

PyObject* attempt_served(const Served& function, PyObject* const* args, Py_ssize_t nargs,
                         PyObject* names) {
  const Values values = function.parameters.read(args, nargs, names);
  return attempt_in_core([&] { return function.run(values); });
}

PyObject* attempt_by_number(const PublicFunction& self, PyObject* const* args, Py_ssize_t nargs,
                            PyObject* names) {
  return guard((PyObject*)nullptr, [&] {
    return attempt_served(table[static_cast<size_t>(self.number)], args, nargs, names);
  });
}

}  // namespace

nb::object make_function(PublicFunction::Attempt attempt, int number, PyObject* of,
                         nb::callable python, bool method) {
  nb::object object = nb::steal(PyType_GenericAlloc(function_type, 0));
  if (!object) throw nb::python_error();
  PublicFunction& f = *slots::cast(object.ptr());
  f.call = slots::call;
  f.attempt = attempt;
  f.number = number;
  f.method = method;
  f.of = PyRef::borrow(of).release();
  f.python = nb::object(python).release().ptr();
  return nb::module_::import_("functools")
      .attr("update_wrapper")(object, python, "updated"_a = nb::make_tuple());
}

void serve(Served function) { table.push_back(std::move(function)); }

Served& served(const char* name) {
  for (Served& function : table)
    if (function.parameters.function == name) return function;
  throw nb::value_error("no such function");
}

PyObject* call_served(const Served& function, PyObject* const* args, Py_ssize_t nargs,
                      PyObject* names) {
  if (PyObject* made = attempt_served(function, args, nargs, names)) return made;
  const PyRef python = PyRef::borrow(function.python);
  return PyObject_Vectorcall(python.get(), args, size_t(nargs), names);
}

PyObject* attempt_function(PyObject* function, PyObject* const* args, Py_ssize_t nargs,
                           PyObject* names) {
  if (Py_TYPE(function) != function_type)
    return PyObject_Vectorcall(function, args, size_t(nargs), names);
  const PyRef held = PyRef::borrow(function);
  PyObject* made = nullptr;
  // Python's function of one may be another.
  for (; Py_TYPE(function) == function_type && !made && !PyErr_Occurred();
       function = slots::cast(function)->python)
    made = slots::cast(function)->attempt(*slots::cast(function), args, nargs, names);
  return made;
}

bool is_text(PyObject* value, const char* text) {
  return PyUnicode_CheckExact(value) && PyUnicode_CompareWithASCIIString(value, text) == 0;
}

void register_served(nb::module_& m) {
  PyType_Slot all[] = {
      {Py_tp_doc, const_cast<char*>("A function whose usual case runs without a Python frame.")},
      {Py_tp_call, slot(PyVectorcall_Call)},
      {Py_tp_traverse, slot(slots::traverse)},
      {Py_tp_clear, slot(slots::clear)},
      {Py_tp_dealloc, slot(slots::dealloc)},
      {Py_tp_repr, slot(slots::repr)},
      {Py_tp_descr_get, slot(slots::get)},
      {Py_tp_methods, slots::methods},
      {Py_tp_members, slots::members},
      {0, nullptr},
  };
  PyType_Spec spec = {"gpuinterop._core.Function", sizeof(PublicFunction), 0,
                      Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC | Py_TPFLAGS_HAVE_VECTORCALL |
                          Py_TPFLAGS_DISALLOW_INSTANTIATION,
                      all};
  function_type = reinterpret_cast<PyTypeObject*>(PyType_FromSpec(&spec));
  if (!function_type) throw nb::python_error();
  m.def(
      "served",
      [](nb::callable python, nb::object name) {
        if (name.is_none()) name = python.attr("__name__");
        Served& function = served(nb::cast<const char*>(name));
        int number = 0;
        while (&table[static_cast<size_t>(number)] != &function) ++number;
        const bool method = function.parameters.names[0] == "self";
        nb::object made = make_function(attempt_by_number, number, nullptr, python, method);
        const PyRef old = PyRef::steal(std::exchange(function.python, python.release().ptr()));
        return made;
      },
      "function"_a, "name"_a = nb::none(),
      "Decorator of a function that the core has too, by default under its name: it carries out "
      "the "
      "calls whose arguments it knows.");
}

}  // namespace gpuinterop
