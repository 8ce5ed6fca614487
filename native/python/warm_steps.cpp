#include "python/warm_steps.hpp"

#include <nanobind/stl/string.h>

#include <utility>

#include "array/error.hpp"
#include "array/gil.hpp"

namespace nb = nanobind;

namespace gpuinterop {

namespace {

// For Python: the argument of a name, or an item of it; and the result of a step.
struct ArgumentOfCall {
  std::string name;
  int item;
};
struct ResultOfStep {
  int step;
};

template <class Visit>
int each_object(const Steps& held, Visit&& visit) {
  auto operand = [&](const StepOperand& o) { return visit(o.object.get()); };
  for (const Step& step : held.steps) {
    if (int r = visit(step.function.get())) return r;
    for (const StepOperand& o : step.operands)
      if (int r = operand(o)) return r;
  }
  return operand(held.result);
}

// Without a clear function: whoever keeps steps lets go of them, and none in use are ever empty.
int steps_traverse(PyObject* self, visitproc visit, void* arg) {
  Py_VISIT(Py_TYPE(self));
  if (!nb::inst_ready(self)) return 0;
  return each_object(*nb::inst_ptr<Steps>(self), [&](PyObject* o) {
    Py_VISIT(o);
    return 0;
  });
}

}  // namespace

StepOperand StepOperand::read(nb::handle o) {
  StepOperand made;
  if (nb::isinstance<ArgumentOfCall>(o)) {
    const auto& a = *nb::inst_ptr<ArgumentOfCall>(o);
    made.from = a.item < 0 ? Argument : Item;
    made.item = a.item;
    PyObject* name = PyUnicode_InternFromString(a.name.c_str());
    made.object = PyRef::steal(name);
    if (!name) throw PythonError();
  } else if (nb::isinstance<ResultOfStep>(o)) {
    made.from = Result;
    made.place = nb::inst_ptr<ResultOfStep>(o)->step;
  } else {
    made.object = PyRef::borrow(o.ptr());
  }
  return made;
}

void StepOperand::resolve(const Signature& s) {
  if (from != Argument && from != Item) return;
  const int found = s.find(object.get());
  if (found < 0 || (from == Argument && static_cast<size_t>(found) >= s.named()) ||
      (place >= 0 && place != found))
    throw nb::value_error("steps name an argument that the function has not, or at another place");
  place = found;
}

PyObject* StepOperand::get(const BoundCall& given, const std::vector<PyRef>& results,
                           std::vector<PyRef>& item_held) const {
  if (from == Constant) return object.get();
  if (from == Result) return results.at(static_cast<size_t>(place)).get();
  const auto i = static_cast<size_t>(place);
  if (from == Argument) return given.values[i];
  PyObject* found = nullptr;
  if (i >= given.signature->named()) {
    if (item < given.n_rest) found = given.rest[item];
  } else {
    // A list may have become shorter: Python code can run during a call.
    PyObject* all = given.values[i];
    if (PyTuple_Check(all))
      found = item < PyTuple_Size(all) ? PyTuple_GetItem(all, item) : nullptr;
    else if (PyList_Check(all))
      found = item < PyList_Size(all) ? PyList_GetItem(all, item) : nullptr;
  }
  if (!found)
    fail(Kind::Bounds, "call", "a sequence that keeps its items during the call",
         "one that has lost some", "change no list in a finaliser or in another thread");
  item_held.push_back(PyRef::borrow(found));
  return found;
}

void Steps::end_results() {
  std::vector<size_t> last(steps.size());
  for (size_t i = 0; i < steps.size(); ++i) {
    last[i] = i;
    for (const StepOperand& o : steps[i].operands)
      if (o.from == StepOperand::Result) last.at(static_cast<size_t>(o.place)) = i;
  }
  for (size_t made = 0; made < steps.size(); ++made)
    if (result.from != StepOperand::Result || result.place != static_cast<int>(made))
      steps[last[made]].last_used.push_back(made);
}

void Steps::resolve(const Signature& s) {
  if (resolved == &s) return;
  for (Step& step : steps)
    for (StepOperand& o : step.operands) o.resolve(s);
  for (NumberRange& r : ranges) r.of.resolve(s);
  result.resolve(s);
  resolved = &s;
}

bool Steps::in_range(const BoundCall& given) const {
  std::vector<PyRef> held;
  for (const NumberRange& r : ranges) {
    PyObject* number = r.of.get(given, {}, held);
    const int above = PyObject_RichCompareBool(number, r.low.get(), Py_GE);
    const int below = above > 0 ? PyObject_RichCompareBool(number, r.high.get(), Py_LE) : above;
    if (below < 0) throw PythonError();
    if (!below) return false;
  }
  return true;
}

PyRef Steps::run(const BoundCall& given) const {
  std::vector<PyRef> results, held;
  if (steps.size() > 1) results.reserve(steps.size());
  for (const Step& step : steps) {
    PyObject* operands[kMostStepOperands];
    size_t n = 0;
    for (const StepOperand& o : step.operands) operands[n++] = o.get(given, results, held);
    const size_t named = step.names ? static_cast<size_t>(PyTuple_Size(step.names.get())) : 0;
    PyRef made = PyRef::steal(run_python([&] {
      return PyObject_Vectorcall(step.function.get(), operands, n - named, step.names.get());
    }));
    if (!made) throw PythonError();
    if (steps.size() == 1 && result.from == StepOperand::Result) return made;
    results.push_back(std::move(made));
    for (size_t made : step.last_used) std::exchange(results[made], PyRef());
  }
  return PyRef::borrow(result.get(given, results, held));
}

Steps* steps_in(PyObject* o) {
  return nb::isinstance<Steps>(nb::handle(o)) ? nb::inst_ptr<Steps>(nb::handle(o)) : nullptr;
}

void register_steps(nb::module_& m) {
  using namespace nb::literals;
  nb::class_<ArgumentOfCall>(m, "Given", "An argument of a call, or an item of it, in Steps.")
      .def(nb::init<std::string, int>(), "name"_a, "item"_a = -1);
  nb::class_<ResultOfStep>(m, "Made", "The result of a step, in Steps.")
      .def(nb::init<int>(), "step"_a);
  static PyType_Slot of_steps[] = {{Py_tp_traverse, reinterpret_cast<void*>(steps_traverse)},
                                   {0, nullptr}};
  nb::class_<Steps>(m, "Steps", nb::type_slots(of_steps),
                    "What a call does, as calls of the core's own functions.")
      .def(
          "__init__",
          [](Steps* self, nb::sequence steps, nb::object result, nb::sequence ranges, bool done) {
            Steps made{};
            for (nb::handle item : steps) {
              const auto t = nb::cast<nb::tuple>(item);
              Step step{PyRef::borrow(nb::object(t[0]).ptr()), {}, {}, {}};
              for (nb::handle o : nb::cast<nb::sequence>(t[1]))
                step.operands.push_back(StepOperand::read(o));
              if (nb::len(t) > 2) {
                nb::list names;
                for (auto [name, o] : nb::cast<nb::dict>(t[2])) {
                  names.append(name);
                  step.operands.push_back(StepOperand::read(o));
                }
                step.names = PyRef::borrow(nb::tuple(names).ptr());
              }
              if (step.operands.size() > kMostStepOperands)
                throw nb::value_error("more operands than a step takes");
              made.steps.push_back(std::move(step));
            }
            if (result.is_none()) {
              made.result.from = StepOperand::Result;
              made.result.place = static_cast<int>(made.steps.size()) - 1;
            } else {
              made.result = StepOperand::read(result);
            }
            for (nb::handle item : ranges) {
              const auto t = nb::cast<nb::tuple>(item);
              made.ranges.push_back({StepOperand::read(nb::object(t[0])),
                                     PyRef::borrow(nb::object(t[1]).ptr()),
                                     PyRef::borrow(nb::object(t[2]).ptr())});
            }
            made.done = done;
            made.end_results();
            new (self) Steps(std::move(made));
          },
          "steps"_a, "result"_a = nb::none(), "ranges"_a = nb::tuple(), "done"_a = false,
          "`steps`: (function, operands) or (function, operands, {name: operand}) for each; an "
          "operand is Given, Made or a constant. `result`: an operand, the last step's result "
          "unless "
          "named. `ranges`: (Given, low, high) for numbers, outside of which Python is asked. "
          "`done`: "
          "the function has made this call itself; it also makes those that fail again, for its "
          "words.");
}

}  // namespace gpuinterop
