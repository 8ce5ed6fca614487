// Methods of the Array type that the Python layers build on, and the module's cold functions.
#include <nanobind/stl/string.h>

#include <algorithm>
#include <string_view>

#include "array/error.hpp"
#include "python/array_type.hpp"
#include "python/raise.hpp"

namespace nb = nanobind;

namespace gpuinterop {

namespace {

struct Hook {
  const char* name;
  PyObject* callable;  // owned, for the life of the process
};
Hook hooks[] = {{"dtype", nullptr}, {"dtype_row", nullptr}, {"device", nullptr},
                {"source", nullptr}, {"copy", nullptr}};

PyObject* dtype_objects[64] = {};
PyObject* device_objects[2][64] = {};

PyObject* wrap_or_throw(PyTypeObject* type, Array&& a) {
  PyObject* o = wrap(type, std::move(a));
  if (!o) throw PythonError();
  return o;
}

PyObject* retyped_view(PyObject* self, PyTypeObject* type, Layout layout, char* data) {
  Array view = view_of(self);
  view.layout = std::move(layout);
  view.data = data;
  return wrap_or_throw(type, std::move(view));
}

// ---- methods (fast call) -----------------------------------------------------------------------

#define GI_METHOD(name) PyObject* name(PyObject* self, PyObject* const* args, Py_ssize_t nargs)

bool expect_args(Py_ssize_t nargs, Py_ssize_t wanted, const char* name) {
  if (nargs == wanted) return true;
  PyErr_Format(PyExc_TypeError, "%s takes %zd arguments (%zd given)", name, wanted, nargs);
  return false;
}

PyObject* is_c_contiguous(PyObject* self, PyObject*) {
  return PyBool_FromLong(unwrap(self).layout.is_c_contiguous());
}
PyObject* is_f_contiguous(PyObject* self, PyObject*) {
  return PyBool_FromLong(unwrap(self).layout.is_f_contiguous());
}

PyObject* view(PyObject* self, PyObject*) {
  return guard((PyObject*)nullptr, [&] {
    require_settled(self);
    const Array& a = unwrap(self);
    return retyped_view(self, Py_TYPE(self), a.layout, a.data);
  });
}

// The axes must be a permutation.
PyObject* permuted(PyObject* self, PyObject* value) {
  return guard((PyObject*)nullptr, [&] {
    require_settled(self);
    int64_t given[kMaxDims];
    int axes[kMaxDims];
    const int n = read_ints(value, given, "transpose", "axes");
    const Array& a = unwrap(self);
    for (int i = 0; i < n; ++i) {
      const int64_t axis = given[i] < 0 ? given[i] + a.layout.ndim() : given[i];
      axes[i] = axis < 0 || axis >= kMaxDims ? kMaxDims : static_cast<int>(axis);
      if (axis < 0 || axis >= a.layout.ndim())
        fail(Kind::Shape, "transpose",
             "axes from " + std::to_string(-a.layout.ndim()) + " to " +
                 std::to_string(a.layout.ndim() - 1),
             "axes " + shape_text(n, given), "pass a permutation of the axes");
    }
    return retyped_view(self, Py_TYPE(self), a.layout.permuted(axes, n, "transpose"), a.data);
  });
}

// A view of the new shape, or None when strides forbid one.
PyObject* reshaped(PyObject* self, PyObject* value) {
  return guard((PyObject*)nullptr, [&]() -> PyObject* {
    require_settled(self);
    int64_t shape[kMaxDims];
    const int n = read_ints(value, shape, "reshape", "shape");
    const Array& a = unwrap(self);
    resolve_minus_one(n, shape, a.layout.size(), "reshape");
    Layout layout;
    if (!a.layout.reshaped(n, shape, &layout, "reshape")) Py_RETURN_NONE;
    return retyped_view(self, Py_TYPE(self), std::move(layout), a.data);
  });
}

PyObject* broadcast_to(PyObject* self, PyObject* value) {
  return guard((PyObject*)nullptr, [&] {
    require_settled(self);
    int64_t shape[kMaxDims];
    const int n = read_ints(value, shape, "broadcast_to", "shape");
    const Array& a = unwrap(self);
    Array view = view_of(self);
    view.layout = a.layout.broadcast_to(n, shape, "broadcast_to");
    view.data = a.data;
    // Several indices may reach one element, so writing through it has no meaning.
    view.readonly = true;
    return wrap_or_throw(Py_TYPE(self), std::move(view));
  });
}

// _restrided(shape, strides in elements, offset in elements): a checked view of the same memory.
GI_METHOD(restrided) {
  if (!expect_args(nargs, 3, "_restrided")) return nullptr;
  return guard((PyObject*)nullptr, [&] {
    require_settled(self);
    const Array& a = unwrap(self);
    int64_t shape[kMaxDims], strides[kMaxDims], offset[kMaxDims];
    const int n = read_ints(args[0], shape, "as_strided", "shape");
    if (read_ints(args[1], strides, "as_strided", "strides") != n)
      fail(Kind::Shape, "as_strided", "as many strides as extents", repr_text(args[1]),
           "pass one stride for each dimension");
    read_ints(args[2], offset, "as_strided", "offset");
    int64_t bytes;
    if (__builtin_mul_overflow(offset[0], a.itemsize(), &bytes))
      fail(Kind::Bounds, "as_strided", "an offset that fits 63 bits", repr_text(args[2]),
           "pass an offset inside the memory");
    Layout layout(n, shape, strides);
    char* data = reinterpret_cast<char*>(reinterpret_cast<uintptr_t>(a.data) + bytes);
    check_reach(a, layout, data, "as_strided");
    return retyped_view(self, Py_TYPE(self), std::move(layout), data);
  });
}

// _copied(order, type): an independent compact copy on the same device.
GI_METHOD(copied) {
  if (!expect_args(nargs, 1, "_copied")) return nullptr;
  return guard((PyObject*)nullptr, [&] {
    require_settled(self);
    Py_ssize_t length;
    const char* order = PyUnicode_AsUTF8AndSize(args[0], &length);
    if (!order) throw PythonError();
    const Array& a = unwrap(self);
    const Layout& l = a.layout;
    // 'A' and 'K' keep column order where the source has it; anything else becomes C order.
    const std::string_view wish(order, length);
    if (wish != "C" && wish != "F" && wish != "A" && wish != "K")
      fail(Kind::Shape, "copy", "order 'C', 'F', 'A' or 'K'", repr_text(args[0]), "pass one of these");
    const bool columns =
        wish == "F" || (wish != "C" && l.is_f_contiguous() && !l.is_c_contiguous());
    Array copy = make_empty(a.device, a.dtype,
                            columns ? Layout::f_order(l.ndim(), l.shape(), "copy")
                                    : Layout::c_order(l.ndim(), l.shape(), "copy"),
                            "copy");
    copy_elements(copy, a, "copy");
    return wrap_or_throw(Py_TYPE(self), std::move(copy));
  });
}

int64_t as_int64(PyObject* o, const char* where) {
  const long long v = PyLong_AsLongLong(o);
  if (v == -1 && PyErr_Occurred()) {
    if (!PyErr_ExceptionMatches(PyExc_OverflowError)) throw PythonError();
    PyErr_Clear();
    fail(Kind::Bounds, where, "an int that fits 63 bits", repr_text(o), "pass a smaller value");
  }
  return v;
}

int read_axis(PyObject* o, int ndim, const char* where) {
  const int64_t i = as_int64(o, where);
  if (i < 0 || i >= ndim)
    fail(Kind::Shape, where, "an axis from 0 to " + std::to_string(ndim - 1), repr_text(o),
         "count axes from 0");
  return static_cast<int>(i);
}

GI_METHOD(set_stride) {
  if (!expect_args(nargs, 2, "_set_stride")) return nullptr;
  return guard((PyObject*)nullptr, [&]() -> PyObject* {
    const Layout& l = shown_layout(self);
    const int axis = read_axis(args[0], l.ndim(), "_set_stride");
    Layout layout = l;
    layout.strides()[axis] = as_int64(args[1], "_set_stride");
    layout.finish("_set_stride");
    change_geometry(self, layout, const_cast<char*>(shown_data(self)), "_set_stride");
    Py_RETURN_NONE;
  });
}

GI_METHOD(set_shape_i) {
  if (!expect_args(nargs, 2, "_set_shape_i")) return nullptr;
  return guard((PyObject*)nullptr, [&]() -> PyObject* {
    const Layout& l = shown_layout(self);
    const int axis = read_axis(args[0], l.ndim(), "_set_shape_i");
    Layout layout = l;
    layout.shape()[axis] = as_int64(args[1], "_set_shape_i");
    layout.finish("_set_shape_i");
    const char* data = shown_data(self);
    // An array that was empty shows no address; its memory begins where the buffer does.
    if (!data && unwrap(self).buffer) data = unwrap(self).buffer->ptr;
    change_geometry(self, layout, const_cast<char*>(data), "_set_shape_i");
    Py_RETURN_NONE;
  });
}

// _set_shape(shape): in place; ContiguityError when strides forbid it.
PyObject* set_shape(PyObject* self, PyObject* value) {
  return guard((PyObject*)nullptr, [&]() -> PyObject* {
    require_settled(self);
    int64_t shape[kMaxDims];
    const int n = read_ints(value, shape, "shape", "shape");
    Array& a = unwrap(self);
    resolve_minus_one(n, shape, a.layout.size(), "shape");
    Layout layout;
    if (!a.layout.reshaped(n, shape, &layout, "shape"))
      fail(Kind::Contiguity, "shape", "strides that allow another shape without a copy",
           "shape " + shape_text(a.layout.ndim(), a.layout.shape()) + " with strides " +
               shape_text(a.layout.ndim(), a.layout.strides()) + " (elements)",
           "use x.reshape(shape), which copies when it must");
    a.layout = std::move(layout);
    Py_RETURN_NONE;
  });
}


}  // namespace

#define GI_FAST(f) reinterpret_cast<PyCFunction>(reinterpret_cast<void (*)()>(f)), METH_FASTCALL

PyMethodDef array_methods[] = {
    {"is_c_contiguous", is_c_contiguous, METH_NOARGS,
     "True when the elements lie in C order without gaps; extents of 1 do not count."},
    {"is_f_contiguous", is_f_contiguous, METH_NOARGS,
     "True when the elements lie in column order without gaps; extents of 1 do not count."},
    {"view", view, METH_NOARGS, "A new object over the same memory."},
    {"_permuted", permuted, METH_O, "View with the axes in another order."},
    {"_reshaped", reshaped, METH_O, "View under another shape, or None when strides forbid one."},
    {"_broadcast_to", broadcast_to, METH_O, "Read-only view repeated to a larger shape."},
    {"_restrided", GI_FAST(restrided), "Checked view: shape, strides and offset in elements."},
    {"_copied", GI_FAST(copied), "Independent compact copy in the given order."},
    {"_set_stride", GI_FAST(set_stride), "Set the stride of one axis, in elements, in place."},
    {"_set_shape_i", GI_FAST(set_shape_i), "Set one extent in place."},
    {"_set_shape", set_shape, METH_O, "Set the shape in place where strides allow it."},
    {nullptr, nullptr, 0, nullptr},
};

int read_ints(PyObject* value, int64_t* out, const char* where, const char* what) {
  if (PyIndex_Check(value) && !PyTuple_Check(value) && !PyBool_Check(value)) {
    PyRef number = PyRef::steal(PyNumber_Index(value));
    if (!number) {
      PyErr_Clear();
    } else {
      out[0] = as_int64(number.get(), where);
      return 1;
    }
  }
  PyRef fast = PyUnicode_Check(value) ? PyRef() : PyRef::steal(PySequence_Tuple(value));
  if (!fast) {
    PyErr_Clear();
    fail(Kind::Type, where, std::string(what) + " as an int or a sequence of ints", repr_text(value),
         "pass a tuple of ints");
  }
  const Py_ssize_t n = PyTuple_Size(fast.get());
  if (n > kMaxDims)
    fail(Kind::Shape, where, "at most " + std::to_string(kMaxDims) + " dimensions",
         std::to_string(n) + " entries", "merge dimensions");
  for (Py_ssize_t i = 0; i < n; ++i) {
    PyObject* item = PyTuple_GetItem(fast.get(), i);
    PyRef number = PyBool_Check(item) ? PyRef() : PyRef::steal(PyNumber_Index(item));
    if (!number) {
      PyErr_Clear();
      fail(Kind::DType, where, std::string(what) + " of ints", repr_text(value), "pass ints");
    }
    out[i] = as_int64(number.get(), where);
  }
  return static_cast<int>(n);
}

bool within_memory(const Array& a, const Layout& layout, const char* data, const char* where) {
  if (layout.size() == 0) return true;
  const Buffer* b = a.buffer.get();
  if (!b) return false;
  if (b->nbytes < 0) return true;  // raw foreign pointer: the caller vouches for it
  const auto [lo, hi] = layout.span(where);
  // In 128 bits: a wild offset must not wrap round into the memory.
  const __int128 item = a.itemsize();
  const __int128 start = static_cast<__int128>(reinterpret_cast<uintptr_t>(data)) -
                         static_cast<__int128>(reinterpret_cast<uintptr_t>(b->ptr));
  return start + lo * item >= 0 && start + (hi + 1) * item <= b->nbytes;
}

void check_reach(const Array& a, const Layout& layout, const char* data, const char* where) {
  if (within_memory(a, layout, data, where)) return;
  const Buffer* b = a.buffer.get();
  fail(Kind::Bounds, where, "a shape and strides that stay inside the memory",
       "shape " + shape_text(layout.ndim(), layout.shape()) + " with strides " +
           shape_text(layout.ndim(), layout.strides()) + " (elements) over " +
           std::to_string(b ? b->nbytes : 0) + " bytes",
       "reach only elements of the array; the documents count _strides in elements, strides counts "
       "bytes");
}

PyObject* hook(const char* name) {
  for (const Hook& h : hooks)
    if (std::string_view(h.name) == name) return h.callable;
  return nullptr;
}

PyObject* dtype_object(DTypeId id) {
  PyObject*& cached = dtype_objects[id];
  if (!cached) {
    PyObject* fn = hook("dtype");
    cached = fn ? PyObject_CallFunction(fn, "i", int(id)) : PyLong_FromLong(id);
  }
  return cached;
}

PyObject* device_object(Device device) {
  static PyObject* last = nullptr;  // keeps an uncached object alive until the next call
  PyObject* fn = hook("device");
  const bool small = device.id >= 0 && device.id < 64;
  PyObject*& slot = small ? device_objects[device.is_cuda()][device.id] : last;
  if (!slot || !small) {
    PyObject* fresh = fn ? PyObject_CallFunction(fn, "ii", int(device.type), int(device.id))
                         : PyUnicode_FromFormat(device.is_cuda() ? "cuda:%d" : "cpu", device.id);
    if (!fresh) return nullptr;
    Py_XDECREF(slot);
    slot = fresh;
  }
  return slot;
}

namespace {

PyTypeObject* read_class(nb::handle cls, const char* where) {
  if (!PyType_Check(cls.ptr()) ||
      !PyType_IsSubtype(reinterpret_cast<PyTypeObject*>(cls.ptr()), array_type))
    fail(Kind::Type, where, "a subclass of gpuinterop._core.Array", repr_text(cls.ptr()),
         "pass CudaNdarray or GpuArray");
  return reinterpret_cast<PyTypeObject*>(cls.ptr());
}

DTypeId read_dtype(nb::handle dtype, const char* where) {
  nb::object row = nb::borrow(dtype);
  if (!PyLong_CheckExact(dtype.ptr())) {
    PyObject* fn = hook("dtype_row");
    if (!fn) throw nb::type_error("gpuinterop._core is used without gpuinterop");
    row = nb::handle(fn)(dtype);
  }
  const int64_t id = as_int64(row.ptr(), where);
  if (id < 0 || id >= kDTypeCount)
    fail(Kind::DType, where, "a row of the dtype table", std::to_string(id), "pass a numpy dtype");
  return static_cast<DTypeId>(id);
}

Device read_device(int type, int id, const char* where) {
  if (type != 1 && type != 2)
    fail(Kind::Device, where, "device type 1 (cpu) or 2 (cuda)", std::to_string(type),
         "pass a device of gpuinterop.devices()");
  return {static_cast<DeviceType>(type), type == 1 ? 0 : id};
}

Array& read_array(nb::handle o, const char* where) {
  if (!is_array(o.ptr()))
    fail(Kind::Type, where, "a gpuinterop array", "an object of type " + type_text(o.ptr()),
         "convert it with gpuinterop.asarray(obj)");
  require_settled(o.ptr());
  return unwrap(o.ptr());
}

nb::object empty(nb::handle cls, nb::handle shape, nb::handle dtype, int device_type, int device_id,
                 const std::string& order) {
  PyTypeObject* type = read_class(cls, "empty");
  int64_t extents[kMaxDims];
  const int n = read_ints(shape.ptr(), extents, "empty", "shape");
  const Device device = read_device(device_type, device_id, "empty");
  Layout layout = order == "F" ? Layout::f_order(n, extents, "empty")
                               : Layout::c_order(n, extents, "empty");
  return nb::steal(wrap_or_throw(
      type, make_empty(device, read_dtype(dtype, "empty"), std::move(layout), "empty")));
}

void release_foreign(Buffer*) noexcept {}

// Borrows memory that `base` keeps alive (or nobody: base None). Strides in bytes, or None for C order.
// nbytes: how much may be touched from ptr on; -1: exactly what shape and strides reach.
nb::object from_pointer(nb::handle cls, uint64_t ptr, nb::handle shape, nb::handle strides,
                        nb::handle dtype, int device_type, int device_id, nb::handle base,
                        int64_t nbytes, bool readonly, const std::string& where_text) {
  const char* where = where_text.c_str();
  PyTypeObject* type = read_class(cls, where);
  int64_t extents[kMaxDims], steps[kMaxDims];
  const int n = read_ints(shape.ptr(), extents, where, "shape");
  Array a;
  a.dtype = read_dtype(dtype, where);
  a.device = read_device(device_type, device_id, where);
  a.readonly = readonly;
  const int64_t item = a.itemsize();
  if (strides.is_none()) {
    a.layout = Layout::c_order(n, extents, where);
  } else {
    if (read_ints(strides.ptr(), steps, where, "strides") != n)
      fail(Kind::Shape, where, "as many strides as extents, " + std::to_string(n),
           repr_text(strides.ptr()), "pass one stride for each dimension");
    for (int i = 0; i < n; ++i) {
      if (steps[i] % item)
        fail(Kind::Bounds, where, "strides that are multiples of the itemsize, " + std::to_string(item),
             shape_text(n, steps) + " (bytes)", "pass byte strides of whole elements");
      steps[i] /= item;
    }
    a.layout = Layout(n, extents, steps);
  }
  if (a.layout.size() > 0) {
    const auto [lo, hi] = a.layout.span(where);
    if (ptr == 0)
      fail(Kind::Bounds, where, "the address of the memory", "a null pointer for shape " +
           shape_text(n, extents), "pass a valid address; only empty arrays have none");
    if (ptr % static_cast<uint64_t>(std::min<int64_t>(item, 8)))
      fail(Kind::Bounds, where, "an address aligned to the itemsize, " + std::to_string(item),
           std::to_string(ptr), "pass an aligned address");
    auto* b = new Buffer;
    a.buffer = BufferRef(b);
    b->device = a.device;
    b->memory = a.device.is_cuda() ? Memory::Device : Memory::Host;
    b->needs_base = true;
    b->readonly = readonly;
    b->stream = a.device.is_cuda() ? reinterpret_cast<void*>(uintptr_t{1}) : nullptr;
    b->release = release_foreign;
    a.data = reinterpret_cast<char*>(static_cast<uintptr_t>(ptr));
    if (nbytes >= 0) {
      b->ptr = a.data;
      b->nbytes = nbytes;
      check_reach(a, a.layout, a.data, where);
    } else {
      b->ptr = a.data + lo * item;
      b->nbytes = (hi - lo + 1) * item;
    }
  }
  if (!base.is_none()) a.base = PyRef::borrow(base.ptr());
  return nb::steal(wrap_or_throw(type, std::move(a)));
}

}  // namespace

void register_array_functions(nb::module_& m) {
  using namespace nb::literals;
  m.def("empty", &empty, "cls"_a, "shape"_a, "dtype"_a, "device_type"_a, "device_id"_a,
        "order"_a = "C", "A fresh array of `cls`; its elements are not set.");
  m.def("from_pointer", &from_pointer, "cls"_a, "ptr"_a, "shape"_a, "strides"_a.none(), "dtype"_a,
        "device_type"_a, "device_id"_a, "base"_a.none(), "nbytes"_a = -1, "readonly"_a = false,
        "where"_a = "from_pointer", "An array over foreign memory; strides in bytes.");
  m.def(
      "copy_into",
      [](nb::handle dst, nb::handle src, bool async, const std::string& where) {
        const Array target = read_array(dst, where.c_str());
        const Array source = read_array(src, where.c_str());
        if (target.dtype != source.dtype)
          fail(Kind::DType, where, "equal dtypes",
               std::string(kDTypes[target.dtype].name) + " and " + kDTypes[source.dtype].name,
               "cast first: x.astype(dtype)");
        if (target.readonly)
          fail(Kind::ReadOnly, where, "writable memory", "a read-only array",
               "write to a copy: x.copy()");
        Array spread = source;
        spread.layout =
            source.layout.broadcast_to(target.layout.ndim(), target.layout.shape(), where.c_str());
        copy_elements(target, spread, where.c_str(), async);
      },
      "dst"_a, "src"_a, "non_blocking"_a = false, "where"_a = "copy_into",
      "dst[...] = src for equal dtypes, between any strides and devices.");
  m.def(
      "view",
      [](nb::handle cls, nb::handle x) {
        PyTypeObject* type = read_class(cls, "view");
        const Array& a = read_array(x, "view");
        return nb::steal(retyped_view(x.ptr(), type, a.layout, a.data));
      },
      "cls"_a, "x"_a, "The same memory as an array of another class.");
  m.def(
      "adopt",
      [](nb::handle cls, nb::handle x) {
        PyTypeObject* type = read_class(cls, "adopt");
        Array same = read_array(x, "adopt");
        return nb::steal(wrap_or_throw(type, std::move(same)));
      },
      "cls"_a, "x"_a,
      "The same array as an object of another class, sharing ownership: base stays as it is.");
  m.def(
      "_set_hook",
      [](const std::string& name, nb::object callable) {
        for (Hook& h : hooks)
          if (name == h.name) {
            PyObject* old = std::exchange(h.callable, callable.is_none() ? nullptr
                                                                         : callable.release().ptr());
            Py_XDECREF(old);
            return;
          }
        throw nb::value_error(("no hook of the name " + name).c_str());
      },
      "name"_a, "callable"_a.none(), "Register a callable of the Python layers.");
  m.def("_set_copy_hook", [](nb::object callable) {
    for (Hook& h : hooks)
      if (std::string_view(h.name) == "copy") {
        PyObject* old = std::exchange(h.callable, callable.is_none() ? nullptr
                                                                     : callable.release().ptr());
        Py_XDECREF(old);
      }
  }, "callable"_a.none(), "Register copies.note.");
  m.def("_watch", [](int change) { return watching.fetch_add(change) + change; }, "change"_a,
        "Add to the number of active copy watchers; returns it.");
  m.def("_dtype_rows", [] {
    nb::list rows;
    for (int i = 0; i < kDTypeCount; ++i)
      rows.append(nb::make_tuple(kDTypes[i].name, kDTypes[i].code, kDTypes[i].bits,
                                 kDTypes[i].itemsize));
    return rows;
  }, "The dtype table: (name, DLPack code, bits, itemsize).");
  m.attr("MAX_DIMS") = kMaxDims;
}

}  // namespace gpuinterop
