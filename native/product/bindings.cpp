// Products of arrays for Python: the functions, the array's dot, and the registration of hooks.
#include <nanobind/nanobind.h>

#include <cstring>
#include <vector>

#include "arrays/type.hpp"
#include "devices/cuda.hpp"
#include "elementwise/operands.hpp"
#include "interpreter/error_translation.hpp"
#include "interpreter/function_with_id.hpp"
#include "interpreter/parameters.hpp"
#include "interpreter/register.hpp"
#include "product/cublas.hpp"
#include "product/product.hpp"

namespace nb = nanobind;

namespace gpuinterop {

namespace {

// Each letter gives the role of an argument: a, b, c operands, o out, x alpha, y beta, p precision, t tf32.
struct Function {
  Parameters parameters;
  const char* letters;
  PyObject* (*run)(const ops::ProductCall&);
  const char* name() const { return parameters.function.c_str(); }
};

const std::vector<Function>& products() {
  static const auto& table = *new std::vector<Function>{
      {{"matmul", "a b / out * precision tf32", 2}, "abopt", ops::matmul},
      {{"dot", "a b out", 2}, "abo", ops::dot},
      {{"inner", "a b", 2}, "ab", ops::inner},
      {{"vdot", "a b", 2}, "ab", ops::vdot},
      {{"gemm", "a b c * alpha beta out precision tf32", 2}, "abcxyopt", ops::gemm},
      {{"addmm", "c a b * alpha beta out precision tf32", 3}, "cabxyopt", ops::gemm},
      {{"gemv", "a x y * alpha beta out", 2}, "abcxyo", ops::gemv},
      {{"ger", "x y a * alpha out", 2}, "abcxo", ops::ger},
  };
  return table;
}

ops::Scalar read_scalar(PyObject* o, const Function& f, const char* name) {
  if (PyFloat_Check(o) || PyLong_Check(o)) {
    const double value = PyFloat_AsDouble(o);
    if (value == -1.0 && PyErr_Occurred()) {
      if (!PyErr_ExceptionMatches(PyExc_OverflowError)) throw PythonError();
      PyErr_Clear();
      fail(Kind::Range, f.name(), std::string("a number that float64 holds as ") + name,
           repr_text(o), "pass float('inf') for infinity");
    }
    return {value, 0};
  }
  // NumPy scalars are accepted, arrays are not: reading an array's value would have to wait.
  const bool number =
      PyComplex_Check(o) || (PyNumber_Check(o) && !is_array(o) && !has_attribute(o, "__len__") &&
                             !has_attribute(o, "__cuda_array_interface__"));
  if (!number)
    fail(Kind::Type, f.name(), std::string("a number as ") + name,
         "an object of type " + type_text(o), "multiply by an array in a separate operation");
  const PyRef as_complex = PyRef::checked(
      PyObject_CallFunctionObjArgs(reinterpret_cast<PyObject*>(&PyComplex_Type), o, nullptr));
  return {PyComplex_RealAsDouble(as_complex.get()), PyComplex_ImagAsDouble(as_complex.get())};
}

bool read_switch(PyObject* o, const char* where, const char* name) {
  if (o == Py_True) return true;
  if (o == Py_False) return false;
  fail_with("not_a_bool", where, {name, repr_text(o)});
}

// In BLAS, beta scales the old value of `out`; here it scales only an addend.
void require_addend(const Function& f, const ops::ProductCall& call, bool beta_given) {
  if (call.c || !beta_given || call.beta == ops::Scalar{0, 0}) return;
  const std::string& addend =
      f.parameters.names[static_cast<size_t>(std::strchr(f.letters, 'c') - f.letters)];
  fail(Kind::Type, f.name(), "an addend " + addend + " for beta to multiply",
       call.out ? "beta and out: out is overwritten, not added" : "beta alone",
       "pass " + addend + (call.out ? "=out, or omit beta" : ", or omit beta"));
}

PyObject* run(size_t which, PyObject* const* args, Py_ssize_t nargs, PyObject* names) {
  const Function& f = products()[which];
  const auto given = f.parameters.read(args, nargs, names);
  ops::ProductCall call;
  call.where = f.name();
  call.precision = ops::current_precision();
  bool beta_given = false;
  for (size_t i = 0; f.letters[i]; ++i) {
    if (!given[i] || (given[i] == Py_None && i >= f.parameters.required)) continue;
    switch (f.letters[i]) {
      case 'a': call.a = given[i]; break;
      case 'b': call.b = given[i]; break;
      case 'c': call.c = given[i]; break;
      case 'o': call.out = given[i]; break;
      case 'x': call.alpha = read_scalar(given[i], f, "alpha"); break;
      case 'y':
        call.beta = read_scalar(given[i], f, "beta");
        beta_given = true;
        break;
      case 'p': call.precision = ops::precision_named(given[i], f.name()); break;
      default:  // tf32=, the name before precision=, decides where both are given
        call.precision =
            read_switch(given[i], f.name(), "tf32") ? ops::Precision::Tf32 : ops::Precision::Exact;
    }
  }
  require_addend(f, call, beta_given);
  return f.run(call);
}

// `self` holds the function's index in the table.
PyObject* call_product(PyObject* self, PyObject* const* args, Py_ssize_t nargs, PyObject* names) {
  return run(static_cast<size_t>(number_of(self)), args, nargs, names);
}

PyObject* dot_method(PyObject* self, PyObject* const* args, Py_ssize_t nargs, PyObject* names) {
  constexpr size_t kDot = 1;
  PyObject* all[8] = {self};
  const Py_ssize_t rest = nargs + (names ? PyTuple_Size(names) : 0);
  if (rest > 7) products()[kDot].parameters.read(args, nargs, names);  // raises
  for (Py_ssize_t i = 0; i < rest; ++i) all[i + 1] = args[i];
  return run(kDot, all, nargs + 1, names);
}

PyMethodDef dot_def = {"dot", as_method(guarded<dot_method>), METH_FASTCALL | METH_KEYWORDS,
                       "dot($self, /, other, out=None)\n--\n\nReturn numpy.dot's product."};

PyObject* operator_product(PyObject* a, PyObject* b, PyObject* out) {
  ops::ProductCall call;
  call.where = "matmul";
  call.a = a;
  call.b = b;
  call.out = out;
  call.precision = ops::current_precision();
  call.operand_may_answer = !out;
  return ops::matmul(call);
}

PyObject* matmul_operator(PyObject* a, PyObject* b) { return operator_product(a, b, nullptr); }

PyObject* matmul_in_place(PyObject* a, PyObject* b) {
  return in_statement("x @= y", [&] { return operator_product(a, b, a); });
}

}  // namespace

PyType_Slot product_slots[] = {
    {Py_nb_matrix_multiply, slot(guarded<matmul_operator>)},
    {Py_nb_inplace_matrix_multiply, slot(guarded<matmul_in_place>)},
    {0, nullptr},
};

void register_blas(nb::module_& m) {
  m.def("blas_open", &blas::open, nb::arg("cublas"), nb::arg("cublas_lt"),
        "Open cuBLAS, once in a process.");
  m.def(
      "_enter_precision",
      [](nb::handle name, const std::string& where) {
        ops::enter_precision(ops::precision_named(name.ptr(), where.c_str()));
      },
      nb::arg("name").none(), nb::arg("where"),
      "Set how this thread multiplies float32, until _leave_precision().");
  m.def(
      "_current_precision",
      [] { return ops::kPrecisions[static_cast<size_t>(ops::current_precision())]; },
      "Return how this thread multiplies float32.");
  m.def("_leave_precision", &ops::leave_precision,
        "Set what the last _enter_precision() replaced.");
  m.def(
      "_exchange_precision",
      [](nb::handle name, const std::string& where) {
        const ops::Precision precision = ops::precision_named(name.ptr(), where.c_str());
        return ops::kPrecisions[static_cast<size_t>(ops::exchange_precision(precision))];
      },
      nb::arg("name").none(), nb::arg("where"),
      "Set how the process multiplies float32, and return how it did.");
  m.def(
      "_product_function",
      [](const std::string& name, const std::string& doc) {
        size_t which = 0;
        while (which < products().size() && name != products()[which].name()) ++which;
        if (which == products().size()) throw nb::value_error("unknown product");
        return nb::steal(make_function_with_id(static_cast<int>(which), name.c_str(), doc.c_str(),
                                               as_method(guarded<call_product>)));
      },
      nb::arg("name"), nb::arg("doc"), "Return a product as a function.");
  const PyRef method = PyRef::checked(PyDescr_NewMethod(array_type, &dot_def));
  nb::handle(reinterpret_cast<PyObject*>(array_type)).attr("dot") = nb::handle(method.get());
}

}  // namespace gpuinterop
