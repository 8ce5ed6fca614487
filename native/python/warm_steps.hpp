// What a warm call does: steps, which are calls of the core's own functions on the arguments.
#pragma once

#include <nanobind/nanobind.h>

#include <algorithm>
#include <vector>

#include "array/array.hpp"

namespace gpuinterop {

// What a function looks at in an argument. Operand: classes, dtypes and devices of arrays, types of
// numbers. Layout: shapes and strides too. Value: the value itself.
enum class Look : char { Operand = 'o', Layout = 'l', Value = 'v' };

struct Parameter {
  PyRef name;  // interned
  PyRef standard;
  Look look;
};

struct Signature {
  // By place or name, then by name only, then *args if there is one.
  std::vector<Parameter> parameters;
  Py_ssize_t by_place = 0;
  bool takes_rest = false;

  // The place of a name, -1 when there is none.
  int find(PyObject* name) const {
    for (size_t i = 0; i < parameters.size(); ++i)
      if (parameters[i].name.get() == name) return static_cast<int>(i);
    for (size_t i = 0; i < parameters.size(); ++i)
      if (PyUnicode_Compare(parameters[i].name.get(), name) == 0) return static_cast<int>(i);
    return -1;
  }
  size_t named() const { return parameters.size() - takes_rest; }
};

// Of a warm function, and operands of a step.
constexpr size_t kMostParameters = 16, kMostStepOperands = 32;

// The arguments of a call, borrowed from the caller.
struct BoundCall {
  const Signature* signature;
  PyObject* values[kMostParameters];  // of the named parameters
  PyObject* const* rest = nullptr;
  Py_ssize_t n_rest = 0;

  // False: Python words what is wrong, or takes what only it knows.
  bool bind(const Signature& s, PyObject* const* args, Py_ssize_t nargs, PyObject* names) {
    signature = &s;
    const size_t n_values = s.named();
    std::fill_n(values, n_values, nullptr);
    const Py_ssize_t placed = std::min(nargs, s.by_place);
    for (Py_ssize_t i = 0; i < placed; ++i) values[static_cast<size_t>(i)] = args[i];
    if (nargs > placed) {
      if (!s.takes_rest) return false;
      rest = args + placed;
      n_rest = nargs - placed;
    }
    for (Py_ssize_t k = 0, n = names ? PyTuple_Size(names) : 0; k < n; ++k) {
      const int i = s.find(PyTuple_GetItem(names, k));
      if (i < 0 || static_cast<size_t>(i) >= n_values || values[static_cast<size_t>(i)])
        return false;
      values[static_cast<size_t>(i)] = args[nargs + k];
    }
    for (size_t i = 0; i < n_values; ++i)
      if (!values[i] && !(values[i] = s.parameters[i].standard.get())) return false;
    return true;
  }
};

// The argument of a place, an item of it, the result of a step, or a constant.
struct StepOperand {
  enum { Argument, Item, Result, Constant } from = Constant;
  int place = -1, item = -1;
  PyRef object;  // the constant, or the argument's name

  static StepOperand read(nanobind::handle o);  // Given, Made or a constant
  void resolve(const Signature& s);
  // Borrowed from the caller, the steps or the results; an item of a sequence is held by `item_held`.
  PyObject* get(const BoundCall& given, const std::vector<PyRef>& results,
                std::vector<PyRef>& item_held) const;
};

struct Step {
  PyRef function, names;  // names: of the last operands
  std::vector<StepOperand> operands;
  std::vector<size_t> last_used;  // results that are let go of after this step
};

// Outside of it Python is asked.
struct NumberRange {
  StepOperand of;
  PyRef low, high;
};

struct Steps {
  std::vector<Step> steps;
  StepOperand result;
  std::vector<NumberRange> ranges;
  bool done = false;  // Python has made this call itself, and words the errors of the next ones
  const Signature* resolved = nullptr;

  // Says after which step each result is let go of: what is no longer needed takes no memory.
  void end_results();
  // Finds the arguments' places. Python may return one object for many calls.
  void resolve(const Signature& s);
  bool in_range(const BoundCall& given) const;
  PyRef run(const BoundCall& given) const;
};

Steps* steps_in(PyObject* o);  // null for an object of another type
void register_steps(nanobind::module_& m);

}  // namespace gpuinterop
