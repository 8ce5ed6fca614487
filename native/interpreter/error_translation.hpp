// Translation of C++ exceptions to Python's. Raw slots run inside guard(); functions bound by nanobind use
// the translator that register_errors() installs.
#pragma once

#include <nanobind/nanobind.h>

#include <exception>
#include <new>
#include <string>
#include <type_traits>
#include <utility>

#include "interpreter/error.hpp"
#include "interpreter/gil.hpp"
#include "interpreter/references.hpp"

namespace gpuinterop {

namespace nb = nanobind;

void register_errors();
// Sets the Python error for an Error: the class of gpuinterop.errors that belongs to its kind.
void set_python_error(const Error& e) noexcept;
// Rewords the current Python error for a statement, such as "x += y", if it is a GpuInteropError.
void name_statement_in_error(const char* statement) noexcept;

// Runs f; on a C++ exception sets the Python error and returns `failed`.
template <class F, class R>
R guard(R failed, F&& f) noexcept {
  try {
    return std::forward<F>(f)();
  } catch (const Error& e) {
    set_python_error(e);
  } catch (const PythonError&) {
  } catch (nb::python_error& e) {
    e.restore();
  } catch (const std::bad_alloc&) {
    PyErr_NoMemory();
  } catch (const std::exception& e) {
    PyErr_SetString(PyExc_RuntimeError, e.what());
  } catch (...) {
    PyErr_SetString(PyExc_RuntimeError, "unknown C++ exception");
  }
  return failed;
}

// F, which may throw, as a function of C: a slot, an attribute or a method.
template <auto F>
struct Guarded;
template <class R, class... A, R (*F)(A...)>
struct Guarded<F> {
  static R call(A... arguments) noexcept {
    auto run = [&] { return F(arguments...); };
    if constexpr (std::is_pointer_v<R>)
      return guard(R(nullptr), run);
    else
      return guard(R(-1), run);
  }
};
template <auto F>
constexpr auto guarded = Guarded<F>::call;

// A function as tables of methods hold it, next to the flags that describe its arguments.
template <class F>
PyCFunction as_method(F f) {
  return reinterpret_cast<PyCFunction>(reinterpret_cast<void (*)()>(f));
}

// A function as tables of slots hold it.
template <class F>
void* slot(F f) {
  return reinterpret_cast<void*>(f);
}

// Clears a Python error that an object's attributes or methods raised, if any. Throws PythonError if the
// error concerns the process and not the object: an interrupt, or missing memory.
void forgive();

// UTF-8 text of at most `most` bytes, with "..." at its end if it was cut. It is cut between two characters,
// because Python cannot decode part of one.
std::string cut_text(std::string text, size_t most);

// repr() of an object for messages, cut at 120 bytes, or its type; throws only an interrupt.
std::string repr_text(PyObject* o);
std::string type_text(PyObject* o);  // "torch.Tensor"; throws only an interrupt
// hasattr() of Python, which passes an interrupt on; PyObject_HasAttr discards it.
bool has_attribute(PyObject* o, const char* name);

// Runs an in-place operator; its errors name the statement, such as "x += y", and do not mention out=.
template <class F>
PyObject* in_statement(const char* statement, F&& f) {
  try {
    return f();
  } catch (const Error& e) {
    set_python_error(e);
  } catch (const PythonError&) {
  }
  name_statement_in_error(statement);
  throw PythonError();
}

}  // namespace gpuinterop
