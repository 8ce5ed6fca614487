// Attributes of an array: shape, strides, dtype, device, memory.
#include <algorithm>

#include "arrays/type.hpp"
#include "interpreter/error.hpp"
#include "interpreter/error_translation.hpp"

namespace gpuinterop {

namespace {

// a * b as a Python int, even beyond 63 bits: an incomplete layout may have any values.
PyObject* product(int64_t a, int64_t b) {
  int64_t small;
  if (!__builtin_mul_overflow(a, b, &small)) return PyLong_FromLongLong(small);
  const PyRef x = PyRef::checked(PyLong_FromLongLong(a)),
              y = PyRef::checked(PyLong_FromLongLong(b));
  return PyNumber_Multiply(x.get(), y.get());
}

PyObject* get_shape(PyObject* o, void*) {
  const Layout& l = shown_layout(o);
  return int_tuple(l.ndim(), l.shape(), 1);
}

// Reshapes in place, except CudaNdarray: in Theano an array keeps its shape.
int set_shape(PyObject* o, PyObject* value, void*) {
  require_value(value, "shape");
  if (is_cudandarray(Py_TYPE(o)))
    fail(Kind::Unsupported, "shape", "a GpuArray, because a CudaNdarray keeps its shape",
         "an assignment to the shape of a CudaNdarray",
         "call x.reshape(shape), which returns a view if possible");
  reshape_in_place(o, value);
  return 0;
}
PyObject* get_strides(PyObject* o, void*) {
  const Layout& l = shown_layout(o);
  return int_tuple(l.ndim(), l.strides(), unwrap(o).itemsize());
}

// Theano's strides: in elements, 0 for axes of length 1, and for an empty array the running product with its
// zeros.
PyObject* get_element_strides(PyObject* o, void*) {
  const Layout& l = shown_layout(o);
  int64_t out[kMaxDims];
  int64_t step = 1;
  for (int i = l.ndim() - 1; i >= 0; --i) {
    const int64_t n = l.shape()[i];
    out[i] = n == 1 ? 0 : (l.size() == 0 ? step : l.strides()[i]);
    if (__builtin_mul_overflow(step, n, &step))
      step = 0;  // only in sizes for which no stride is read
  }
  return int_tuple(l.ndim(), out, 1);
}

int set_strides_scaled(PyObject* o, PyObject* value, int64_t unit, const char* where) {
  require_value(value, where);
  Array& a = unwrap(o);
  int64_t strides[kMaxDims];
  const int n = read_ints(value, strides, where, "strides");
  const Layout& shown = shown_layout(o);
  if (n != shown.ndim())
    fail_with("wrong_number_of_strides", where, {int64_t{shown.ndim()}, shape_text(n, strides)});
  for (int i = 0; i < n; ++i)
    if (strides[i] % unit)
      fail_with("strides_of_partial_elements", where, {unit, shape_text(n, strides)});
  for (int i = 0; i < n; ++i) strides[i] /= unit;
  const Layout layout(n, shown.shape(), strides);
  char* data = const_cast<char*>(shown_data(o));
  check_reach(a, layout, data, where);
  change_geometry(o, layout, data, where);
  return 0;
}
int set_strides_bytes(PyObject* o, PyObject* value, void*) {
  return set_strides_scaled(o, value, unwrap(o).itemsize(), "strides");
}
int set_strides_elements(PyObject* o, PyObject* value, void*) {
  return set_strides_scaled(o, value, 1, "_strides");
}

PyObject* get_ndim(PyObject* o, void*) { return PyLong_FromLong(shown_layout(o).ndim()); }
PyObject* get_size(PyObject* o, void*) { return PyLong_FromLongLong(shown_layout(o).size()); }
PyObject* get_nbytes(PyObject* o, void*) {
  return product(shown_layout(o).size(), unwrap(o).itemsize());
}
PyObject* get_itemsize(PyObject* o, void*) { return PyLong_FromLongLong(unwrap(o).itemsize()); }
PyObject* get_dtype(PyObject* o, void*) { return Py_NewRef(dtype_object(unwrap(o).dtype)); }
PyObject* get_device(PyObject* o, void*) { return Py_NewRef(device_object(unwrap(o).device)); }
PyObject* get_base(PyObject* o, void*) {
  PyObject* base = unwrap(o).base.get();
  return Py_NewRef(base ? base : Py_None);
}
PyObject* get_readonly(PyObject* o, void*) {
  const Array& a = unwrap(o);
  return PyBool_FromLong(a.readonly);
}
// A view may be made read-only, but foreign read-only memory stays so.
int set_readonly(PyObject* o, PyObject* value, void*) {
  Array& a = unwrap(o);
  require_value(value, "readonly");
  const int readonly = PyObject_IsTrue(value);
  if (readonly < 0) throw PythonError();
  if (!readonly && a.readonly)
    fail(Kind::ReadOnly, "readonly", "an array that is not read-only already", "a read-only array",
         "write to a copy: x.copy()");
  a.readonly = readonly;
  return 0;
}
PyObject* get_memory(PyObject* o, void*) {
  const Array& a = unwrap(o);
  if (!a.buffer) return PyUnicode_FromString(a.device.is_cuda() ? "device" : "host");
  return PyUnicode_FromString(memory_name(a.buffer->memory));
}
PyObject* get_stream(PyObject* o, void*) {
  const Array& a = unwrap(o);
  return PyLong_FromUnsignedLongLong(
      a.buffer ? reinterpret_cast<uintptr_t>(last_stream(*a.buffer.get())) : 0);
}
PyObject* get_transposed(PyObject* o, void*) {
  require_valid_layout(o);
  const Layout& l = unwrap(o).layout;
  int64_t axes[kMaxDims];
  for (int i = 0; i < l.ndim(); ++i) axes[i] = l.ndim() - 1 - i;
  return retyped_view(o, Py_TYPE(o), l.permuted(axes, l.ndim(), "T"), unwrap(o).data);
}

}  // namespace

PyObject* int_tuple(int n, const int64_t* values, int64_t scale) {
  // Creating the tuple may run the garbage collector, and with it code that changes the array.
  int64_t kept[kMaxDims];
  std::copy_n(values, n, kept);
  PyRef tuple = PyRef::checked(PyTuple_New(n));
  for (int i = 0; i < n; ++i)
    PyTuple_SetItem(tuple.get(), i, PyRef::checked(product(kept[i], scale)).release());
  return tuple.release();
}

PyGetSetDef array_getset[] = {
    {"shape", guarded<get_shape>, guarded<set_shape>,
     "Axis lengths, a tuple of int; assignment reshapes in place if class and strides allow it.",
     nullptr},
    {"strides", guarded<get_strides>, guarded<set_strides_bytes>,
     "Steps in bytes, as NumPy counts them.", nullptr},
    {"_strides", guarded<get_element_strides>, guarded<set_strides_elements>,
     "Steps in elements; 0 for axes of length 1, as in Theano.", nullptr},
    {"ndim", get_ndim, nullptr, "Number of dimensions.", nullptr},
    {"size", get_size, nullptr, "Number of elements.", nullptr},
    {"mem_size", get_size, nullptr, "Number of elements, under the name that PyCUDA reads.",
     nullptr},
    {"nbytes", guarded<get_nbytes>, nullptr, "Bytes of the elements.", nullptr},
    {"itemsize", get_itemsize, nullptr, "Bytes of one element.", nullptr},
    {"dtype", guarded<get_dtype>, nullptr, "NumPy's dtype object.", nullptr},
    {"device", guarded<get_device>, nullptr, "The device that holds the memory.", nullptr},
    {"base", get_base, nullptr, "The root owner of a view, the foreign owner, or None.", nullptr},
    {"readonly", get_readonly, guarded<set_readonly>, "True if the array cannot be written.",
     nullptr},
    {"memory", get_memory, nullptr, "'host', 'device', 'pinned' or 'managed'.", nullptr},
    {"T", guarded<get_transposed>, nullptr, "A view with the axes reversed.", nullptr},
    {"_stream", get_stream, nullptr, "Handle of the stream of the last use; 0 on the host.",
     nullptr},
    {nullptr, nullptr, nullptr, nullptr, nullptr},
};

void require_value(PyObject* value, const char* name) {
  if (!value) fail(Kind::Type, name, "a value", "a deletion", "assign a value instead");
}

}  // namespace gpuinterop
