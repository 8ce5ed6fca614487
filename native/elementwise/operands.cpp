#include "elementwise/operands.hpp"

#include <bit>
#include <cmath>
#include <cstring>

#include "captures/recorder.hpp"
#include "elementwise/host_loops.hpp"
#include "elementwise/launch.hpp"
#include "elementwise/overlap.hpp"
#include "interpreter/error.hpp"
#include "interpreter/error_translation.hpp"
#include "interpreter/gil.hpp"
#include "interpreter/hooks.hpp"
#include "interpreter/text_arguments.hpp"

namespace nb = nanobind;

namespace gpuinterop::ops {

namespace {

bool set_number(Input& in, PyObject* o) {
  PyTypeObject* type = Py_TYPE(o);
  in.object = o;
  if (type == &PyFloat_Type) {
    in.code = kWeakFloat;
  } else if (type == &PyLong_Type) {
    in.code = kWeakInt;
  } else if (type == &PyBool_Type) {
    in.code = kStrongNumber + kBool;
  } else if (type == &PyComplex_Type) {
    in.code = kWeakComplex;
  } else {
    return false;
  }
  return true;
}

[[noreturn]] void out_of_range(const OpInfo& info, PyObject* number, DTypeId dtype) {
  int overflow = 0;
  (void)PyLong_AsLongLongAndOverflow(number, &overflow);
  fail_with("integer_out_of_range", info.name,
            {repr_text(number), kDTypes[dtype].name, overflow ? "float64" : "int64"});
}

}  // namespace

bool is_array_or_number(PyObject* o) {
  Input in;
  return is_array(o) || set_number(in, o);
}

bool read_input(Input& in, PyObject* o, PyObject* like, const char* where) {
  if (is_array(o)) {
    require_valid_layout(o);
    in.set(o);
    return true;
  }
  if (set_number(in, o)) return true;
  in.keep = call_hook(Hook::Foreign, "(sOOs)", "operand", o, like ? like : Py_None, where);
  if (in.keep.get() == Py_NotImplemented) return false;
  PyObject* kept = in.keep.get();
  if (is_array(kept) || set_number(in, kept)) {
    if (is_array(kept)) in.set(kept);
    return true;
  }
  // (number, dtype id): a NumPy scalar, which keeps its dtype.
  in.object = PyTuple_GetItem(kept, 0);
  in.code = kStrongNumber + static_cast<int>(PyLong_AsLong(PyTuple_GetItem(kept, 1)));
  return true;
}

void require_device(Device device, const Array& other, const char* where) {
  if (other.device != device)
    fail_with("devices_differ", where, {device_text(device), device_text(other.device)});
}

void require_exponent(const Input& in, int position, DTypeId dtype, const OpInfo& info) {
  if (position != 1 || kDTypes[dtype].code != 0 || info.name != "power") return;
  PyRef zero = PyRef::steal(PyLong_FromLong(0));
  const int negative = zero ? PyObject_RichCompareBool(in.object, zero.get(), Py_LT) : -1;
  if (negative < 0) throw PythonError();
  if (negative) fail_with("negative_exponent", info.name);
}

std::optional<uint64_t> integer_bits(PyObject* number, DTypeId dtype) {
  const DTypeRow& row = kDTypes[dtype];
  const bool is_signed = row.code == 0;
  int overflow = 0;
  const int64_t value = PyLong_AsLongLongAndOverflow(number, &overflow);
  if (overflow > 0 && !is_signed && row.bits == 64) {
    const uint64_t large = PyLong_AsUnsignedLongLong(number);
    if (!PyErr_Occurred()) return large;
    PyErr_Clear();
  }
  if (overflow || (!is_signed && value < 0)) return std::nullopt;
  // The bits beyond the dtype's are copies of the sign, or zero.
  const int64_t rest = row.bits == 64 ? 0 : value >> (row.bits - is_signed);
  if (rest != 0 && !(is_signed && rest == -1)) return std::nullopt;
  return static_cast<uint64_t>(value);
}

std::optional<Number> read_number(PyObject* number) {
  const bool is_complex = !PyFloat_CheckExact(number) && PyComplex_Check(number);
  const double real = is_complex ? PyComplex_RealAsDouble(number) : PyFloat_AsDouble(number);
  if (real == -1.0 && PyErr_Occurred()) {
    if (!PyErr_ExceptionMatches(PyExc_OverflowError)) throw PythonError();
    PyErr_Clear();
    return std::nullopt;
  }
  if (!is_complex) return Number{{real, 0}, kFloat64};
  return Number{{real, PyComplex_ImagAsDouble(number)}, kComplex128};
}

void cast_one(const void* from, DTypeId from_dtype, void* to, DTypeId to_dtype) {
  char* args[] = {static_cast<char*>(const_cast<void*>(from)), static_cast<char*>(to)};
  const intptr_t steps[] = {0, 0};
  cast_loop(from_dtype, to_dtype)(args, 1, steps);
}

Constant encode(PyObject* number, DTypeId dtype, const OpInfo& info) {
  if (is_integer(dtype) && PyLong_Check(number)) {
    const auto bits = integer_bits(number, dtype);
    if (!bits) out_of_range(info, number, dtype);
    return {*bits, 0};
  }
  const auto read = read_number(number);
  if (!read) fail_with("integer_out_of_range", info.name, {repr_text(number), "float64", ""});
  // Without a loop, because this is the most frequent dtype.
  if (dtype == kFloat32) return {std::bit_cast<uint32_t>(static_cast<float>(read->parts[0])), 0};
  if (cast_loop(read->dtype, dtype)) {
    uint64_t words[2] = {0, 0};
    cast_one(read->parts, read->dtype, words, dtype);
    return {words[0], words[1]};
  }
  const nb::object bits =
      nb::steal(call_hook(Hook::Encode, "(Oi)", number, static_cast<int>(dtype)).release());
  nb::object low = bits[0], high = bits[1];
  return Constant{nb::cast<uint64_t>(low), nb::cast<uint64_t>(high)};
}

const Array& read_out(PyObject* out, const char* where) {
  if (!is_array(out)) call_hook(Hook::Foreign, "(sOs)", "out", out, where);  // raises
  require_valid_layout(out);
  return unwrap(out);
}

void require_apart(const Array& target, const Array& source, const char* where) {
  if (source.layout.size() > 1 && overlaps_itself(target))
    fail(Kind::Contiguity, where, "a target whose elements do not overlap",
         layout_text(target.layout), "assign one number, or write to a copy: x.copy()");
}

void require_writable(const Array& out, const char* where) {
  if (out.readonly) fail_with("out_read_only", where);
  const Layout& l = out.layout;
  if (overlaps_itself(out))
    fail_with("out_is_broadcast", where,
              {"shape " + shape_text(l.ndim(), l.shape()) + ", strides " +
               shape_text(l.ndim(), l.strides()) + " elements"});
  prepare_write(out, where);
}

void check_out(PyObject* object, DTypeId dtype, Device device, int ndim, const int64_t* shape,
               const char* where) {
  const Array& out = read_out(object, where);
  const Layout& l = out.layout;
  if (!l.has_shape(ndim, shape))
    fail_with("out_shape_differs", where,
              {shape_text(ndim, shape), shape_text(l.ndim(), l.shape())});
  if (out.dtype != dtype)
    fail_with("out_dtype_differs", where, {kDTypes[dtype].name, kDTypes[out.dtype].name});
  if (out.device != device)
    fail_with("out_on_other_device", where, {device_text(device), device_text(out.device)});
  require_writable(out, where);
}

void widen_compared(Input& number, const Input& other) {
  if (number.code != kWeakInt || !other.array) return;
  // NumPy compares an integer with bools as int64.
  const DTypeId dtype = other.array->dtype == kBool ? kInt64 : other.array->dtype;
  if (!is_integer(dtype) || integer_bits(number.object, dtype)) return;
  int overflow = 0;
  (void)PyLong_AsLongLongAndOverflow(number.object, &overflow);
  number.code = kStrongNumber + (overflow ? kFloat64 : kInt64);
  if (!overflow) return;
  // Use infinity, because the greatest int64 and 2**63 are the same float64.
  number.keep = PyRef::checked(PyFloat_FromDouble(overflow > 0 ? HUGE_VAL : -HUGE_VAL));
  number.object = number.keep.get();
}

}  // namespace gpuinterop::ops
