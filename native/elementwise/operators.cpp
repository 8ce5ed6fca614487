// Python's operators on arrays, and the methods that are written in Python.
#include "arrays/type.hpp"

#include "captures/recorder.hpp"
#include "elementwise/calls.hpp"
#include "elementwise/host_loops.hpp"
#include "interpreter/error_translation.hpp"
#include "interpreter/hooks.hpp"

namespace gpuinterop {

namespace {

// A Python operator: the operation's name, whose id is looked up once, and the in-place statement.
struct Operator {
  const char* name;
  const char* statement = nullptr;
  int known = -1;
  ops::OpId id() {
    if (known < 0) known = ops::op_by_name(name);
    return static_cast<ops::OpId>(known);
  }
};

Operator add{"add", "x += y"}, subtract{"subtract", "x -= y"}, multiply{"multiply", "x *= y"},
    true_divide{"divide", "x /= y"}, floor_divide{"floor_divide", "x //= y"},
    remainder{"remainder", "x %= y"}, power{"power", "x **= y"}, divmod{"divmod"},
    bitwise_and{"bitwise_and", "x &= y"}, bitwise_or{"bitwise_or", "x |= y"},
    bitwise_xor{"bitwise_xor", "x ^= y"}, lshift{"left_shift", "x <<= y"},
    rshift{"right_shift", "x >>= y"}, negative{"negative"}, positive{"positive"},
    absolute{"absolute"}, invert{"invert"}, exponential{"exp"}, conjugate{"conjugate"};
// In the order of Py_LT, Py_LE and so on.
Operator comparisons[] = {{"less"},      {"less_equal"}, {"equal"},
                          {"not_equal"}, {"greater"},    {"greater_equal"}};

template <Operator& O>
PyObject* unary(PyObject* a) {
  return ops::call(O.id(), &a, nullptr, true);
}
template <Operator& O>
PyObject* method_of(PyObject* a, PyObject*) {
  return ops::call(O.id(), &a, nullptr, false);
}
// NotImplemented would make Python use the + and * of sequences, which repeat a list, and compare with a
// list to a single False. Lists are therefore refused like any other object that is not an array.
bool is_list(PyObject* o) { return PyList_Check(o) || PyTuple_Check(o); }
// For text Python would call __index__ of the array.
bool is_repeatable(PyObject* o) {
  return is_list(o) || PyUnicode_Check(o) || PyBytes_Check(o) || PyByteArray_Check(o);
}
template <Operator& O>
PyObject* binary(PyObject* a, PyObject* b) {
  PyObject* args[] = {a, b};
  return ops::call(O.id(), args, nullptr, !is_repeatable(a) && !is_repeatable(b));
}
// Raises for unsupported operands, because the interpreter returns a NotImplemented from a subclass's += as
// the result (it calls the slot a second time, for concatenation of sequences).
template <Operator& O>
PyObject* in_place(PyObject* a, PyObject* b) {
  return in_statement(O.statement, [&] {
    PyObject* args[] = {a, b};
    return ops::call(O.id(), args, &a, false);
  });
}
template <PyObject* (*F)(PyObject*, PyObject*)>
PyObject* without_modulus(PyObject* a, PyObject* b, PyObject* modulus) {
  if (modulus != Py_None) Py_RETURN_NOTIMPLEMENTED;
  return F(a, b);
}

PyObject* compare(PyObject* a, PyObject* b, int how) {
  PyObject* args[] = {a, b};
  return ops::call(comparisons[how].id(), args, nullptr, !is_list(b));
}

// Calls the function that gpuinterop.numpy_api.protocols has registered for the method.
PyObject* forward(const char* name, PyObject* self, PyObject* const* args, Py_ssize_t nargs,
                  PyObject* names) {
  static bool imported = false;  // the GIL guards it
  if (!imported) import_module("gpuinterop.numpy_api.protocols");
  imported = true;
  return call_python(PyUnicode_FromString(name), self, args, nargs, names).release();
}

// x.astype(dtype) of an array of one of the two public classes, by a loop of the core or the kernel of casts; null if
// Python carries it out. The result has the class of x if that holds the dtype, as elementwise.results.class_for.
PyObject* cast_directly(PyObject* self, PyObject* dtype) {
  if (PyLong_CheckExact(dtype)) return nullptr;  // which read_dtype takes for an id
  require_valid_layout(self);
  const Array from = unwrap(self);  // by value: allocating may let other threads run
  const DTypeId to = read_dtype(dtype, "astype");
  PyTypeObject* const general = result_type(kBool);
  const bool keeps = Py_TYPE(self) == general;
  if ((!keeps && Py_TYPE(self) != result_type(kFloat32)) || !ops::cast_loop(from.dtype, to))
    return nullptr;
  ops::require_recorded(from.device);
  Array made = make_empty(from.device, to, layout_of_copy(from.layout, "K", "astype"), "astype");
  const bool casts = to != from.dtype;
  if (!casts) {
    copy_elements(made, from, "astype");
  } else if (!from.device.is_cuda() && !ops::recording_on_host()) {
    ops::require_set("astype", from);
    copy_unreported(made, from, "astype");
  }
  PyRef result = PyRef::steal(wrap(keeps ? general : result_type(to), std::move(made)));
  if (casts && (from.device.is_cuda() || ops::recording_on_host())) {
    static Operator cast{"cast"};
    PyObject* out = result.get();
    return ops::call(cast.id(), &self, &out, false);
  }
  return result.release();
}

bool is_array_or_number(PyObject* o) {
  return is_array(o) || PyFloat_CheckExact(o) || PyLong_CheckExact(o) || PyBool_Check(o) ||
         PyComplex_CheckExact(o);
}

// The call of a ufunc that is an operation of the table, on arrays and Python scalars: numpy.exp(x),
// numpy.add(x, 1, out=y). Python carries out all other calls.
PyObject* method___array_ufunc__(PyObject* self, PyObject* const* args, Py_ssize_t nargs,
                                 PyObject* names) {
  const int op = nargs > 2 ? ops::op_by_ufunc(args[0]) : -1;
  bool direct = op >= 0 && PyUnicode_CompareWithASCIIString(args[1], "__call__") == 0;
  PyObject* outs[ops::kMaxResults] = {};
  const Py_ssize_t named = names ? PyTuple_Size(names) : 0;
  if (direct) {
    const ops::OpInfo& info = ops::op_info(static_cast<ops::OpId>(op));
    direct = nargs - 2 == info.inputs && named <= 1;
    for (Py_ssize_t i = 2; direct && i < nargs; ++i) direct = is_array_or_number(args[i]);
    if (direct && named) {
      PyObject* out = args[nargs];
      direct = PyUnicode_CompareWithASCIIString(PyTuple_GetItem(names, 0), "out") == 0 &&
               PyTuple_Check(out) && PyTuple_Size(out) == info.results;
      for (int j = 0; direct && j < info.results; ++j) {
        outs[j] = PyTuple_GetItem(out, j);
        direct = is_array(outs[j]);
      }
    }
  }
  if (!direct) return forward("__array_ufunc__", self, args, nargs, names);
  return ops::call(static_cast<ops::OpId>(op), args + 2, named ? outs : nullptr, false);
}

// Names, arguments as inspect.signature shows them, docstrings.
#define GI_METHODS(X)                                                                      \
  X(__array_function__, "func, types, args, kwargs, /",                                    \
    "Run a NumPy function, for numpy.where(x, y, z) and numpy.sum(x).")                    \
  X(astype, "/, dtype, order='K', copy=True",                                              \
    "Return a copy in another dtype; the array itself if copy=False and nothing changes.") \
  X(clip, "/, min=None, max=None, out=None",                                               \
    "Return the elements limited to the range from min to max.")                           \
  X(round, "/, decimals=0, out=None",                                                      \
    "Return the elements rounded to the given number of decimals.")                        \
  X(take, "/, indices, axis=None, out=None, mode='raise', max_threads=1",                  \
    "Return the elements at indices along an axis, as numpy.take.")                        \
  X(put, "/, ind, v, mode='raise'", "Set elements of the flattened array, as numpy.put.")  \
  X(nonzero, "/",                                                                          \
    "Return the indices of the elements that are not zero, one array for each axis.")      \
  X(compress, "/, condition, axis=None, out=None",                                         \
    "Return the parts along an axis for which a condition is true.")                       \
  X(repeat, "/, repeats, axis=None", "Return each element repeated, as numpy.repeat.")

template <bool IsCast>
PyObject* method(const char* name, PyObject* self, PyObject* const* args, Py_ssize_t nargs,
                 PyObject* names) {
  if (IsCast && nargs == 1 && !names)
    if (PyObject* const result = cast_directly(self, args[0])) return result;
  return forward(name, self, args, nargs, names);
}

#define X(name, arguments, doc)                                                          \
  PyObject* method_##name(PyObject* self, PyObject* const* args, Py_ssize_t nargs,       \
                          PyObject* names) {                                             \
    return method<std::string_view(#name) == "astype">(#name, self, args, nargs, names); \
  }
GI_METHODS(X)
#undef X

}  // namespace

PyMethodDef ops_methods[] = {
#define X(name, arguments, doc)                                             \
  {#name, as_method(guarded<method_##name>), METH_FASTCALL | METH_KEYWORDS, \
   #name "($self, " arguments ")\n--\n\n" doc},
    GI_METHODS(X)
#undef X
        {"__array_ufunc__", as_method(guarded<method___array_ufunc__>),
         METH_FASTCALL | METH_KEYWORDS,
         "__array_ufunc__($self, ufunc, method, /, *inputs, **kwargs)\n--\n\n"
         "Carry out a NumPy ufunc, for numpy.exp(x) and numpy.add(x, y, out=z)."},
    {"exp", guarded<method_of<exponential>>, METH_NOARGS,
     "exp($self, /)\n--\n\nReturn the exponential of every element, in a new array."},
    {"conj", guarded<method_of<conjugate>>, METH_NOARGS,
     "conj($self, /)\n--\n\nReturn the complex conjugate of every element."},
    {nullptr, nullptr, 0, nullptr},
};

#define GI_BINARY(name, op) \
  {Py_nb_##name, slot(guarded<binary<op>>)}, { Py_nb_inplace_##name, slot(guarded<in_place<op>>) }
PyType_Slot ops_slots[] = {
    GI_BINARY(add, add),
    GI_BINARY(subtract, subtract),
    GI_BINARY(multiply, multiply),
    GI_BINARY(true_divide, true_divide),
    GI_BINARY(floor_divide, floor_divide),
    GI_BINARY(remainder, remainder),
    GI_BINARY(and, bitwise_and),
    GI_BINARY(or, bitwise_or),
    GI_BINARY(xor, bitwise_xor),
    GI_BINARY(lshift, lshift),
    GI_BINARY(rshift, rshift),
    {Py_nb_divmod, slot(guarded<binary<divmod>>)},
    {Py_nb_power, slot(guarded<without_modulus<binary<power>>>)},
    {Py_nb_inplace_power, slot(guarded<without_modulus<in_place<power>>>)},
    {Py_nb_negative, slot(guarded<unary<negative>>)},
    {Py_nb_positive, slot(guarded<unary<positive>>)},
    {Py_nb_absolute, slot(guarded<unary<absolute>>)},
    {Py_nb_invert, slot(guarded<unary<invert>>)},
    {Py_tp_richcompare, slot(guarded<compare>)},
    {0, nullptr},
};

}  // namespace gpuinterop
