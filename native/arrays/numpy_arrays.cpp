#include "arrays/numpy_arrays.hpp"

#include <algorithm>

#include "arrays/type.hpp"

namespace gpuinterop {

namespace {

// Places in NumPy's table. The first function returns the version of the ABI, in every NumPy.
constexpr int kGetVersion = 0, kArrayType = 2, kScalarType = 10, kFromScalar = 61,
              kNewFromDescr = 94, kSetBaseObject = 282;
constexpr unsigned kNumPy2 = 0x02000000;
constexpr int kWritable = 0x400;  // NPY_ARRAY_WRITEABLE

void** find_numpy_api() {
  const PyRef numpy = PyRef::steal(PyImport_ImportModule("numpy._core._multiarray_umath"));
  const PyRef capsule =
      PyRef::steal(numpy ? PyObject_GetAttrString(numpy.get(), "_ARRAY_API") : nullptr);
  auto** const api =
      capsule ? static_cast<void**>(PyCapsule_GetPointer(capsule.get(), nullptr)) : nullptr;
  if (!api) PyErr_Clear();
  return api && reinterpret_cast<unsigned (*)()>(api[kGetVersion])() == kNumPy2 ? api : nullptr;
}

void** require_numpy_api() {
  if (void** api = numpy_api()) return api;
  fail(Kind::Unsupported, "numpy.asarray", "the C API of NumPy 2", "a NumPy with another one",
       "install 'numpy<3'");
}

// What arrays without memory of the host show.
alignas(16) char nothing[16];

}  // namespace

void** numpy_api() {
  static void** const api = find_numpy_api();
  return api;
}

const NumpyArray* as_numpy_array(PyObject* o) {
  void** const api = numpy_api();
  const bool is_one = api && reinterpret_cast<void*>(Py_TYPE(o)) == api[kArrayType];
  return is_one ? reinterpret_cast<const NumpyArray*>(o) : nullptr;
}

bool is_numpy_scalar(PyObject* o) {
  void** const api = numpy_api();
  return api && PyObject_TypeCheck(o, static_cast<PyTypeObject*>(api[kScalarType]));
}

PyRef numpy_array_of(PyObject* scalar) {
  auto* const from_scalar =
      reinterpret_cast<PyObject* (*)(PyObject*, PyObject*)>(require_numpy_api()[kFromScalar]);
  return PyRef::checked(from_scalar(scalar, nullptr));
}

int dtype_of(const NumpyArray& a) {
  for (int id = 0; id < kDTypeCount; ++id)
    if (dtype_object(static_cast<DTypeId>(id)) == a.dtype) return id;
  return -1;
}

PyRef numpy_view(PyObject* x) {
  static_assert(sizeof(Py_ssize_t) == sizeof(int64_t));
  void** const api = require_numpy_api();
  require_valid_layout(x);
  const Array& a = unwrap(x);
  const Layout& l = a.layout;
  Py_ssize_t shape[kMaxDims], strides[kMaxDims];
  for (int d = 0; d < l.ndim(); ++d) {
    shape[d] = l.shape()[d];
    strides[d] = l.strides()[d] * a.itemsize();
  }
  char* const data = a.data && !a.device.is_cuda() ? a.data : nothing;
  PyRef owner = PyRef::steal(retyped_view(x, array_type, l, a.data));
  auto* const make =
      reinterpret_cast<PyObject* (*)(void*, PyObject*, int, const Py_ssize_t*, const Py_ssize_t*,
                                     void*, int, PyObject*)>(api[kNewFromDescr]);
  PyRef dtype = PyRef::borrow(dtype_object(a.dtype));
  PyRef made = PyRef::checked(make(api[kArrayType], dtype.release(), l.ndim(), shape, strides, data,
                                   a.readonly ? 0 : kWritable, nullptr));
  auto* const set_base = reinterpret_cast<int (*)(PyObject*, PyObject*)>(api[kSetBaseObject]);
  if (set_base(made.get(), owner.release()) < 0) throw PythonError();
  return made;
}

}  // namespace gpuinterop
