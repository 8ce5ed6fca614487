#include "interpreter/parameters.hpp"

#include <algorithm>
#include <sstream>
#include <utility>

#include "interpreter/error.hpp"
#include "interpreter/error_translation.hpp"
#include "interpreter/gil.hpp"

namespace gpuinterop {

Parameters::Parameters(std::string name, const std::string& words, size_t required_names)
    : function(std::move(name)), required(required_names) {
  std::istringstream stream(words);
  for (std::string word; stream >> word;) {
    if (word == "/") nameless_ = names.size();
    if (word == "*") positional_ = names.size();
    if (word == "/" || word == "*") continue;
    names.push_back(word);
    interned_.push_back(PyRef::checked(PyUnicode_InternFromString(word.c_str())).release());
  }
  positional_ = std::min(positional_, names.size());
}

void Parameters::refuse(const std::string& got, const std::string& fix) const {
  std::string call = function + "(";
  for (size_t i = 0; i < names.size(); ++i) {
    if (i) call += ", ";
    if (i == positional_) call += "*, ";
    call += names[i];
    if (i >= required) call += "=...";
  }
  fail(Kind::Type, function, call + ")", got,
       fix.empty() ? "omit optional arguments, or pass them by name" : fix);
}

size_t Parameters::find(PyObject* name) const {
  for (size_t i = nameless_; i < names.size(); ++i)
    if (name == interned_[i]) return i;
  // Names in a program are interned; one that is built at run time is compared by its text.
  for (size_t i = nameless_; i < names.size(); ++i)
    if (PyUnicode_Compare(name, interned_[i]) == 0) return i;
  for (const auto& [torch, numpy] : {std::pair{"dim", "axis"}, {"keepdim", "keepdims"}})
    if (PyUnicode_CompareWithASCIIString(name, torch) == 0 && std::ranges::count(names, numpy))
      refuse("the argument " + repr_text(name), std::string("write ") + numpy + "=");
  refuse("the argument " + repr_text(name));
}

std::array<PyObject*, Parameters::kMost> Parameters::read(PyObject* const* args, Py_ssize_t nargs,
                                                          PyObject* keywords) const {
  std::array<PyObject*, kMost> values{};
  if (static_cast<size_t>(nargs) > positional_)
    refuse(std::to_string(nargs) + " positional argument" + (nargs == 1 ? "" : "s"));
  std::copy_n(args, nargs, values.begin());
  for (Py_ssize_t k = 0, n = keywords ? PyTuple_Size(keywords) : 0; k < n; ++k) {
    const size_t i = find(PyTuple_GetItem(keywords, k));
    if (values[i]) refuse(names[i] + " twice");
    values[i] = args[nargs + k];
  }
  for (size_t i = 0; i < required; ++i)
    if (!values[i]) refuse("a call without " + names[i], "pass " + names[i]);
  return values;
}

}  // namespace gpuinterop
