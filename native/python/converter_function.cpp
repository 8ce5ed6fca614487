// imports(family) and exports(library): decorators for converters. The plain case of such a function, one
// array and no option but copyif=False, runs without a Python frame, which would cost as much as the
// conversion. Every other case, and every failure, is left to the Python function.
#include <Python.h>
#include <structmember.h>

#include <vector>

#include "python/error_translation.hpp"
#include "python/exchange_c_api.hpp"
#include "python/exchange_import.hpp"
#include "python/register.hpp"

namespace gpuinterop {

using namespace exchange;

namespace {

// A library whose objects its own exchange table makes.
struct Exporter {
  PyObject* library;
  PyTypeObject* type;
  bool has_cuda;  // one without would make an object over GPU memory that it cannot use
};
std::vector<Exporter>& exporters() {
  static auto* list = new std::vector<Exporter>;  // owns its objects, for the life of the process
  return *list;
}

const Exporter* find_exporter(PyObject* library) {
  for (const Exporter& e : exporters())
    if (e.library == library ||
        (PyUnicode_CheckExact(library) && PyUnicode_Compare(e.library, library) == 0))
      return &e;
  return nullptr;
}

struct Converter {
  PyObject_HEAD vectorcallfunc call;
  bool exports;
  Family family;       // imports: whose objects; Other: any plain object
  PyObject* library;   // exports: to which library; null: the second argument names it
  PyObject* function;  // null: not decorated yet
  PyObject* dict;      // the function's names, and the function itself as __wrapped__
};

Converter* converter(PyObject* o) noexcept { return reinterpret_cast<Converter*>(o); }

PyObject* import_argument(const Converter* c, PyObject* obj) {
  const bool any = c->family == Family::Other;
  if (any && is_array(obj)) return PyRef::borrow(obj).release();
  ForeignType& p = foreign_type_of(Py_TYPE(obj));
  const bool serves = any ? !converters_changed : p.family == c->family;
  return p.plain && serves ? import_plain(p, obj) : nullptr;
}

PyObject* export_argument(const Converter* c, PyObject* x, PyObject* library) {
  if (!is_array(x) || (!c->library && converters_changed)) return nullptr;
  const Exporter* e = find_exporter(library);
  if (!e || !is_plain_export(unwrap(x)) || (unwrap(x).device.is_cuda() && !e->has_cuda))
    return nullptr;
  return exchange_export(x, e->type);
}

// The result of the plain case. Null without a Python error: this is none, or it failed.
PyObject* call_plain(const Converter* c, PyObject* const* args, Py_ssize_t n, PyObject* names) {
  const Py_ssize_t needed = c->exports && !c->library ? 2 : 1;
  const Py_ssize_t given = n + (names ? PyTuple_Size(names) : 0);
  if (n < needed || given > needed + 1) return nullptr;
  if (given > needed && args[needed] != Py_False) return nullptr;
  if (given > n && PyUnicode_CompareWithASCIIString(PyTuple_GetItem(names, 0), "copyif") != 0)
    return nullptr;
  try {
    return c->exports ? export_argument(c, args[0], c->library ? c->library : args[1])
                      : import_argument(c, args[0]);
  } catch (const Error&) {
    return nullptr;
  }
}

PyObject* decorate(PyObject* self, PyObject* function) {
  return guard((PyObject*)nullptr, [&]() -> PyObject* {
    Converter* c = converter(self);
    PyRef dict = PyRef::steal(PyDict_New());
    if (!dict || PyDict_SetItemString(dict.get(), "__wrapped__", function) < 0) throw PythonError();
    for (const char* key : {"__module__", "__name__", "__qualname__", "__doc__"}) {
      PyRef value = PyRef::steal(PyObject_GetAttrString(function, key));
      if (!value || PyDict_SetItemString(dict.get(), key, value.get()) < 0) throw PythonError();
    }
    c->dict = dict.release();
    c->function = PyRef::borrow(function).release();
    return PyRef::borrow(self).release();
  });
}

PyObject* call(PyObject* self, PyObject* const* args, size_t nargs, PyObject* names) {
  const Py_ssize_t n = PyVectorcall_NARGS(nargs);
  if (!converter(self)->function) {
    if (n == 1 && !names) return decorate(self, args[0]);
    PyErr_SetString(PyExc_TypeError, "a decorator for one function");
    return nullptr;
  }
  PyObject* made =
      guard((PyObject*)nullptr, [&] { return call_plain(converter(self), args, n, names); });
  if (made || PyErr_Occurred()) return made;
  return PyObject_Vectorcall(converter(self)->function, args, nargs, names);
}

int traverse(PyObject* self, visitproc visit, void* arg) {
  Py_VISIT(converter(self)->function);
  Py_VISIT(converter(self)->dict);
  Py_VISIT(Py_TYPE(self));
  return 0;
}

int clear(PyObject* self) {
  Py_CLEAR(converter(self)->dict);  // the function stays, for a caller who runs it meanwhile
  return 0;
}

void dealloc(PyObject* self) {
  PyObject_GC_UnTrack(self);
  PyTypeObject* type = Py_TYPE(self);
  Py_XDECREF(converter(self)->function);
  Py_XDECREF(converter(self)->library);
  Py_XDECREF(converter(self)->dict);
  PyObject_GC_Del(self);
  Py_DECREF(type);
}

PyObject* repr(PyObject* self) {
  PyObject* function = converter(self)->function;
  return PyObject_Repr(function ? function : reinterpret_cast<PyObject*>(Py_TYPE(self)));
}

// Not bound to instances, as functions in C are not; `inspect` and `pydoc` know a routine by this slot.
PyObject* get(PyObject* self, PyObject*, PyObject*) { return PyRef::borrow(self).release(); }

// Pickled by name, as functions are.
PyObject* reduce(PyObject* self, PyObject*) { return PyObject_GetAttrString(self, "__qualname__"); }

PyMethodDef methods[] = {{"__reduce__", reduce, METH_NOARGS, nullptr},
                         {nullptr, nullptr, 0, nullptr}};

PyMemberDef members[] = {
    {"__vectorcalloffset__", T_PYSSIZET, offsetof(Converter, call), READONLY, nullptr},
    {"__dictoffset__", T_PYSSIZET, offsetof(Converter, dict), READONLY, nullptr},
    {nullptr, 0, 0, 0, nullptr},
};

PyTypeObject* converter_type = nullptr;

PyObject* make(bool exports, Family family, PyObject* library) {
  PyObject* made = PyType_GenericAlloc(converter_type, 0);
  if (!made) return nullptr;
  converter(made)->call = call;
  converter(made)->exports = exports;
  converter(made)->family = family;
  converter(made)->library = PyRef::borrow(library).release();
  return made;
}

PyObject* imports(PyObject*, PyObject* args) {
  int family = int(Family::Other);
  if (!PyArg_ParseTuple(args, "|i", &family)) return nullptr;
  return make(false, static_cast<Family>(family), nullptr);
}

PyObject* exports(PyObject*, PyObject* args) {
  PyObject* library = nullptr;
  if (!PyArg_ParseTuple(args, "|U", &library)) return nullptr;
  return make(true, Family::Other, library);
}

PyObject* set_exporter(PyObject*, PyObject* args) {
  PyObject *library, *type;
  int cuda;
  if (!PyArg_ParseTuple(args, "UO!p", &library, &PyType_Type, &type, &cuda)) return nullptr;
  const Exporter* known = find_exporter(library);
  if (known && known->type == reinterpret_cast<PyTypeObject*>(type) &&
      known->has_cuda == (cuda != 0))
    Py_RETURN_NONE;
  std::erase_if(exporters(), [&](const Exporter& e) {
    return PyUnicode_Compare(e.library, library) == 0;  // its references stay: a call may use them
  });
  exporters().push_back({PyRef::borrow(library).release(),
                         reinterpret_cast<PyTypeObject*>(PyRef::borrow(type).release()),
                         cuda != 0});
  Py_RETURN_NONE;
}

PyMethodDef functions[] = {
    {"imports", imports, METH_VARARGS,
     "imports(family=0)\n--\n\nDecorator of a converter (obj, copyif=False): plain objects of the "
     "family (NUMPY, TORCH, CUPY; 0: any) are imported without calling it."},
    {"exports", exports, METH_VARARGS,
     "exports(library='')\n--\n\nDecorator of a converter (x, copyif=False), or without a library "
     "(x, library, copyif=False): plain arrays are exported without calling it, to a library that "
     "_set_exporter() has registered."},
    {"_set_exporter", set_exporter, METH_VARARGS,
     "_set_exporter(library, type, cuda)\n--\n\nThe library's arrays are objects of `type`, which "
     "its exchange table makes; `cuda`: on GPUs too."},
    {nullptr, nullptr, 0, nullptr},
};

}  // namespace

void register_converter_functions(nanobind::module_& m) {
  PyType_Slot slots[] = {
      {Py_tp_doc, const_cast<char*>("A converter whose plain case runs without a Python frame.")},
      {Py_tp_call, reinterpret_cast<void*>(PyVectorcall_Call)},
      {Py_tp_traverse, reinterpret_cast<void*>(traverse)},
      {Py_tp_clear, reinterpret_cast<void*>(clear)},
      {Py_tp_dealloc, reinterpret_cast<void*>(dealloc)},
      {Py_tp_repr, reinterpret_cast<void*>(repr)},
      {Py_tp_descr_get, reinterpret_cast<void*>(get)},
      {Py_tp_methods, methods},
      {Py_tp_members, members},
      {0, nullptr},
  };
  PyType_Spec spec = {"gpuinterop._core.Converter", sizeof(Converter), 0,
                      Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC | Py_TPFLAGS_HAVE_VECTORCALL |
                          Py_TPFLAGS_DISALLOW_INSTANTIATION,
                      slots};
  converter_type = reinterpret_cast<PyTypeObject*>(PyType_FromSpec(&spec));
  if (!converter_type || PyModule_AddFunctions(m.ptr(), functions) < 0)
    throw nanobind::python_error();
  m.attr("NUMPY") = int(Family::Numpy);
  m.attr("TORCH") = int(Family::Torch);
  m.attr("CUPY") = int(Family::Cupy);
}

}  // namespace gpuinterop
