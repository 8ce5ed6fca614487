// PreparedCalls: a callable that finds the operation for its arguments by their classes, dtypes, devices and
// numbers of dimensions or shapes, and by the values of constants. A call without an entry goes to the method
// `_prepare` of the Python subclass, which adds the entry.
#include <nanobind/nanobind.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/vector.h>

#include <algorithm>
#include <cmath>
#include <memory>
#include <optional>
#include <tuple>
#include <utility>
#include <vector>

#include "arrays/array.hpp"
#include "arrays/few_values.hpp"
#include "arrays/type.hpp"
#include "captures/recorder.hpp"
#include "elementwise/operands.hpp"
#include "elementwise/overlap.hpp"
#include "interpreter/collected.hpp"
#include "interpreter/error_translation.hpp"
#include "interpreter/function_with_id.hpp"
#include "interpreter/hooks.hpp"
#include "interpreter/register.hpp"
#include "reduce/launch_plan.hpp"

namespace nb = nanobind;

namespace gpuinterop {

namespace {

// ---- CompiledSteps: the compiled form of an expression ------------------------------------------
// Steps that run one after the other, for operands of known classes, dtypes, shapes and device. Python makes them once
// (gpuinterop/fusion/compiled.py); a call runs no Python.

// The operands, and after them the values that the steps store, are numbered: these are slots.
struct StepRead {
  int slot;
  std::optional<std::vector<int64_t>> axes;  // of a view: the value's axis, or -1 for a new one
};

// A number that a reduction reads from a 0-d array.
struct NumberRead {
  int position;  // among the reads
  PyRef type;    // class and dtype of the array
  DTypeId dtype;
};

struct StepStore {
  int result;              // of the expression, or -1
  std::vector<int> later;  // the operands that later steps read
  int reused;              // the slot of a value in whose memory it may be stored, or -1
  PyRef type;              // the class of a new array, as below
  DTypeId dtype;
  std::vector<int64_t> shape;
  bool broadcasts;  // an `out` array may have a larger shape
};

struct Step {
  PyRef function;
  int op = -1;  // of an elementwise operation
  const ops::PlanCache* plans =
      nullptr;  // of a reduction; else `function` takes the operands and out=
  std::vector<StepRead> reads;
  std::vector<NumberRead> numbers;
  std::vector<StepStore> stores;
};

struct CompiledSteps {
  int operands, results, slots = 0;
  std::vector<Step> steps;
  std::string where;  // the name in errors

  int traverse(visitproc visit, void* arg) const {
    for (const Step& step : steps) {
      Py_VISIT(step.function.get());
      for (const NumberRead& number : step.numbers) Py_VISIT(number.type.get());
      for (const StepStore& store : step.stores) Py_VISIT(store.type.get());
    }
    return 0;
  }
  void clear() { const auto dropped = std::exchange(steps, {}); }
};

using ops::FewValues;

PyTypeObject* class_of(const PyRef& type) { return reinterpret_cast<PyTypeObject*>(type.get()); }

PyRef with_axes(PyObject* value, const std::vector<int64_t>& axes, const char* where) {
  const Layout& from = read_array(value, where).layout;
  Layout layout = Layout::with_ndim(static_cast<int>(axes.size()));
  int64_t elements = 1;
  for (size_t i = 0; i < axes.size(); ++i) {
    if (axes[i] >= from.ndim()) ops::fail_changed(where);
    layout.shape()[i] = axes[i] < 0 ? 1 : from.shape()[axes[i]];
    layout.strides()[i] = axes[i] < 0 ? 0 : from.strides()[axes[i]];
    elements *= layout.shape()[i];
  }
  if (elements != from.size()) ops::fail_changed(where);  // an omitted axis has length 1
  layout.finish(where);
  return PyRef::steal(retyped_view(value, Py_TYPE(value), std::move(layout), unwrap(value).data));
}

// One call. `out`: null, None, an array, or a tuple of arrays and None.
class Run {
 public:
  Run(const CompiledSteps& steps, PyObject* const* given, PyObject* out)

      : compiled_(steps),
        where_(steps.where.c_str()),
        values_(steps.slots),
        outs_(steps.results),
        results_(steps.results) {
    for (int i = 0; i < steps.operands; ++i) values_[i] = PyRef::borrow(given[i]);
    for (int i = 0; i < steps.operands && !like_; ++i)
      if (is_array(given[i])) like_ = given[i];
    std::fill_n(outs_.get(), steps.results, nullptr);
    if (out && out != Py_None) read_outs(out);
  }

  PyObject* results() {
    int next = compiled_.operands;
    for (const Step& step : compiled_.steps) next = run(step, next);
    for (auto& [out, value] : copies_) copy_to(out, value.get());
    return ops::one_or_tuple(results_.get(), compiled_.results);
  }

 private:
  Device device() const { return like_ ? unwrap(like_).device : Device(); }

  // All are checked before any is written.
  void read_outs(PyObject* out) {
    const bool several = PyTuple_Check(out);
    const int64_t n = several ? PyTuple_Size(out) : 1;
    if (n != compiled_.results)
      fail_with("wrong_number_of_outs", where_, {int64_t(compiled_.results), n});
    for (int j = 0; j < n; ++j) {
      PyObject* one = several ? PyTuple_GetItem(out, j) : out;
      if (one == Py_None) continue;
      outs_[j] = one;
      if (!is_array(one)) continue;
      require_valid_layout(one);
      for (int k = 0; k < j; ++k)
        if (outs_[k] && is_array(outs_[k]) &&
            ops::may_overlap(unwrap(outs_[k]), unwrap(one), where_))
          fail_with("outs_overlap", where_);
    }
    for (int i = 0; i < compiled_.operands; ++i)
      if (is_array(values_[i].get()))
        ops::require_device(device(), unwrap(values_[i].get()), where_);
    for (int j = 0; j < n; ++j)
      for (const Step& step : compiled_.steps)
        for (const StepStore& store : step.stores)
          if (store.result == j && outs_[j]) check_out(store, outs_[j]);
  }

  // An `out` array has the shape of the value, or one to which an elementwise value broadcasts.
  void check_out(const StepStore& store, PyObject* out) const {
    const int64_t* shape = store.shape.data();
    int ndim = static_cast<int>(store.shape.size());
    if (store.broadcasts && is_array(out)) {
      const Layout& l = unwrap(out).layout;
      const int lead = l.ndim() - ndim;
      bool fits = lead >= 0;
      for (int i = 0; i < ndim && fits; ++i)
        fits = shape[i] == 1 || shape[i] == l.shape()[lead + i];
      if (fits) shape = l.shape(), ndim = l.ndim();
    }
    ops::check_out(out, store.dtype, device(), ndim, shape, where_);
  }

  // The array in which a value is stored, borrowed; null: a new one.
  PyObject* sink_for(const StepStore& store) {
    if (store.result < 0) return store.reused < 0 ? nullptr : values_[store.reused].get();
    PyObject* out = outs_[store.result];
    if (!out) return store.reused < 0 ? nullptr : values_[store.reused].get();
    const Array& a = unwrap(out);
    if (!a.layout.has_shape(static_cast<int>(store.shape.size()), store.shape.data()))
      return nullptr;
    for (const int i : store.later)
      if (is_array(values_[i].get()) && ops::may_overlap(a, unwrap(values_[i].get()), where_))
        return nullptr;
    return out;
  }

  // Stores the values of a step from slot `next` on; returns the slot after them.
  int run(const Step& step, int next) {
    const int n = static_cast<int>(step.reads.size()), count = static_cast<int>(step.stores.size());
    FewValues<PyRef, 4> held(n);
    FewValues<PyObject*, 4> ins(n);
    for (int i = 0; i < n; ++i) {
      const auto& [slot, axes] = step.reads[static_cast<size_t>(i)];
      held[i] = axes ? with_axes(values_[slot].get(), *axes, where_) : values_[slot];
    }
    for (const auto& [position, type, dtype] : step.numbers) {
      Array number = make_empty(device(), dtype, 0, nullptr, where_);
      const PyRef value =
          std::exchange(held[position], PyRef::steal(wrap(class_of(type), std::move(number))));
      assign(unwrap(held[position].get()), class_of(type), value.get(), where_);
    }
    for (int i = 0; i < n; ++i) ins[i] = held[i].get();
    FewValues<PyRef, 2> sinks(count);
    FewValues<PyObject*, 2> outs(count);
    bool any = false;
    for (int j = 0; j < count; ++j) {
      sinks[j] = PyRef::borrow(sink_for(step.stores[static_cast<size_t>(j)]));
      any = any || sinks[j];
    }
    for (int j = 0; j < count; ++j) {
      if (any && step.op < 0 && !sinks[j]) sinks[j] = fresh(step.stores[static_cast<size_t>(j)]);
      outs[j] = sinks[j].get();
    }
    const PyRef made = compute(step, ins.get(), n, any ? outs.get() : nullptr, count);
    for (int j = 0; j < count; ++j) {
      PyRef value = PyRef::borrow(count > 1 ? PyTuple_GetItem(made.get(), j) : made.get());
      keep(step.stores[static_cast<size_t>(j)], value);
      values_[next + j] = std::move(value);
    }
    return next + count;
  }

  PyRef fresh(const StepStore& store) const {
    return PyRef::steal(wrap(class_of(store.type),
                             make_empty(device(), store.dtype, static_cast<int>(store.shape.size()),
                                        store.shape.data(), where_)));
  }

  static PyRef compute(const Step& step, PyObject* const* ins, int n, PyObject* const* outs,
                       int count) {
    if (step.op >= 0)
      return PyRef::steal(ops::call(static_cast<ops::OpId>(step.op), ins, outs, false));
    if (step.plans)
      return PyRef::steal(step.plans->run({ins, n, outs, outs ? count : 0}).release().ptr());
    static PyObject* const names = Py_BuildValue("(s)", "out");
    FewValues<PyObject*, 4> arguments(n + 1);
    std::copy_n(ins, n, arguments.get());
    FewValues<PyRef, 2> given(count);
    for (int j = 0; j < count; ++j) given[j] = PyRef::borrow(outs ? outs[j] : Py_None);
    const PyRef out = PyRef::steal(ops::one_or_tuple(given.get(), outs ? count : 1));
    arguments[n] = out.get();
    return PyRef::checked(PyObject_Vectorcall(step.function.get(), arguments.get(), n, names));
  }

  void keep(const StepStore& store, const PyRef& value) {
    if (store.result < 0) return;
    PyObject* out = outs_[store.result];
    if (out && out != value.get()) copies_.emplace_back(out, value);
    results_[store.result] = out ? PyRef::borrow(out) : value;
  }

  void copy_to(PyObject* out, PyObject* value) const {
    const Array target = unwrap(out);
    Array source = unwrap(value);
    source.layout = source.layout.broadcast_to(target.layout.ndim(), target.layout.shape(), where_);
    ops::prepare_write(target, where_);
    copy_elements(target, source, where_);
  }

  const CompiledSteps& compiled_;
  const char* where_;
  PyObject* like_ = nullptr;  // the first array among the operands
  FewValues<PyRef, 8> values_;
  FewValues<PyObject*, 2> outs_;  // borrowed; null: a new array
  FewValues<PyRef, 2> results_;
  std::vector<std::pair<PyObject*, PyRef>> copies_;  // `out` arrays, and the values to copy to them
};

// ---- from Python --------------------------------------------------------------------------------

// The named tuples of gpuinterop/fusion/compiled.py, read by their names.
PyRef owned(const nb::object& o) { return PyRef::borrow(o.ptr()); }

StepRead read_of(nb::handle read) {
  return {field<int>(read, "place"), field<std::optional<std::vector<int64_t>>>(read, "axes")};
}

NumberRead number_of_step(nb::handle number) {
  return {field<int>(number, "position"), owned(number.attr("cls")),
          field<DTypeId>(number, "dtype")};
}

StepStore store_of(nb::handle store) {
  return {field<int>(store, "result"),     field<std::vector<int>>(store, "later"),
          field<int>(store, "reused"),     owned(store.attr("cls")),
          field<DTypeId>(store, "dtype"),  field<std::vector<int64_t>>(store, "shape"),
          field<bool>(store, "broadcasts")};
}

bool has_id(PyObject* function) {
  return PyCFunction_Check(function) && PyModule_Check(PyCFunction_GetSelf(function));
}

Step read_step(nb::handle fields) {
  const nb::object function = fields.attr("function");
  Step step;
  step.function = owned(function);
  if (has_id(function.ptr()))
    step.op = number_of(PyCFunction_GetSelf(function.ptr()));
  else
    nb::try_cast(function, step.plans);
  for (const nb::handle read : fields.attr("reads")) step.reads.push_back(read_of(read));
  for (const nb::handle store : fields.attr("stores")) step.stores.push_back(store_of(store));
  for (const nb::handle number : fields.attr("numbers"))
    step.numbers.push_back(number_of_step(number));
  return step;
}

void make_steps(CompiledSteps* self, int operands, int results, std::vector<nb::handle> steps,
                std::string where) {
  CompiledSteps made{operands, results, operands, {}, std::move(where)};
  for (const nb::handle fields : steps) {
    made.steps.push_back(read_step(fields));
    for (const StepRead& read : made.steps.back().reads)
      if (read.slot < 0 || read.slot >= made.slots) throw nb::value_error("a slot expected");
    made.slots += static_cast<int>(made.steps.back().stores.size());
  }
  new (self) CompiledSteps(std::move(made));
}

// ---- PreparedCalls ------------------------------------------------------------------------------

constexpr size_t kMostEntries = 8;  // calls with further signatures go through Python

// Of a number: its bounds. Of an array or a constant: nothing.
using Limits = std::optional<std::pair<double, double>>;

struct ExpectedArgument {
  PyTypeObject* type = nullptr;  // of an array or a number
  PyRef kept;                    // the type, of a user's class a weak reference; or a constant
  bool weak = false;
  int dtype = -1, ndim = 0;    // of an array; dtype is -1 for a number
  Device device;               // of an array
  std::vector<int64_t> shape;  // of an array, if the operation depends on it; otherwise empty
  double low = 0, high = 0;    // of a number

  ExpectedArgument(PyObject* argument, const Limits& limits, bool by_shape) {
    if (is_array(argument)) {
      const Array& a = unwrap(argument);
      dtype = a.dtype;
      device = a.device;
      ndim = a.layout.ndim();
      if (by_shape) shape.assign(a.layout.shape(), a.layout.shape() + ndim);
    } else if (limits) {
      std::tie(low, high) = *limits;
    } else {
      kept = PyRef::borrow(argument);
      return;
    }
    type = Py_TYPE(argument);
    weak = dtype >= 0 && type != result_type(kFloat32) && type != result_type(kBool);
    auto* const object = reinterpret_cast<PyObject*>(type);
    kept = weak ? PyRef::checked(PyWeakref_NewRef(object, nullptr)) : PyRef::borrow(object);
  }

  bool accepts(PyObject* argument) const {
    if (!type) {
      if (argument == kept.get()) return true;
      // Other constants may be equal and yet differ, such as 0.0 and -0.0, so Python compares them.
      return PyUnicode_CheckExact(argument) && PyUnicode_CheckExact(kept.get()) &&
             PyUnicode_Compare(argument, kept.get()) == 0;
    }
    // Another class may have the address of one that is gone.
    if (Py_TYPE(argument) != type ||
        (weak && PyRef::checked(PyObject_CallNoArgs(kept.get())).get() == Py_None))
      return false;
    if (dtype >= 0) {
      const Array& a = unwrap(argument);
      return a.dtype == dtype && a.device == device && a.layout.ndim() == ndim &&
             std::equal(shape.begin(), shape.end(), a.layout.shape());
    }
    if (std::isinf(low) && std::isinf(high)) return true;
    const double number = PyFloat_AsDouble(argument);
    if (PyErr_Occurred()) {  // an integer beyond all floats
      PyErr_Clear();
      return false;
    }
    return low <= number && number <= high;
  }
};

struct Operand {
  int position;  // of an argument; kCaptured; or kComputed from the tuple of arguments by the object
  PyRef object;
  PyRef type = {};  // of a computed number; another type needs another operation
};
constexpr int kCaptured = -1, kComputed = -2;

struct PreparedCall {
  std::vector<ExpectedArgument> expected;
  std::vector<Operand> operands;
  PyRef operation, rebuild;              // rebuild: null where the operation's result is the call's
  const CompiledSteps* steps = nullptr;  // the operation, if it has several

  bool accepts(PyObject* args) const {
    const auto n = static_cast<size_t>(PyTuple_Size(args));
    bool accepted = expected.size() == n;
    for (size_t i = 0; i < n && accepted; ++i)
      accepted = expected[i].accepts(PyTuple_GetItem(args, static_cast<Py_ssize_t>(i)));
    return accepted;
  }
};

struct PreparedCalls {
  bool binds = false;  // as an attribute of a class it takes the instance as its first argument
  std::vector<std::shared_ptr<const PreparedCall>> entries;  // shared: Python may run during a call

  int traverse(visitproc visit, void* arg) const {
    for (const auto& entry : entries) {
      for (const auto& argument : entry->expected) Py_VISIT(argument.kept.get());
      for (const auto& operand : entry->operands) {
        Py_VISIT(operand.object.get());
        Py_VISIT(operand.type.get());
      }
      Py_VISIT(entry->operation.get());
      Py_VISIT(entry->rebuild.get());
    }
    return 0;
  }
  void clear() {
    const auto dropped = std::exchange(entries, {});  // destructors may use the object again
  }
};

PyRef call_with(PyObject* function, PyObject* argument) {
  return PyRef::checked(PyObject_CallFunctionObjArgs(function, argument, nullptr));
}

// Null if a computed number has another type than the one for which the entry was made.
PyRef run_entry(const PreparedCall& entry, PyObject* args, PyObject* out) {
  static PyObject* const names = PyRef::checked(Py_BuildValue("(s)", "out")).release();
  const size_t n = entry.operands.size();
  std::vector<PyRef> computed;
  ops::FewValues<PyObject*, 4> values(static_cast<int>(n) + 1);
  for (size_t i = 0; i < n; ++i) {
    const Operand& operand = entry.operands[i];
    if (operand.position == kComputed) {
      computed.push_back(call_with(operand.object.get(), args));
      if (reinterpret_cast<PyObject*>(Py_TYPE(computed.back().get())) != operand.type.get())
        return {};
    }
    values[int(i)] = operand.position >= 0           ? PyTuple_GetItem(args, operand.position)
                     : operand.position == kCaptured ? operand.object.get()
                                                     : computed.back().get();
  }
  values[int(n)] = out;  // borrowed, like the others
  PyRef result = entry.steps ? PyRef::steal(Run(*entry.steps, values.get(), out).results())
                             : PyRef::checked(PyObject_Vectorcall(
                                   entry.operation.get(), values.get(), n, out ? names : nullptr));
  return entry.rebuild ? call_with(entry.rebuild.get(), result.get()) : result;
}

PyObject* call_prepared(PyObject* self, PyObject* args, PyObject* kwargs) {
  if (!nb::inst_ready(self)) {
    PyErr_SetString(PyExc_TypeError, "PreparedCalls.__init__ was not called");
    throw PythonError();
  }
  const auto& entries = nb::inst_ptr<PreparedCalls>(self)->entries;
  const Py_ssize_t named = kwargs ? PyDict_Size(kwargs) : 0;
  PyObject* out = named == 1 ? PyDict_GetItemString(kwargs, "out") : nullptr;
  for (size_t i = 0; i < entries.size() && (named == 0 || out); ++i) {
    const std::shared_ptr<const PreparedCall> entry = entries[i];
    if (!entry->accepts(args)) continue;
    if (PyRef result = run_entry(*entry, args, out)) return result.release();
  }
  const PyRef prepare = PyRef::checked(PyObject_GetAttrString(self, "_prepare"));
  return PyObject_Call(prepare.get(), args, kwargs);
}

PyObject* bind(PyObject* self, PyObject* instance, PyObject*) {
  if (!instance || !nb::inst_ready(self) || !nb::inst_ptr<PreparedCalls>(self)->binds)
    return Py_NewRef(self);
  // The stable ABI has no PyMethod_New, so a method is made as types.MethodType.
  static PyObject* method = nullptr;
  if (!method) {
    const PyRef types = PyRef::steal(PyImport_ImportModule("types"));
    method = types ? PyObject_GetAttrString(types.get(), "MethodType") : nullptr;
  }
  return method ? PyObject_CallFunctionObjArgs(method, self, instance, nullptr) : nullptr;
}

void add_entry(PreparedCalls& calls, std::vector<nb::object> arguments, std::vector<Limits> limits,
               std::vector<std::pair<int, nb::object>> operands, nb::object operation,
               nb::object rebuild, bool by_shape) {
  auto entry = std::make_shared<PreparedCall>();
  for (size_t i = 0; i < arguments.size(); ++i)
    entry->expected.emplace_back(arguments[i].ptr(), limits.at(i), by_shape);
  for (auto& [position, object] : operands) {
    entry->operands.push_back({position, PyRef::borrow(object.ptr())});
    if (position == kComputed)
      entry->operands.back().type =
          PyRef::borrow(object(nb::tuple(nb::cast(arguments))).type().ptr());
  }
  entry->operation = PyRef::borrow(operation.ptr());
  nb::try_cast(operation, entry->steps);
  if (!rebuild.is_none()) entry->rebuild = PyRef::borrow(rebuild.ptr());
  std::shared_ptr<const PreparedCall> dropped;  // destroyed last: Python code may run then
  if (calls.entries.size() == kMostEntries) {
    dropped = std::move(calls.entries.front());
    calls.entries.erase(calls.entries.begin());
  }
  calls.entries.push_back(std::move(entry));
}

}  // namespace

void register_prepared_calls(nb::module_& m) {
  const Collected<CompiledSteps> of_steps;
  nb::class_<CompiledSteps>(
      m, "CompiledSteps", nb::type_slots(of_steps.slots),
      "The compiled form of an expression, for operands of known classes and dtypes.")
      .def("__init__", &make_steps, nb::arg("operands"), nb::arg("results"), nb::arg("steps"),
           nb::arg("where") = "fuse")
      .def(
          "__call__",
          [](const CompiledSteps& self, nb::args given, nb::object out) {
            if (static_cast<int>(given.size()) != self.operands)
              throw nb::value_error("one object for each operand expected");
            ops::FewValues<PyObject*, 4> operands(self.operands);
            for (int i = 0; i < self.operands; ++i) operands[i] = nb::object(given[i]).ptr();
            return nb::steal(Run(self, operands.get(), out.ptr()).results());
          },
          nb::arg("operands"), nb::arg("out") = nb::none(),
          nb::sig("def __call__(self, *operands: object, out: object = None) -> Any"));
  const Collected<PreparedCalls> collected({Py_tp_call, slot(guarded<call_prepared>)},
                                           {Py_tp_descr_get, slot(bind)});
  nb::class_<PreparedCalls>(m, "PreparedCalls", nb::type_slots(collected.slots),
                            "A callable that finds a prepared operation by its arguments.")
      .def(
          "__init__", [](PreparedCalls* self, bool binds) { new (self) PreparedCalls{binds, {}}; },
          nb::arg("binds") = false)
      .def("_add", &add_entry, nb::arg("arguments"), nb::arg("limits"), nb::arg("operands"),
           nb::arg("operation"), nb::arg("rebuild") = nb::none(), nb::arg("by_shape") = false,
           "Call the operation for arguments like these. `limits`: (low, high) for a number, None "
           "for "
           "a constant, either for an array. `operands`: (position, None), (CAPTURED, object), or "
           "(COMPUTED, function of the tuple of arguments).");
  m.attr("CAPTURED") = kCaptured;
  m.attr("COMPUTED") = kComputed;
}

}  // namespace gpuinterop
