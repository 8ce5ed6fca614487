// Reductions (sum, max, ...) as methods and as functions.
#include <nanobind/nanobind.h>
#include <nanobind/stl/shared_ptr.h>

#include <algorithm>
#include <array>
#include <memory>
#include <vector>

#include "arrays/type.hpp"
#include "elementwise/overlap.hpp"
#include "interpreter/error.hpp"
#include "interpreter/error_translation.hpp"
#include "interpreter/function_with_id.hpp"
#include "interpreter/gil.hpp"
#include "interpreter/hooks.hpp"
#include "interpreter/parameters.hpp"
#include "interpreter/register.hpp"
#include "reduce/launch_plan.hpp"

namespace nb = nanobind;

namespace gpuinterop {

using ops::Plan;

namespace {

enum Argument { kAxis, kDType, kOut, kDdof, kKeepdims, kInitial, kWhere, kCorrection, kArguments };
constexpr const char* kNames[kArguments] = {"axis",     "dtype",   "out",   "ddof",
                                            "keepdims", "initial", "where", "correction"};
using Arguments = std::array<PyObject*, kArguments>;  // null: the default

// An entry of gpuinterop/reduce/table.py.
struct Method {
  std::string op;  // the entry's name
  Parameters parameters;
  std::string method_doc;
  PyMethodDef method;
  std::vector<Argument> meanings;  // of the parameters
  const char* where() const { return parameters.function.c_str(); }
};

// Each needs an entry point, see reduce_method, so their number is fixed.
constexpr size_t kMostMethods = 32;
auto& reduction_methods = *new std::vector<std::unique_ptr<Method>>;

Arguments read_arguments(const Method& m, PyObject* const* args, Py_ssize_t nargs,
                         PyObject* names) {
  Arguments arguments{};
  if (!nargs && !names) return arguments;
  const auto values = m.parameters.read(args, nargs, names);
  for (size_t i = 0; i < m.meanings.size(); ++i) arguments[m.meanings[i]] = values[i];
  // NumPy treats where=None as False, which selects nothing and is rarely intended.
  if (arguments[kWhere] == Py_None)
    fail(Kind::DType, m.where(), "where= of dtype bool", "where=None",
         "omit where= to include every element");
  std::replace(arguments.begin(), arguments.end(), Py_None, static_cast<PyObject*>(nullptr));
  if (arguments[kWhere] == Py_True) arguments[kWhere] = nullptr;
  if (arguments[kCorrection]) {  // the standard's name of ddof
    if (arguments[kDdof])
      fail(Kind::Type, m.where(), "ddof or correction", "both of them", "pass only one");
    arguments[kDdof] = arguments[kCorrection];
  }
  return arguments;
}

bool read_keepdims(PyObject* value, const char* where) {
  if (!value || PyBool_Check(value)) return value == Py_True;
  const int is = PyUnicode_Check(value) || PySequence_Check(value) ? -1 : PyObject_IsTrue(value);
  if (is < 0) {
    forgive();
    fail_with("not_a_bool", where, {"keepdims", repr_text(value)});
  }
  return is != 0;
}

double read_ddof(PyObject* value, const Method& m) {
  if (!value) return 0;
  const double ddof = PyFloat_AsDouble(value);
  if (PyErr_Occurred() || ddof != ddof) {
    forgive();
    fail(Kind::Type, m.where(), "a number as ddof or correction", repr_text(value),
         "pass ddof=1 for the sample variance");
  }
  return ddof;
}

// Axes as bits. NumPy lets a 0-d array be reduced over axis 0 or -1.
uint64_t read_axes(PyObject* value, int ndim, const char* where) {
  if (ndim > kMaxDims) fail_with("too_many_dimensions", where, {int64_t{kMaxDims}, int64_t{ndim}});
  if (!value) return ndim >= 64 ? ~uint64_t(0) : (uint64_t(1) << ndim) - 1;
  int64_t axes[kMaxDims];
  const int n = read_ints(value, axes, where, "an axis or axes");
  uint64_t mask = 0;
  for (int i = 0; i < n; ++i) {
    if (ndim == 0 && n == 1 && (axes[i] == 0 || axes[i] == -1)) return 0;
    const int axis = count_axis(axes[i], ndim, where);
    if (mask >> axis & 1) fail_with("repeated_axis", where, {shape_text(n, axes)});
    mask |= uint64_t(1) << axis;
  }
  return mask;
}

nb::tuple axis_tuple(uint64_t axes) {
  nb::list set;
  for (int i = 0; i < kMaxDims; ++i)
    if (axes >> i & 1) set.append(i);
  return nb::tuple(set);
}

// A launch plan, or the result of a reduction that Python has carried out.
nb::object plan_or_result(const Method& m, PyObject* self, const Arguments& arguments,
                          uint64_t axes, bool keepdims, double ddof) {
  auto given = [&](Argument argument) {
    return nb::handle(arguments[argument] ? arguments[argument] : Py_None);
  };
  return prepare_in_python("reduction", {{"op", m.op.c_str()},
                                         {"x", nb::handle(self)},
                                         {"axes", axis_tuple(axes)},
                                         {"has_axis", arguments[kAxis] != nullptr},
                                         {"dtype", given(kDType)},
                                         {"out", given(kOut)},
                                         {"keepdims", keepdims},
                                         {"ddof", ddof},
                                         {"initial", given(kInitial)},
                                         {"mask", given(kWhere)}});
}

PyObject* reduce(size_t op, PyObject* self, PyObject* const* args, Py_ssize_t nargs,
                 PyObject* names) {
  const Method& m = *reduction_methods[op];
  const Arguments arguments = read_arguments(m, args, nargs, names);
  require_valid_layout(self);
  const Array& a = unwrap(self);
  const uint64_t axes = read_axes(arguments[kAxis], a.layout.ndim(), m.where());
  const bool keepdims = read_keepdims(arguments[kKeepdims], m.where());
  const double ddof = read_ddof(arguments[kDdof], m);
  // Calls that consist of several operations go through Python each time.
  PyObject* const dtype = arguments[kDType];
  const bool cacheable = !(dtype && PyLong_Check(dtype)) && !arguments[kInitial] &&
                         !arguments[kWhere] && (!arguments[kOut] || is_array(arguments[kOut]));
  const int id = cacheable && dtype ? read_dtype(dtype, m.op.c_str()) : -1;
  if (cacheable && arguments[kOut]) require_valid_layout(arguments[kOut]);
  auto write_key = [&](ops::CallKey& key) {
    key.begin(ops::Subject::Reduction, static_cast<uint32_t>(op));
    key.put(static_cast<char>(int(keepdims) | (arguments[kAxis] ? 2 : 0)));
    key.put(axes);
    key.put(ddof);
    key.put(id);
    key.put_array(self);
    if (!arguments[kOut]) return;
    key.put_array(arguments[kOut]);
    key.put(ops::may_overlap(a, unwrap(arguments[kOut]), m.where()));
  };
  nb::object result;
  auto prepare = [&] {
    result = plan_or_result(m, self, arguments, axes, keepdims, ddof);
    std::shared_ptr<Plan> plan;
    return std::shared_ptr<const Plan>(nb::try_cast(result, plan) ? plan : nullptr);
  };
  const std::shared_ptr<const Plan> plan =
      cacheable ? ops::find_or_prepare<Plan>(write_key, prepare, m.where()) : prepare();
  if (!plan) return result.release().ptr();
  return plan->run(&self, 1, arguments[kOut] ? &arguments[kOut] : nullptr, m.where());
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
  if (nargs == 0) fail(Kind::Type, m.where(), "an array", "no array", "pass one");
  return call_python(PyUnicode_FromString(m.op.c_str()), nullptr, args, nargs, names).release();
}

template <size_t... OPS>
PyCFunction entry_point(size_t number, std::index_sequence<OPS...>) {
  static constexpr decltype(&reduce_method<0>) kEntries[] = {guarded<reduce_method<OPS>>...};
  return as_method(kEntries[number]);
}

nb::object add_reduction(const std::string& op, const std::string& name,
                         const std::string& parameters, const std::string& doc, bool is_method) {
  // An interrupt may have ended an earlier registration of the whole table.
  const auto known = std::find_if(reduction_methods.begin(), reduction_methods.end(),
                                  [&](const auto& m) { return m->op == op; });
  const auto number = static_cast<size_t>(known - reduction_methods.begin());
  if (number == kMostMethods) throw nb::value_error("more reductions than entry points");
  if (number == reduction_methods.size()) {
    auto m = std::make_unique<Method>(
        Method{op, Parameters(name, parameters, 0), op + "($self, /, " + doc});
    for (const std::string& word : m->parameters.names) {
      const auto found = std::find(std::begin(kNames), std::end(kNames), word);
      if (found == std::end(kNames)) throw nb::value_error("an unknown parameter of a reduction");
      m->meanings.push_back(static_cast<Argument>(found - std::begin(kNames)));
    }
    m->method = {m->op.c_str(), entry_point(number, std::make_index_sequence<kMostMethods>()),
                 METH_FASTCALL | METH_KEYWORDS, m->method_doc.c_str()};
    reduction_methods.push_back(std::move(m));
  }
  Method& added = *reduction_methods[number];
  if (is_method) {
    const PyRef method = PyRef::checked(PyDescr_NewMethod(array_type, &added.method));
    nb::setattr(reinterpret_cast<PyObject*>(array_type), op.c_str(), nb::handle(method.get()));
  }
  return nb::steal(make_function_with_id(static_cast<int>(number), op.c_str(),
                                         (op + "(x, /, " + doc).c_str(),
                                         as_method(guarded<reduce_function>)));
}

}  // namespace

void register_reductions(nb::module_& m) {
  m.def(
      "read_axes",
      [](nb::handle axis, int ndim, const char* where) {
        return axis_tuple(read_axes(axis.is_none() ? nullptr : axis.ptr(), ndim, where));
      },
      nb::arg("axis").none(), nb::arg("ndim"), nb::arg("where"),
      "Return one axis or several, each once, in ascending order; all for None. As in NumPy, a 0-d "
      "array may be reduced over axis 0 or -1.");
  m.def(
      "read_axis",
      [](nb::handle axis, int ndim, const char* where) {
        int64_t axes[kMaxDims];
        if (!PyIndex_Check(axis.ptr()) || read_ints(axis.ptr(), axes, where, "axis") != 1)
          fail_with("not_an_int", where, {"axis", repr_text(axis.ptr())});
        return count_axis(axes[0], ndim, where);
      },
      nb::arg("axis").none(), nb::arg("ndim"), nb::arg("where"),
      "Return one axis, counted from 0.");
  m.def(
      "_add_reduction", add_reduction, nb::arg("op"), nb::arg("name"), nb::arg("parameters"),
      nb::arg("doc"), nb::arg("is_method"),
      "The function of an entry of the table of reductions. `doc`: the signature after the array, "
      "and the docstring.");
}

}  // namespace gpuinterop
