// Inner loops over host memory: those of NumPy's ufuncs, and casts and choices between two values, for which
// NumPy has no public loop.
#pragma once

#include <string_view>

#include "arrays/array.hpp"

namespace gpuinterop::ops {

// NumPy's PyUFuncGenericFunction: *n elements, at args[i] and then every steps[i] bytes. A loop needs neither the
// GIL nor different addresses: an output may be at the same place as an input of the same itemsize.
using InnerLoop = void (*)(char** args, const intptr_t* n, const intptr_t* steps, void* data);

constexpr int kMostArguments = 8, kMostResults = 2;  // of a loop

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

// Another loop of the core, by its name in programs (gpuinterop/elementwise/host_program.py) and the dtypes of its first
// two operands. None for other names or dtypes.
//   "cast": x -> x in the second dtype
//   "choose": condition (bool), x, y -> x or y, of any dtype
//   "add": accumulator, x -> their sum, for x of an integer dtype, bool or float32; the accumulator is int64, uint64
//       or float64
//   "power": x, exponent -> the power of integers, see docs/adr/0020-negative-powers-of-integers.md
//   "square": x -> x * x of float32 and float64
//   "limit": x -> x, at most 80; "odds": t -> t / (1 + t); "straighten": y, x -> y, or x if it exceeds 80; of float32
//       and float64
//   a function of float64: one of special_loops
HostLoop own_loop(std::string_view name, DTypeId first, DTypeId second);

}  // namespace gpuinterop::ops
