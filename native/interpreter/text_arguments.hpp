// Converts texts between Python and C++, in place of nanobind/stl/string.h. That header copies an argument
// in a noexcept function, so a failed allocation ends the process. This one copies it where the failure
// becomes a Python error.
#pragma once

#include <nanobind/nanobind.h>

#include <string>

namespace nanobind::detail {

template <>
struct type_caster<std::string> {
  static constexpr auto Name = const_name("str");
  template <class T>
  using Cast = std::string;

  handle text;

  bool from_python(handle source, uint8_t, cleanup_list*) noexcept {
    text = source;
    return PyUnicode_Check(source.ptr());
  }
  // A path or a capsule's name need not be UTF-8, but a message that quotes it must be readable.
  static handle from_cpp(const std::string& value, rv_policy, cleanup_list*) noexcept {
    return PyUnicode_DecodeUTF8(value.data(), Py_ssize_t(value.size()), "backslashreplace");
  }
  template <class T>
  static constexpr bool can_cast() {
    return true;
  }
  operator std::string() const {
    Py_ssize_t size;
    const char* utf8 = PyUnicode_AsUTF8AndSize(text.ptr(), &size);
    if (!utf8) throw python_error();
    return std::string(utf8, size_t(size));
  }
};

}  // namespace nanobind::detail
