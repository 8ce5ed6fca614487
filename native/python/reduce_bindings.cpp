// What reduces an array (sum, max, ...) as methods and as functions. Their warm calls stay in this file.
#include <nanobind/nanobind.h>
#include <nanobind/stl/shared_ptr.h>
#include <nanobind/stl/string.h>

#include <cstring>

#include "array/error.hpp"
#include "array/gil.hpp"
#include "array/hooks.hpp"
#include "ops/launch_plan_cache.hpp"
#include "ops/overlap.hpp"
#include "python/array_type.hpp"
#include "python/error_translation.hpp"
#include "python/register.hpp"

namespace nb = nanobind;

namespace gpuinterop {

using ops::LaunchPlan;

namespace {

struct Method {
  const char* name;
  // a axis, t dtype, o out, d ddof, k keepdims, i initial, w where: NumPy's order. Those after * are
  // given by name.
  const char* arguments;
  const char* doc;
};
constexpr Method kMethods[] = {
    {"sum", "atokiw", "Return the sum over `axis`. float32 sums keep their rounding errors apart."},
    {"prod", "atokiw", "Return the product over `axis`."},
    {"mean", "atok*w", "Return the mean over `axis`."},
    {"min", "aokiw", "Return the minimum over `axis`; a NaN wins."},
    {"max", "aokiw", "Return the maximum over `axis`; a NaN wins."},
    {"argmin", "aok",
     "Return the position of the first minimum over `axis`; several axes, or all, count as one."},
    {"argmax", "aok",
     "Return the position of the first maximum over `axis`; several axes, or all, count as one."},
    {"any", "aok*w", "Return whether any element over `axis` is not zero."},
    {"all", "aok*w", "Return whether all elements over `axis` are not zero."},
    {"var", "atodk*w", "Return the variance over `axis`, divided by n - ddof."},
    {"std", "atodk*w", "Return the standard deviation over `axis`."},
};
constexpr int kMethodCount = sizeof(kMethods) / sizeof(kMethods[0]);

PlanMap reduction_plans;

struct Arguments {
  PyObject* axis = nullptr;
  PyObject* dtype = nullptr;
  PyObject* out = nullptr;
  PyObject* ddof = nullptr;
  PyObject* keepdims = nullptr;
  PyObject* initial = nullptr;
  PyObject* where = nullptr;
};

struct Argument {
  char letter;
  const char* name;
  const char* standard;  // as help() and inspect.signature show it
  PyObject* Arguments::* at;
};
constexpr Argument kArguments[] = {
    {'a', "axis", "None", &Arguments::axis},
    {'t', "dtype", "None", &Arguments::dtype},
    {'o', "out", "None", &Arguments::out},
    {'d', "ddof", "0", &Arguments::ddof},
    {'k', "keepdims", "False", &Arguments::keepdims},
    {'i', "initial", "None", &Arguments::initial},
    {'w', "where", "True", &Arguments::where},
};
const Argument& argument(char letter) {
  for (const Argument& one : kArguments)
    if (one.letter == letter) return one;
  fail(Kind::Bounds, "reductions", "a letter of the table", std::string(1, letter),
       "mend kMethods");
}

std::string signature_of(const Method& m) {
  std::string text;
  for (const char* c = m.arguments; *c; ++c) {
    text += ", ";
    if (*c == '*')
      text += "*";
    else
      text += std::string(argument(*c).name) + "=" + argument(*c).standard;
  }
  return text + ")";
}

[[noreturn]] void fail_argument(const Method& m, const std::string& got, const std::string& fix) {
  std::string known;
  for (const char* c = m.arguments; *c; ++c)
    if (*c != '*') known += std::string(known.empty() ? "" : ", ") + argument(*c).name;
  fail(Kind::Type, m.name, "the arguments " + known, got, fix);
}

// The argument of ours that another library's name stands for, as far as the method has it.
std::string fix_for(const Method& m, const std::string& name) {
  auto has = [&](char letter) { return std::strchr(m.arguments, letter) != nullptr; };
  if (name == "where") return "choose by element first: gpuinterop.where(mask, x, value)";
  if (name == "dim" || name == "axes" || name == "dims") return "name the axis: axis=...";
  if (name == "keepdim" || name == "keep_dims") return "spell it keepdims=...";
  if (has('d') && (name == "correction" || name == "unbiased"))
    return "pass ddof: 0 divides by n, 1 by n - 1";
  return "pass only these: what the other one asks for is not done here";
}

void parse(const Method& m, PyObject* const* args, Py_ssize_t nargs, PyObject* names,
           Arguments* to) {
  const Py_ssize_t known = static_cast<Py_ssize_t>(std::strcspn(m.arguments, "*"));
  if (nargs > known)
    fail_argument(m, std::to_string(nargs) + " arguments",
                  "name the further ones: axis=0, for one");
  for (Py_ssize_t i = 0; i < nargs; ++i) to->*argument(m.arguments[i]).at = args[i];
  const Py_ssize_t n_names = names ? PyTuple_Size(names) : 0;
  for (Py_ssize_t k = 0; k < n_names; ++k) {
    PyObject* name = PyTuple_GetItem(names, k);
    PyObject** slot = nullptr;
    for (const char* c = m.arguments; *c && !slot; ++c)
      if (*c != '*' && PyUnicode_CompareWithASCIIString(name, argument(*c).name) == 0)
        slot = &(to->*argument(*c).at);
    if (!slot)
      fail_argument(m, "no argument " + nb::cast<std::string>(nb::repr(name)) + " here",
                    fix_for(m, nb::cast<std::string>(nb::handle(name))));
    if (*slot)
      fail_argument(m, "argument " + nb::cast<std::string>(nb::repr(name)) + " twice",
                    "name it once");
    *slot = args[nargs + k];
  }
  for (const Argument& one : kArguments)
    if (one.letter != 'w' && to->*one.at == Py_None) to->*one.at = nullptr;
  if (to->where == Py_True) to->where = nullptr;
  // To NumPy it is false, which selects nothing and is hardly what was meant.
  if (to->where == Py_None)
    fail(Kind::DType, m.name, "where of dtype bool", "None",
         "leave where out to take every element");
}

bool read_flag(PyObject* value, const Method& m) {
  if (!value || PyBool_Check(value)) return value == Py_True;
  const int is = PyUnicode_Check(value) || PySequence_Check(value) ? -1 : PyObject_IsTrue(value);
  if (is < 0) {
    PyErr_Clear();
    fail(Kind::Type, m.name, "keepdims True or False",
         nb::cast<std::string>(nb::repr(nb::handle(value))), "keepdims=True");
  }
  return is != 0;
}

double read_ddof(PyObject* value, const Method& m) {
  if (!value) return 0;
  const double ddof = PyFloat_AsDouble(value);
  if (PyErr_Occurred() || ddof != ddof) {
    PyErr_Clear();
    fail(Kind::Type, m.name, "a number as ddof", nb::cast<std::string>(nb::repr(nb::handle(value))),
         "ddof=1 for a sample's variance");
  }
  return ddof;
}

// Axes as bits. NumPy lets a 0-d array be reduced over axis 0 or -1.
uint64_t read_axes(PyObject* value, int ndim, const char* where) {
  if (!value) return ndim >= 64 ? ~uint64_t(0) : (uint64_t(1) << ndim) - 1;
  int64_t axes[kMaxDims];
  const int n = read_ints(value, axes, where, "an axis or axes");
  uint64_t mask = 0;
  for (int i = 0; i < n; ++i) {
    if (ndim == 0 && n == 1 && (axes[i] == 0 || axes[i] == -1)) return 0;
    const int64_t axis = axes[i] < 0 ? axes[i] + ndim : axes[i];
    if (axis < 0 || axis >= ndim)
      fail(Kind::Shape, where,
           ndim ? "axes from " + std::to_string(-ndim) + " to " + std::to_string(ndim - 1)
                : std::string("no axis, for a 0-d array"),
           "axis " + std::to_string(axes[i]), "count axes from 0, or from -1 backwards");
    if (mask >> axis & 1)
      fail(Kind::Shape, where, "each axis once", "axis " + std::to_string(axes[i]) + " twice",
           "name it once");
    mask |= uint64_t(1) << axis;
  }
  return mask;
}

// Imports the module that answers the calls of hooks about reductions.
void require_reductions() {
  static bool imported = false;
  if (!imported) import_module("gpuinterop.ops.reduction_dispatch");
  imported = true;
}

PyObject* reduce(int op, PyObject* self, PyObject* const* args, Py_ssize_t nargs, PyObject* names) {
  return guard((PyObject*)nullptr, [&]() -> PyObject* {
    const Method& m = kMethods[op];
    Arguments given;
    parse(m, args, nargs, names, &given);
    require_valid_layout(self);
    const Array& a = unwrap(self);
    const uint64_t axes = read_axes(given.axis, a.layout.ndim(), m.name);
    const bool keepdims = read_flag(given.keepdims, m);
    const double ddof = read_ddof(given.ddof, m);
    // A dtype is named in too many ways to be part of a key; such calls ask Python each time, and so do
    // those that are made of several operations.
    const bool cacheable = a.device.is_cuda() && !given.dtype && !given.initial && !given.where &&
                           (!given.out || is_array(given.out));
    if (cacheable && given.out) require_valid_layout(given.out);
    thread_local std::string key;
    auto write_key = [&] {
      key.clear();
      key.push_back(static_cast<char>(op));
      key.push_back(static_cast<char>(int(keepdims) | (given.axis ? 2 : 0)));
      key.append(reinterpret_cast<const char*>(&axes), sizeof axes);
      key.append(reinterpret_cast<const char*>(&ddof), sizeof ddof);
      append_key(key, self);
      if (given.out) {
        append_key(key, given.out);
        key.push_back(ops::may_overlap(a, unwrap(given.out), m.name));
      }
    };
    if (cacheable) {
      write_key();
      auto it = reduction_plans.find(std::string_view(key));
      if (it != reduction_plans.end()) {
        auto plan = it->second;
        return plan->run(&self, 1, given.out ? &given.out : nullptr, m.name);
      }
    }
    const std::string kept_key = key;  // Python may reduce something else meanwhile
    nb::list picked;
    for (int i = 0; i < a.layout.ndim(); ++i)
      if (axes >> i & 1) picked.append(i);
    require_reductions();
    auto or_none = [](PyObject* o) { return o ? o : Py_None; };
    nb::object result =
        nb::steal(call_hook(Hook::Prepare, "(ssONOOOOdOO)", "reduction", m.name, self,
                            nb::tuple(picked).release().ptr(), given.axis ? Py_True : Py_False,
                            or_none(given.dtype), or_none(given.out), keepdims ? Py_True : Py_False,
                            ddof, or_none(given.initial), or_none(given.where))
                      .release());
    std::shared_ptr<LaunchPlan> plan;
    if (!nb::try_cast(result, plan) || !plan) return result.release().ptr();
    if (cacheable) {
      // Python code that ran meanwhile may have given the arrays another layout: which of the two the
      // plan is for is not known then.
      write_key();
      if (key != kept_key) fail_changed(m.name);
      remember(reduction_plans, kept_key, plan, &self, 1);
    }
    return plan->run(&self, 1, given.out ? &given.out : nullptr, m.name);
  });
}

template <int OP>
PyObject* reduce_method(PyObject* self, PyObject* const* args, Py_ssize_t nargs, PyObject* names) {
  return reduce(OP, self, args, nargs, names);
}

// gpuinterop.sum(x, ...): the method, or what stands for arrays while a function is fused.
template <int OP>
PyObject* reduce_function(PyObject*, PyObject* const* args, Py_ssize_t nargs, PyObject* names) {
  if (nargs > 0 && is_array(args[0])) return reduce(OP, args[0], args + 1, nargs - 1, names);
  return guard((PyObject*)nullptr, [&]() -> PyObject* {
    const Method& m = kMethods[OP];
    if (nargs == 0) fail(Kind::Type, m.name, "an array", "no array", "pass one");
    require_reductions();
    nb::list positional;
    nb::dict named;
    for (Py_ssize_t i = 0; i < nargs; ++i) positional.append(nb::handle(args[i]));
    for (Py_ssize_t k = 0, n = names ? PyTuple_Size(names) : 0; k < n; ++k)
      named[nb::handle(PyTuple_GetItem(names, k))] = nb::handle(args[nargs + k]);
    return call_hook(Hook::Call, "(sNO)", m.name, nb::tuple(positional).release().ptr(),
                     named.ptr())
        .release();
  });
}

PyCFunction fast(PyObject* (*f)(PyObject*, PyObject* const*, Py_ssize_t, PyObject*)) {
  return reinterpret_cast<PyCFunction>(reinterpret_cast<void (*)()>(f));
}

template <int... OPS>
void add_methods(nb::module_& m, std::integer_sequence<int, OPS...>) {
  constexpr int kFlags = METH_FASTCALL | METH_KEYWORDS;
  static PyMethodDef methods[] = {
      {kMethods[OPS].name, fast(reduce_method<OPS>), kFlags, nullptr}...};
  static PyMethodDef functions[] = {
      {kMethods[OPS].name, fast(reduce_function<OPS>), kFlags, nullptr}...};
  static std::string docs[kMethodCount], method_docs[kMethodCount];
  nb::dict found;
  PyRef home = PyRef::steal(PyUnicode_FromString("gpuinterop"));
  for (int i = 0; i < kMethodCount; ++i) {
    const std::string name = kMethods[i].name, arguments = signature_of(kMethods[i]) + "\n--\n\n";
    method_docs[i] = name + "($self, /" + arguments + kMethods[i].doc;
    methods[i].ml_doc = method_docs[i].c_str();
    PyRef method = PyRef::steal(PyDescr_NewMethod(array_type, &methods[i]));
    if (!method || PyObject_SetAttrString(reinterpret_cast<PyObject*>(array_type),
                                          methods[i].ml_name, method.get()) < 0)
      throw nb::python_error();
    docs[i] = name + "(x, /" + arguments + kMethods[i].doc;
    functions[i].ml_doc = docs[i].c_str();
    PyObject* function = PyCFunction_NewEx(&functions[i], nullptr, home.get());
    if (!function) throw nb::python_error();
    found[kMethods[i].name] = nb::steal(function);
  }
  m.def(
      "_reducer", [found](const std::string& name) { return nb::object(found[name.c_str()]); },
      nb::arg("name"), "The function sum(x, ...), max(x, ...) and so on.");
}

}  // namespace

void register_reductions(nb::module_& m) {
  add_methods(m, std::make_integer_sequence<int, kMethodCount>());
  m.def("_clear_reductions", [] { reduction_plans.clear(); });
}

}  // namespace gpuinterop
