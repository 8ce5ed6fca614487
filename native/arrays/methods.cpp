// Methods of the Array type that the Python layers build on.
#include <algorithm>
#include <string_view>

#include "arrays/type.hpp"
#include "interpreter/error.hpp"
#include "interpreter/error_translation.hpp"
#include "interpreter/gil.hpp"
#include "interpreter/parameters.hpp"

namespace nb = nanobind;

namespace gpuinterop {

namespace {

// ---- methods (fast call) -----------------------------------------------------------------------

void expect_args(Py_ssize_t nargs, Py_ssize_t wanted, const char* name) {
  if (nargs == wanted) return;
  PyErr_Format(PyExc_TypeError, "%s takes %zd arguments (%zd given)", name, wanted, nargs);
  throw PythonError();
}

PyObject* is_c_contiguous(PyObject* self, PyObject*) {
  return PyBool_FromLong(shown_layout(self).is_c_contiguous());
}
PyObject* is_f_contiguous(PyObject* self, PyObject*) {
  return PyBool_FromLong(shown_layout(self).is_f_contiguous());
}

PyObject* view(PyObject* self, PyObject*) {
  const Array& a = read_array(self, "view");
  return retyped_view(self, Py_TYPE(self), a.layout, a.data);
}

PyObject* view_of_axes(PyObject* self, int n, int64_t* axes) {
  const Array& a = read_array(self, "transpose");
  for (int i = 0; i < n; ++i) axes[i] = count_axis(axes[i], a.layout.ndim(), "transpose");
  return retyped_view(self, Py_TYPE(self), a.layout.permuted(axes, n, "transpose"), a.data);
}

// Null when strides forbid the shape.
PyObject* view_of_shape(PyObject* self, int n, int64_t* shape) {
  const Array& a = read_array(self, "reshape");
  resolve_minus_one(n, shape, a.layout.size(), "reshape");
  Layout layout;
  if (!a.layout.reshaped(n, shape, &layout, "reshape")) return nullptr;
  return retyped_view(self, Py_TYPE(self), std::move(layout), a.data);
}

// The axes must be a permutation.
PyObject* permuted(PyObject* self, PyObject* value) {
  int64_t axes[kMaxDims];
  return view_of_axes(self, read_ints(value, axes, "transpose", "axes"), axes);
}

// A view of the new shape, or None when strides forbid one.
PyObject* reshaped(PyObject* self, PyObject* value) {
  int64_t shape[kMaxDims];
  PyObject* const view = view_of_shape(self, read_ints(value, shape, "reshape", "shape"), shape);
  return view ? view : PyRef::borrow(Py_None).release();
}

// ---- calls without options, which a loop may contain; the others go to a method of gpuinterop/arrays/views.py -----------

PyObject* call_own(PyObject* self, const char* method, PyObject* const* args, Py_ssize_t nargs,
                   PyObject* names) {
  const PyRef function = PyRef::checked(PyObject_GetAttrString(self, method));
  return PyObject_Vectorcall(function.get(), args, size_t(nargs), names);
}

// f(2, 3), f((2, 3)), f([2, 3]) or f(6), with ints of Python: their number; -1 for other arguments.
int ints_given(PyObject* const* args, Py_ssize_t nargs, PyObject* names, int64_t* out,
               const char* where, const char* what) {
  if (names || nargs < 1 || nargs > kMaxDims) return -1;
  if (nargs == 1 && (PyTuple_CheckExact(args[0]) || PyList_CheckExact(args[0])))
    return read_ints(args[0], out, where, what);
  for (Py_ssize_t i = 0; i < nargs; ++i) {
    if (!PyLong_CheckExact(args[i])) return -1;
    out[i] = as_int64(args[i], where);
  }
  return static_cast<int>(nargs);
}

PyObject* reshape(PyObject* self, PyObject* const* args, Py_ssize_t nargs, PyObject* names) {
  int64_t shape[kMaxDims];
  const int n = ints_given(args, nargs, names, shape, "reshape", "shape");
  if (n >= 0)
    if (PyObject* view = view_of_shape(self, n, shape)) return view;
  return call_own(self, "_reshape_with", args, nargs, names);
}

PyObject* ravel(PyObject* self, PyObject* const* args, Py_ssize_t nargs, PyObject* names) {
  int64_t shape[] = {-1};
  if (!names && !nargs)
    if (PyObject* view = view_of_shape(self, 1, shape)) return view;
  return call_own(self, "_ravel_with", args, nargs, names);
}

PyObject* transpose(PyObject* self, PyObject* const* args, Py_ssize_t nargs, PyObject* names) {
  int64_t axes[kMaxDims];
  int n = ints_given(args, nargs, names, axes, "transpose", "axes");
  const int ndim = read_array(self, "transpose").layout.ndim();
  if (!names && !nargs)
    for (n = 0; n < ndim; ++n) axes[n] = ndim - 1 - n;
  else if (n <= 0)
    return call_own(self, "_transpose_with", args, nargs, names);
  return view_of_axes(self, n, axes);
}

PyObject* broadcast_to(PyObject* self, PyObject* value) {
  int64_t shape[kMaxDims];
  const int n = read_ints(value, shape, "broadcast_to", "shape");
  const Array& a = read_array(self, "broadcast_to");
  Array view = view_of(self);
  view.layout = a.layout.broadcast_to(n, shape, "broadcast_to");
  require_bytes(view.layout, a.itemsize(), "broadcast_to");
  view.data = a.data;
  // Several indices may reach one element, so the result of a write would be undefined.
  view.readonly = true;
  return wrap(Py_TYPE(self), std::move(view));
}

// _restrided(shape, strides in elements, offset in elements): a checked view of the same memory.
PyObject* restrided(PyObject* self, PyObject* const* args, Py_ssize_t nargs) {
  expect_args(nargs, 3, "_restrided");
  const Array& a = read_array(self, "as_strided");
  int64_t shape[kMaxDims], strides[kMaxDims];
  const int n = read_ints(args[0], shape, "as_strided", "shape");
  if (read_ints(args[1], strides, "as_strided", "strides") != n)
    fail_with("wrong_number_of_strides", "as_strided", {int64_t{n}, repr_text(args[1])});
  const int64_t offset = as_int64(args[2], "as_strided");
  int64_t bytes;
  if (__builtin_mul_overflow(offset, a.itemsize(), &bytes))
    fail(Kind::Bounds, "as_strided", "an offset that fits 63 bits", repr_text(args[2]),
         "pass an offset inside the memory");
  Layout layout(n, shape, strides);
  char* data = reinterpret_cast<char*>(reinterpret_cast<uintptr_t>(a.data) + bytes);
  check_reach(a, layout, data, "as_strided");
  return retyped_view(self, Py_TYPE(self), std::move(layout), data);
}

// _reinterpreted(dtype, shape, strides in elements of the dtype, offset in bytes): a checked view of the same memory.
PyObject* reinterpreted(PyObject* self, PyObject* const* args, Py_ssize_t nargs) {
  expect_args(nargs, 4, "_reinterpreted");
  const Array& a = read_array(self, "view");
  Array view = view_of(self);
  view.dtype = read_dtype(args[0], "view");
  int64_t shape[kMaxDims], strides[kMaxDims];
  const int n = read_ints(args[1], shape, "view", "shape");
  if (read_ints(args[2], strides, "view", "strides") != n)
    fail_with("wrong_number_of_strides", "view", {int64_t{n}, repr_text(args[2])});
  view.layout = Layout(n, shape, strides);
  const auto address = reinterpret_cast<uintptr_t>(a.data) + as_int64(args[3], "view");
  view.data = reinterpret_cast<char*>(address);
  check_reach(view, view.layout, view.data, "view");
  if (view.layout.size() && address % alignment_of(view.dtype, view.device))
    fail_with("misaligned", "view", {view.itemsize(), std::to_string(address)});
  // A CudaNdarray holds float32 alone.
  PyTypeObject* const type = Py_TYPE(self);
  return wrap(is_cudandarray(type) ? result_type(view.dtype) : type, std::move(view));
}

// An independent contiguous copy on the same device.
PyObject* copy_of(PyObject* self, std::string_view order, const char* where) {
  // By value: allocating may let other threads run.
  const Array a = unwrap(self);
  Array copy = make_empty(a.device, a.dtype, layout_of_copy(a.layout, order, where), where);
  copy_elements(copy, a, where);
  return wrap(Py_TYPE(self), std::move(copy));
}

PyObject* copy(PyObject* self, PyObject* const* args, Py_ssize_t nargs, PyObject* names) {
  require_valid_layout(self);
  static const Parameters parameters("copy", "order", 0);
  PyObject* const value = parameters.read(args, nargs, names)[0];
  if (!value) return copy_of(self, "C", "copy");
  Py_ssize_t length = 0;
  const char* order = PyUnicode_Check(value) ? PyUnicode_AsUTF8AndSize(value, &length) : nullptr;
  if (!order) {
    forgive();  // text that is not UTF-8
    fail_with("wrong_order", "copy", {"CFAK", repr_text(value)});
  }
  return copy_of(self, {order, static_cast<size_t>(length)}, "copy");
}

// _copied(where, order="C"): a copy for a function of another name.
PyObject* copied(PyObject* self, PyObject* const* args, Py_ssize_t nargs) {
  if (nargs != 1) expect_args(nargs, 2, "_copied");
  require_valid_layout(self);
  const char* name = PyUnicode_AsUTF8AndSize(args[0], nullptr);
  const char* order = nargs > 1 ? PyUnicode_AsUTF8AndSize(args[1], nullptr) : "C";
  if (!name || !order) throw PythonError();
  return copy_of(self, order, name);
}

// fill(value)
PyObject* fill(PyObject* self, PyObject* value) {
  require_valid_layout(self);
  if (!is_array(value) && !PyNumber_Check(value))
    fail(Kind::ConversionType, "fill", "one number", repr_text(value),
         "pass a number, or assign an array that broadcasts: x[...] = values");
  const Array target = unwrap(self);  // by value: reading the value may run Python code
  assign(target, Py_TYPE(self), value, "fill");
  Py_RETURN_NONE;
}

// _memory_order(): see read_memory_order.
PyObject* memory_order(PyObject* self, PyObject*) {
  const Layout& l = read_array(self, "memory order").layout;
  int64_t order[kMaxDims];
  const Layout* const layouts[] = {&l};
  read_memory_order(l.ndim(), layouts, 1, order);
  return int_tuple(l.ndim(), order, 1);
}

PyObject* set_stride(PyObject* self, PyObject* const* args, Py_ssize_t nargs) {
  expect_args(nargs, 2, "_set_stride");
  // Read the numbers first, because their __index__ may run code that changes the array.
  const int64_t axis = as_int64(args[0], "_set_stride"), stride = as_int64(args[1], "_set_stride");
  Layout layout = shown_layout(self);
  layout.strides()[count_axis(axis, layout.ndim(), "_set_stride")] = stride;
  layout.finish("_set_stride");
  change_geometry(self, layout, const_cast<char*>(shown_data(self)), "_set_stride");
  Py_RETURN_NONE;
}

PyObject* set_shape_i(PyObject* self, PyObject* const* args, Py_ssize_t nargs) {
  expect_args(nargs, 2, "_set_shape_i");
  const int64_t axis = as_int64(args[0], "_set_shape_i"), n = as_int64(args[1], "_set_shape_i");
  Layout layout = shown_layout(self);
  layout.shape()[count_axis(axis, layout.ndim(), "_set_shape_i")] = n;
  layout.finish("_set_shape_i");
  if (layout.size() == 0) require_bytes(layout, unwrap(self).itemsize(), "_set_shape_i");
  const char* data = shown_data(self);
  // An array that was empty has no address; its memory begins where the buffer does.
  if (!data && unwrap(self).buffer) data = unwrap(self).buffer->ptr;
  change_geometry(self, layout, const_cast<char*>(data), "_set_shape_i");
  Py_RETURN_NONE;
}

}  // namespace

PyMethodDef array_methods[] = {
    {"is_c_contiguous", is_c_contiguous, METH_NOARGS,
     "is_c_contiguous($self, /)\n--\n\n"
     "True if the elements are in C order without gaps; axes of length 1 do not count.\n"
     "\n"
     "Examples\n--------\n"
     ">>> import gpuinterop\n"
     ">>> x = gpuinterop.ones((2, 3), device='cpu')\n"
     ">>> x.is_c_contiguous(), x.T.is_c_contiguous()\n"
     "(True, False)"},
    {"is_f_contiguous", is_f_contiguous, METH_NOARGS,
     "is_f_contiguous($self, /)\n--\n\n"
     "True if the elements are in column order without gaps; axes of length 1 do not count.\n"
     "\n"
     "Examples\n--------\n"
     ">>> import gpuinterop\n"
     ">>> x = gpuinterop.ones((2, 3), device='cpu')\n"
     ">>> x.is_f_contiguous(), x.T.is_f_contiguous()\n"
     "(False, True)"},
    {"view", guarded<view>, METH_NOARGS,
     "view($self, /)\n--\n\n"
     "Return another array object over the same memory."},
    {"_permuted", guarded<permuted>, METH_O, "View with the axes in another order."},
    {"_reshaped", guarded<reshaped>, METH_O,
     "View under another shape, or None when strides forbid one."},
    {"reshape", as_method(guarded<reshape>), METH_FASTCALL | METH_KEYWORDS,
     "reshape($self, /, *shape, order='C', copy=None)\n--\n\n"
     "Return the elements, in C order (or F), in another shape; one length may be -1.\n"
     "\n"
     "Order 'A' means F for an array that is F-contiguous and not C-contiguous. Shares memory\n"
     "where strides allow it and copies otherwise. ``copy=False`` raises instead of copying,\n"
     "``copy=True`` always copies."},
    {"ravel", as_method(guarded<ravel>), METH_FASTCALL | METH_KEYWORDS,
     "ravel($self, /, order='C')\n--\n\n"
     "Return the elements as a vector, in order 'C', 'F', 'A' or 'K' (the order in memory).\n"
     "\n"
     "Shares memory where strides allow it."},
    {"transpose", as_method(guarded<transpose>), METH_FASTCALL | METH_KEYWORDS,
     "transpose($self, /, *axes)\n--\n\n"
     "Return a view with the axes reversed, or in the order given."},
    {"_broadcast_to", guarded<broadcast_to>, METH_O, "Read-only view repeated to a larger shape."},
    {"_reinterpreted", as_method(guarded<reinterpreted>), METH_FASTCALL,
     "A view of the same memory as elements of another dtype: shape, strides in its elements, "
     "offset in bytes."},
    {"_restrided", as_method(guarded<restrided>), METH_FASTCALL,
     "Checked view: shape, strides and offset in elements."},
    {"copy", as_method(guarded<copy>), METH_FASTCALL | METH_KEYWORDS,
     "copy($self, /, order='C')\n--\n\n"
     "Return an independent contiguous copy, in C order or another of NumPy's orders.\n"
     "\n"
     "Examples\n--------\n"
     ">>> import gpuinterop\n"
     ">>> x = gpuinterop.ones((2, 3), device='cpu')\n"
     ">>> x.T.strides, x.T.copy().strides\n"
     "((4, 12), (8, 4))"},
    {"fill", guarded<fill>, METH_O,
     "fill($self, value, /)\n--\n\nSet every element to one value.\n"
     "\n"
     "Examples\n--------\n"
     ">>> import gpuinterop\n"
     ">>> x = gpuinterop.ones(3, device='cpu')\n"
     ">>> x.fill(7)\n"
     ">>> x.tolist()\n"
     "[7.0, 7.0, 7.0]"},
    {"_copied", as_method(guarded<copied>), METH_FASTCALL,
     "Copy in an order for the function that is named."},
    {"_memory_order", guarded<memory_order>, METH_NOARGS,
     "The axes from the longest step to the shortest."},
    {"_set_stride", as_method(guarded<set_stride>), METH_FASTCALL,
     "Set the stride of one axis, in elements, in place."},
    {"_set_shape_i", as_method(guarded<set_shape_i>), METH_FASTCALL,
     "Set one axis length in place."},
    {nullptr, nullptr, 0, nullptr},
};

void reshape_in_place(PyObject* self, PyObject* value) {
  require_valid_layout(self);
  int64_t shape[kMaxDims];
  const int n = read_ints(value, shape, "shape", "shape");
  Array& a = unwrap(self);
  resolve_minus_one(n, shape, a.layout.size(), "shape");
  Layout layout;
  if (!a.layout.reshaped(n, shape, &layout, "shape"))
    fail(Kind::Contiguity, "shape", "strides that allow another shape without a copy",
         layout_text(a.layout), "call x.reshape(shape), which copies if necessary");
  require_bytes(layout, a.itemsize(), "shape");
  a.layout = std::move(layout);
}

PyObject* retyped_view(PyObject* self, PyTypeObject* type, Layout layout, char* data) {
  Array view = view_of(self);
  view.layout = std::move(layout);
  view.data = data;
  return wrap(type, std::move(view));
}

int64_t as_int64(PyObject* o, const char* where) {
  const long long v = PyLong_AsLongLong(o);
  if (v == -1 && PyErr_Occurred()) {
    const bool no_int = !PyIndex_Check(o);
    if (!no_int && !PyErr_ExceptionMatches(PyExc_OverflowError)) throw PythonError();
    PyErr_Clear();
    if (no_int) fail_with("not_an_int", where, {where, repr_text(o)});
    fail(Kind::Bounds, where, "an int that fits 63 bits", repr_text(o), "pass a smaller value");
  }
  return v;
}

int read_ints(PyObject* value, int64_t* out, const char* where, const char* what) {
  if (PyIndex_Check(value) && !PyTuple_Check(value) && !PyBool_Check(value)) {
    PyRef number = PyRef::steal(PyNumber_Index(value));
    if (!number) {
      if (!PyErr_ExceptionMatches(PyExc_TypeError)) throw PythonError();
      PyErr_Clear();
    } else {
      out[0] = as_int64(number.get(), where);
      return 1;
    }
  }
  // Text and bytes are sequences, but not of numbers; sets and dicts have no order.
  const bool listed = PySequence_Check(value) && !PyUnicode_Check(value) && !PyBytes_Check(value) &&
                      !PyByteArray_Check(value);
  PyRef fast = listed ? PyRef::steal(PySequence_Tuple(value)) : PyRef();
  if (!fast) {
    // As below: other errors of the sequence itself reach the caller.
    if (PyErr_Occurred() && !PyErr_ExceptionMatches(PyExc_TypeError)) throw PythonError();
    PyErr_Clear();
    fail_with("not_ints", where, {what, repr_text(value)});
  }
  const Py_ssize_t n = PyTuple_Size(fast.get());
  if (n > kMaxDims) fail_with("too_many_dimensions", where, {int64_t{kMaxDims}, int64_t{n}});
  for (Py_ssize_t i = 0; i < n; ++i) {
    PyObject* item = PyTuple_GetItem(fast.get(), i);
    PyRef number = PyBool_Check(item) ? PyRef() : PyRef::steal(PyNumber_Index(item));
    if (!number) {
      // Other errors of the object's own __index__ reach the caller, such as an interrupt.
      if (PyErr_Occurred() && !PyErr_ExceptionMatches(PyExc_TypeError)) throw PythonError();
      PyErr_Clear();
      fail_with("not_ints", where, {what, repr_text(value)});
    }
    out[i] = as_int64(number.get(), where);
  }
  return static_cast<int>(n);
}

Layout layout_of_copy(const Layout& l, std::string_view order, const char* where) {
  if (order.size() != 1 || std::string_view("CFAK").find(order) == order.npos)
    fail_with("wrong_order", where, {"CFAK", "'" + std::string(order) + "'"});
  const Layout* const layouts[] = {&l};
  if (order == "K") return Layout::in_memory_order(l.ndim(), l.shape(), layouts, 1, where);
  const bool columns =
      order == "F" || (order == "A" && l.is_f_contiguous() && !l.is_c_contiguous());
  return columns ? Layout::f_order(l.ndim(), l.shape(), where)
                 : Layout::c_order(l.ndim(), l.shape(), where);
}

int count_axis(int64_t axis, int ndim, const char* where) {
  if (axis < -ndim || axis >= ndim) fail_with("axis_out_of_range", where, {axis, int64_t{ndim}});
  return static_cast<int>(axis < 0 ? axis + ndim : axis);
}

bool within_memory(const Array& a, const Layout& layout, const char* data, const char* where) {
  if (layout.size() == 0) return true;
  const Buffer* b = a.buffer.get();
  if (!b) return false;
  const auto [lo, hi] = layout.span(where);
  // In 128 bits: a very large offset must not wrap round into the memory.
  const __int128 item = a.itemsize();
  if (layout.size() * item > INT64_MAX) return false;  // zero strides reach far in little memory
  const __int128 start = static_cast<__int128>(reinterpret_cast<uintptr_t>(data)) -
                         static_cast<__int128>(reinterpret_cast<uintptr_t>(b->ptr));
  if (b->nbytes < 0) return true;  // raw foreign pointer: the caller guarantees its validity
  return start + lo * item >= 0 && start + hi * item + item <= b->nbytes;
}

void check_aligned(uint64_t address, DTypeId dtype, Device device, const char* where) {
  const uint64_t step = alignment_of(dtype, device);
  if (address % step)
    fail(Kind::Bounds, where,
         std::string("an address aligned for ") + kDTypes[dtype].name + ", a multiple of " +
             std::to_string(step),
         std::to_string(address), "pass an aligned address");
}

void check_reach(const Array& a, const Layout& layout, const char* data, const char* where) {
  if (within_memory(a, layout, data, where)) return;
  fail(Kind::Bounds, where, "a shape and strides that stay inside the memory",
       layout_text(layout) + " of " + std::to_string(a.itemsize()) + " bytes each over " +
           std::to_string(a.buffer ? a.buffer->nbytes : 0) + " bytes",
       "pass strides that stay inside the array; x.strides counts bytes, x._strides elements");
}

}  // namespace gpuinterop
