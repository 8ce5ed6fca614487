// Planned operations as Python sees them: Plan, PlanCache, the capture's Recorder, and the methods
// that reduce an array (sum, max, ...), whose warm calls stay in this file.
#include <nanobind/nanobind.h>
#include <nanobind/stl/shared_ptr.h>
#include <nanobind/stl/string.h>

#include <memory>
#include <string_view>
#include <unordered_map>

#include "array/error.hpp"
#include "cuda/cuda.hpp"
#include "cuda/module.hpp"
#include "ops/graph.hpp"
#include "ops/planned.hpp"
#include "python/array_type.hpp"
#include "python/planned_key.hpp"
#include "python/raise.hpp"
#include "python/register.hpp"

namespace nb = nanobind;

namespace gpuinterop {

using ops::PlannedCall;
using ops::Recorder;

namespace {

nb::object steal(PyObject* o) {
  if (!o) throw PythonError();
  return nb::steal(o);
}

// ---- Plan ----------------------------------------------------------------------------------------

// Kernels stay loaded: plans may be dropped while their work still runs.
std::vector<std::shared_ptr<cuda::Module>>& loaded() {
  static auto* modules = new std::vector<std::shared_ptr<cuda::Module>>;
  return *modules;
}

uintptr_t load_function(int device, nb::bytes image, const std::string& name) {
  auto module = cuda::Module::load(device, image.c_str(), name.c_str());
  cuda::Kernel kernel = module->kernel(name.c_str(), name.c_str());
  loaded().push_back(std::move(module));
  return reinterpret_cast<uintptr_t>(kernel.function);
}

// launches: [(function, (grid x, grid y), block, params, [(offset, slot, index, shift)])]
// outputs: [(class, dtype row, shape)]
std::shared_ptr<PlannedCall> make_plan(int device, nb::sequence launches, int64_t scratch_bytes,
                                       nb::sequence outputs) {
  auto plan = std::make_shared<PlannedCall>();
  plan->device = device;
  plan->scratch_bytes = scratch_bytes;
  for (nb::handle item : launches) {
    auto t = nb::cast<nb::tuple>(item);
    ops::PlannedLaunch launch;
    launch.function = reinterpret_cast<CUfunction>(nb::cast<uintptr_t>(t[0]));
    auto grid = nb::cast<nb::tuple>(t[1]);
    launch.grid_x = nb::cast<unsigned>(grid[0]);
    launch.grid_y = nb::cast<unsigned>(grid[1]);
    launch.block = nb::cast<unsigned>(t[2]);
    auto bytes = nb::cast<nb::bytes>(t[3]);
    launch.params.assign(bytes.c_str(), bytes.size());
    if (launch.params.size() > ops::kMaxPlannedParams)
      fail(Kind::Shape, "plan", "kernel parameters of at most 4096 bytes",
           std::to_string(launch.params.size()) + " bytes", "merge dimensions: x.copy() first");
    for (nb::handle p : nb::cast<nb::sequence>(t[4])) {
      auto q = nb::cast<nb::tuple>(p);
      launch.patches.push_back({nb::cast<uint32_t>(q[0]),
                                static_cast<ops::Slot>(nb::cast<int>(q[1])),
                                nb::cast<uint8_t>(q[2]), nb::cast<int64_t>(q[3])});
      plan->counts |= launch.patches.back().slot == ops::Slot::Tickets;
    }
    plan->launches.push_back(std::move(launch));
  }
  for (nb::handle item : outputs) {
    auto t = nb::cast<nb::tuple>(item);
    int64_t shape[kMaxDims];
    const int ndim = read_ints(nb::object(t[2]).ptr(), shape, "plan", "a shape");
    plan->outputs.push_back({PyRef::borrow(nb::object(t[0]).ptr()), nb::cast<DTypeId>(t[1]),
                             Layout::c_order(ndim, shape, "plan")});
  }
  if (plan->outputs.size() > ops::kMaxPlannedOutputs)
    fail(Kind::Shape, "plan", "at most 16 results", std::to_string(plan->outputs.size()),
         "split the operation");
  return plan;
}

// ---- PlanCache: layouts of the operands to plans ------------------------------------------------

struct Hash {
  using is_transparent = void;
  size_t operator()(std::string_view s) const noexcept { return std::hash<std::string_view>()(s); }
};
using PlanMap =
    std::unordered_map<std::string, std::shared_ptr<PlannedCall>, Hash, std::equal_to<>>;
constexpr size_t kMaxPlans = 8192;  // more layouts than this: start afresh rather than grow

void remember(PlanMap& map, std::string_view key, std::shared_ptr<PlannedCall> plan) {
  if (map.size() >= kMaxPlans) map.clear();
  map.emplace(std::string(key), std::move(plan));
}

struct PlanCache {
  PlanMap plans;
  nb::object miss;  // (operands, outputs or None) -> Plan, or the finished result

  nb::object call(nb::tuple operands, nb::object outs) {
    const size_t n = operands.size();
    std::string key;
    PyObject* ins[16];
    PyObject* given[ops::kMaxPlannedOutputs] = {};
    if (n > 16)
      fail(Kind::Shape, "plan", "at most 16 operands", std::to_string(n), "split the operation");
    bool cacheable = true;
    for (size_t i = 0; i < n; ++i) {
      ins[i] = nb::object(operands[i]).ptr();
      cacheable = cacheable && is_array(ins[i]) && unwrap(ins[i]).device.is_cuda();
      if (!cacheable) break;
      require_settled(ins[i]);
      append_key(key, ins[i]);
    }
    const bool has_outs = !outs.is_none();
    if (cacheable && has_outs) {
      auto t = nb::cast<nb::tuple>(outs);
      for (size_t j = 0; j < t.size() && j < ops::kMaxPlannedOutputs; ++j) {
        given[j] = nb::object(t[j]).ptr();
        if (!is_array(given[j])) {
          cacheable = false;
          break;
        }
        key.push_back('o');
        append_key(key, given[j]);
        for (size_t i = 0; i < n; ++i)
          key.push_back(unwrap(ins[i]).buffer.get() == unwrap(given[j]).buffer.get());
      }
    }
    if (cacheable) {
      auto it = plans.find(std::string_view(key));
      if (it != plans.end()) {
        auto plan = it->second;
        return steal(plan->run(ins, static_cast<int>(n), has_outs ? given : nullptr, "kernel"));
      }
    }
    nb::object result = miss(operands, outs);
    std::shared_ptr<PlannedCall> plan;
    if (!nb::try_cast(result, plan) || !plan) return result;
    if (cacheable) remember(plans, key, plan);
    return steal(plan->run(ins, static_cast<int>(n), has_outs ? given : nullptr, "kernel"));
  }
};

// ---- the reducing methods -------------------------------------------------------------------------

struct Method {
  const char* name;
  const char* arguments;  // a axis, t dtype, o out, d ddof, k keepdims: NumPy's order
  const char* doc;
};
constexpr Method kMethods[] = {
    {"sum", "atok", "Return the sum over `axis`. float32 sums keep their rounding errors apart."},
    {"prod", "atok", "Return the product over `axis`."},
    {"mean", "atok", "Return the mean over `axis`."},
    {"min", "aok", "Return the minimum over `axis`; a NaN wins."},
    {"max", "aok", "Return the maximum over `axis`; a NaN wins."},
    {"argmin", "aok",
     "Return the position of the first minimum along `axis`, or in the flattened array."},
    {"argmax", "aok",
     "Return the position of the first maximum along `axis`, or in the flattened array."},
    {"any", "aok", "Return whether any element over `axis` is not zero."},
    {"all", "aok", "Return whether all elements over `axis` are not zero."},
    {"var", "atodk", "Return the variance over `axis`, divided by n - ddof."},
    {"std", "atodk", "Return the standard deviation over `axis`."},
};
constexpr int kMethodCount = sizeof(kMethods) / sizeof(kMethods[0]);

PlanMap reduction_plans;
PyObject* reduction_miss = nullptr;  // owned, for the life of the process

struct Arguments {
  PyObject* axis = nullptr;
  PyObject* dtype = nullptr;
  PyObject* out = nullptr;
  PyObject* ddof = nullptr;
  PyObject* keepdims = nullptr;
  PyObject** slot(char c) {
    switch (c) {
      case 'a': return &axis;
      case 't': return &dtype;
      case 'o': return &out;
      case 'd': return &ddof;
      default: return &keepdims;
    }
  }
};

const char* argument_name(char c) {
  switch (c) {
    case 'a': return "axis";
    case 't': return "dtype";
    case 'o': return "out";
    case 'd': return "ddof";
    default: return "keepdims";
  }
}

bool parse(const Method& m, PyObject* const* args, Py_ssize_t nargs, PyObject* names,
           Arguments* to) {
  const Py_ssize_t known = static_cast<Py_ssize_t>(std::strlen(m.arguments));
  if (nargs > known) {
    PyErr_Format(PyExc_TypeError, "%s takes at most %zd arguments (%zd given)", m.name, known,
                 nargs);
    return false;
  }
  for (Py_ssize_t i = 0; i < nargs; ++i) *to->slot(m.arguments[i]) = args[i];
  const Py_ssize_t n_names = names ? PyTuple_Size(names) : 0;
  for (Py_ssize_t k = 0; k < n_names; ++k) {
    PyObject* name = PyTuple_GetItem(names, k);
    PyObject** slot = nullptr;
    for (const char* c = m.arguments; *c && !slot; ++c)
      if (PyUnicode_CompareWithASCIIString(name, argument_name(*c)) == 0) slot = to->slot(*c);
    if (!slot) {
      PyErr_Format(PyExc_TypeError, "%s has no argument %R", m.name, name);
      return false;
    }
    if (*slot) {
      PyErr_Format(PyExc_TypeError, "%s got argument %R twice", m.name, name);
      return false;
    }
    *slot = args[nargs + k];
  }
  for (PyObject** p : {&to->axis, &to->dtype, &to->out, &to->ddof, &to->keepdims})
    if (*p == Py_None) *p = nullptr;
  return true;
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

PyObject* reduce(int op, PyObject* self, PyObject* const* args, Py_ssize_t nargs, PyObject* names) {
  return guard((PyObject*)nullptr, [&]() -> PyObject* {
    const Method& m = kMethods[op];
    Arguments given;
    if (!parse(m, args, nargs, names, &given)) return nullptr;
    require_settled(self);
    const Array& a = unwrap(self);
    const uint64_t axes = read_axes(given.axis, a.layout.ndim(), m.name);
    const int keepdims = given.keepdims ? PyObject_IsTrue(given.keepdims) : 0;
    if (keepdims < 0) return nullptr;
    double ddof = 0;
    if (given.ddof) {
      ddof = PyFloat_AsDouble(given.ddof);
      if (ddof == -1.0 && PyErr_Occurred()) return nullptr;
    }
    // A dtype is named in too many ways to be part of a key; such calls ask Python each time.
    const bool cacheable =
        a.device.is_cuda() && !given.dtype && (!given.out || is_array(given.out));
    thread_local std::string key;
    if (cacheable) {
      key.clear();
      key.push_back(static_cast<char>(op));
      key.push_back(static_cast<char>(keepdims | (given.axis ? 2 : 0)));
      key.append(reinterpret_cast<const char*>(&axes), sizeof axes);
      key.append(reinterpret_cast<const char*>(&ddof), sizeof ddof);
      append_key(key, self);
      if (given.out) {
        append_key(key, given.out);
        key.push_back(unwrap(given.out).buffer.get() == a.buffer.get());
      }
      auto it = reduction_plans.find(std::string_view(key));
      if (it != reduction_plans.end()) {
        auto plan = it->second;
        return plan->run(&self, 1, given.out ? &given.out : nullptr, m.name);
      }
    }
    if (!reduction_miss) {
      PyRef module = PyRef::steal(PyImport_ImportModule("gpuinterop.ops.reductions"));
      if (!module) return nullptr;
      if (!reduction_miss) {
        PyErr_SetString(PyExc_RuntimeError, "gpuinterop.ops.reductions did not register itself");
        return nullptr;
      }
    }
    const std::string kept_key = key;  // Python may reduce something else meanwhile
    nb::list picked;
    for (int i = 0; i < a.layout.ndim(); ++i)
      if (axes >> i & 1) picked.append(i);
    auto or_none = [](PyObject* o) { return nb::borrow(o ? o : Py_None); };
    nb::object result;
    try {
      result = nb::borrow(reduction_miss)(m.name, nb::borrow(self), nb::tuple(picked),
                                          given.axis != nullptr, or_none(given.dtype),
                                          or_none(given.out), keepdims != 0, ddof);
    } catch (nb::python_error& error) {
      error.restore();
      return nullptr;
    }
    std::shared_ptr<PlannedCall> plan;
    if (!nb::try_cast(result, plan) || !plan) return result.release().ptr();
    if (cacheable) remember(reduction_plans, kept_key, plan);
    return plan->run(&self, 1, given.out ? &given.out : nullptr, m.name);
  });
}

template <int OP>
PyObject* reduce_method(PyObject* self, PyObject* const* args, Py_ssize_t nargs, PyObject* names) {
  return reduce(OP, self, args, nargs, names);
}

template <int... OPS>
void add_methods(std::integer_sequence<int, OPS...>) {
  static PyMethodDef defs[] = {
      {kMethods[OPS].name,
       reinterpret_cast<PyCFunction>(reinterpret_cast<void (*)()>(reduce_method<OPS>)),
       METH_FASTCALL | METH_KEYWORDS, kMethods[OPS].doc}...};
  for (PyMethodDef& def : defs) {
    PyRef method = PyRef::steal(PyDescr_NewMethod(array_type, &def));
    if (!method || PyObject_SetAttrString(reinterpret_cast<PyObject*>(array_type), def.ml_name,
                                          method.get()) < 0)
      throw nb::python_error();
  }
}

int recorder_traverse(PyObject* self, visitproc visit, void* arg) {
  Py_VISIT(Py_TYPE(self));
  return nb::inst_ready(self) ? nb::inst_ptr<Recorder>(self)->traverse(visit, arg) : 0;
}

int recorder_clear(PyObject* self) {
  if (nb::inst_ready(self)) nb::inst_ptr<Recorder>(self)->clear();
  return 0;
}

}  // namespace

void register_plans(nb::module_& m) {
  add_methods(std::make_integer_sequence<int, kMethodCount>());
  nb::class_<PlannedCall>(m, "PlannedCall", "Kernels of an operation on operands of known layout.")
      .def(
          "run",
          [](const std::shared_ptr<PlannedCall>& plan, nb::tuple operands, nb::object outs) {
            PyObject* ins[16];
            PyObject* given[ops::kMaxPlannedOutputs] = {};
            const size_t n = operands.size();
            for (size_t i = 0; i < n && i < 16; ++i) ins[i] = nb::object(operands[i]).ptr();
            if (!outs.is_none())
              for (size_t j = 0; j < plan->outputs.size(); ++j)
                given[j] = nb::object(nb::cast<nb::tuple>(outs)[j]).ptr();
            return steal(
                plan->run(ins, static_cast<int>(n), outs.is_none() ? nullptr : given, "plan"));
          },
          nb::arg("operands"), nb::arg("outs") = nb::none());
  m.def("make_plan", &make_plan, nb::arg("device"), nb::arg("launches"), nb::arg("scratch_bytes"),
        nb::arg("outputs"), "A Plan from parameters with null addresses and where to write them.");
  m.def("load_function", &load_function, nb::arg("device"), nb::arg("image"), nb::arg("name"),
        "Handle of a kernel; it stays loaded.");
  nb::class_<PlanCache>(m, "PlanCache",
                        "Plans by the layouts of operands; asks `miss` for new ones.")
      .def(
          "__init__",
          [](PlanCache* self, nb::object miss) { new (self) PlanCache{{}, std::move(miss)}; },
          nb::arg("miss"))
      .def("__call__", &PlanCache::call, nb::arg("operands"), nb::arg("outs") = nb::none())
      .def("__len__", [](const PlanCache& c) { return c.plans.size(); });
  m.def(
      "_set_reductions",
      [](nb::object fn) {
        Py_XDECREF(reduction_miss);
        reduction_miss = fn.release().ptr();
      },
      nb::arg("fn"));
  m.def("_clear_reductions", [] { reduction_plans.clear(); });

  PyType_Slot slots[] = {{Py_tp_traverse, reinterpret_cast<void*>(recorder_traverse)},
                         {Py_tp_clear, reinterpret_cast<void*>(recorder_clear)},
                         {0, nullptr}};
  nb::class_<Recorder>(m, "Recorder", nb::type_slots(slots),
                       "A captured sequence: see gpuinterop.capture.")
      .def(
          "__init__",
          [](Recorder* self, int device_type, int device_id) {
            const bool cuda = device_type == static_cast<int>(DeviceType::Cuda);
            new (self) Recorder({cuda ? DeviceType::Cuda : DeviceType::Cpu, device_id}, !cuda);
          },
          nb::arg("device_type"), nb::arg("device_id"))
      .def("begin", &Recorder::begin)
      .def("end", &Recorder::end)
      .def("abandon", &Recorder::abandon)
      .def("replay", &Recorder::replay)
      .def(
          "add_call", [](Recorder& r, nb::object fn) { r.add_call(fn.ptr()); }, nb::arg("call"))
      .def(
          "keep",
          [](Recorder& r, nb::object array) {
            if (is_array(array.ptr())) r.use(unwrap(array.ptr()));
          },
          nb::arg("array"))
      .def_prop_ro("nodes", &Recorder::nodes)
      .def_prop_ro("ready", &Recorder::ready);
  m.def(
      "_recording",
      []() -> nb::object {
        if (!ops::recorder) return nb::none();
        return nb::cast(ops::recorder, nb::rv_policy::reference);
      },
      "The capture of this thread, or None.");
  m.def(
      "_require_values", [](const std::string& where) { ops::require_values(where.c_str()); },
      nb::arg("where"), "Refuse while this thread records on the host.");
  m.def(
      "_record_call",
      [](nb::object fn) {
        // False: nothing records on the host, so the caller does the work itself.
        if (!ops::recording_on_host()) return false;
        ops::recorder->add_call(fn.ptr());
        return true;
      },
      nb::arg("call"));
}

}  // namespace gpuinterop
