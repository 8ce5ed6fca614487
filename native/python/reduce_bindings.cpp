// Reductions (sum, max, ...) as methods and as functions.
#include <nanobind/nanobind.h>
#include <nanobind/stl/shared_ptr.h>

#include <algorithm>
#include <memory>
#include <sstream>
#include <vector>

#include "array/error.hpp"
#include "array/gil.hpp"
#include "array/hooks.hpp"
#include "array/text_arguments.hpp"
#include "ops/launch_plan.hpp"
#include "ops/overlap.hpp"
#include "python/array_type.hpp"
#include "python/error_translation.hpp"
#include "python/function_with_id.hpp"
#include "python/register.hpp"

namespace nb = nanobind;

namespace gpuinterop {

using ops::Plan;

namespace {

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
  const char* name;
  const char* standard;  // default in help() and inspect.signature
  PyObject* Arguments::* at;
};
constexpr Argument kArguments[] = {
    {"axis", "None", &Arguments::axis},
    {"dtype", "None", &Arguments::dtype},
    {"out", "None", &Arguments::out},
    {"ddof", "0", &Arguments::ddof},
    {"keepdims", "False", &Arguments::keepdims},
    {"initial", "None", &Arguments::initial},
    {"where", "True", &Arguments::where},
};

// An entry of gpuinterop/ops/reduction_table.py.
struct Method {
  std::string op;    // the entry's name
  std::string name;  // in errors
  std::vector<const Argument*> parameters;
  Py_ssize_t by_position = 0;  // number of positional parameters; those after it are keyword-only
  std::string method_doc, function_doc;
  PyMethodDef method, function;
};

// Each needs an entry point, see reduce_method, so their number is fixed.
constexpr size_t kMostMethods = 32;
auto& reduction_methods = *new std::vector<std::unique_ptr<Method>>;

void read_parameters(Method& m, const std::string& text) {
  std::istringstream words(text);
  bool by_name = false;
  for (std::string word; words >> word;) {
    by_name = by_name || word == "*";
    if (word == "*") continue;
    const auto* found = std::find_if(std::begin(kArguments), std::end(kArguments),
                                     [&](const Argument& one) { return word == one.name; });
    if (found == std::end(kArguments)) throw nb::value_error("an unknown parameter of a reduction");
    m.parameters.push_back(found);
    m.by_position += !by_name;
  }
}

std::string signature_of(const Method& m) {
  std::string text;
  for (size_t i = 0; i < m.parameters.size(); ++i) {
    if (static_cast<Py_ssize_t>(i) == m.by_position) text += ", *";
    text += std::string(", ") + m.parameters[i]->name + "=" + m.parameters[i]->standard;
  }
  return text + ")";
}

[[noreturn]] void fail_argument(const Method& m, const std::string& got) {
  std::string known;
  for (const Argument* one : m.parameters)
    known += std::string(known.empty() ? "" : ", ") + one->name;
  fail(Kind::Type, m.name, "the arguments " + known, got,
       "pass each at most once, by position or by name, such as axis=0");
}

void parse(const Method& m, PyObject* const* args, Py_ssize_t nargs, PyObject* names,
           Arguments* to) {
  if (nargs > m.by_position) fail_argument(m, std::to_string(nargs) + " arguments");
  for (Py_ssize_t i = 0; i < nargs; ++i) to->*m.parameters[static_cast<size_t>(i)]->at = args[i];
  const Py_ssize_t n_names = names ? PyTuple_Size(names) : 0;
  for (Py_ssize_t k = 0; k < n_names; ++k) {
    PyObject* name = PyTuple_GetItem(names, k);
    PyObject** slot = nullptr;
    for (const Argument* one : m.parameters)
      if (PyUnicode_CompareWithASCIIString(name, one->name) == 0) slot = &(to->*one->at);
    if (!slot || *slot)
      fail_argument(m, (slot ? "a second " : "an unknown argument ") + repr_text(name));
    *slot = args[nargs + k];
  }
  for (const Argument& one : kArguments)
    if (one.at != &Arguments::where && to->*one.at == Py_None) to->*one.at = nullptr;
  if (to->where == Py_True) to->where = nullptr;
  // NumPy treats None as False, which selects nothing and is rarely intended.
  if (to->where == Py_None)
    fail(Kind::DType, m.name, "where= of dtype bool", "where=None",
         "omit where= to include every element");
}

bool read_flag(PyObject* value, const Method& m) {
  if (!value || PyBool_Check(value)) return value == Py_True;
  const int is = PyUnicode_Check(value) || PySequence_Check(value) ? -1 : PyObject_IsTrue(value);
  if (is < 0) {
    forgive();
    fail(Kind::Type, m.name, "True or False as keepdims", repr_text(value), "pass keepdims=True");
  }
  return is != 0;
}

double read_ddof(PyObject* value, const Method& m) {
  if (!value) return 0;
  const double ddof = PyFloat_AsDouble(value);
  if (PyErr_Occurred() || ddof != ddof) {
    forgive();
    fail(Kind::Type, m.name, "a number as ddof", repr_text(value),
         "pass ddof=1 for the sample variance");
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
    if (axis < 0 || axis >= ndim) fail_with("axis_out_of_range", where, {axes[i], int64_t{ndim}});
    if (mask >> axis & 1) fail_with("repeated_axis", where, {shape_text(n, axes)});
    mask |= uint64_t(1) << axis;
  }
  return mask;
}

// A launch plan, or the result of a reduction that Python has carried out.
nb::object prepared_by_python(const Method& m, PyObject* self, const Arguments& given,
                              uint64_t axes, bool keepdims, double ddof) {
  nb::list picked;
  for (int i = 0; i < unwrap(self).layout.ndim(); ++i)
    if (axes >> i & 1) picked.append(i);
  auto or_none = [](PyObject* o) { return o ? o : Py_None; };
  return nb::steal(call_hook(Hook::Prepare, "(ssONOOOOdOO)", "reduction", m.op.c_str(), self,
                             nb::tuple(picked).release().ptr(), given.axis ? Py_True : Py_False,
                             or_none(given.dtype), or_none(given.out),
                             keepdims ? Py_True : Py_False, ddof, or_none(given.initial),
                             or_none(given.where))
                       .release());
}

PyObject* reduce(size_t op, PyObject* self, PyObject* const* args, Py_ssize_t nargs,
                 PyObject* names) {
  const Method& m = *reduction_methods[op];
  Arguments given;
  parse(m, args, nargs, names, &given);
  require_valid_layout(self);
  const Array& a = unwrap(self);
  const uint64_t axes = read_axes(given.axis, a.layout.ndim(), m.name.c_str());
  const bool keepdims = read_flag(given.keepdims, m);
  const double ddof = read_ddof(given.ddof, m);
  // A dtype has too many spellings to be part of a key, so these calls go through Python each time. So do
  // those that consist of several operations.
  const bool cacheable =
      !given.dtype && !given.initial && !given.where && (!given.out || is_array(given.out));
  if (cacheable && given.out) require_valid_layout(given.out);
  auto write_key = [&](ops::CallKey& key) {
    key.begin(ops::Subject::Reduction, static_cast<uint32_t>(op));
    key.put(static_cast<char>(int(keepdims) | (given.axis ? 2 : 0)));
    key.put(axes);
    key.put(ddof);
    key.put_array(self);
    if (!given.out) return;
    key.put_array(given.out);
    key.put(ops::may_overlap(a, unwrap(given.out), m.name.c_str()));
  };
  nb::object result;
  auto prepare = [&] {
    result = prepared_by_python(m, self, given, axes, keepdims, ddof);
    std::shared_ptr<Plan> plan;
    return std::shared_ptr<const Plan>(nb::try_cast(result, plan) ? plan : nullptr);
  };
  const std::shared_ptr<const Plan> plan =
      cacheable ? ops::find_or_prepare<Plan>(write_key, prepare, m.name.c_str()) : prepare();
  if (!plan) return result.release().ptr();
  return plan->run(&self, 1, given.out ? &given.out : nullptr, m.name.c_str());
}

template <size_t OP>
PyObject* reduce_method(PyObject* self, PyObject* const* args, Py_ssize_t nargs, PyObject* names) {
  return reduce(OP, self, args, nargs, names);
}

// gpuinterop.sum(x, ...): the method for arrays, else the hook for placeholders in a fused function.
PyObject* reduce_function(PyObject* self, PyObject* const* args, Py_ssize_t nargs,
                          PyObject* names) {
  const size_t op = static_cast<size_t>(number_of(self));
  if (nargs > 0 && is_array(args[0])) return reduce(op, args[0], args + 1, nargs - 1, names);
  const Method& m = *reduction_methods[op];
  if (nargs == 0) fail(Kind::Type, m.name, "an array", "no array", "pass one");
  return call_python(PyUnicode_FromString(m.op.c_str()), nullptr, args, nargs, names).release();
}

constexpr int kFlags = METH_FASTCALL | METH_KEYWORDS;

template <size_t... OPS>
void set_entry_points(Method& m, size_t number, std::index_sequence<OPS...>) {
  static constexpr decltype(&reduce_method<0>) kEntries[] = {guarded<reduce_method<OPS>>...};
  m.method = {m.op.c_str(), as_method(kEntries[number]), kFlags, m.method_doc.c_str()};
  m.function = {m.op.c_str(), as_method(guarded<reduce_function>), kFlags, m.function_doc.c_str()};
}

nb::object add_reduction(const std::string& op, const std::string& name,
                         const std::string& parameters, const std::string& doc) {
  if (reduction_methods.size() == kMostMethods)
    throw nb::value_error("more reductions than entry points");
  auto m = std::make_unique<Method>();
  m->op = op;
  m->name = name;
  read_parameters(*m, parameters);
  const std::string arguments = signature_of(*m) + "\n--\n\n" + doc;
  m->method_doc = op + "($self, /" + arguments;
  m->function_doc = op + "(x, /" + arguments;
  set_entry_points(*m, reduction_methods.size(), std::make_index_sequence<kMostMethods>());
  reduction_methods.push_back(std::move(m));
  Method& added = *reduction_methods.back();
  if (!doc.empty()) {
    const PyRef method = PyRef::checked(PyDescr_NewMethod(array_type, &added.method));
    nb::setattr(reinterpret_cast<PyObject*>(array_type), op.c_str(), nb::handle(method.get()));
  }
  return nb::steal(
      make_function_with_id(&added.function, static_cast<int>(reduction_methods.size()) - 1));
}

}  // namespace

void register_reductions(nb::module_& m) {
  m.def("_add_reduction", add_reduction, nb::arg("op"), nb::arg("name"), nb::arg("parameters"),
        nb::arg("doc"),
        "The function of an entry of the table of reductions, which is a method too if it has a "
        "docstring.");
}

}  // namespace gpuinterop
