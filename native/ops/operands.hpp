// The operands of a call: arrays and numbers, how numbers become stored elements, and given results.
#pragma once

#include <nanobind/nanobind.h>

#include <optional>

#include "ops/elementwise.hpp"
#include "ops/iteration_space.hpp"

namespace gpuinterop::ops {

// How an operand takes part in the dtype rules. An array counts with its dtype's row.
constexpr int kWeakInt = -1, kWeakFloat = -2, kWeakComplex = -3;
constexpr int kStrongNumber = 64;  // + row: a number of a certain dtype

struct Input {
  PyObject* object = nullptr;  // the array or the number; borrowed from the caller or from `keep`
  PyRef keep;
  // As the array was when it was read: whatever Python code runs before the launch, a finaliser for one,
  // may give the object another shape.
  std::optional<Array> array;
  int kind = 0;

  void set(PyObject* o) {
    object = o;
    array = unwrap(o);
    kind = array->dtype;
  }
};

// False: nobody knows this kind of object.
bool read_input(Input& in, PyObject* o, PyObject* like, const char* where);

// DeviceMismatchError for an operand or a result on another device.
void require_device(Device device, const Array& other, const char* where);

// x < 300 is true for every int8: a Python integer beyond the other operand's type is compared as one
// of a wider type.
void widen_compared(Input& number, const Input& other);

// NumPy's rule: an integer to a negative power is an error where the exponent is a number. Exponents
// in an array are not looked at; see gi_ipow.
void require_exponent(const Input& in, int position, DTypeId row, const OpInfo& info);

// The number as the bytes of a stored element.
Constant encode(PyObject* number, DTypeId row, const OpInfo& info);

// ---- results that the caller gives --------------------------------------------------------------
const Array& read_out(PyObject* out, const char* where);
// Nobody forbids writing to it, and no two of its elements are one.
void require_writable(const Array& out, const char* where);
// All that an operation without broadcasting or casts asks of its out.
void check_out(PyObject* out, DTypeId dtype, Device device, int ndim, const int64_t* shape,
               const char* where);

}  // namespace gpuinterop::ops
