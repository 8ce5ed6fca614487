// Inner loops over host memory: those of NumPy's ufuncs, and casts and choices between two values, for which
// NumPy has no public loop.
#pragma once

#include "array/array.hpp"

namespace gpuinterop::ops {

// NumPy's PyUFuncGenericFunction: *n elements, at args[i] and then every steps[i] bytes. A loop needs neither the
// GIL nor different addresses: an output may be at the same place as an input of the same itemsize.
using InnerLoop = void (*)(char** args, const intptr_t* n, const intptr_t* steps, void* data);

// A loop and its `data` argument, read at each call: NumPy's C API can replace the loops of a ufunc.
struct HostLoop {
  const InnerLoop* function = nullptr;  // null: there is none
  void* const* data = nullptr;

  explicit operator bool() const noexcept { return function != nullptr; }
  void operator()(char** args, intptr_t n, const intptr_t* steps) const {
    (*function)(args, &n, steps, data ? *data : nullptr);
  }
};

// Loop number `index` of ufunc.types. None if the object is not laid out as NumPy 2 documents it. It lives as
// long as the ufunc.
HostLoop ufunc_loop(PyObject* ufunc, int index);

// One input, one output. A copy if the dtypes are equal. None for two dtypes of which one is neither NumPy's own
// nor bfloat16.
HostLoop cast_loop(DTypeId from, DTypeId to);

// accumulator, x -> their sum, where the accumulator is wider: int64, uint64 or float64. None for other dtypes of x
// than integers, bool and float32.
HostLoop sum_loop(DTypeId x);

// x, exponent -> the power of integers, see docs/adr/0020-negative-powers-of-integers.md. None for other dtypes.
HostLoop power_loop(DTypeId x);

// x -> x * x of float32 and float64. None for other dtypes.
HostLoop square_loop(DTypeId x);

// condition (bool), x, y -> x or y, of one itemsize.
HostLoop choice_loop(int64_t itemsize);

}  // namespace gpuinterop::ops
