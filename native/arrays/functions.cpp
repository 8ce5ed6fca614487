// The module's functions around arrays. None of them is called in a loop.

#include <dlpack/dlpack.h>
#include <nanobind/stl/optional.h>

#include <algorithm>
#include <cstring>
#include <optional>
#include <string_view>
#include <utility>
#include <vector>

#include "arrays/type.hpp"
#include "devices/pinned.hpp"
#include "interpreter/error.hpp"
#include "interpreter/error_translation.hpp"
#include "interpreter/gil.hpp"
#include "interpreter/hooks.hpp"
#include "interpreter/text_arguments.hpp"

namespace nb = nanobind;

namespace gpuinterop {

namespace {

PyObject* dtype_objects[64] = {};

}  // namespace

Array& read_array(nb::handle o, const char* where) {
  if (!is_array(o.ptr()))
    fail_with("not_an_array", where, {"an argument", "an object of type " + type_text(o.ptr())});
  require_valid_layout(o.ptr());
  return unwrap(o.ptr());
}

PyObject* dtype_object(DTypeId id) {
  PyObject*& cached = dtype_objects[id];
  if (!cached) cached = call_hook(Hook::Dtype, "(i)", int(id)).release();
  return cached;
}

PyTypeObject* read_class(nb::handle cls, const char* where) {
  if (!PyType_Check(cls.ptr()) ||
      !PyType_IsSubtype(reinterpret_cast<PyTypeObject*>(cls.ptr()), array_type))
    fail(Kind::Type, where, "a subclass of gpuinterop._core.Array", repr_text(cls.ptr()),
         "pass CudaNdarray or GpuArray");
  return reinterpret_cast<PyTypeObject*>(cls.ptr());
}

DTypeId read_dtype(nb::handle dtype, const char* where) {
  if (!PyLong_CheckExact(dtype.ptr())) {
    for (int i = 0; i < kDTypeCount; ++i)
      if (dtype_objects[i] == dtype.ptr()) return static_cast<DTypeId>(i);
    // Names and NumPy's classes, of which there are few, keep their meaning.
    static PyObject* const known = PyRef::checked(PyDict_New()).release();
    const bool keeps = PyUnicode_CheckExact(dtype.ptr()) || Py_TYPE(dtype.ptr()) == &PyType_Type;
    if (keeps)
      if (PyObject* const id = PyDict_GetItem(known, dtype.ptr()))
        return static_cast<DTypeId>(PyLong_AsLong(id));
    const PyRef found = call_hook(Hook::Dtype, "(Os)", dtype.ptr(), where);
    if (keeps && PyDict_Size(known) < 256 && PyDict_SetItem(known, dtype.ptr(), found.get()) < 0)
      throw PythonError();
    return static_cast<DTypeId>(PyLong_AsLong(found.get()));
  }
  const int64_t id = as_int64(dtype.ptr(), where);
  if (id < 0 || id >= kDTypeCount)
    fail(Kind::DType, where, "the id of a dtype", std::to_string(id), "pass a numpy dtype");
  return static_cast<DTypeId>(id);
}

namespace {

nb::object empty_of_shape(nb::handle cls, const Array& x, nb::handle dtype,
                          const std::string& order, const char* where) {
  PyTypeObject* type = read_class(cls, where);
  const DTypeId id = read_dtype(dtype, where);
  require_holds(type, id, where);
  Layout layout = layout_of_copy(x.layout, order, where);
  return nb::steal(wrap(type, make_empty(x.device, id, std::move(layout), where)));
}

nb::object pinned_bytes(int ordinal, int64_t nbytes) {
  Array a;
  a.dtype = kUInt8;
  a.layout = Layout::c_order(1, &nbytes, "pinned_empty");
  a.buffer = cuda::allocate_pinned(ordinal, nbytes, "pinned_empty");
  a.data = a.buffer->ptr;
  return nb::steal(wrap(array_type, std::move(a)));
}

}  // namespace

void register_array_functions(nb::module_& m) {
  using namespace nb::literals;
  m.def(
      "is_array", [](nb::handle x) { return is_array(x.ptr()); }, "x"_a.none(),
      "Return whether `x` itself is an array; a weak proxy or a mock only reports such a class.");
  m.def(
      "_others_over",
      [](nb::handle x) {
        const Array& a = unwrap(x.ptr());
        if (!a.buffer) return 0;
        const bool named =  // the owner, which the view keeps
            a.base && is_array(a.base.get()) && unwrap(a.base.get()).buffer.get() == a.buffer.get();
        return int(a.buffer->refs.load(std::memory_order_relaxed)) - 1 - named;
      },
      "array"_a,
      "Return how many other arrays and exports keep the memory, the owner that a view keeps "
      "aside.");
  m.def("_empty_like", &empty_of_shape, "cls"_a, "x"_a, "dtype"_a, "order"_a, "where"_a,
        "Return an uninitialized array on the device of `x`, of its shape, in one of NumPy's "
        "orders.");
  m.def(
      "read_ints",
      [](nb::handle value, const char* where, const char* what) {
        int64_t given[kMaxDims];
        const int n = read_ints(value.ptr(), given, where, what);
        return nb::steal<nb::tuple>(int_tuple(n, given, 1));
      },
      "value"_a.none(), "where"_a = "shape", "what"_a = "shape",
      "Return a shape, given as an int or a sequence of ints, as a tuple of ints.");
  m.def(
      "c_strides",
      [](nb::handle shape, int64_t itemsize) {
        int64_t extents[kMaxDims];
        const int n = read_ints(shape.ptr(), extents, "strides", "shape");
        const Layout layout = Layout::c_order(n, extents, "strides");
        return nb::steal<nb::tuple>(int_tuple(n, layout.strides(), itemsize));
      },
      "shape"_a, "itemsize"_a,
      "Return the byte strides of a C-contiguous array; with itemsize 1, strides in elements.");
  m.def(
      "_first_gap",
      [](nb::handle shape, nb::handle strides, int64_t itemsize,
         bool by_rows) -> std::optional<int> {
        int64_t extents[kMaxDims], steps[kMaxDims];
        const int n = read_ints(shape.ptr(), extents, "strides", "shape");
        if (read_ints(strides.ptr(), steps, "strides", "strides") != n)
          throw nb::value_error("a stride of each axis expected");
        const int axis = first_gap(n, extents, steps, by_rows, itemsize);
        return axis < 0 ? std::nullopt : std::optional(axis);
      },
      "shape"_a, "strides"_a, "itemsize"_a, "by_rows"_a,
      "Return the first axis, from the innermost on, whose byte stride is not that of contiguous "
      "memory.");
  m.def(
      "broadcast_shapes",
      [](nb::sequence shapes, const char* where) {
        int64_t extents[kMaxDims], found[kMaxDims];
        int ndim = 0;
        for (nb::handle shape : shapes) {
          const int n = read_ints(shape.ptr(), extents, where, "shape");
          ndim = broadcast_shapes(ndim, found, n, extents, found, where);
        }
        return nb::steal<nb::tuple>(int_tuple(ndim, found, 1));
      },
      "shapes"_a, "where"_a, "Return the shape to which all of `shapes` broadcast.");
  m.def(
      "alignment_of",
      [](nb::handle dtype, int device_type) {
        return alignment_of(read_dtype(dtype, "alignment_of"),
                            read_device(device_type, 0, "alignment_of"));
      },
      "dtype"_a, "device_type"_a, "Return the alignment of a dtype's elements in bytes.");
  m.def(
      "view",
      [](nb::handle cls, nb::handle x) {
        PyTypeObject* type = read_class(cls, "view");
        const Array& a = read_array(x, "view");
        require_holds(type, a.dtype, "view");
        return nb::steal(retyped_view(x.ptr(), type, a.layout, a.data));
      },
      "cls"_a, "x"_a, "Return a view of another class.");
  m.def(
      "adopt",
      [](nb::handle cls, Array same) {
        PyTypeObject* type = read_class(cls, "adopt");
        require_holds(type, same.dtype, "adopt");
        return nb::steal(wrap(type, std::move(same)));
      },
      "cls"_a, "x"_a, "Return the same array as an object of another class, with the same base.");
  m.def("pinned_bytes", &pinned_bytes,
        nb::sig("def pinned_bytes(ordinal: int, nbytes: int) -> Array"), nb::arg("ordinal"),
        nb::arg("nbytes"), "Return pinned host memory, at least one byte.");
  m.attr("MAX_DIMS") = kMaxDims;
  nb::list names;
  for (int id = 0; id < kDTypeCount; ++id) names.append(kDTypes[id].name);
  m.attr("DTYPE_NAMES") = nb::tuple(names);  // by id
}

}  // namespace gpuinterop
