// clip(), round() and astype() of arrays.
#include "arrays/type.hpp"
#include "captures/recorder.hpp"
#include "elementwise/calls.hpp"
#include "elementwise/host_loops.hpp"
#include "elementwise/operands.hpp"
#include "interpreter/hooks.hpp"
#include "interpreter/register.hpp"
#include "interpreter/served.hpp"

namespace gpuinterop {

namespace {

PyObject* call_by_name(const char* name, PyObject* const* args, PyObject* out) {
  return ops::call(ops::op_by_name(name), args, out ? &out : nullptr, false);
}

// An array or a Python number, but not an integer beyond an integer dtype: NumPy ignores that.
bool is_known_bound(PyObject* bound, DTypeId dtype) {
  if (!bound || !PyLong_CheckExact(bound)) return !bound || ops::is_array_or_number(bound);
  return !is_integer(dtype) || ops::integer_bits(bound, dtype).has_value();
}

PyObject* clip(PyObject* x, PyObject* low, PyObject* high, PyObject* out) {
  if (!is_array(x) || (out && !is_array(out))) return nullptr;
  const DTypeId dtype = unwrap(x).dtype;
  if (!is_known_bound(low, dtype) || !is_known_bound(high, dtype)) return nullptr;
  PyObject* const args[] = {x, low ? low : high, high};
  return call_by_name(low && high ? "clip"
                      : low       ? "maximum"
                      : high      ? "minimum"
                                  : "positive",
                      args, out);
}

// The operation that multiplies by a factor, rounds and divides, or the other way round.
PyObject* rounding(bool divides_first) {
  static PyObject* made[2];
  PyObject*& found = made[divides_first];
  if (!found)
    found = call_hook(Hook::Call, "(s(ss){})", "rounding", divides_first ? "divide" : "multiply",
                      divides_first ? "multiply" : "divide")
                .release();
  return found;
}

PyObject* round(PyObject* x, PyObject* decimals, PyObject* out) {
  int overflow = 0;
  if (!is_array(x) || (out && !is_array(out)) || (decimals && !PyLong_CheckExact(decimals)))
    return nullptr;
  const long n = decimals ? PyLong_AsLongAndOverflow(decimals, &overflow) : 0;
  if (overflow || n < -300 || n > 300) return nullptr;
  const DTypeId dtype = unwrap(x).dtype;
  if (is_integer(dtype)) return n < 0 ? nullptr : call_by_name("positive", &x, out);
  if (n == 0) return call_by_name("rint", &x, out);
  if (is_complex(dtype)) return nullptr;
  const PyRef power = PyRef::checked(PyFloat_FromDouble(double(n < 0 ? -n : n)));
  const PyRef ten = PyRef::checked(PyFloat_FromDouble(10));
  const PyRef factor = PyRef::checked(PyNumber_Power(ten.get(), power.get(), Py_None));
  PyObject* const args[] = {x, factor.get(), out};
  static PyObject* const names = PyRef::checked(Py_BuildValue("(s)", "out")).release();
  return PyObject_Vectorcall(rounding(n < 0), args, 2, out ? names : nullptr);
}

// Of an array of one of the two public classes, by a loop of the core or the kernel of casts. The result has the class
// of x if that holds the dtype, as elementwise.results.class_for.
PyObject* astype(PyObject* x, PyObject* dtype, PyObject* order, PyObject* copy) {
  const char* where = "astype";
  if (!is_array(x) || PyLong_CheckExact(dtype)) return nullptr;  // which read_dtype takes for an id
  if ((copy && !PyBool_Check(copy)) || (order && !PyUnicode_CheckExact(order))) return nullptr;
  require_valid_layout(x);
  const Array from = unwrap(x);  // by value: allocating may let other threads run
  const DTypeId to = read_dtype(dtype, where);
  PyTypeObject* const general = result_type(kBool);
  const bool keeps = Py_TYPE(x) == general;
  if ((!keeps && Py_TYPE(x) != result_type(kFloat32)) || !ops::cast_loop(from.dtype, to))
    return nullptr;
  const char* const wanted = order ? PyUnicode_AsUTF8AndSize(order, nullptr) : "K";
  if (!wanted) throw PythonError();
  Layout layout = layout_of_copy(from.layout, wanted, where);
  const bool casts = to != from.dtype;
  if (copy == Py_False && !casts) return PyRef::borrow(x).release();
  ops::require_recorded(from.device);
  Array made = make_empty(from.device, to, std::move(layout), where);
  const bool later = from.device.is_cuda() || ops::recording_on_host();
  if (!casts) {
    copy_elements(made, from, where);
  } else if (!later) {
    ops::require_set(where, from);
    copy_unreported(made, from, where);
  }
  PyRef result = PyRef::steal(wrap(keeps ? general : result_type(to), std::move(made)));
  return casts && later ? call_by_name("cast", &x, result.get()) : result.release();
}

}  // namespace

void register_functions() {
  serve({{"clip", "x min max out", 1},
         [](const Values& v) { return clip(v[0], given(v[1]), given(v[2]), given(v[3])); }});
  serve({{"round", "x decimals out", 1},
         [](const Values& v) { return round(v[0], v[1], given(v[2])); }});
  serve({{"astype", "x dtype order copy * device", 2},
         [](const Values& v) { return given(v[4]) ? nullptr : astype(v[0], v[1], v[2], v[3]); }});
}

}  // namespace gpuinterop
