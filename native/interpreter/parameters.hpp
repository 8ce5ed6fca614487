// The parameters of a function in C, and the one reader of the arguments of its calls.
#pragma once

#include <array>
#include <string>
#include <vector>
#include "interpreter/references.hpp"

namespace gpuinterop {

class Parameters {
 public:
  static constexpr size_t kMost = 8;
  // `words` are the names in order: of those before "/", an argument has no name; of those after "*", it must
  // have one. `required_names`: the number of parameters without a default.
  Parameters(std::string name, const std::string& words, size_t required_names);

  // The arguments in the order of the parameters, borrowed; null for parameters that are left out. Kind::Type
  // error for a call with other arguments.
  std::array<PyObject*, kMost> read(PyObject* const* args, Py_ssize_t nargs, PyObject* names) const;

  const std::string function;
  const size_t required;
  std::vector<std::string> names;

 private:
  size_t find(PyObject* name) const;
  [[noreturn]] void refuse(const std::string& got, const std::string& fix = "") const;

  std::vector<PyObject*>
      interned_;  // owned until the process ends, so that names are compared by address
  size_t nameless_ = 0, positional_ = kMost;
};

}  // namespace gpuinterop
