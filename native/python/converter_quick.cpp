// quick(function): a converter whose ordinary case, one array and no option but copyif=False, is served
// here without a Python frame, which would cost as much as the conversion. Every other case is the
// function's.
#include <Python.h>
#include <structmember.h>

#include <cstring>

#include "python/converter_quick.hpp"
#include "python/error_translation.hpp"
#include "python/exchange_c_api.hpp"
#include "python/exchange_import.hpp"

namespace gpuinterop {

using namespace exchange;

namespace {

// The ordinary case of one converter. Null without a Python error: this is none, or it fails and the
// function finds the words.
using Ordinary = PyObject* (*)(PyObject* obj);

template <Family F>
PyObject* from_library(PyObject* obj) {
  const ForeignType& p = foreign_type_of(Py_TYPE(obj));
  return p.plain && p.family == F ? import_plain(p, obj) : nullptr;
}

PyObject* from_any(PyObject* obj) {
  if (is_array(obj)) return PyRef::borrow(obj).release();
  const ForeignType& p = foreign_type_of(Py_TYPE(obj));
  return p.plain && !converters_changed ? import_plain(p, obj) : nullptr;
}

PyTypeObject* torch_tensor = nullptr;  // null until torch is seen
bool torch_has_cuda = false;  // one without would make a tensor over GPU memory that nobody can use

PyObject* to_torch(PyObject* x) {
  if (!torch_tensor || !is_array(x) || (unwrap(x).device.is_cuda() && !torch_has_cuda))
    return nullptr;
  return exchange_export(x, torch_tensor, false);
}

// to(x, "torch"): the array is the first argument, the library's name the second.
PyObject* to_named(PyObject* x) { return converters_changed ? nullptr : to_torch(x); }

constexpr struct {
  const char* name;
  Ordinary ordinary;
  const char* library = nullptr;  // the second argument for which the case is ordinary
} kConverters[] = {
    {"to", to_named, "torch"},
    {"from_any", from_any},
    {"from_numpy", from_library<Family::Numpy>},
    {"from_torch", from_library<Family::Torch>},
    {"from_cupy", from_library<Family::Cupy>},
    {"to_torch", to_torch},
};

struct Quick {
  PyObject_HEAD vectorcallfunc call;
  Ordinary ordinary;
  const char* library;
  PyObject* function;
  PyObject* dict;  // the function's names, and the function itself as __wrapped__
};

Quick* quick_cast(PyObject* o) noexcept { return reinterpret_cast<Quick*>(o); }

bool is_ordinary(const Quick* q, PyObject* const* args, Py_ssize_t n, PyObject* names) {
  const Py_ssize_t needed = q->library ? 2 : 1;
  const Py_ssize_t given = n + (names ? PyTuple_Size(names) : 0);
  if (n < needed || given > needed + 1) return false;
  if (given > needed && args[needed] != Py_False) return false;
  if (given > n && PyUnicode_CompareWithASCIIString(PyTuple_GetItem(names, 0), "copyif") != 0)
    return false;
  return !q->library || (PyUnicode_CheckExact(args[1]) &&
                         PyUnicode_CompareWithASCIIString(args[1], q->library) == 0);
}

PyObject* call_quick(PyObject* self, PyObject* const* args, size_t nargs, PyObject* names) {
  if (is_ordinary(quick_cast(self), args, PyVectorcall_NARGS(nargs), names)) {
    PyObject* found = guard((PyObject*)nullptr, [&]() -> PyObject* {
      try {
        return quick_cast(self)->ordinary(args[0]);
      } catch (const Error&) {
        return nullptr;
      }
    });
    if (found || PyErr_Occurred()) return found;
  }
  return PyObject_Vectorcall(quick_cast(self)->function, args, nargs, names);
}

int quick_traverse(PyObject* self, visitproc visit, void* arg) {
  Py_VISIT(quick_cast(self)->function);
  Py_VISIT(quick_cast(self)->dict);
  Py_VISIT(Py_TYPE(self));
  return 0;
}

int quick_clear(PyObject* self) {
  Py_CLEAR(quick_cast(self)->dict);  // the function stays, for whoever calls it meanwhile
  return 0;
}

void dealloc(PyObject* self) {
  PyObject_GC_UnTrack(self);
  PyTypeObject* type = Py_TYPE(self);
  Py_XDECREF(quick_cast(self)->function);
  Py_XDECREF(quick_cast(self)->dict);
  PyObject_GC_Del(self);
  Py_DECREF(type);
}

PyObject* repr(PyObject* self) { return PyObject_Repr(quick_cast(self)->function); }

// Not bound to instances, as functions in C are not; `inspect` and `pydoc` know a routine by this slot.
PyObject* get(PyObject* self, PyObject*, PyObject*) { return PyRef::borrow(self).release(); }

// Pickled by name, as functions are.
PyObject* reduce(PyObject* self, PyObject*) {
  return PyObject_GetAttrString(quick_cast(self)->function, "__qualname__");
}

PyMethodDef methods[] = {{"__reduce__", reduce, METH_NOARGS, nullptr},
                         {nullptr, nullptr, 0, nullptr}};

PyMemberDef members[] = {
    {"__vectorcalloffset__", T_PYSSIZET, offsetof(Quick, call), READONLY, nullptr},
    {"__dictoffset__", T_PYSSIZET, offsetof(Quick, dict), READONLY, nullptr},
    {nullptr, 0, 0, 0, nullptr},
};

PyTypeObject* quick_type = nullptr;

PyObject* make_quick(PyObject*, PyObject* function) {
  return guard((PyObject*)nullptr, [&]() -> PyObject* {
    PyRef name = PyRef::steal(PyObject_GetAttrString(function, "__name__"));
    const char* text = name ? PyUnicode_AsUTF8AndSize(name.get(), nullptr) : nullptr;
    if (!text) throw PythonError();
    Ordinary ordinary = nullptr;
    const char* library = nullptr;
    for (const auto& row : kConverters)
      if (!std::strcmp(row.name, text)) ordinary = row.ordinary, library = row.library;
    if (!ordinary)
      fail(Kind::Type, "quick", "a converter whose ordinary case is known here",
           repr_text(function), "add a row to kConverters");
    PyRef made = PyRef::steal(PyType_GenericAlloc(quick_type, 0));
    if (!made) throw PythonError();
    Quick* q = quick_cast(made.get());
    q->call = call_quick;
    q->ordinary = ordinary;
    q->library = library;
    q->function = PyRef::borrow(function).release();
    q->dict = PyDict_New();
    if (!q->dict || PyDict_SetItemString(q->dict, "__wrapped__", function) < 0) throw PythonError();
    for (const char* key : {"__module__", "__name__", "__qualname__", "__doc__"}) {
      PyRef value = PyRef::steal(PyObject_GetAttrString(function, key));
      if (!value || PyDict_SetItemString(q->dict, key, value.get()) < 0) throw PythonError();
    }
    return made.release();
  });
}

PyObject* set_torch(PyObject*, PyObject* args) {
  PyObject* tensor;
  int cuda;
  if (!PyArg_ParseTuple(args, "O!p", &PyType_Type, &tensor, &cuda)) return nullptr;
  Py_INCREF(tensor);
  Py_XDECREF(reinterpret_cast<PyObject*>(torch_tensor));
  torch_tensor = reinterpret_cast<PyTypeObject*>(tensor);
  torch_has_cuda = cuda;
  Py_RETURN_NONE;
}

PyMethodDef quick_functions[] = {
    {"quick", make_quick, METH_O,
     "quick(function)\n--\n\nThe converter `function`, its ordinary case served without calling "
     "it."},
    {"_set_torch", set_torch, METH_VARARGS,
     "_set_torch(tensor, cuda)\n--\n\nThe class torch.Tensor, and whether this torch has CUDA."},
    {nullptr, nullptr, 0, nullptr},
};

}  // namespace

void register_quick(nanobind::module_& m) {
  PyType_Slot slots[] = {
      {Py_tp_doc, const_cast<char*>("A converter with its ordinary case served in C.")},
      {Py_tp_call, reinterpret_cast<void*>(PyVectorcall_Call)},
      {Py_tp_traverse, reinterpret_cast<void*>(quick_traverse)},
      {Py_tp_clear, reinterpret_cast<void*>(quick_clear)},
      {Py_tp_dealloc, reinterpret_cast<void*>(dealloc)},
      {Py_tp_repr, reinterpret_cast<void*>(repr)},
      {Py_tp_descr_get, reinterpret_cast<void*>(get)},
      {Py_tp_methods, methods},
      {Py_tp_members, members},
      {0, nullptr},
  };
  PyType_Spec spec = {"gpuinterop._core.Quick", sizeof(Quick), 0,
                      Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC | Py_TPFLAGS_HAVE_VECTORCALL |
                          Py_TPFLAGS_DISALLOW_INSTANTIATION,
                      slots};
  quick_type = reinterpret_cast<PyTypeObject*>(PyType_FromSpec(&spec));
  if (!quick_type || PyModule_AddFunctions(m.ptr(), quick_functions) < 0)
    throw nanobind::python_error();
}

}  // namespace gpuinterop
