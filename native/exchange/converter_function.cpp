// imports(family) and exports(library): decorators for converters. The ordinary case, one array that can be
// shared and no option but copyif, runs without a Python frame, which would cost as much as the conversion.
// The Python function handles every other case and every failure.
#include <nanobind/nanobind.h>

#include <vector>

#include "arrays/type.hpp"
#include "captures/recorder.hpp"
#include "exchange/c_api.hpp"
#include "exchange/import_any.hpp"
#include "exchange/lending.hpp"
#include "interpreter/error_translation.hpp"
#include "interpreter/register.hpp"
#include "interpreter/served.hpp"

namespace nb = nanobind;
using namespace nb::literals;

namespace gpuinterop {

using namespace exchange;

namespace {

// Converts arrays on the host, or on GPUs, to objects of a library: by the exchange table of a class, or else
// by a Python function (x, module), for arrays whose traits in `mask` equal `wanted`.
// Registered after a successful conversion.
struct Exporter {
  PyObject* library;
  bool on_cuda;
  PyRef maker;   // the class, or the function
  PyRef module;  // the imported library; null with a class
  PyRef module_name;
  uint32_t mask, wanted;
};
auto& exporters = *new std::vector<Exporter>;  // owns its objects until the process ends

const Exporter* find_exporter(PyObject* library, bool on_cuda) {
  // Both names are usually interned, so compare the texts only if no entry has the same object.
  for (const Exporter& e : exporters)
    if (e.library == library && e.on_cuda == on_cuda) return &e;
  if (!PyUnicode_CheckExact(library)) return nullptr;
  for (const Exporter& e : exporters)
    if (e.on_cuda == on_cuda && PyUnicode_Compare(e.library, library) == 0) return &e;
  return nullptr;
}

// `f.number` is the family of the objects; Other: any ordinary object. `f.of` is the function that reads the memory of those
// of Family::Described.
PyObject* import_argument(const PublicFunction& f, PyObject* obj) {
  const auto family = static_cast<Family>(f.number);
  const bool any = family == Family::Other;
  if (any && is_array(obj)) return PyRef::borrow(obj).release();
  ForeignType& p = foreign_type_of(Py_TYPE(obj));
  const bool serves = any ? !converters_changed : p.family == family && p.reader == f.of;
  return p.ordinary && serves ? import_ordinary(p, obj) : nullptr;
}

PyObject* export_by_function(const Exporter& e, PyObject* x) {
  // Hold references, because the function may register another exporter.
  const PyRef function = PyRef::borrow(e.maker.get()), module = PyRef::borrow(e.module.get());
  require_valid_layout(x);
  const Array& a = unwrap(x);
  if ((traits_of(a) & e.mask) != e.wanted) return nullptr;
  if (PyDict_GetItem(PyImport_GetModuleDict(), e.module_name.get()) != module.get()) return nullptr;
  if (!a.device.is_cuda()) ops::require_values("to", a);
  PyObject* const args[] = {x, module.get()};
  return PyObject_Vectorcall(function.get(), args, 2, nullptr);
}

}  // namespace

PyObject* exchange::export_ordinary(PyObject* x, PyObject* library) {
  const Exporter* e = find_exporter(library, unwrap(x).device.is_cuda());
  if (!e) return nullptr;
  if (e->module) return export_by_function(*e, x);
  return exchange_export(x, reinterpret_cast<PyTypeObject*>(e->maker.get()));
}

namespace {

// `f.of` is the library; null: the second argument names it.
PyObject* export_argument(const PublicFunction& f, PyObject* x, PyObject* library) {
  return is_array(x) && (f.of || !converters_changed) ? export_ordinary(x, library) : nullptr;
}

// The first `needed` arguments have no names, and copyif may follow.
bool has_only_copyif(Py_ssize_t needed, PyObject* const* args, Py_ssize_t n, PyObject* names) {
  const Py_ssize_t count = n + (names ? PyTuple_Size(names) : 0);
  if (n < needed || count > needed + 1) return false;
  if (count > needed && !PyBool_Check(args[needed])) return false;
  return count == n || is_text(PyTuple_GetItem(names, 0), "copyif");
}

// A failure is left to Python.
template <class Convert>
PyObject* attempt(Convert&& convert) {
  return guard((PyObject*)nullptr, [&]() -> PyObject* {
    try {
      return convert();
    } catch (const Error&) {
      return nullptr;
    }
  });
}

PyObject* attempt_import(const PublicFunction& f, PyObject* const* args, Py_ssize_t n,
                         PyObject* names) {
  if (f.number == int(Family::Protocols) && n == 1 && !names)
    return guard((PyObject*)nullptr, [&] { return import_any(nullptr, args[0], Options()); });
  if (!has_only_copyif(1, args, n, names)) return nullptr;
  return attempt([&] { return import_argument(f, args[0]); });
}

PyObject* attempt_export(const PublicFunction& f, PyObject* const* args, Py_ssize_t n,
                         PyObject* names) {
  if (!has_only_copyif(f.of ? 1 : 2, args, n, names)) return nullptr;
  return attempt([&] { return export_argument(f, args[0], f.of ? f.of : args[1]); });
}

nb::object decorator(PublicFunction::Attempt attempt, int number, nb::object of) {
  return nb::cpp_function([=](nb::callable function) {
    return make_function(attempt, number, of.is_none() ? nullptr : of.ptr(), function);
  });
}

nb::object imports(nb::object of) {
  const bool described = PyCallable_Check(of.ptr());
  const int family = described ? int(Family::Described) : nb::cast<int>(of);
  return decorator(attempt_import, family, described ? of : nb::none());
}

nb::object exports(nb::object library) { return decorator(attempt_export, 0, library); }

void set_exporter(nb::str name, bool on_cuda, nb::object maker, nb::object module, uint32_t mask,
                  uint32_t wanted) {
  PyObject* library = name.ptr();
  const PyRef module_name =
      module.is_none() ? PyRef() : PyRef::borrow(nb::object(module.attr("__name__")).ptr());
  std::vector<Exporter> before;  // destroyed last: what it releases may run Python
  std::erase_if(exporters, [&](Exporter& e) {
    const bool same =
        (maker.is_none() || e.on_cuda == on_cuda) && PyUnicode_Compare(e.library, library) == 0;
    if (same) before.push_back(std::move(e));
    return same;
  });
  if (!maker.is_none())
    exporters.push_back({PyRef::borrow(library).release(), on_cuda, PyRef::borrow(maker.ptr()),
                         module_name ? PyRef::borrow(module.ptr()) : PyRef(), module_name, mask,
                         wanted});
}

}  // namespace

void register_converter_functions(nb::module_& m) {
  m.def(
      "imports", &imports, "family"_a = int(Family::Other),
      "Decorator of a converter (obj, copyif=False): ordinary objects of the family (NUMPY, TORCH, "
      "CUPY, JAX; a function given to _set_memory_reader; 0: any) are imported without calling it. "
      "ANY_PROTOCOL: one object alone is given to import_any.");
  m.def("exports", &exports, "library"_a = nb::none(),
        "Decorator of a converter (x, copyif=False), or without a library (x, library, "
        "copyif=False): ordinary arrays are exported without calling it, to a library that "
        "_set_exporter() has registered.");
  m.def(
      "_set_exporter", &set_exporter, "library"_a, "on_cuda"_a = false, "maker"_a = nb::none(),
      "module"_a = nb::none(), "mask"_a = 0, "wanted"_a = 0,
      "Export ordinary arrays by the exchange table of the class `maker`, or, with a module, those "
      "whose traits under `mask` are `wanted`, by maker(x, module). None: forget the library.");
  register_lending(m);
  m.attr("ANY_PROTOCOL") = int(Family::Protocols);
  m.attr("NUMPY") = int(Family::Numpy);
  m.attr("TORCH") = int(Family::Torch);
  m.attr("CUPY") = int(Family::Cupy);
  m.attr("JAX") = int(Family::Jax);
}

}  // namespace gpuinterop
