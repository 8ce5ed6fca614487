// Functions of other libraries on the memory of arrays. The usual call, whose arguments are arrays that the library
// shares, numbers, text, and lists of these, runs no Python of the package. Python carries out the others.
#include "exchange/lending.hpp"

#include <nanobind/stl/optional.h>

#include <deque>
#include <optional>
#include <vector>

#include "arrays/numpy_arrays.hpp"
#include "arrays/type.hpp"
#include "captures/recorder.hpp"
#include "exchange/import_any.hpp"
#include "interpreter/attempt.hpp"
#include "interpreter/error.hpp"
#include "interpreter/served.hpp"

namespace nb = nanobind;
using namespace nb::literals;

namespace gpuinterop {

namespace {

constexpr Py_ssize_t kMostArguments = 16;

// Numbers, text and None, which no array is in.
bool is_value(PyObject* o) {
  return o == Py_None || PyBool_Check(o) || PyLong_CheckExact(o) || PyFloat_CheckExact(o) ||
         PyUnicode_CheckExact(o) || PyComplex_CheckExact(o);
}

// A sequence as a tuple whose items no one else changes; null for other objects.
PyRef items_of(PyObject* o) {
  return PyList_CheckExact(o) || PyTuple_CheckExact(o) ? PyRef::checked(PySequence_Tuple(o))
                                                       : PyRef();
}

// A list or tuple of the converted items; null if convert() returns null for one of them.
template <class Convert>
PyRef convert_items(PyObject* items, bool list, Convert&& convert) {
  const Py_ssize_t n = PyTuple_Size(items);
  PyRef made = PyRef::checked(list ? PyList_New(n) : PyTuple_New(n));
  for (Py_ssize_t i = 0; i < n; ++i) {
    PyRef item = convert(PyTuple_GetItem(items, i));
    if (!item) return {};
    if (list)
      PyList_SetItem(made.get(), i, item.release());
    else
      PyTuple_SetItem(made.get(), i, item.release());
  }
  return made;
}

// A tuple with names of the converted items; null if convert() returns null for one of them.
template <class Convert>
PyRef convert_named(PyObject* tuple, Convert&& convert) {
  const PyRef made = convert_items(PyRef::checked(PySequence_Tuple(tuple)).get(), false, convert);
  if (!made) return {};
  auto* const cls = reinterpret_cast<PyObject*>(Py_TYPE(tuple));
  PyObject* const one[] = {made.get()};  // PyTorch's class takes the items in one argument
  return PyRef::checked(has_attribute(tuple, "_fields")
                            ? PyObject_Call(cls, made.get(), nullptr)
                            : PyObject_Vectorcall(cls, one, 1, nullptr));
}

struct Lent {
  PyRef own, theirs;  // an array, and the library's object over its memory
};

static_assert(kMaxDevices <= 64, "Call::ordered has a bit for each GPU of an array");

// One call: what was lent, and the arguments.
struct Call {
  std::vector<Lent> lent;
  bool narrow = false;   // an operand is a CudaNdarray, so float32 results are too
  uint64_t ordered = 0;  // bits of GPUs on which a result has been imported
  PyRef held[kMostArguments];
  PyObject* args[kMostArguments] = {};
  Py_ssize_t count = 0;

  void add(PyRef value) {
    args[count] = value.get();
    held[count++] = std::move(value);
  }
  void note(PyObject* x, const PyRef& theirs) {
    narrow = narrow || is_cudandarray(Py_TYPE(x));
    lent.push_back({PyRef::borrow(x), theirs});
  }
  const Lent* find(PyObject* theirs) const {
    for (const Lent& one : lent)
      if (one.theirs.get() == theirs) return &one;
    return nullptr;
  }
};

// The class of a result of a function.
PyTypeObject* class_of_result(DTypeId dtype, bool narrow) {
  return narrow ? result_type(dtype) : reinterpret_cast<PyTypeObject*>(gpuarray_class().ptr());
}

// ---- NumPy's functions, in place of the package's ----------------------------------------------------

// A function of the package, and the one of NumPy that carries its usual calls out.
struct NumpyFunction {
  PyRef function;
  std::vector<PyRef> names;    // of the parameters that a call may pass
  Py_ssize_t positional = -1;  // the number of those without a name
  Py_ssize_t arrays;           // the first ones; 0: the first one is a list of arrays
  int64_t most;                // elements of an array
  PyRef fixed_options;         // a dict, of options that each call gets
  PyRef fixed_names;           // a tuple
  std::vector<PyRef> fixed;    // their values
  PyRef defaults;              // a dict: values that other parameters have without an argument
  bool views;                  // it makes views, and reads no element
  bool mixed;                  // the arrays may differ in dtype
  bool in_place;               // it changes the first array, and returns None
  bool copied;                 // a copy of it, which is the result
  bool accumulates;            // it is `accumulate` of a ufunc, whose second parameter is the axis
};
auto& numpy_calls = *new std::deque<NumpyFunction>;  // never destroyed; references stay valid

// Calls a function while NumPy ignores the errors of floats, because no operation of the package warns of an overflow.
// Null: it has raised. `with numpy.errstate(all="ignore")` does the same and costs half a microsecond, so it is for a
// NumPy without these names, which are not public.
PyRef call_without_warnings(PyObject* function, PyObject* const* args, size_t n, PyObject* names) {
  static const nb::object& umath = *new nb::object(nb::module_::import_("numpy._core.umath"));
  static const nb::object& make = *new nb::object(nb::getattr(umath, "_make_extobj", nb::none()));
  static const nb::object& variable =
      *new nb::object(nb::getattr(umath, "_extobj_contextvar", nb::none()));
  if (make.is_none() || variable.is_none()) {
    const nb::object state = nb::module_::import_("numpy").attr("errstate")("all"_a = "ignore");
    return PyRef::steal(PyObject_Vectorcall(state(nb::handle(function)).ptr(), args, n, names));
  }
  static const nb::object& ignored = *new nb::object(make("all"_a = "ignore"));
  static const nb::object& set = *new nb::object(variable.attr("set"));
  static const nb::object& reset = *new nb::object(variable.attr("reset"));
  const nb::object before = set(ignored);
  PyRef result = PyRef::steal(PyObject_Vectorcall(function, args, n, names));
  const ErrorSaver saver;
  reset(before);
  return result;
}

bool has_known_class(PyObject* x) {
  return Py_TYPE(x) == result_type(kFloat32) ||
         reinterpret_cast<PyObject*>(Py_TYPE(x)) == gpuarray_class().ptr();
}

// The array as NumPy's; null: Python has to look at it.
PyRef lend_to_numpy(const NumpyFunction& f, PyObject* x, Call& call) {
  if (!is_array(x)) return {};
  const Array& a = unwrap(x);
  if (!f.views) {
    // NumPy computes with the dtypes up to complex128, and takes indices beyond 63 bits for negative ones. A result has
    // the order of its operands. NumPy 2.1 ends the process where it sorts more than 32 axes. Its irfft of no elements
    // sets none, which Python mends.
    const bool ordinary = !a.device.is_cuda() && a.dtype <= kComplex128 && a.dtype != kFloat16 &&
                          !(f.mixed && a.dtype == kUInt64) && a.layout.ndim() &&
                          a.layout.ndim() <= 32 && a.layout.is_c_contiguous() && a.layout.size() &&
                          a.layout.size() <= f.most && has_known_class(x);
    if (!ordinary ||
        (!f.mixed && !call.lent.empty() && unwrap(call.lent[0].own.get()).dtype != a.dtype))
      return {};
    ops::require_set("numpy", a);
    if (f.copied) {
      const PyRef copy = PyRef::steal(wrap(Py_TYPE(x), empty_like(a, a.device, "numpy")));
      copy_unreported(unwrap(copy.get()), a, "numpy");
      PyRef made = numpy_view(copy.get());
      call.note(copy.get(), made);
      return made;
    }
    if (f.in_place && call.lent.empty()) {
      if (a.readonly) return {};
      ops::prepare_write(a, "numpy");
    }
  }
  PyRef made = numpy_view(x);
  call.note(x, made);
  return made;
}

// An argument that is no array. Lists are of ints; NumPy casts other numbers to ints.
PyRef keep_value(PyObject* value) {
  if (is_value(value)) return PyRef::borrow(value);
  const PyRef items = items_of(value);
  auto keep = [](PyObject* item) {
    const bool other = PyFloat_CheckExact(item) || PyBool_Check(item) || PyComplex_CheckExact(item);
    return other ? PyRef() : keep_value(item);
  };
  const bool kept = items && convert_items(items.get(), false, keep);
  return kept ? PyRef::borrow(value) : PyRef();
}

PyRef as_numpy_argument(const NumpyFunction& f, Py_ssize_t i, PyObject* value, Call& call) {
  auto lend = [&](PyObject* x) { return lend_to_numpy(f, x, call); };
  if (i < f.arrays) return lend(value);
  if (i || f.arrays) return keep_value(value);
  const PyRef items = items_of(value);
  return items ? convert_items(items.get(), true, lend) : PyRef();
}

bool is_known_name(const NumpyFunction& f, PyObject* name) {
  for (const PyRef& known : f.names)
    if (known.get() == name) return true;
  for (const PyRef& known : f.names)
    if (PyUnicode_Compare(known.get(), name) == 0) return true;
  return false;
}

// Whether an argument says what the call does without it. The same object: 0 is not False.
bool is_default(const NumpyFunction& f, PyObject* name, PyObject* value) {
  if (PyDict_GetItem(f.defaults.get(), name) == value) return true;
  return f.fixed_options && PyDict_GetItem(f.fixed_options.get(), name) == value;
}

// The view of `x` that is NumPy's view of the memory lent for it.
PyRef same_view(const NumpyArray& view, int dtype, const Lent& of) {
  PyObject* const x = of.own.get();
  Array made = view_of(x);
  const bool same = dtype == made.dtype;
  int64_t strides[kMaxDims];
  std::copy_n(view.strides, view.ndim, strides);
  made.dtype = static_cast<DTypeId>(dtype);
  made.layout = exchange::layout_of_bytes(view.ndim, reinterpret_cast<int64_t*>(view.shape),
                                          strides, made.itemsize(), "numpy");
  const Array& a = unwrap(x);
  made.data =
      made.layout.size() ? a.data + (view.data - as_numpy_array(of.theirs.get())->data) : nullptr;
  PyTypeObject* const type = same ? Py_TYPE(x) : class_of_result(made.dtype, false);
  return PyRef::steal(wrap(type, std::move(made)));
}

// NumPy's array as an array on its memory.
PyRef adopt_numpy(PyObject* o, const NumpyArray& found, int dtype, bool narrow) {
  exchange::Checked c;
  int64_t strides[kMaxDims];
  std::copy_n(found.strides, found.ndim, strides);
  c.dtype = static_cast<DTypeId>(dtype);
  c.layout = exchange::layout_of_bytes(found.ndim, reinterpret_cast<int64_t*>(found.shape), strides,
                                       itemsize_of(c.dtype), "numpy");
  c.data = found.data;
  c.readonly = !found.writable();
  exchange::check_memory(&c, exchange::Trust::Never, false, "numpy");
  PyTypeObject* const type = class_of_result(c.dtype, narrow);
  return PyRef::steal(wrap(type, exchange::array_over(std::move(c), o, nullptr, "numpy")));
}

PyRef take_from_numpy(const NumpyFunction& f, PyObject* value, const Call& call) {
  if (const NumpyArray* found = as_numpy_array(value)) {
    const Lent* const same = call.find(value);
    const Lent* const of = found->base ? call.find(found->base) : nullptr;
    const int dtype = dtype_of(*found);
    if (dtype < 0 || found->ndim > kMaxDims || f.views != (same || of)) return {};
    if (same) return same->own;
    return of ? same_view(*found, dtype, *of) : adopt_numpy(value, *found, dtype, call.narrow);
  }
  auto take = [&](PyObject* item) { return take_from_numpy(f, item, call); };
  if (const PyRef items = items_of(value))
    return convert_items(items.get(), PyList_CheckExact(value), take);
  if (is_numpy_scalar(value)) return f.views ? PyRef() : take(numpy_array_of(value).get());
  return PyTuple_Check(value) ? convert_named(value, take) : PyRef();
}

// Whether NumPy's accumulate does what the call means: it has one axis, and does not flatten the array.
bool has_one_axis(const Call& call) {
  for (Py_ssize_t i = 1; i < call.count; ++i)
    if (PyTuple_Check(call.args[i])) return false;
  const bool is_given = call.count > 1 && PyLong_CheckExact(call.args[1]);
  return is_given || unwrap(call.lent[0].own.get()).layout.ndim() == 1;
}

// The arguments as NumPy's, and the names of the last ones; false: Python has to look at them.
bool read_call(const NumpyFunction& f, PyObject* const* args, Py_ssize_t nargs, PyObject* names,
               Call& call, PyRef* all_names) {
  const Py_ssize_t named = names ? PyTuple_Size(names) : 0;
  const auto fixed = static_cast<Py_ssize_t>(f.fixed.size());
  if (nargs < std::max<Py_ssize_t>(f.arrays, 1) || nargs > f.positional ||
      nargs + named + fixed > kMostArguments)
    return false;
  std::vector<PyObject*> kept;
  for (Py_ssize_t i = 0; i < nargs + named; ++i) {
    PyObject* const name = i < nargs ? nullptr : PyTuple_GetItem(names, i - nargs);
    if (name && !is_known_name(f, name)) {
      if (!is_default(f, name, args[i])) return false;
      continue;
    }
    PyRef value = as_numpy_argument(f, name ? kMostArguments : i, args[i], call);
    if (!value) return false;
    call.add(std::move(value));
    if (name) kept.push_back(name);
  }
  if (call.lent.empty() || (f.accumulates && !has_one_axis(call))) return false;
  for (const PyRef& value : f.fixed) call.add(value);
  if (kept.empty()) {
    *all_names = f.fixed_names;
    return true;
  }
  *all_names = PyRef::checked(PyTuple_New(static_cast<Py_ssize_t>(kept.size()) + fixed));
  Py_ssize_t at = 0;
  for (PyObject* name : kept)
    PyTuple_SetItem(all_names->get(), at++, PyRef::borrow(name).release());
  for (Py_ssize_t i = 0; i < fixed; ++i)
    PyTuple_SetItem(all_names->get(), at++,
                    PyRef::borrow(PyTuple_GetItem(f.fixed_names.get(), i)).release());
  return true;
}

PyObject* run_by_numpy(const NumpyFunction& f, PyObject* const* args, Py_ssize_t nargs,
                       PyObject* names) {
  // A capture records what Python computes by NumPy, and copies are reported there.
  if (!f.views && (ops::recorder || watching.load(std::memory_order_relaxed))) return nullptr;
  Call call;
  PyRef all_names;
  if (!read_call(f, args, nargs, names, call, &all_names)) return nullptr;
  const Py_ssize_t named = all_names ? PyTuple_Size(all_names.get()) : 0;
  const auto n = static_cast<size_t>(call.count - named);
  PyObject *const function = f.function.get(), *const words = all_names.get();
  const PyRef result = f.views || f.in_place
                           ? PyRef::steal(PyObject_Vectorcall(function, call.args, n, words))
                           : call_without_warnings(function, call.args, n, words);
  if (result && f.in_place) {
    if (f.copied) return call.lent[0].own.release();
    ops::note_write(unwrap(call.lent[0].own.get()));
    return PyRef::borrow(Py_None).release();
  }
  if (result) return take_from_numpy(f, result.get(), call).release();
  if (PyErr_ExceptionMatches(PyExc_MemoryError))
    PyErr_Clear();  // Python says which call lacks memory
  return nullptr;
}

PyObject* attempt_by_numpy(const PublicFunction& self, PyObject* const* args, Py_ssize_t nargs,
                           PyObject* names) {
  return guard((PyObject*)nullptr, [&] {
    return attempt_in_core([&] {
      return run_by_numpy(numpy_calls[static_cast<size_t>(self.number)], args, nargs, names);
    });
  });
}

// The defaults of the parameters of a function in Python; none of another callable.
PyRef defaults_of(nb::callable python) {
  nb::dict found;
  const nb::object code = nb::getattr(python, "__code__", nb::none());
  if (!code.is_none()) {
    const nb::object by_name = python.attr("__kwdefaults__"), last = python.attr("__defaults__");
    if (!by_name.is_none()) found.attr("update")(by_name);
    const size_t n = last.is_none() ? 0 : nb::len(last);
    const size_t first = nb::cast<size_t>(code.attr("co_argcount")) - n;
    for (size_t i = 0; i < n; ++i) found[code.attr("co_varnames")[first + i]] = last[i];
  }
  return PyRef::borrow(found.ptr());
}

nb::object by_numpy(nb::callable function, nb::str parameters, int arrays, nb::object fixed,
                    bool views, bool mixed, bool in_place, bool copied,
                    std::optional<int64_t> most) {
  // NumPy looks for operands of other libraries before it calls this one.
  const nb::object itself = nb::getattr(function, "_implementation", function);
  NumpyFunction f{
      .function = PyRef::borrow(itself.ptr()),
      .arrays = arrays,
      .most = most.value_or(INT64_MAX),
      .views = views,
      .mixed = mixed,
      .in_place = in_place || copied,
      .copied = copied,
      .accumulates = is_text(nb::getattr(function, "__name__", nb::none()).ptr(), "accumulate")};
  for (nb::handle word : parameters.attr("split")()) {
    if (is_text(word.ptr(), "*")) {
      f.positional = static_cast<Py_ssize_t>(f.names.size());
      continue;
    }
    PyObject* name = nb::borrow(word).release().ptr();
    PyUnicode_InternInPlace(&name);
    f.names.push_back(PyRef::steal(name));
  }
  if (f.positional < 0) f.positional = static_cast<Py_ssize_t>(f.names.size());
  if (!fixed.is_none()) {
    f.fixed_options = PyRef::borrow(fixed.ptr());
    f.fixed_names = PyRef::borrow(nb::tuple(fixed.attr("keys")()).ptr());
    for (nb::handle value : fixed.attr("values")()) f.fixed.push_back(PyRef::borrow(value.ptr()));
  }
  numpy_calls.push_back(std::move(f));
  const size_t number = numpy_calls.size() - 1;
  return nb::cpp_function([number](nb::callable python) {
    NumpyFunction& named = numpy_calls[number];
    named.defaults = defaults_of(python);
    const bool method = is_text(named.names[0].get(), "self");
    return make_function(attempt_by_numpy, static_cast<int>(number), nullptr, python, method);
  });
}

// ---- functions that the caller names -----------------------------------------------------------------

// An argument as the library takes it; null: Python has to convert it.
PyRef lend(PyObject* library, bool to_numpy, PyObject* value, Call& call) {
  if (is_value(value)) return PyRef::borrow(value);
  if (is_array(value)) {
    const Array& a = unwrap(value);
    const bool viewed = to_numpy && !a.device.is_cuda() && a.dtype <= kComplex128;
    if (viewed) ops::require_values("via", a);
    PyRef made =
        viewed ? numpy_view(value) : PyRef::steal(exchange::export_ordinary(value, library));
    if (made) call.note(value, made);
    return made;
  }
  const PyRef items = items_of(value);
  if (!items) return {};
  return convert_items(items.get(), PyList_CheckExact(value),
                       [&](PyObject* item) { return lend(library, to_numpy, item, call); });
}

// A result as the caller gets it; null: Python has to convert it.
PyRef take_back(exchange::Family family, PyObject* value, Call& call) {
  if (is_value(value)) return PyRef::borrow(value);
  if (const Lent* same = call.find(value)) return same->own;
  auto take = [&](PyObject* item) { return take_back(family, item, call); };
  if (const PyRef items = items_of(value))
    return convert_items(items.get(), PyList_CheckExact(value), take);
  if (PyTuple_Check(value)) return convert_named(value, take);
  const bool of_numpy = family == exchange::Family::Numpy;
  if (of_numpy && is_numpy_scalar(value)) return take(numpy_array_of(value).get());
  if (const NumpyArray* found = of_numpy ? as_numpy_array(value) : nullptr) {
    const int dtype = dtype_of(*found);
    return dtype < 0 ? PyRef() : adopt_numpy(value, *found, dtype, call.narrow);
  }
  exchange::ForeignType& p = exchange::foreign_type_of(Py_TYPE(value));
  if (!p.ordinary || p.family != family) return {};
  PyRef made = PyRef::steal(exchange::import_ordinary(p, value, call.narrow));
  if (!made) return made;
  const Array& a = unwrap(made.get());
  if (a.device.is_cuda()) call.ordered |= uint64_t{1} << a.device.id;
  return made;
}

// Orders the current stream after what the library wrote. An imported result has done it for its device.
void order_after(const Call& call) {
  for (const Lent& one : call.lent) {
    const Device device = unwrap(one.own.get()).device;
    if (!device.is_cuda() || call.ordered >> device.id & 1) continue;
    const PyRef seen = PyRef::steal(exchange::import_any(nullptr, one.theirs.get(), {}));
    if (!seen) throw PythonError();
  }
}

// A library's function, and take(result, [(array, lent)], narrow), which converts results that are not ordinary.
struct LentFunction {
  nb::object library;
  exchange::Family family;
  nb::object function, take;
};

// The arguments as the library takes them; false: Python has to look at one of them.
bool lend_all(const LentFunction& f, PyObject* const* args, Py_ssize_t n, Call& call) {
  const bool to_numpy = f.family == exchange::Family::Numpy;
  return n <= kMostArguments && PyRef::steal(attempt_in_core([&]() -> PyObject* {
           for (Py_ssize_t i = 0; i < n; ++i) {
             PyRef made = lend(f.library.ptr(), to_numpy, args[i], call);
             if (!made) return nullptr;
             call.add(std::move(made));
           }
           return PyRef::borrow(Py_None).release();
         }));
}

// Null, before anything is called, if an argument is not ordinary.
PyObject* run_lent(const LentFunction& f, PyObject* const* args, Py_ssize_t nargs,
                   PyObject* names) {
  Call call;
  const Py_ssize_t named = names ? PyTuple_Size(names) : 0;
  if (ops::recorder || !lend_all(f, args, nargs + named, call)) return nullptr;
  const PyRef result = PyRef::checked(
      PyObject_Vectorcall(f.function.ptr(), call.args, static_cast<size_t>(nargs), names));
  PyRef made = PyRef::steal(
      attempt_in_core([&] { return take_back(f.family, result.get(), call).release(); }));
  order_after(call);
  if (made) return made.release();
  nb::list lent;
  for (const Lent& one : call.lent)
    lent.append(nb::make_tuple(nb::borrow(one.own.get()), nb::borrow(one.theirs.get())));
  return f.take(nb::borrow(result.get()), lent, call.narrow).release().ptr();
}

// The first argument is the object whose attribute _lent has the function.
PyObject* attempt_lent(const PublicFunction&, PyObject* const* args, Py_ssize_t nargs,
                       PyObject* names) {
  static PyObject* const attribute = PyUnicode_InternFromString("_lent");
  return guard((PyObject*)nullptr, [&]() -> PyObject* {
    if (nargs < 1) return nullptr;
    const PyRef found = PyRef::checked(PyObject_GetAttr(args[0], attribute));
    if (found.get() == Py_None) return nullptr;
    const auto& f = nb::cast<const LentFunction&>(nb::handle(found.get()));
    return run_lent(f, args + 1, nargs - 1, names);
  });
}

nb::object lends(nb::callable python) {
  return make_function(attempt_lent, 0, nullptr, python, true);
}

}  // namespace

void exchange::register_lending(nb::module_& m) {
  m.def(
      "by_numpy", &by_numpy, "function"_a, "parameters"_a, "arrays"_a = 1, "fixed"_a = nb::none(),
      "views"_a = false, "mixed"_a = false, "in_place"_a = false, "copied"_a = false,
      "most"_a = nb::none(),
      "Decorator of a function, or, if the first parameter is self, of a method, whose usual calls "
      "a function of NumPy carries out on the memory of the arrays. `parameters`: those that such "
      "a call may pass, behind * by name only; the first `arrays` are arrays, 0: the first is a "
      "list of them. `views`: it makes views, on any device. `in_place`: it "
      "changes the first array. `copied`: it changes a copy of it, the result. `most`: elements of "
      "an array.");
  nb::class_<LentFunction>(m, "LentFunction", "A library's function, for `lends`.")
      .def(
          "__init__",
          [](LentFunction* self, nb::str library, int family, nb::object function,
             nb::object take) {
            new (self) LentFunction{library, static_cast<exchange::Family>(family), function, take};
          },
          "library"_a, "family"_a, "function"_a, "take"_a,
          "take(result, lent, narrow) converts results that are not ordinary.");
  m.def("lends", &lends, "python"_a,
        "Decorator of __call__: the LentFunction that is the attribute _lent is called on the "
        "memory of ordinary arguments. Python carries out other calls.");
  m.def(
      "numpy_view",
      [](nb::handle x) {
        if (read_array(x, "numpy_view").device.is_cuda())
          fail(Kind::DeviceMismatch, "numpy_view", "memory on the host", "an array on a GPU",
               "download it: x.get()");
        return nb::steal(numpy_view(x.ptr()).release());
      },
      "x"_a,
      "Return a numpy.ndarray over the memory of an array on the host, which it keeps alive.");
}

}  // namespace gpuinterop
