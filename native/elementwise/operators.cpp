// Python's operators on arrays, the methods that are written in Python, and functions of NumPy on arrays.
#include <algorithm>
#include <vector>

#include "arrays/type.hpp"

#include "arrays/few_values.hpp"
#include "elementwise/calls.hpp"
#include "elementwise/operands.hpp"
#include "interpreter/attempt.hpp"
#include "interpreter/hooks.hpp"
#include "interpreter/register.hpp"
#include "interpreter/served.hpp"

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

// NumPy's functions, and the functions of the core that take the same arguments; and the object that stands in NumPy for
// arguments that are left out.
PyObject *numpy_functions = nullptr, *no_value = nullptr;

// The result of that function; null if there is none, or it failed: Python's error names NumPy's function.
template <class Call>
PyObject* call_numpy_function(PyObject* function, Call&& call) {
  PyObject* const own = numpy_functions ? PyDict_GetItem(numpy_functions, function) : nullptr;
  PyObject* const made = own ? call(own) : nullptr;
  if (own && !made) forgive();
  return made;
}

// A list may contain itself.
struct RecursiveCall {
  RecursiveCall() {
    if (Py_EnterRecursiveCall(" in a nested list")) throw PythonError();
  }
  ~RecursiveCall() { Py_LeaveRecursiveCall(); }
};

// An argument, or an item of a list, with a view as GpuArray in place of each array of another class. `any`: there is
// an array.
PyRef widened(PyObject* value, bool* any) {
  if (is_array(value)) {
    *any = true;
    PyTypeObject* const wide = result_type(kBool);
    if (Py_TYPE(value) == wide) return PyRef::borrow(value);
    const Array& a = read_array(value, "array_api");
    return PyRef::steal(retyped_view(value, wide, a.layout, a.data));
  }
  const RecursiveCall guard;
  const bool list = PyList_CheckExact(value);
  if (!list && !PyTuple_CheckExact(value)) return PyRef::borrow(value);
  const PyRef items = PyRef::checked(PySequence_List(value));
  for (Py_ssize_t i = 0; i < PyList_Size(items.get()); ++i)
    PyList_SetItem(items.get(), i, widened(PyList_GetItem(items.get(), i), any).release());
  return list ? PyRef::borrow(items.get()) : PyRef::checked(PyList_AsTuple(items.get()));
}

// The function of NumPy `of`, on arrays. `number`: they count as GpuArrays.
PyObject* attempt_numpy_function(const PublicFunction& self, PyObject* const* args,
                                 Py_ssize_t nargs, PyObject* names) {
  auto run = [&]() -> PyObject* {
    const Py_ssize_t count = nargs + (names ? PyTuple_Size(names) : 0);
    std::vector<PyRef> held;
    std::vector<PyObject*> given(args, args + count);
    bool any = !self.number;
    for (Py_ssize_t i = 0; self.number && i < count; ++i) {
      held.push_back(widened(args[i], &any));
      given[static_cast<size_t>(i)] = held.back().get();
    }
    if (!any) return nullptr;
    if (const int op = ops::op_by_ufunc(self.of); op >= 0) {
      const bool known = !names && nargs == ops::op_info(static_cast<ops::OpId>(op)).inputs &&
                         std::ranges::all_of(given, ops::is_array_or_number);
      return known ? ops::call(static_cast<ops::OpId>(op), given.data(), nullptr, false) : nullptr;
    }
    return call_numpy_function(
        self.of, [&](PyObject* own) { return attempt_function(own, given.data(), nargs, names); });
  };
  return guard((PyObject*)nullptr, [&] { return attempt_in_core(run); });
}

// The call of a ufunc that is an operation of the table, on arrays and Python scalars: numpy.exp(x),
// numpy.add(x, 1, out=y). Python carries out all other calls.
PyObject* method___array_ufunc__(PyObject* self, PyObject* const* args, Py_ssize_t nargs,
                                 PyObject* names) {
  const int op = nargs > 2 ? ops::op_by_ufunc(args[0]) : -1;
  bool direct = op >= 0 && is_text(args[1], "__call__");
  PyObject* outs[ops::kMaxResults] = {};
  const Py_ssize_t named = names ? PyTuple_Size(names) : 0;
  if (direct) {
    const ops::OpInfo& info = ops::op_info(static_cast<ops::OpId>(op));
    direct = nargs - 2 == info.inputs && named <= 1;
    for (Py_ssize_t i = 2; direct && i < nargs; ++i) direct = ops::is_array_or_number(args[i]);
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
  if (!direct && nargs > 2 && !names && is_text(args[1], "__call__"))  // numpy.matmul
    if (PyObject* made = call_numpy_function(args[0], [&](PyObject* own) {
          return PyObject_Vectorcall(own, args + 2, size_t(nargs - 2), nullptr);
        }))
      return made;
  if (!direct) return forward("__array_ufunc__", self, args, nargs, names);
  return ops::call(static_cast<ops::OpId>(op), args + 2, named ? outs : nullptr, false);
}

// Whether the core has the function too, names, arguments as inspect.signature shows them, docstrings.
#define GI_METHODS(X)                                                                            \
  X(true, astype, "/, dtype, order='K', copy=True",                                              \
    "Return a copy in another dtype; the array itself if copy=False and nothing changes.")       \
  X(true, clip, "/, min=None, max=None, out=None",                                               \
    "Return the elements limited to the range from min to max.")                                 \
  X(true, round, "/, decimals=0, out=None",                                                      \
    "Return the elements rounded to the given number of decimals.")                              \
  X(true, take, "/, indices, axis=None, out=None, mode='raise', max_threads=1",                  \
    "Return the elements at indices along an axis, as numpy.take.")                              \
  X(false, put, "/, ind, v, mode='raise'", "Set elements of the flattened array, as numpy.put.") \
  X(false, nonzero, "/",                                                                         \
    "Return the indices of the elements that are not zero, one array for each axis.")            \
  X(false, compress, "/, condition, axis=None, out=None",                                        \
    "Return the parts along an axis for which a condition is true.")                             \
  X(false, repeat, "/, repeats, axis=None", "Return each element repeated, as numpy.repeat.")

// x.take(...) is take(x, ...).
PyObject* call_with_self(const Served& function, PyObject* self, PyObject* const* args,
                         Py_ssize_t nargs, PyObject* names) {
  if (!function.python) import_module("gpuinterop.numpy_api.protocols");
  const Py_ssize_t count = nargs + (names ? PyTuple_Size(names) : 0);
  ops::FewValues<PyObject*, 4> all(static_cast<int>(count) + 1);
  all[0] = self;
  std::copy_n(args, count, all.get() + 1);
  return call_served(function, all.get(), nargs + 1, names);
}

#define X(is_served, name, arguments, doc)                                         \
  PyObject* method_##name(PyObject* self, PyObject* const* args, Py_ssize_t nargs, \
                          PyObject* names) {                                       \
    if constexpr (is_served) {                                                     \
      static const Served& function = served(#name);                               \
      return call_with_self(function, self, args, nargs, names);                   \
    } else {                                                                       \
      return forward(#name, self, args, nargs, names);                             \
    }                                                                              \
  }
GI_METHODS(X)
#undef X

bool has_no_value(PyObject* args, PyObject* names) {
  PyObject *name, *value;
  for (Py_ssize_t i = 0; i < PyTuple_Size(args); ++i)
    if (PyTuple_GetItem(args, i) == no_value) return true;
  for (Py_ssize_t at = 0; PyDict_Next(names, &at, &name, &value);)
    if (value == no_value) return true;
  return false;
}

// numpy.where(x, y, z) and numpy.sum(x).
PyObject* method___array_function__(PyObject* self, PyObject* const* args, Py_ssize_t nargs,
                                    PyObject* names) {
  if (nargs == 4 && !names && PyTuple_Check(args[2]) && PyDict_Check(args[3]) &&
      !has_no_value(args[2], args[3]))
    if (PyObject* made = call_numpy_function(
            args[0], [&](PyObject* own) { return PyObject_Call(own, args[2], args[3]); }))
      return made;
  return forward("__array_function__", self, args, nargs, names);
}

}  // namespace

PyMethodDef ops_methods[] = {
#define X(is_served, name, arguments, doc)                                  \
  {#name, as_method(guarded<method_##name>), METH_FASTCALL | METH_KEYWORDS, \
   #name "($self, " arguments ")\n--\n\n" doc},
    GI_METHODS(X)
#undef X
        {"__array_function__", as_method(guarded<method___array_function__>),
         METH_FASTCALL | METH_KEYWORDS,
         "__array_function__($self, func, types, args, kwargs, /)\n--\n\n"
         "Run a NumPy function, for numpy.where(x, y, z) and numpy.sum(x)."},
    {"__array_ufunc__", as_method(guarded<method___array_ufunc__>), METH_FASTCALL | METH_KEYWORDS,
     "__array_ufunc__($self, ufunc, method, /, *inputs, **kwargs)\n--\n\n"
     "Carry out a NumPy ufunc, for numpy.exp(x) and numpy.add(x, y, out=z)."},
    {"exp", guarded<method_of<exponential>>, METH_NOARGS,
     "exp($self, /)\n--\n\nReturn the exponential of every element, in a new array."},
    {"conj", guarded<method_of<conjugate>>, METH_NOARGS,
     "conj($self, /)\n--\n\nReturn the complex conjugate of every element."},
    {"conjugate", guarded<method_of<conjugate>>, METH_NOARGS,
     "conjugate($self, /)\n--\n\nReturn the complex conjugate of every element."},
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

void register_numpy_functions(nb::module_& m) {
  m.def(
      "_set_numpy_functions",
      [](nb::dict functions, nb::object nothing) {
        const PyRef old = PyRef::steal(std::exchange(numpy_functions, functions.release().ptr()));
        const PyRef same = PyRef::steal(std::exchange(no_value, nothing.release().ptr()));
      },
      nb::arg("functions"), nb::arg("no_value"),
      "Say which functions of the core take the arguments of functions of NumPy, and what stands "
      "there for arguments that are left out.");
  m.def(
      "numpy_function",
      [](nb::object function, bool widens) {
        return nb::cpp_function([function, widens](nb::callable python) {
          return make_function(attempt_numpy_function, widens, function.ptr(), python);
        });
      },
      nb::arg("function"), nb::arg("widens") = false,
      "Decorator of a function with the arguments of one of NumPy: the core carries out the calls "
      "that it carries out for that one. `widens`: each array counts as a GpuArray.");
}

}  // namespace gpuinterop
