// The Python type gpuinterop._core.Array: allocation, attributes, life and death. A plain heap type
// of the limited API rather than a nanobind class: views are made in tens of nanoseconds, and the
// garbage collector sees exactly the references that exist.
#include "python/array_type.hpp"

#include <structmember.h>

#include <new>
#include <vector>

#include "array/unwind.hpp"
#include "python/exchange_slots.hpp"
#include "python/ops_slots.hpp"
#include "python/raise.hpp"
#include "python/register.hpp"

namespace nb = nanobind;

namespace gpuinterop {

PyTypeObject* array_type = nullptr;

namespace {

struct Geometry {
  Layout layout;
  char* data;
};

struct ArrayObject {
  PyObject_HEAD PyObject* weakrefs;  // in a dying array: see unwind.hpp
  Geometry* pending;  // owned; null but between two steps of the documents' low-level setters
  Array value;
};

ArrayObject* cast(PyObject* o) noexcept { return reinterpret_cast<ArrayObject*>(o); }

ArrayObject* allocate_object(PyTypeObject* type) {
  auto* self = reinterpret_cast<ArrayObject*>(PyType_GenericAlloc(type, 0));
  if (!self) return nullptr;
  self->weakrefs = nullptr;
  self->pending = nullptr;
  new (&self->value) Array();
  return self;
}

// A bare Array.__new__(cls) is a valid empty array, so that no half-made object exists.
PyObject* array_new(PyTypeObject* type, PyObject*, PyObject*) {
  return guard((PyObject*)nullptr, [&]() -> PyObject* {
    ArrayObject* self = allocate_object(type);
    if (!self) return nullptr;
    const int64_t nothing = 0;
    self->value.layout = Layout::c_order(1, &nothing, "Array");
    statistics(self->value.device).live_arrays.fetch_add(1, std::memory_order_relaxed);
    return reinterpret_cast<PyObject*>(self);
  });
}

// Construction is done by __new__ of the Python classes.
int array_init(PyObject*, PyObject*, PyObject*) { return 0; }

void free_array(PyObject* o) {
  ArrayObject* self = cast(o);
  statistics(self->value.device).live_arrays.fetch_sub(1, std::memory_order_relaxed);
  {
    // Releasing foreign memory may run Python code; an exception on its way must survive that.
    ErrorSaver saver;
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
  unwind<free_array, [](PyObject* dead) -> PyObject*& { return cast(dead)->weakrefs; }>(o);
}

int array_traverse(PyObject* o, visitproc visit, void* arg) {
  Py_VISIT(cast(o)->value.base.get());
  Py_VISIT(Py_TYPE(o));
  return 0;
}

int array_clear(PyObject* o) {
  // The memory of a cycle's member must not be reached any more: its owner may go first.
  Array& a = cast(o)->value;
  if (a.base) {
    const Array gone = std::move(a);
    a = Array();
    const int64_t nothing = 0;
    a.layout = Layout::c_order(1, &nothing, "Array");
    a.device = gone.device;
    a.dtype = gone.dtype;
  }
  return 0;
}

template <class F>
PyObject* attribute(PyObject* self, F&& f) noexcept {
  return guard((PyObject*)nullptr, [&]() -> PyObject* { return f(cast(self)->value); });
}

// a * b as a Python int, also where it does not fit 63 bits: geometry in the making may be anything.
PyObject* product(int64_t a, int64_t b) {
  int64_t small;
  if (!__builtin_mul_overflow(a, b, &small)) return PyLong_FromLongLong(small);
  const PyRef x = PyRef::steal(PyLong_FromLongLong(a)), y = PyRef::steal(PyLong_FromLongLong(b));
  return x && y ? PyNumber_Multiply(x.get(), y.get()) : nullptr;
}

PyObject* int_tuple(int n, const int64_t* values, int64_t scale) {
  PyObject* tuple = PyTuple_New(n);
  if (!tuple) return nullptr;
  for (int i = 0; i < n; ++i) {
    PyObject* item = product(values[i], scale);
    if (!item) {
      Py_DECREF(tuple);
      return nullptr;
    }
    PyTuple_SetItem(tuple, i, item);
  }
  return tuple;
}

PyObject* new_reference(PyObject* borrowed) {
  Py_XINCREF(borrowed);
  return borrowed;
}

PyObject* get_shape(PyObject* o, void*) {
  const Layout& l = shown_layout(o);
  return int_tuple(l.ndim(), l.shape(), 1);
}
// In place, unless the class keeps the documents' rule that an array keeps its shape.
int set_shape(PyObject* o, PyObject* value, void*) {
  return guard(-1, [&] {
    if (!value) fail(Kind::Type, "shape", "a tuple of ints", "a deletion", "assign a shape");
    PyRef fixed = PyRef::steal(
        PyObject_GetAttrString(reinterpret_cast<PyObject*>(Py_TYPE(o)), "_keeps_shape"));
    if (!fixed) PyErr_Clear();
    if (fixed && PyObject_IsTrue(fixed.get()) == 1) {
      fail(Kind::Unsupported, "shape", "no assignment: a CudaNdarray keeps its shape",
           "an assignment to shape", "use x.reshape(shape), a view where possible");
    }
    reshape_in_place(o, value);
    return 0;
  });
}
PyObject* get_strides(PyObject* o, void*) {
  const Layout& l = shown_layout(o);
  return int_tuple(l.ndim(), l.strides(), cast(o)->value.itemsize());
}

// The documents' view: elements, 0 for extents of 1, and for an empty array the running product with
// its zeros.
PyObject* get_element_strides(PyObject* o, void*) {
  const Layout& l = shown_layout(o);
  int64_t out[kMaxDims];
  int64_t step = 1;
  for (int i = l.ndim() - 1; i >= 0; --i) {
    const int64_t n = l.shape()[i];
    out[i] = n == 1 ? 0 : (l.size() == 0 ? step : l.strides()[i]);
    if (__builtin_mul_overflow(step, n, &step))
      step = 0;  // only in sizes that no stride is read for
  }
  return int_tuple(l.ndim(), out, 1);
}

int set_strides_scaled(PyObject* o, PyObject* value, int64_t unit, const char* where) {
  return guard(-1, [&] {
    if (!value) fail(Kind::Type, where, "a tuple of ints", "a deletion", "assign strides");
    Array& a = cast(o)->value;
    int64_t given[kMaxDims];
    const int n = read_ints(value, given, where, "strides");
    const Layout& shown = shown_layout(o);
    if (n != shown.ndim())
      fail(Kind::Shape, where, std::to_string(shown.ndim()) + " strides, one for each dimension",
           std::to_string(n), "pass one stride for each dimension");
    for (int i = 0; i < n; ++i) {
      if (given[i] % unit)
        fail(Kind::Bounds, where,
             "strides that are multiples of the itemsize, " + std::to_string(unit),
             shape_text(n, given), "strides count bytes, _strides counts elements");
      given[i] /= unit;
    }
    const Layout layout(n, shown.shape(), given);
    char* data = const_cast<char*>(shown_data(o));
    check_reach(a, layout, data, where);
    change_geometry(o, layout, data, where);
    return 0;
  });
}
int set_strides_bytes(PyObject* o, PyObject* value, void*) {
  return set_strides_scaled(o, value, cast(o)->value.itemsize(), "strides");
}
int set_strides_elements(PyObject* o, PyObject* value, void*) {
  return set_strides_scaled(o, value, 1, "_strides");
}

PyObject* get_ndim(PyObject* o, void*) { return PyLong_FromLong(shown_layout(o).ndim()); }
PyObject* get_size(PyObject* o, void*) { return PyLong_FromLongLong(shown_layout(o).size()); }
PyObject* get_nbytes(PyObject* o, void*) {
  return product(shown_layout(o).size(), cast(o)->value.itemsize());
}
PyObject* get_itemsize(PyObject* o, void*) {
  return PyLong_FromLongLong(cast(o)->value.itemsize());
}
PyObject* get_ptr(PyObject* o, void*) {
  return PyLong_FromUnsignedLongLong(reinterpret_cast<uintptr_t>(shown_data(o)));
}
int set_ptr(PyObject* o, PyObject* value, void*) {
  return guard(-1, [&] {
    if (!value) fail(Kind::Type, "_dev_data", "an address", "a deletion", "assign an int");
    if (!PyLong_Check(value))
      fail(Kind::Type, "_dev_data", "an address", "an object of type " + type_text(value),
           "assign an int");
    const unsigned long long address = PyLong_AsUnsignedLongLong(value);
    if (PyErr_Occurred()) {
      PyErr_Clear();
      fail(Kind::Bounds, "_dev_data", "an address from 0 to 2**64 - 1", repr_text(value),
           "assign an address inside the array's memory");
    }
    change_geometry(o, shown_layout(o), reinterpret_cast<char*>(static_cast<uintptr_t>(address)),
                    "_dev_data");
    return 0;
  });
}
PyObject* get_dtype(PyObject* o, void*) {
  return new_reference(dtype_object(cast(o)->value.dtype));
}
PyObject* get_device(PyObject* o, void*) {
  return new_reference(device_object(cast(o)->value.device));
}
PyObject* get_base(PyObject* o, void*) {
  PyObject* base = cast(o)->value.base.get();
  return new_reference(base ? base : Py_None);
}
PyObject* get_readonly(PyObject* o, void*) {
  const Array& a = cast(o)->value;
  return PyBool_FromLong(a.readonly);
}
// One way only: a view may be made read-only, foreign read-only memory stays so.
int set_readonly(PyObject* o, PyObject* value, void*) {
  return guard(-1, [&] {
    Array& a = cast(o)->value;
    if (!value) fail(Kind::Type, "readonly", "True or False", "a deletion", "assign True");
    const int truth = PyObject_IsTrue(value);
    if (truth < 0) throw PythonError();
    if (!truth && a.readonly)
      fail(Kind::ReadOnly, "readonly", "an array that is not read-only already",
           "a read-only array", "write to a copy: x.copy()");
    a.readonly = truth;
    return 0;
  });
}
PyObject* get_memory(PyObject* o, void*) {
  const Array& a = cast(o)->value;
  if (!a.buffer) return PyUnicode_FromString(a.device.is_cuda() ? "device" : "host");
  switch (a.buffer->memory) {
    case Memory::Device: return PyUnicode_FromString("device");
    case Memory::Pinned: return PyUnicode_FromString("pinned");
    case Memory::Managed: return PyUnicode_FromString("managed");
    default: return PyUnicode_FromString("host");
  }
}
PyObject* get_stream(PyObject* o, void*) {
  const Array& a = cast(o)->value;
  return PyLong_FromUnsignedLongLong(a.buffer ? reinterpret_cast<uintptr_t>(a.buffer->stream) : 0);
}
PyObject* get_owns(PyObject* o, void*) {
  const Array& a = cast(o)->value;
  return PyBool_FromLong(!a.base);
}
PyObject* get_transposed(PyObject* o, void*) {
  return attribute(o, [&](const Array& a) -> PyObject* {
    require_settled(o);
    Array view = view_of(o);
    const int ndim = a.layout.ndim();
    int axes[kMaxDims];
    for (int i = 0; i < ndim; ++i) axes[i] = ndim - 1 - i;
    view.layout = a.layout.permuted(axes, ndim, "T");
    view.data = a.data;
    return wrap(Py_TYPE(o), std::move(view));
  });
}

PyGetSetDef array_getset[] = {
    {"shape", get_shape, set_shape,
     "Extents, a tuple of int; assigning reshapes in place where class and strides allow it.",
     nullptr},
    {"strides", get_strides, set_strides_bytes, "Steps in bytes, as NumPy counts them.", nullptr},
    {"_strides", get_element_strides, set_strides_elements,
     "Steps in elements; 0 for extents of 1, as the documents count them.", nullptr},
    {"ndim", get_ndim, nullptr, "Number of dimensions.", nullptr},
    {"size", get_size, nullptr, "Number of elements.", nullptr},
    {"mem_size", get_size, nullptr, "Number of elements, under the name that PyCUDA reads.",
     nullptr},
    {"nbytes", get_nbytes, nullptr, "Bytes of the elements.", nullptr},
    {"itemsize", get_itemsize, nullptr, "Bytes of one element.", nullptr},
    {"ptr", get_ptr, nullptr, "Address of element [0, ..., 0]; 0 when empty.", nullptr},
    {"gpudata", get_ptr, nullptr, "Address of element [0, ..., 0]; 0 when empty.", nullptr},
    {"_dev_data", get_ptr, set_ptr, "The address; a view may be moved inside its memory.", nullptr},
    {"dtype", get_dtype, nullptr, "NumPy's dtype object.", nullptr},
    {"device", get_device, nullptr, "The device that holds the memory.", nullptr},
    {"base", get_base, nullptr, "The root owner of a view, the foreign owner, or None.", nullptr},
    {"readonly", get_readonly, set_readonly, "True when writing is refused.", nullptr},
    {"memory", get_memory, nullptr, "'host', 'device', 'pinned' or 'managed'.", nullptr},
    {"T", get_transposed, nullptr, "A view with the axes reversed.", nullptr},
    {"_stream", get_stream, nullptr, "Handle of the stream of the last use; 0 on the host.",
     nullptr},
    {"_owns", get_owns, nullptr, "True for a root owner.", nullptr},
};

PyMemberDef array_members[] = {
    {const_cast<char*>("__weaklistoffset__"), T_PYSSIZET, offsetof(ArrayObject, weakrefs), READONLY,
     nullptr},
    {nullptr, 0, 0, 0, nullptr},
};

}  // namespace

Array& unwrap(PyObject* o) noexcept { return cast(o)->value; }

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

void require_settled(PyObject* o) {
  const Geometry* g = cast(o)->pending;
  if (!g) return;
  const Buffer* b = cast(o)->value.buffer.get();
  fail(Kind::Bounds, "array", "a shape, strides and pointer that stay inside the memory",
       "shape " + shape_text(g->layout.ndim(), g->layout.shape()) + " with strides " +
           shape_text(g->layout.ndim(), g->layout.strides()) + " (elements), " +
           std::to_string(b ? g->data - b->ptr : 0) + " bytes into " +
           std::to_string(b ? b->nbytes : 0) + " bytes",
       "finish the change of _dev_data, _set_stride and _set_shape_i, or slice: x[::-1]");
}

PyObject* wrap(PyTypeObject* type, Array&& a) {
  // Every array there is comes through here, so nbytes() never overflows; NumPy draws the same line.
  int64_t nbytes;
  if (__builtin_mul_overflow(a.layout.size(), a.itemsize(), &nbytes))
    return guard((PyObject*)nullptr, [&]() -> PyObject* {
      fail(Kind::Shape, "array", "a shape whose bytes fit 63 bits",
           "shape " + shape_text(a.layout.ndim(), a.layout.shape()), "use smaller extents");
    });
  auto* self = reinterpret_cast<ArrayObject*>(PyType_GenericAlloc(type, 0));
  if (!self) return nullptr;
  self->weakrefs = nullptr;
  self->pending = nullptr;
  statistics(a.device).live_arrays.fetch_add(1, std::memory_order_relaxed);
  if (a.layout.size() == 0) a.data = nullptr;
  new (&self->value) Array(std::move(a));  // in place: views are made in tens of nanoseconds
  return reinterpret_cast<PyObject*>(self);
}

void register_array(nb::module_& m) {
  // The type keeps pointers into these tables for the life of the process.
  static std::vector<PyMethodDef> methods;
  static std::vector<PyGetSetDef> getset;
  static std::vector<PyType_Slot> slots;
  for (const PyMethodDef* table : {array_methods, exchange_methods, ops_methods})
    for (; table->ml_name; ++table) methods.push_back(*table);
  methods.push_back({nullptr, nullptr, 0, nullptr});
  getset.assign(std::begin(array_getset), std::end(array_getset));
  for (const PyGetSetDef* g = exchange_getset; g->name; ++g) getset.push_back(*g);
  getset.push_back({nullptr, nullptr, nullptr, nullptr, nullptr});

  slots = {
      {Py_tp_doc, const_cast<char*>("A strided array in host or CUDA memory.")},
      {Py_tp_new, reinterpret_cast<void*>(array_new)},
      {Py_tp_init, reinterpret_cast<void*>(array_init)},
      {Py_tp_dealloc, reinterpret_cast<void*>(array_dealloc)},
      {Py_tp_traverse, reinterpret_cast<void*>(array_traverse)},
      {Py_tp_clear, reinterpret_cast<void*>(array_clear)},
      {Py_tp_members, array_members},
      {Py_tp_getset, getset.data()},
      {Py_tp_methods, methods.data()},
      {Py_mp_length, reinterpret_cast<void*>(array_length)},
      {Py_mp_subscript, reinterpret_cast<void*>(array_subscript)},
      {Py_mp_ass_subscript, reinterpret_cast<void*>(array_assign_subscript)},
      {Py_sq_item, reinterpret_cast<void*>(array_item)},
      {Py_tp_iter, reinterpret_cast<void*>(array_iter)},
  };
  for (const PyType_Slot* s = ops_slots; s->slot; ++s) slots.push_back(*s);
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
