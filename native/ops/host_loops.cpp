#include "ops/host_loops.hpp"

#include <bit>

#include "array/error.hpp"
#include "ops/own_loops.hpp"

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

HostLoop in_table(const InnerLoop* table, int x) {
  if (x < 0 || x >= kOwnDTypes || !table[x]) return {};
  return {table + x, nullptr};
}

int log2_of(int64_t itemsize) { return std::countr_zero(static_cast<uint64_t>(itemsize)); }

// Places in NumPy's table of C functions, which every NumPy 2 has. The first returns the version of the
// ABI, in every NumPy; the second a PyArray_ArrFuncs.
constexpr int kGetNDArrayCVersion = 0, kGetArrFuncs = 365;
constexpr unsigned kNumPy2 = 0x02000000;
// Fields of PyArray_ArrFuncs, which are all pointers: argmax follows 21 casts and 5 functions. argmin is the last
// field, because NumPy added it later.
constexpr int kArgMax = 26, kArgMin = 46;

}  // namespace

HostLoop ufunc_loop(PyObject* ufunc, int index) {
  const bool known = is_laid_out_as_documented(ufunc, index);
  if (PyErr_Occurred()) PyErr_Clear();
  if (!known) return {};
  const auto& fields = *reinterpret_cast<const UfuncFields*>(ufunc);
  return {fields.functions + index, fields.data ? fields.data + index : nullptr};
}

const FindBest* find_best(DTypeId dtype, bool max) {
  const PyRef numpy = PyRef::steal(PyImport_ImportModule("numpy._core._multiarray_umath"));
  const PyRef capsule =
      PyRef::steal(numpy ? PyObject_GetAttrString(numpy.get(), "_ARRAY_API") : nullptr);
  auto** const api =
      capsule ? static_cast<void**>(PyCapsule_GetPointer(capsule.get(), nullptr)) : nullptr;
  if (!api) PyErr_Clear();
  if (!api || reinterpret_cast<unsigned (*)()>(api[kGetNDArrayCVersion])() != kNumPy2)
    fail(Kind::Unsupported, max ? "argmax" : "argmin", "the C API of NumPy 2",
         "a NumPy with another one", "install 'numpy<3'");
  auto* const functions =
      reinterpret_cast<FindBest* (*)(PyObject*)>(api[kGetArrFuncs])(dtype_object(dtype));
  return functions + (max ? kArgMax : kArgMin);
}

HostLoop cast_loop(DTypeId from, DTypeId to) {
  if (from == to) return {&own_loops().copies[log2_of(itemsize_of(from))], nullptr};
  if (from >= kOwnDTypes || to >= kOwnDTypes) return {};
  return {&own_loops().casts[from][to], nullptr};
}

HostLoop own_loop(int of, int kind) {
  switch (kind) {
    case -1: return {&own_loops().choices[log2_of(of)], nullptr};
    case -2: return in_table(own_loops().sums, of);
    case -3: return in_table(own_loops().powers, of);
    case -4: return in_table(own_loops().squares, of);
    case -5: return {special_loops + of, nullptr};
    default: return cast_loop(static_cast<DTypeId>(of), static_cast<DTypeId>(kind));
  }
}

}  // namespace gpuinterop::ops
