// The loops of NumPy's ufuncs, and its argmin and argmax.
#include "elementwise/host_loops.hpp"

#include <string_view>

#include "arrays/numpy_arrays.hpp"
#include "interpreter/error.hpp"

namespace gpuinterop::ops {

namespace {

// ---- NumPy's ufuncs -------------------------------------------------------------------------------

// The first fields of NumPy's PyUFuncObject. See docs/adr/0022-numpys-inner-loops.md.
struct UfuncFields {
  PyObject_HEAD int nin, nout, nargs;
  int identity;
  const InnerLoop* functions;
  void* const* data;
  int ntypes;
  int flags;
  const char* name;
};

bool has_int(PyObject* object, const char* name, int value) {
  const PyRef found = PyRef::steal(PyObject_GetAttrString(object, name));
  return found && PyLong_Check(found.get()) && PyLong_AsLong(found.get()) == value;
}

// Compares the fields with what the object reports, the pointers last.
bool is_laid_out_as_documented(PyObject* ufunc, int index) {
  const PyRef size = PyRef::steal(
      PyObject_GetAttrString(reinterpret_cast<PyObject*>(Py_TYPE(ufunc)), "__basicsize__"));
  if (!size || PyLong_AsSsize_t(size.get()) < static_cast<Py_ssize_t>(sizeof(UfuncFields)))
    return false;
  const auto& fields = *reinterpret_cast<const UfuncFields*>(ufunc);
  if (!has_int(ufunc, "nin", fields.nin) || !has_int(ufunc, "nout", fields.nout) ||
      !has_int(ufunc, "nargs", fields.nargs) || !has_int(ufunc, "ntypes", fields.ntypes) ||
      fields.nargs != fields.nin + fields.nout || index < 0 || index >= fields.ntypes ||
      !fields.functions || !fields.name)
    return false;
  const PyRef name = PyRef::steal(PyObject_GetAttrString(ufunc, "__name__"));
  return name && PyUnicode_Check(name.get()) &&
         PyUnicode_CompareWithASCIIString(name.get(), fields.name) == 0 && fields.functions[index];
}

// The number of bytes of a letter in ufunc.types; 0 for a letter that is not a number's.
uint8_t itemsize_of_letter(char letter) {
  switch (letter) {
    case 'l':
    case 'L': return sizeof(long);
    default: {
      constexpr std::string_view kLetters = "?bhiqBHIQefdFD";
      const size_t id = kLetters.find(letter);
      return id == kLetters.npos ? 0 : static_cast<uint8_t>(itemsize_of(static_cast<DTypeId>(id)));
    }
  }
}

// The place in NumPy's table of C functions of the one that returns a PyArray_ArrFuncs.
constexpr int kGetArrFuncs = 365;
// Fields of PyArray_ArrFuncs, which are all pointers: argmax follows 21 casts and 5 functions. argmin is the last
// field, because NumPy added it later.
constexpr int kArgMax = 26, kArgMin = 46;

}  // namespace

HostLoop ufunc_loop(PyObject* ufunc, int index) {
  const bool known = is_laid_out_as_documented(ufunc, index);
  if (PyErr_Occurred()) PyErr_Clear();
  if (!known) return {};
  const auto& fields = *reinterpret_cast<const UfuncFields*>(ufunc);
  HostLoop loop = {fields.functions + index, fields.data ? fields.data + index : nullptr};
  const PyRef types = PyRef::checked(PyObject_GetAttrString(ufunc, "types"));
  const PyRef signature =
      PyRef::checked(PySequence_GetItem(types.get(), index));  // such as "ff->f"
  Py_ssize_t length = 0;
  const char* const text = PyUnicode_AsUTF8AndSize(signature.get(), &length);
  if (!text) throw PythonError();
  if (fields.nargs > kMostArguments || fields.nout > kMostResults || length != fields.nargs + 2)
    return {};
  loop.inputs = static_cast<uint8_t>(fields.nin);
  loop.results = static_cast<uint8_t>(fields.nout);
  for (int i = 0; i < fields.nout; ++i) {
    loop.itemsizes[i] = itemsize_of_letter(text[fields.nin + 2 + i]);
    if (!loop.itemsizes[i]) return {};
  }
  return loop;
}

const FindBest* find_best(DTypeId dtype, bool max) {
  void** const api = numpy_api();
  if (!api)
    fail(Kind::Unsupported, max ? "argmax" : "argmin", "the C API of NumPy 2",
         "a NumPy with another one", "install 'numpy<3'");
  auto* const functions =
      reinterpret_cast<FindBest* (*)(PyObject*)>(api[kGetArrFuncs])(dtype_object(dtype));
  return functions + (max ? kArgMax : kArgMin);
}

}  // namespace gpuinterop::ops
