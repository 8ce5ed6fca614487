// Import of an ordinary cupy.ndarray by its attributes. CuPy's __dlpack_device__ and __dlpack__ each query
// the driver for the pointer, and look up stream objects in Python, before gpuinterop's check queries a
// third time. Reading the attributes costs half as much.
#include <nanobind/nanobind.h>

#include "arrays/type.hpp"
#include "devices/cuda.hpp"
#include "exchange/import_any.hpp"
#include "interpreter/error.hpp"
#include "interpreter/error_translation.hpp"

namespace gpuinterop::exchange {

namespace {

// An attribute of one class. If the class has a descriptor that instances cannot hide, it is called
// directly, which avoids the look-up.
struct Attribute {
  PyObject *name = nullptr, *descriptor = nullptr;
  descrgetfunc get = nullptr;

  void find(PyTypeObject* type, const char* text) {
    if (!name) name = PyUnicode_InternFromString(text);
    if (!name) throw PythonError();
    auto* owner = reinterpret_cast<PyObject*>(type);
    Py_XDECREF(descriptor);
    get = nullptr;
    descriptor = optional_attribute(owner, name).release();
    if (descriptor &&
        (Py_TYPE(descriptor) == &PyGetSetDescr_Type || Py_TYPE(descriptor) == &PyMemberDescr_Type))
      get = reinterpret_cast<descrgetfunc>(PyType_GetSlot(Py_TYPE(descriptor), Py_tp_descr_get));
  }
  PyRef of(PyObject* o) const {
    PyRef value = PyRef::checked(get ? get(descriptor, o, reinterpret_cast<PyObject*>(Py_TYPE(o)))
                                     : PyObject_GetAttr(o, name));
    return value;
  }
};

// Never released; set when the first array is seen.
struct Cupy {
  PyObject* cuda = nullptr;              // the module
  intptr_t (*stream_of)(int) = nullptr;  // CuPy's C function, where it publishes one
  PyTypeObject* pointer = nullptr;       // of the last array's .data
  Attribute shape, strides, dtype, data, c_contiguous, ptr, device_id;
} cupy;

constexpr char kStreamOf[] = "intptr_t (int)";  // Cython names capsules by the C signature

int64_t integer(const PyRef& o) {
  const long long v = PyLong_AsLongLong(o.get());
  if (v == -1 && PyErr_Occurred()) throw PythonError();
  return v;
}

int64_t current_stream_of_cupy(int device) {
  if (cupy.stream_of) {
    const intptr_t stream = cupy.stream_of(device);
    if (PyErr_Occurred()) throw PythonError();
    return stream;
  }
  PyRef stream = PyRef::steal(PyObject_CallMethod(cupy.cuda, "get_current_stream", "i", device));
  PyRef handle = stream ? PyRef::steal(PyObject_GetAttrString(stream.get(), "ptr")) : PyRef();
  if (!handle) throw PythonError();
  return integer(handle);
}

bool read(PyObject* obj, const char* where, Array* out) {
  const PyRef data = cupy.data.of(obj);
  if (Py_TYPE(data.get()) != cupy.pointer) {
    cupy.pointer = nullptr;
    cupy.ptr.find(Py_TYPE(data.get()), "ptr");
    cupy.device_id.find(Py_TYPE(data.get()), "device_id");
    Py_INCREF(reinterpret_cast<PyObject*>(
        Py_TYPE(data.get())));  // so that no other type gets its address
    cupy.pointer = Py_TYPE(data.get());
  }
  const int device = int(integer(cupy.device_id.of(data.get())));
  const int64_t stream = current_stream_of_cupy(device);
  // Unless CuPy works on the legacy stream, only its capsules keep the order in which it reuses memory.
  if (stream != 0 && stream != 1) return false;
  const CUstream current = cuda::current_stream(device);
  if (current != CU_STREAM_LEGACY && cuda::is_capturing(current)) return false;
  const bool dense = cupy.c_contiguous.of(obj).get() == Py_True;
  const PyRef strides = dense ? PyRef::borrow(Py_None) : cupy.strides.of(obj);
  Checked c = read_parts(cupy.shape.of(obj).get(), strides.get(), cupy.dtype.of(obj).get(), where);
  if (c.layout.size()) c.data = reinterpret_cast<char*>(integer(cupy.ptr.of(data.get())));
  c.device = {DeviceType::Cuda, device};
  c.memory = Memory::Device;
  check_memory(&c, Trust::ByPage, false, where);
  *out = array_over(std::move(c), obj, CU_STREAM_LEGACY, where);
  return true;
}

}  // namespace

bool describe_cupy(PyTypeObject* type) {
  // Only CuPy's own class, from the loaded module: a subclass may override the attributes.
  PyRef module = PyRef::steal(PyImport_ImportModule("cupy"));
  PyRef own = module ? optional_attribute(module.get(), "ndarray") : PyRef();
  PyRef cuda = module ? optional_attribute(module.get(), "cuda") : PyRef();
  forgive();
  if (cupy.cuda || !cuda || own.get() != reinterpret_cast<PyObject*>(type)) return false;
  PyRef backend = PyRef::steal(PyImport_ImportModule("cupy_backends.cuda.stream"));
  PyRef table = backend ? optional_attribute(backend.get(), "__pyx_capi__") : PyRef();
  forgive();
  PyObject* entry = table && PyDict_Check(table.get())
                        ? PyDict_GetItemString(table.get(), "get_stream_ptr")
                        : nullptr;
  if (entry && PyCapsule_IsValid(entry, kStreamOf))
    cupy.stream_of = reinterpret_cast<intptr_t (*)(int)>(PyCapsule_GetPointer(entry, kStreamOf));
  cupy.shape.find(type, "shape");
  cupy.strides.find(type, "strides");
  cupy.dtype.find(type, "dtype");
  cupy.data.find(type, "data");
  cupy.c_contiguous.find(type, "_c_contiguous");
  cupy.cuda = cuda.release();
  Py_INCREF(reinterpret_cast<PyObject*>(type));
  return true;
}

bool import_cupy(PyObject* obj, const char* where, Array* out) {
  try {
    return read(obj, where, out);
  } catch (const PythonError&) {
    forgive();
  } catch (const Error&) {
    // The other protocols, or Python, raise the error.
  }
  return false;
}

}  // namespace gpuinterop::exchange
