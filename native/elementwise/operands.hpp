// The operands of a call: arrays and numbers, how numbers become stored elements, and given results.
#pragma once

#include <nanobind/nanobind.h>

#include <algorithm>
#include <optional>
#include <string>

#include "arrays/few_values.hpp"
#include "elementwise/calls.hpp"
#include "elementwise/iteration_space.hpp"

namespace gpuinterop::ops {

// A shape while it is computed.
struct Shape {
  int ndim = 0;
  int64_t extents[kMaxDims];

  void push(int64_t n) { extents[ndim++] = n; }
  std::string text() const { return shape_text(ndim, extents); }
  bool is_of(const Layout& l) const noexcept { return l.has_shape(ndim, extents); }
};

// How an operand takes part in dtype promotion. An array counts with its dtype id.
constexpr int kWeakInt = -1, kWeakFloat = -2, kWeakComplex = -3;
constexpr int kStrongNumber = 64;  // + dtype id: a scalar with a fixed dtype

struct Input {
  PyObject* object = nullptr;  // the array or the number; borrowed from the caller or from `keep`
  PyRef keep;
  // The array as it was when it was read. Python code that runs before the launch, such as a finaliser, may
  // change the object's shape.
  MaybeArray array;
  int code = 0;  // a dtype id, kStrongNumber + dtype id, or a weak number

  void set(PyObject* o) {
    object = o;
    array = unwrap(o);
    code = array->dtype;
  }
};

// A gpuinterop array or a Python scalar.
bool is_array_or_number(PyObject* o);
// False: this type of object is not supported.
bool read_input(Input& in, PyObject* o, PyObject* like, const char* where);

// DeviceMismatchError for an operand on another device.
void require_device(Device device, const Array& other, const char* where);

// x < 300 is true for every int8: a Python integer beyond the range of the other operand's type is compared
// in a wider type.
void widen_compared(Input& number, const Input& other);

// NumPy's rule: an integer to a negative power raises if the exponent is a scalar. Exponents in an array are
// not checked; see gi_ipow.
void require_exponent(const Input& in, int position, DTypeId dtype, const OpInfo& info);

// A Python int as an integer of the dtype (is_integer): its low bytes. Nothing if it does not fit.
std::optional<uint64_t> integer_bits(PyObject* number, DTypeId dtype);
// A Python number as float64 or complex128. Nothing for an int beyond float64.
struct Number {
  double parts[2];
  DTypeId dtype;
};
std::optional<Number> read_number(PyObject* number);
// Casts one element; cast_loop() has the dtypes.
void cast_one(const void* from, DTypeId from_dtype, void* to, DTypeId to_dtype);
// The bytes of the number as a stored element.
Constant encode(PyObject* number, DTypeId dtype, const OpInfo& info);

// ---- `out` arrays ------------------------------------------------------------------------------
const Array& read_out(PyObject* out, const char* where);
// Raises if several values would be written to one element, because the result would depend on their order.
void require_apart(const Array& target, const Array& source, const char* where);
// Raises unless `out` is writable and no two of its elements overlap.
void require_writable(const Array& out, const char* where);
// All checks of an `out` array in an operation without broadcasting or casts.
void check_out(PyObject* out, DTypeId dtype, Device device, int ndim, const int64_t* shape,
               const char* where);

}  // namespace gpuinterop::ops
