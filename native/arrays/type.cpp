// The Python type gpuinterop._core.Array: allocation and deallocation. A plain heap type of the limited API
// rather than a nanobind class: views are made in tens of nanoseconds, and the garbage collector sees
// exactly the references that exist.
#include "arrays/type.hpp"

#include <structmember.h>

#include <new>
#include <optional>
#include <vector>

#include "interpreter/error_translation.hpp"
#include "interpreter/hooks.hpp"
#include "interpreter/iterative_free.hpp"
#include "interpreter/register.hpp"

namespace nb = nanobind;

namespace gpuinterop {

PyTypeObject* array_type = nullptr;

namespace {

struct Geometry {
  Layout layout;
  char* data;
};

struct ArrayObject {
  PyObject_HEAD PyObject* weakrefs;  // in a dying array: see iterative_free.hpp
  Geometry* pending;  // owned; null except between two calls of Theano's low-level setters
  Array value;
};

ArrayObject* cast(PyObject* o) noexcept { return reinterpret_cast<ArrayObject*>(o); }

Array without_elements() {
  Array a;
  const int64_t nothing = 0;
  a.layout = Layout::c_order(1, &nothing, "Array");
  return a;
}

// Array.__new__(cls) alone returns a valid empty array, so that no incomplete object exists.
PyObject* array_new(PyTypeObject* type, PyObject*, PyObject*) {
  return wrap(type, without_elements());
}

// The Python classes construct arrays in __new__.
int array_init(PyObject*, PyObject*, PyObject*) { return 0; }

void free_array(PyObject* o) {
  ArrayObject* self = cast(o);
  statistics(self->value.device).count_array(-1);
  {
    // Releasing a base or foreign memory may run Python code, so keep a pending exception.
    const Array& a = self->value;
    std::optional<ErrorSaver> saver;
    if (a.base || (a.buffer && !a.buffer->owned)) saver.emplace();
    delete self->pending;
    self->value.~Array();
  }
  PyTypeObject* type = Py_TYPE(o);
  PyObject_GC_Del(o);
  Py_DECREF(type);
}

void array_dealloc(PyObject* o) {
  PyObject_GC_UnTrack(o);
  if (cast(o)->weakrefs) PyObject_ClearWeakRefs(o);
  free_iteratively<free_array, [](PyObject* dead) -> PyObject*& { return cast(dead)->weakrefs; }>(
      o);
}

int array_traverse(PyObject* o, visitproc visit, void* arg) {
  Py_VISIT(cast(o)->value.base.get());
  Py_VISIT(Py_TYPE(o));
  return 0;
}

int array_clear(PyObject* o) {
  // A member of a cycle must not reach its memory any more, because the memory's owner may be destroyed
  // first.
  Array& a = cast(o)->value;
  if (a.base) {
    const Array gone = std::exchange(a, without_elements());
    a.device = gone.device;
    a.dtype = gone.dtype;
  }
  return 0;
}

PyMemberDef array_members[] = {
    {const_cast<char*>("__weaklistoffset__"), T_PYSSIZET, offsetof(ArrayObject, weakrefs), READONLY,
     nullptr},
    {nullptr, 0, 0, 0, nullptr},
};

// Classes of to_py_object's results, by dtype, because CudaNdarray holds only float32.
PyTypeObject* result_types[2];  // float32, any other; owned; null until the Python layer is loaded

}  // namespace

Array& unwrap(PyObject* o) noexcept { return cast(o)->value; }

PyTypeObject* result_type(DTypeId dtype) {
  if (!result_types[0]) import_module("gpuinterop.ndarray");
  if (!result_types[0]) {  // this module is being imported
    PyErr_SetString(PyExc_RuntimeError, "gpuinterop.ndarray has not set the classes of arrays yet");
    throw PythonError();
  }
  return result_types[dtype != kFloat32];
}

PyTypeObject* class_for(PyTypeObject* type, DTypeId dtype) {
  return dtype != kFloat32 && is_cudandarray(type) ? result_type(dtype) : type;
}

nanobind::handle gpuarray_class() { return reinterpret_cast<PyObject*>(result_type(kBool)); }

nanobind::tuple result_classes() {
  const auto of = [](DTypeId dtype) {
    return nanobind::handle(reinterpret_cast<PyObject*>(result_type(dtype)));
  };
  return nanobind::make_tuple(of(kFloat32), of(kBool));
}

void set_result_types(nanobind::handle float32_class, nanobind::handle other_class) {
  PyTypeObject* const types[] = {read_class(float32_class, "_set_result_types"),
                                 read_class(other_class, "_set_result_types")};
  for (int i = 0; i < 2; ++i) {
    Py_INCREF(reinterpret_cast<PyObject*>(types[i]));
    const PyRef old =
        PyRef::steal(reinterpret_cast<PyObject*>(std::exchange(result_types[i], types[i])));
  }
}

bool is_cudandarray(PyTypeObject* type) noexcept {
  return result_types[0] && PyType_IsSubtype(type, result_types[0]);
}

void require_holds(PyTypeObject* type, DTypeId dtype, const char* where, const char* cast) {
  if (dtype == kFloat32 || !is_cudandarray(type)) return;
  const nb::object name = nb::handle(reinterpret_cast<PyObject*>(type)).attr("__name__");
  fail_with("dtype_of_class", where,
            {nb::cast<std::string>(name), kDTypes[kFloat32].name, kDTypes[dtype].name, cast});
}

const Layout& shown_layout(PyObject* o) noexcept {
  return cast(o)->pending ? cast(o)->pending->layout : cast(o)->value.layout;
}
const char* shown_data(PyObject* o) noexcept {
  return cast(o)->pending ? cast(o)->pending->data : cast(o)->value.data;
}

void change_geometry(PyObject* o, const Layout& layout, char* data, const char* where) {
  ArrayObject* self = cast(o);
  if (within_memory(self->value, layout, data, where)) {
    self->value.layout = layout;
    self->value.data = layout.size() ? data : nullptr;
    delete std::exchange(self->pending, nullptr);
  } else {
    delete std::exchange(self->pending, new Geometry{layout, data});
  }
}

void require_valid_layout(PyObject* o) {
  const Geometry* g = cast(o)->pending;
  if (!g) return;
  const Buffer* b = cast(o)->value.buffer.get();
  fail(Kind::Bounds, "array", "a shape, strides and pointer that stay inside the memory",
       layout_text(g->layout) + ", " + std::to_string(b ? g->data - b->ptr : 0) + " bytes into " +
           std::to_string(b ? b->nbytes : 0) + " bytes",
       "finish the change of _dev_data, _set_stride and _set_shape_i, or slice: x[::-1]");
}

PyObject* wrap(PyTypeObject* type, Array&& a) {
  // All arrays are made by this function, so nbytes() never overflows.
  int64_t nbytes;
  if (a.layout.size() == 0 || __builtin_mul_overflow(a.layout.size(), a.itemsize(), &nbytes))
      [[unlikely]]
    require_bytes(a.layout, a.itemsize(), "array");
  auto* self = reinterpret_cast<ArrayObject*>(PyType_GenericAlloc(type, 0));
  if (!self) throw PythonError();
  self->weakrefs = nullptr;
  self->pending = nullptr;
  statistics(a.device).count_array(1);
  if (a.layout.size() == 0) a.data = nullptr;
  new (&self->value) Array(std::move(a));  // in place: views are made in tens of nanoseconds
  return reinterpret_cast<PyObject*>(self);
}

void register_array(nb::module_& m) {
  // The type keeps pointers into these tables until the process ends.
  static std::vector<PyMethodDef> methods;
  static std::vector<PyGetSetDef> getset;
  static std::vector<PyType_Slot> slots;
  for (const PyMethodDef* table : {array_methods, exchange_methods, ops_methods})
    for (; table->ml_name; ++table) methods.push_back(*table);
  methods.push_back({nullptr, nullptr, 0, nullptr});
  for (const PyGetSetDef* g = array_getset; g->name; ++g) getset.push_back(*g);
  for (const PyGetSetDef* g = exchange_getset; g->name; ++g) getset.push_back(*g);
  getset.push_back({nullptr, nullptr, nullptr, nullptr, nullptr});

  slots = {
      {Py_tp_doc, const_cast<char*>("A strided array in host or CUDA memory.")},
      {Py_tp_new, slot(guarded<array_new>)},
      {Py_tp_init, slot(array_init)},
      {Py_tp_dealloc, slot(array_dealloc)},
      {Py_tp_traverse, slot(array_traverse)},
      {Py_tp_clear, slot(array_clear)},
      {Py_tp_members, array_members},
      {Py_tp_getset, getset.data()},
      {Py_tp_methods, methods.data()},
      {Py_mp_length, slot(guarded<array_length>)},
      {Py_mp_subscript, slot(guarded<array_subscript>)},
      {Py_mp_ass_subscript, slot(guarded<array_assign_subscript>)},
      {Py_sq_item, slot(guarded<array_item>)},
      {Py_tp_iter, slot(guarded<array_iter>)},
  };
  for (const PyType_Slot* table : {exchange_slots, ops_slots, product_slots})
    for (const PyType_Slot* s = table; s->slot; ++s) slots.push_back(*s);
  slots.push_back({0, nullptr});

  PyType_Spec spec = {"gpuinterop._core.Array", sizeof(ArrayObject), 0,
                      Py_TPFLAGS_DEFAULT | Py_TPFLAGS_BASETYPE | Py_TPFLAGS_HAVE_GC, slots.data()};
  PyObject* type = PyType_FromSpec(&spec);
  if (!type) throw nb::python_error();
  array_type = reinterpret_cast<PyTypeObject*>(type);
  m.attr("Array") = nb::handle(type);
  register_array_functions(m);
}

}  // namespace gpuinterop
