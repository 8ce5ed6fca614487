#include "interpreter/error_translation.hpp"

#include <dlfcn.h>
#include <nanobind/nanobind.h>
#include <unistd.h>

#include <atomic>
#include <optional>
#include <stdexcept>

#include "interpreter/text_arguments.hpp"

namespace nb = nanobind;

namespace gpuinterop {

namespace {

// By Kind.
constexpr const char* kClasses[] = {
#define X(kind, error_class) #error_class,
    GPUINTEROP_KINDS(X)
#undef X
};

std::atomic<bool> interpreter_gone{false};

// Every CPython exports this function by one of two names, but not every version's limited API declares it.
int (*is_finalizing)() = nullptr;

// Returns the error of a builder of gpuinterop/errors/messages.py.
nb::object built_error(const Error& e) {
  nb::list values;
  for (const MessageValue& value : e.values)
    if (const auto* text = std::get_if<std::string>(&value))
      values.append(*text);
    else
      values.append(nb::int_(std::get<int64_t>(value)));
  return nb::module_::import_("gpuinterop.errors.messages")
      .attr("from_core")(e.builder, e.where, *values);
}

}  // namespace

void set_python_error(const Error& e) noexcept {
  try {
    if (e.builder) {
      nb::object value = built_error(e);
      PyErr_SetObject(value.type().ptr(), value.ptr());
      return;
    }
    nb::object cls =
        nb::module_::import_("gpuinterop.errors").attr(kClasses[static_cast<int>(e.kind)]);
    nb::object value = cls(nb::arg("where") = e.where, nb::arg("expected") = e.expected,
                           nb::arg("got") = e.got, nb::arg("fix") = e.fix);
    PyErr_SetObject(cls.ptr(), value.ptr());
  } catch (nb::python_error& error) {
    error.restore();
  } catch (...) {
    PyErr_SetString(PyExc_RuntimeError, e.expected.c_str());
  }
}

void name_statement_in_error(const char* statement) noexcept {
  PyObject *type = nullptr, *value = nullptr, *trace = nullptr;
  PyErr_Fetch(&type, &value, &trace);
  PyErr_NormalizeException(&type, &value, &trace);
  try {
    nb::object reworded = nb::module_::import_("gpuinterop.errors.messages")
                              .attr("in_statement")(nb::handle(value), statement);
    PyErr_SetObject(reworded.type().ptr(), reworded.ptr());
  } catch (nb::python_error& error) {
    if (error.matches(PyExc_Exception)) return PyErr_Restore(type, value, trace);
    error.restore();  // an interrupt
  }
  Py_XDECREF(type);
  Py_XDECREF(value);
  Py_XDECREF(trace);
}

void register_errors() {
  nb::register_exception_translator(
      [](const std::exception_ptr& p, void*) {
        try {
          std::rethrow_exception(p);
        } catch (const Error& e) {
          set_python_error(e);
        } catch (const PythonError&) {
        }
      },
      nullptr);
  for (const char* name : {"_Py_IsFinalizing", "Py_IsFinalizing"})
    if (void* found = dlsym(RTLD_DEFAULT, name)) is_finalizing = reinterpret_cast<int (*)()>(found);
  // Runs after the interpreter has been shut down.
  Py_AtExit([] { interpreter_gone.store(true); });
}

GilForCleanup::GilForCleanup() {
  if (interpreter_gone.load() || !Py_IsInitialized()) return;
  // During shutdown only the thread that holds the GIL may use Python. PyGILState_Ensure would block any
  // other thread forever, or unwind it.
  if (is_finalizing && is_finalizing() && !PyGILState_Check()) return;
  state_ = PyGILState_Ensure();
  held_ = true;
}

GilForCleanup::~GilForCleanup() {
  if (held_) PyGILState_Release(state_);
}

void forgive() {
  if (!PyErr_Occurred()) return;
  if (!PyErr_ExceptionMatches(PyExc_Exception) || PyErr_ExceptionMatches(PyExc_MemoryError))
    throw PythonError();
  PyErr_Clear();
}

std::string cut_text(std::string text, size_t most) {
  if (text.size() <= most) return text;
  size_t end = most - 3;
  while (end && (text[end] & 0xC0) == 0x80) --end;
  return text.substr(0, end) + "...";
}

namespace {

// The text that Python code makes, "" if that fails; throws only an interrupt. A pending error stays.
template <typename Make>
std::string text_made_by(Make make) {
  std::optional<nb::python_error> interrupt;
  {
    ErrorSaver saver;
    try {
      return make();
    } catch (const nb::python_error& error) {
      if (!error.matches(PyExc_Exception)) interrupt.emplace(error);
    } catch (const std::logic_error&) {  // of text that is not UTF-8, which is a null pointer
    }
  }
  if (!interrupt) return "";
  PyErr_Clear();
  interrupt->restore();
  throw PythonError();
}

}  // namespace

std::string repr_text(PyObject* o) {
  std::string text = text_made_by([&] { return cut_text(nb::repr(nb::handle(o)).c_str(), 120); });
  return text.empty() ? type_text(o) : text;
}

std::string type_text(PyObject* o) {
  std::string text = text_made_by([&] {
    nb::handle type((PyObject*)Py_TYPE(o));
    std::string module = nb::str(type.attr("__module__")).c_str();
    std::string name = nb::str(type.attr("__qualname__")).c_str();
    return module == "builtins" ? name : module + "." + name;
  });
  return text.empty() ? "object" : text;
}

bool has_attribute(PyObject* o, const char* name) {
  const PyRef value = PyRef::steal(PyObject_GetAttrString(o, name));
  forgive();
  return static_cast<bool>(value);
}

}  // namespace gpuinterop
