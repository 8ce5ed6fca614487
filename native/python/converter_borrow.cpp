// Arrays over foreign memory that is described by attributes: what the library's object says is
// checked, the driver is asked, and the object is held as the owner.
#include <nanobind/nanobind.h>
#include <nanobind/stl/string.h>

#include "array/array.hpp"
#include "array/error.hpp"
#include "cuda/cuda.hpp"
#include "exchange/import.hpp"
#include "python/array_type.hpp"
#include "python/converter_borrow.hpp"
#include "python/exchange_c_api.hpp"
#include "python/raise.hpp"

namespace nb = nanobind;

namespace gpuinterop {

namespace {

CUstream handle(uint64_t stream) noexcept {
  return reinterpret_cast<CUstream>(static_cast<uintptr_t>(stream ? stream : 1));
}

DTypeId dtype_from(PyObject* dtype) {
  if (dtype == dtype_object(kFloat32)) return kFloat32;
  PyRef row = PyRef::steal(PyObject_CallFunctionObjArgs(hook("dtype_row"), dtype, nullptr));
  const long id = row ? PyLong_AsLong(row.get()) : -1;
  if (PyErr_Occurred()) throw PythonError();
  return static_cast<DTypeId>(id);
}

// Strides in bytes, of the same number as `extents`, as elements.
void read_strides(PyObject* strides, int n, const int64_t* extents, int64_t item, int64_t* steps,
                  const char* where) {
  if (read_ints(strides, steps, where, "strides") != n)
    fail(Kind::Shape, where, "as many strides as extents, " + std::to_string(n), repr_text(strides),
         "pass one stride for each dimension");
  for (int i = 0; i < n; ++i) {
    if (steps[i] % item && extents[i] > 1)
      fail(Kind::Contiguity, where,
           "strides of whole elements, " + std::to_string(item) + " bytes each",
           shape_text(n, steps) + " (bytes)", "copy the array in its own library first");
    steps[i] /= item;
  }
}

PyObject* finish(exchange::Checked&& c, PyTypeObject* cls, PyObject* base, CUstream stream,
                 CUstream first_use) {
  Buffer* b = c.layout.size() ? exchange::adopt_borrowed(c, {stream}) : nullptr;
  if (b && c.device.is_cuda()) b->stream = first_use;
  if (!cls) cls = exchange_result_type(c.dtype);
  PyObject* o = wrap(cls, exchange::make_array(std::move(c), b, PyRef::borrow(base)));
  if (!o) throw PythonError();
  return o;
}

// Foreign memory that `base` keeps alive, of a library without an exchange protocol of its own. The
// address is asked of the driver: device, context and the extent of the allocation must agree; with
// device_id -1 the driver's word on the device is taken. The library is taken to work on `stream`:
// our first use waits for it, and it waits for our last.
nb::object borrow(nb::handle cls, uint64_t ptr, nb::handle shape, nb::handle strides,
                  nb::handle dtype, int device_type, int device_id, nb::handle base, bool readonly,
                  uint64_t stream, const std::string& where_text) {
  const char* where = where_text.c_str();
  int64_t extents[kMaxDims], steps[kMaxDims];
  const int n = read_ints(shape.ptr(), extents, where, "shape");
  exchange::Checked c;
  c.dtype = dtype_from(dtype.ptr());
  read_strides(strides.ptr(), n, extents, itemsize_of(c.dtype), steps, where);
  c.layout = exchange::checked_layout(n, extents, steps, where);
  c.data = c.layout.size() ? reinterpret_cast<char*>(static_cast<uintptr_t>(ptr)) : nullptr;
  if (device_id < 0 && !c.data)
    fail(Kind::Exchange, where, "memory, whose address tells the device", "an empty array",
         "pass the device's number");
  if (device_id < 0) device_id = cuda::inspect(c.data).device;
  c.device = {static_cast<DeviceType>(device_type), device_id};
  c.memory = c.device.is_cuda() ? Memory::Device : Memory::Host;
  c.readonly = readonly;
  exchange::check_memory(&c, exchange::Trust::Never, false, where);
  auto* type = cls.is_none() ? nullptr : reinterpret_cast<PyTypeObject*>(cls.ptr());
  return nb::steal(finish(std::move(c), type, base.ptr(), handle(stream), handle(stream)));
}

// ---- CuPy ----------------------------------------------------------------------------------------

// What the converter has told of CuPy; all held for good.
struct Cupy {
  PyTypeObject* ndarray = nullptr;
  intptr_t (*stream_of)(int) = nullptr;  // CuPy's C function, where it publishes one
  PyObject* call_stream_of = nullptr;    // a function of the device's number
  PyObject *shape, *strides, *dtype, *data, *ptr, *device_id, *c_contiguous;
} cupy;

constexpr char kStreamOf[] = "intptr_t (int)";  // Cython names capsules by the C signature

void know_cupy(nb::handle ndarray, nb::handle c_function, nb::handle function) {
  if (!PyType_Check(ndarray.ptr())) throw nb::type_error("know_cupy: a class is needed");
  const bool c = PyCapsule_IsValid(c_function.ptr(), kStreamOf);
  auto name = [](const char* text) {
    PyObject* s = PyUnicode_InternFromString(text);
    if (!s) throw nb::python_error();
    return s;
  };
  Cupy known;
  known.shape = name("shape");
  known.strides = name("strides");
  known.dtype = name("dtype");
  known.data = name("data");
  known.ptr = name("ptr");
  known.device_id = name("device_id");
  known.c_contiguous = name("_c_contiguous");
  known.ndarray = reinterpret_cast<PyTypeObject*>(ndarray.inc_ref().ptr());
  known.call_stream_of = function.inc_ref().ptr();
  known.stream_of =
      c ? reinterpret_cast<intptr_t (*)(int)>(PyCapsule_GetPointer(c_function.ptr(), kStreamOf))
        : nullptr;
  cupy = known;
}

PyRef attribute(PyObject* o, PyObject* name) {
  PyRef value = PyRef::steal(PyObject_GetAttr(o, name));
  if (!value) throw PythonError();
  return value;
}

int64_t integer(PyObject* o) {
  const long long v = PyLong_AsLongLong(o);
  if (v == -1 && PyErr_Occurred()) throw PythonError();
  return v;
}

int64_t current_stream_of_cupy(int device) {
  if (!cupy.stream_of) {
    PyRef number = PyRef::steal(PyObject_CallFunction(cupy.call_stream_of, "i", device));
    if (!number) throw PythonError();
    return integer(number.get());
  }
  const intptr_t stream = cupy.stream_of(device);
  if (PyErr_Occurred()) throw PythonError();
  return stream;
}

// Null, without a Python error: not the ordinary case.
PyObject* import_cupy(PyObject* obj) {
  static const char where[] = "from_cupy";
  const PyRef data = attribute(obj, cupy.data);
  const int device = int(integer(attribute(data.get(), cupy.device_id).get()));
  const int64_t stream = current_stream_of_cupy(device);
  // On a stream of its own CuPy's memory is used again in an order that only its capsules keep.
  if (stream != 0 && stream != 1) return nullptr;
  exchange::Checked c;
  c.dtype = dtype_from(attribute(obj, cupy.dtype).get());
  int64_t extents[kMaxDims], steps[kMaxDims];
  const int n = read_ints(attribute(obj, cupy.shape).get(), extents, where, "shape");
  const bool dense = attribute(obj, cupy.c_contiguous).get() == Py_True;
  if (!dense)
    read_strides(attribute(obj, cupy.strides).get(), n, extents, itemsize_of(c.dtype), steps,
                 where);
  c.layout = exchange::checked_layout(n, extents, dense ? nullptr : steps, where);
  if (c.layout.size())
    c.data = reinterpret_cast<char*>(integer(attribute(data.get(), cupy.ptr).get()));
  c.device = {DeviceType::Cuda, device};
  c.memory = Memory::Device;
  exchange::check_memory(&c, exchange::Trust::ByPage, false, where);
  const CUstream ours = cuda::current_stream(device);
  if (ours != CU_STREAM_LEGACY) {
    if (cuda::is_capturing(ours)) return nullptr;
    cuda::wait(device, ours, CU_STREAM_LEGACY, where);
  }
  PyObject* o = finish(std::move(c), nullptr, obj, CU_STREAM_LEGACY, CU_STREAM_LEGACY);
  if (ours != CU_STREAM_LEGACY) {
    Buffer* b = unwrap(o).buffer.get();
    if (b) b->stream = ours;
  }
  return o;
}

PyObject* share_cupy(PyObject*, PyObject* obj) {
  if (Py_TYPE(obj) != cupy.ndarray) Py_RETURN_NONE;
  PyObject* found = nullptr;
  try {
    found = import_cupy(obj);
  } catch (...) {
    // The long way finds the words for what is wrong.
    PyErr_Clear();
  }
  if (!found) Py_RETURN_NONE;
  return found;
}

PyMethodDef functions[] = {
    {"share_cupy", share_cupy, METH_O,
     "share_cupy(a)\n--\n\nAn array over an ordinary cupy.ndarray; None when it needs a closer "
     "look."},
    {nullptr, nullptr, 0, nullptr},
};

}  // namespace

void register_borrowing(nb::module_& m) {
  using namespace nb::literals;
  m.def(
      "borrow", &borrow, "cls"_a.none(), "ptr"_a, "shape"_a, "strides"_a, "dtype"_a,
      "device_type"_a, "device_id"_a, "base"_a.none(), "readonly"_a, "stream"_a, "where"_a,
      "An array over foreign memory that `base` keeps alive; strides in bytes. cls None: by dtype; "
      "device_id -1: where the driver says.");
  m.def("know_cupy", &know_cupy, "ndarray"_a, "c_function"_a.none(), "function"_a,
        "Tells share_cupy CuPy's class and how to ask for a device's current stream.");
  if (PyModule_AddFunctions(m.ptr(), functions) < 0) throw nb::python_error();
}

}  // namespace gpuinterop
