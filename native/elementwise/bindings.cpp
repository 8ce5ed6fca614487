// The operations in gpuinterop._core: registration in the table, the operators as functions, and functions
// for tests and benchmarks.

#include <nanobind/stl/pair.h>
#include <nanobind/stl/vector.h>

#include <cstring>

#include "arrays/type.hpp"
#include "captures/recorder.hpp"
#include "elementwise/call_cache.hpp"
#include "elementwise/calls.hpp"
#include "elementwise/host_program.hpp"
#include "elementwise/iteration_space.hpp"
#include "elementwise/operands.hpp"
#include "elementwise/overlap.hpp"
#include "interpreter/error_translation.hpp"
#include "interpreter/function_with_id.hpp"
#include "interpreter/hooks.hpp"
#include "interpreter/register.hpp"
#include "jit/kernel.hpp"

namespace nb = nanobind;
using namespace nb::literals;

namespace gpuinterop {

namespace {

// add(x, y), add(x, y, out), add(x, y, out=z, order="C"), frexp(x, out=(a, b)). `self` holds the operation's id.
PyObject* call_operation(PyObject* self, PyObject* const* args, Py_ssize_t nargs,
                         PyObject* kwnames) {
  const ops::OpId op = static_cast<ops::OpId>(number_of(self));
  const ops::OpInfo& info = ops::op_info(op);
  const int inputs = info.inputs, results = info.results;
  const Py_ssize_t keywords = kwnames ? PyTuple_Size(kwnames) : 0;
  PyObject* out = nullptr;
  bool direct = nargs >= inputs && nargs <= inputs + results, c_order = false;
  auto is = [](PyObject* text, const char* word) {
    return PyUnicode_Check(text) && PyUnicode_CompareWithASCIIString(text, word) == 0;
  };
  for (Py_ssize_t k = 0; k < keywords && direct; ++k) {
    PyObject *name = PyTuple_GetItem(kwnames, k), *value = args[nargs + k];
    if (is(name, "out"))
      out = value;
    else if (is(name, "order"))
      direct = (c_order = is(value, "C")) || is(value, "K");
    else
      direct = false;
  }
  if (!direct || (out && nargs > inputs)) {
    // Other keywords, or a wrong count: Python handles the call or raises the error.
    return call_python(PyLong_FromUnsignedLong(op), nullptr, args, nargs, kwnames).release();
  }
  PyObject* outs[ops::kMaxResults] = {};
  bool given = false;
  auto set_out = [&](int j, PyObject* o) {
    outs[j] = o == Py_None ? nullptr : o;
    given = given || outs[j];
  };
  for (Py_ssize_t i = inputs; i < nargs; ++i) set_out(static_cast<int>(i) - inputs, args[i]);
  if (out && PyTuple_Check(out)) {
    if (PyTuple_Size(out) != results)
      fail_with("wrong_number_of_outs", info.name, {int64_t(results), int64_t(PyTuple_Size(out))});
    for (int j = 0; j < results; ++j) set_out(j, PyTuple_GetItem(out, j));
  } else if (out) {
    if (results > 1 && out != Py_None)
      fail(Kind::Type, info.name, "a tuple of " + std::to_string(results) + " arrays as out=",
           "an object of type " + type_text(out), "pass out=(a, b)");
    set_out(0, out);
  }
  return ops::call(op, args, given ? outs : nullptr, false, c_order);
}

int add_op(const std::string& name, int inputs, int results, bool compares, nb::object ufunc,
           bool once) {
  if (const int known = once ? ops::find_op(name.c_str()) : -1; known >= 0) return known;
  if (inputs < 1 || results < 1 || results > ops::kMaxResults ||
      inputs + results > ops::kMaxOperands)
    fail(Kind::Shape, name,
         "at most " + std::to_string(ops::kMaxOperands) + " operands, " +
             std::to_string(ops::kMaxResults) + " of them results",
         std::to_string(inputs) + " inputs and " + std::to_string(results) + " results",
         "split the computation");
  return ops::add_op(
      {name, inputs, results, compares, ufunc.is_none() ? PyRef() : PyRef::borrow(ufunc.ptr())});
}

}  // namespace

void register_ops(nb::module_& m) {
  register_kernels(m);
  register_indexing(m);
  register_functions();
  register_numpy_functions(m);
  m.def(
      "_add_op", &add_op, "name"_a, "inputs"_a, "results"_a, "compares"_a = false,
      "ufunc"_a = nb::none(), "once"_a = false,
      "Add an elementwise operation, and return its id. once: return an existing operation of this "
      "name, from an import that was interrupted.");
  m.def(
      "_drop_op", [](int op) { ops::drop_op(static_cast<ops::OpId>(op)); }, "op"_a,
      "Remove an operation whose function has been destroyed. Its id is not used again.");
  m.def(
      "_op_function",
      [](int op, const char* name, const char* doc, nb::object entry) {
        nb::object function =
            nb::steal(make_function_with_id(op, name, doc, as_method(guarded<call_operation>)));
        if (!entry.is_none()) nb::setattr(PyCFunction_GetSelf(function.ptr()), "entry", entry);
        return function;
      },
      "op"_a, "name"_a, "doc"_a, "entry"_a = nb::none(),
      "Return the operation as a function, which keeps `entry` alive.");
  m.def(
      "_has_loop",
      [](nb::handle ufunc, int index) { return bool(ops::ufunc_loop(ufunc.ptr(), index)); },
      "ufunc"_a, "index"_a, "Whether the core can call loop number `index` of a NumPy ufunc.");
  m.def(
      "_check_out",
      [](nb::handle out, nb::handle shape, DTypeId dtype, const Array& like, const char* where) {
        int64_t extents[kMaxDims];
        const int ndim = read_ints(shape.ptr(), extents, where, "a shape");
        ops::check_out(out.ptr(), dtype, like.device, ndim, extents, where);
      },
      "out"_a, "shape"_a, "dtype"_a, "like"_a, "where"_a,
      "Raise if `out` has another shape, dtype (an id) or device than `like`, or is read-only.");
  m.def(
      "_merged",
      [](const Array& a) {
        const Dimensions<1> merged(a.layout);
        int64_t strides[kMaxDims];
        for (int d = 0; d < merged.ndim; ++d) strides[d] = merged.stride[d][0];
        return nb::make_tuple(nb::steal(int_tuple(merged.ndim, merged.shape, 1)),
                              nb::steal(int_tuple(merged.ndim, strides, 1)));
      },
      "a"_a, "Return shape and strides (in elements) with as few dimensions as the strides allow.");
  m.def(
      "_may_overlap",
      [](const Array& a, const Array& b) { return ops::may_overlap(a, b, "may_overlap"); }, "a"_a,
      "b"_a, "Return whether two arrays share a byte; True if that is not decided quickly.");
  m.attr("WEAK_INT") = ops::kWeakInt;
  m.attr("WEAK_FLOAT") = ops::kWeakFloat;
  m.attr("WEAK_COMPLEX") = ops::kWeakComplex;
  m.attr("STRONG_NUMBER") = ops::kStrongNumber;
  m.def("_overlaps_itself", &ops::overlaps_itself, "a"_a,
        "Return whether two elements share a byte; True if that is not decided quickly.");
}

}  // namespace gpuinterop
