// Python's operators on arrays, and the methods that are written in Python.
#include "python/ops_slots.hpp"

#include <vector>

#include "array/gil.hpp"
#include "ops/elementwise.hpp"
#include "ops/product.hpp"
#include "python/error_translation.hpp"

namespace gpuinterop {

namespace {

// A name of the table, looked up once.
struct Named {
  const char* name;
  int id = -1;
  ops::OpId get() {
    if (id < 0) id = ops::op_by_name(name);
    return static_cast<ops::OpId>(id);
  }
};

enum Which {
  kAdd,
  kSubtract,
  kMultiply,
  kTrueDivide,
  kFloorDivide,
  kRemainder,
  kPower,
  kDivmod,
  kAnd,
  kOr,
  kXor,
  kLeftShift,
  kRightShift,
  kNegative,
  kPositive,
  kAbsolute,
  kInvert,
  kExp,
  kConjugate,
  kLess,
  kLessEqual,
  kEqual,
  kNotEqual,
  kGreater,
  kGreaterEqual,
  kCount
};
Named named[kCount] = {
    {"add"},         {"subtract"},   {"multiply"},    {"divide"},      {"floor_divide"},
    {"remainder"},   {"power"},      {"divmod"},      {"bitwise_and"}, {"bitwise_or"},
    {"bitwise_xor"}, {"left_shift"}, {"right_shift"}, {"negative"},    {"positive"},
    {"absolute"},    {"invert"},     {"exp"},         {"conjugate"},   {"less"},
    {"less_equal"},  {"equal"},      {"not_equal"},   {"greater"},     {"greater_equal"},
};

template <Which W>
PyObject* unary(PyObject* a) {
  return guard((PyObject*)nullptr, [&] { return ops::call(named[W].get(), &a, nullptr, true); });
}
template <Which W>
PyObject* method_of(PyObject* a, PyObject*) {
  return guard((PyObject*)nullptr, [&] { return ops::call(named[W].get(), &a, nullptr, false); });
}
// Python would go on with what sequences mean by + and *, which repeats a list, and a comparison with one
// would be a single False: both are refused like any other object that is no array.
bool is_list(PyObject* o) { return PyList_Check(o) || PyTuple_Check(o); }
template <Which W>
PyObject* binary(PyObject* a, PyObject* b) {
  return guard((PyObject*)nullptr, [&] {
    PyObject* args[] = {a, b};
    return ops::call(named[W].get(), args, nullptr, !is_list(a) && !is_list(b));
  });
}
// Refuses unknown operands itself: the interpreter takes a NotImplemented from a subclass's += for the
// result (it reaches the slot a second time, as a sequence's concatenation).
template <Which W>
PyObject* in_place(PyObject* a, PyObject* b) {
  return guard((PyObject*)nullptr, [&] {
    PyObject* args[] = {a, b};
    return ops::call(named[W].get(), args, &a, false);
  });
}
PyObject* power(PyObject* a, PyObject* b, PyObject* modulus) {
  if (modulus != Py_None) Py_RETURN_NOTIMPLEMENTED;
  return binary<kPower>(a, b);
}
PyObject* power_in_place(PyObject* a, PyObject* b, PyObject* modulus) {
  if (modulus != Py_None) Py_RETURN_NOTIMPLEMENTED;
  return in_place<kPower>(a, b);
}

PyObject* compare(PyObject* a, PyObject* b, int how) {
  static constexpr Which which[] = {kLess, kLessEqual, kEqual, kNotEqual, kGreater, kGreaterEqual};
  return guard((PyObject*)nullptr, [&] {
    PyObject* args[] = {a, b};
    return ops::call(named[which[how]].get(), args, nullptr, !is_list(b));
  });
}

// Calls gpuinterop.ops.methods.name(self, *args, **kwargs): the method's home is there.
PyObject* forward(const char* name, PyObject* self, PyObject* const* args, Py_ssize_t nargs,
                  PyObject* names) {
  return guard((PyObject*)nullptr, [&]() -> PyObject* {
    static PyObject* methods = nullptr;  // the GIL guards it
    if (!methods && !(methods = PyImport_ImportModule("gpuinterop.ops.methods"))) return nullptr;
    const PyRef function = PyRef::steal(PyObject_GetAttrString(methods, name));
    if (!function) return nullptr;
    std::vector<PyObject*> all{self};
    all.insert(all.end(), args, args + nargs + (names ? PyTuple_Size(names) : 0));
    return run_python([&] {
      return PyObject_Vectorcall(function.get(), all.data(), static_cast<size_t>(nargs) + 1, names);
    });
  });
}

PyObject* matmul(PyObject* a, PyObject* b) {
  return guard((PyObject*)nullptr, [&] {
    ops::ProductCall call;
    call.where = "matmul";
    call.a = a;
    call.b = b;
    call.tf32 = ops::tf32_allowed;
    call.operand_may_answer = true;
    return ops::matmul(call);
  });
}

PyObject* matmul_in_place(PyObject* a, PyObject* b) {
  return guard((PyObject*)nullptr, [&] {
    ops::ProductCall call;
    call.where = "matmul";
    call.a = call.out = a;
    call.b = b;
    call.tf32 = ops::tf32_allowed;
    return ops::matmul(call);
  });
}

// Names, arguments as inspect.signature shows them, docstrings.
#define GI_METHODS(X)                                                                           \
  X(__array_ufunc__, "ufunc, method, /, *inputs, **kwargs",                                     \
    "How numpy.exp(x) and numpy.add(x, y, out=z) come here.")                                   \
  X(__array_function__, "func, types, args, kwargs, /",                                         \
    "How numpy.where(x, y, z), numpy.sum(x) and their like come here.")                         \
  X(astype, "/, dtype, order='C', copy=True",                                                   \
    "A copy in another dtype; the array itself when copy=False and nothing changes.")           \
  X(clip, "/, min=None, max=None, out=None", "Every element cut to the range from min to max.") \
  X(round, "/, decimals=0, out=None", "Every element rounded to the given number of decimals.") \
  X(take, "/, indices, axis=None, out=None, mode='raise', max_threads=1",                       \
    "Elements gathered along an axis, as numpy.take.")

#define X(name, arguments, doc)                                                    \
  PyObject* method_##name(PyObject* self, PyObject* const* args, Py_ssize_t nargs, \
                          PyObject* names) {                                       \
    return forward(#name, self, args, nargs, names);                               \
  }
GI_METHODS(X)
#undef X

template <class F>
void* slot(F f) {
  return reinterpret_cast<void*>(f);
}

}  // namespace

PyMethodDef ops_methods[] = {
#define X(name, arguments, doc)                                                  \
  {#name, reinterpret_cast<PyCFunction>(reinterpret_cast<void*>(method_##name)), \
   METH_FASTCALL | METH_KEYWORDS, #name "($self, " arguments ")\n--\n\n" doc},
    GI_METHODS(X)
#undef X
        {"exp", method_of<kExp>, METH_NOARGS,
         "exp($self, /)\n--\n\nThe exponential of every element, a new C-ordered array."},
    {"conj", method_of<kConjugate>, METH_NOARGS,
     "conj($self, /)\n--\n\nThe complex conjugate of every element."},
    {nullptr, nullptr, 0, nullptr},
};

PyType_Slot ops_slots[] = {
    {Py_nb_add, slot(binary<kAdd>)},
    {Py_nb_subtract, slot(binary<kSubtract>)},
    {Py_nb_multiply, slot(binary<kMultiply>)},
    {Py_nb_true_divide, slot(binary<kTrueDivide>)},
    {Py_nb_floor_divide, slot(binary<kFloorDivide>)},
    {Py_nb_remainder, slot(binary<kRemainder>)},
    {Py_nb_divmod, slot(binary<kDivmod>)},
    {Py_nb_power, slot(power)},
    {Py_nb_and, slot(binary<kAnd>)},
    {Py_nb_or, slot(binary<kOr>)},
    {Py_nb_xor, slot(binary<kXor>)},
    {Py_nb_lshift, slot(binary<kLeftShift>)},
    {Py_nb_rshift, slot(binary<kRightShift>)},
    {Py_nb_inplace_add, slot(in_place<kAdd>)},
    {Py_nb_inplace_subtract, slot(in_place<kSubtract>)},
    {Py_nb_inplace_multiply, slot(in_place<kMultiply>)},
    {Py_nb_inplace_true_divide, slot(in_place<kTrueDivide>)},
    {Py_nb_inplace_floor_divide, slot(in_place<kFloorDivide>)},
    {Py_nb_inplace_remainder, slot(in_place<kRemainder>)},
    {Py_nb_inplace_power, slot(power_in_place)},
    {Py_nb_inplace_and, slot(in_place<kAnd>)},
    {Py_nb_inplace_or, slot(in_place<kOr>)},
    {Py_nb_inplace_xor, slot(in_place<kXor>)},
    {Py_nb_inplace_lshift, slot(in_place<kLeftShift>)},
    {Py_nb_inplace_rshift, slot(in_place<kRightShift>)},
    {Py_nb_negative, slot(unary<kNegative>)},
    {Py_nb_positive, slot(unary<kPositive>)},
    {Py_nb_absolute, slot(unary<kAbsolute>)},
    {Py_nb_invert, slot(unary<kInvert>)},
    {Py_nb_matrix_multiply, slot(matmul)},
    {Py_nb_inplace_matrix_multiply, slot(matmul_in_place)},
    {Py_tp_richcompare, slot(compare)},
    {0, nullptr},
};

}  // namespace gpuinterop
