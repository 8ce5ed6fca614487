// Inner loops over host memory: those of NumPy's ufuncs, and casts and choices between two values, for which
// NumPy has no public loop.
#pragma once

#include "arrays/array.hpp"

namespace gpuinterop::ops {

// NumPy's PyUFuncGenericFunction: *n elements, at args[i] and then every steps[i] bytes. A loop needs neither the
// GIL nor different addresses: an output may be at the same place as an input of the same itemsize.
using InnerLoop = void (*)(char** args, const intptr_t* n, const intptr_t* steps, void* data);

constexpr int kMostResults = 2;  // of a loop

// A loop and its `data` argument, read at each call: NumPy's C API can replace the loops of a ufunc.
struct HostLoop {
  const InnerLoop* function = nullptr;  // null: there is none
  void* const* data = nullptr;
  // Of NumPy's loops, which write only results without gaps, because NumPy has loops that write wrong values into
  // others. The core's own loops have none here, because they write with any steps.
  uint8_t inputs = 0, results = 0;
  uint8_t itemsizes[kMostResults] = {};

  explicit operator bool() const noexcept { return function != nullptr; }
  // A result with a step of 0 is the accumulator of a reduction.
  void operator()(char** args, intptr_t n, const intptr_t* steps) const {
    for (int i = 0; i < results; ++i)
      if (const intptr_t step = steps[inputs + i]; step && step != itemsizes[i])
        return run_without_gaps(args, n, steps);
    run(args, &n, steps);
  }
  // Of a generalized ufunc, whose loops have several extents.
  void run(char** args, const intptr_t* extents, const intptr_t* steps) const {
    (*function)(args, extents, steps, data ? *data : nullptr);
  }

 private:
  // Computes the results part by part in a buffer, and copies each part to its place.
  void run_without_gaps(char** args, intptr_t n, const intptr_t* steps) const;
};

// Loop number `index` of ufunc.types. None if the object is not laid out as NumPy 2 documents it, or if the loop is
// not one of numbers. Valid as long as the ufunc.
HostLoop ufunc_loop(PyObject* ufunc, int index);

// NumPy's PyArray_ArgFunc, for its argmin and argmax: the position of the best of n elements without gaps. Those of
// bool and of numbers read nothing but the elements, so they need no GIL, and `array` may be null.
using FindBest = int (*)(void* data, intptr_t n, intptr_t* at, void* array);

// Where NumPy keeps it for a dtype. Kind::Unsupported error if NumPy's C API is not that of NumPy 2.
const FindBest* find_best(DTypeId dtype, bool max);

// One input, one output. A copy if the dtypes are equal. None for two dtypes of which one is neither NumPy's own
// nor bfloat16.
HostLoop cast_loop(DTypeId from, DTypeId to);

// Another loop of the core, by the numbers with which a program names it (gpuinterop/elementwise/host_program.py). With a
// dtype or an itemsize as `of`, `which` is
//   -1: condition (bool), x, y -> x or y, of this itemsize
//   -2: accumulator, x -> their sum, for x of an integer dtype, bool or float32; the accumulator is int64, uint64
//       or float64
//   -3: x, exponent -> the power of integers, see docs/adr/0020-negative-powers-of-integers.md
//   -4: x -> x * x of float32 and float64
//   -5: x -> a function of float64; `of` is its index in special_loops
//   -6: x -> x, at most 80; -7: t -> t / (1 + t); -8: y, x -> y, or x if it exceeds 80; of float32 and float64
// or the dtype to which values of the dtype `of` are cast. None for other dtypes.
HostLoop own_loop(int of, int which);

}  // namespace gpuinterop::ops
