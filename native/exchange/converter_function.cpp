// imports(family) and exports(library): decorators for converters. The plain case, one array that can be
// shared and no option but copyif, runs without a Python frame, which would cost as much as the conversion.
// The Python function handles every other case and every failure.
#include <nanobind/nanobind.h>
#include <structmember.h>

#include <vector>

#include "arrays/type.hpp"
#include "captures/recorder.hpp"
#include "exchange/c_api.hpp"
#include "exchange/import_any.hpp"
#include "interpreter/error_translation.hpp"
#include "interpreter/register.hpp"

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

struct Converter {
  PyObject_HEAD vectorcallfunc call;
  bool exports;
  Family family;       // imports: the family of the objects; Other: any plain object
  PyObject* of;        // exports: the target library, null: the second argument names it; imports,
                       // Described: the function that reads the memory of the objects
  PyObject* function;  // called for every other case
  PyObject* dict;      // attributes of the function, and the function itself as __wrapped__
  PyObject* weakrefs;
};

Converter* converter(PyObject* o) noexcept { return reinterpret_cast<Converter*>(o); }

PyObject* import_argument(const Converter* c, PyObject* obj) {
  const bool any = c->family == Family::Other;
  if (any && is_array(obj)) return PyRef::borrow(obj).release();
  ForeignType& p = foreign_type_of(Py_TYPE(obj));
  const bool serves = any ? !converters_changed : p.family == c->family && p.reader == c->of;
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

PyObject* export_argument(const Converter* c, PyObject* x, PyObject* library) {
  if (!is_array(x) || (!c->of && converters_changed)) return nullptr;
  const Exporter* e = find_exporter(library, unwrap(x).device.is_cuda());
  if (!e) return nullptr;
  if (e->module) return export_by_function(*e, x);
  return exchange_export(x, reinterpret_cast<PyTypeObject*>(e->maker.get()));
}

// The result of the plain case. Null without a Python error if this is not the plain case, or it failed.
PyObject* call_plain(const Converter* c, PyObject* const* args, Py_ssize_t n, PyObject* names) {
  const Py_ssize_t needed = c->exports && !c->of ? 2 : 1;
  const Py_ssize_t count = n + (names ? PyTuple_Size(names) : 0);
  if (n < needed || count > needed + 1) return nullptr;
  if (count > needed && !PyBool_Check(args[needed])) return nullptr;
  if (count > n && PyUnicode_CompareWithASCIIString(PyTuple_GetItem(names, 0), "copyif") != 0)
    return nullptr;
  try {
    return c->exports ? export_argument(c, args[0], c->of ? c->of : args[1])
                      : import_argument(c, args[0]);
  } catch (const Error&) {
    return nullptr;
  }
}

PyObject* call(PyObject* self, PyObject* const* args, size_t nargs, PyObject* names) {
  const Py_ssize_t n = PyVectorcall_NARGS(nargs);
  if (converter(self)->family == Family::Protocols && n == 1 && !names)
    return guard((PyObject*)nullptr, [&] { return import_any(nullptr, args[0], Options()); });
  PyObject* made =
      guard((PyObject*)nullptr, [&] { return call_plain(converter(self), args, n, names); });
  if (made || PyErr_Occurred()) return made;
  return PyObject_Vectorcall(converter(self)->function, args, nargs, names);
}

int traverse(PyObject* self, visitproc visit, void* arg) {
  Py_VISIT(converter(self)->function);
  Py_VISIT(converter(self)->dict);
  Py_VISIT(converter(self)->of);
  Py_VISIT(Py_TYPE(self));
  return 0;
}

int clear(PyObject* self) {
  Py_CLEAR(converter(self)->dict);  // the function stays, for a caller who runs it meanwhile
  return 0;
}

void dealloc(PyObject* self) {
  PyObject_GC_UnTrack(self);
  if (converter(self)->weakrefs) PyObject_ClearWeakRefs(self);
  PyTypeObject* type = Py_TYPE(self);
  Py_XDECREF(converter(self)->function);
  Py_XDECREF(converter(self)->of);
  Py_XDECREF(converter(self)->dict);
  PyObject_GC_Del(self);
  Py_DECREF(type);
}

PyObject* repr(PyObject* self) { return PyObject_Repr(converter(self)->function); }

// Not bound to instances, like functions in C; `inspect` and `pydoc` recognise a routine by this slot.
PyObject* get(PyObject* self, PyObject*, PyObject*) { return PyRef::borrow(self).release(); }

// Pickled by name, as functions are.
PyObject* reduce(PyObject* self, PyObject*) { return PyObject_GetAttrString(self, "__qualname__"); }

PyMethodDef methods[] = {{"__reduce__", reduce, METH_NOARGS, nullptr},
                         {nullptr, nullptr, 0, nullptr}};

PyMemberDef members[] = {
    {"__vectorcalloffset__", T_PYSSIZET, offsetof(Converter, call), READONLY, nullptr},
    {"__dictoffset__", T_PYSSIZET, offsetof(Converter, dict), READONLY, nullptr},
    {"__weaklistoffset__", T_PYSSIZET, offsetof(Converter, weakrefs), READONLY, nullptr},
    {nullptr, 0, 0, 0, nullptr},
};

PyTypeObject* converter_type = nullptr;

// The decorator that makes a converter of a function.
nb::object decorator(bool exports, Family family, nb::object of) {
  return nb::cpp_function([=](nb::callable function) {
    nb::object object = nb::steal(PyType_GenericAlloc(converter_type, 0));
    if (!object) throw nb::python_error();
    Converter& c = *converter(object.ptr());
    c.call = call;
    c.exports = exports;
    c.family = family;
    c.of = nb::object(of).release().ptr();
    c.function = nb::object(function).release().ptr();
    return nb::module_::import_("functools")
        .attr("update_wrapper")(object, function, "updated"_a = nb::make_tuple());
  });
}

nb::object imports(nb::object of) {
  const bool described = PyCallable_Check(of.ptr());
  const auto family = described ? Family::Described : static_cast<Family>(nb::cast<int>(of));
  return decorator(false, family, described ? of : nb::object());
}

nb::object exports(nb::object library) {
  return decorator(true, Family::Other, library.is_none() ? nb::object() : library);
}

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
  PyType_Slot slots[] = {
      {Py_tp_doc, const_cast<char*>("A converter whose plain case runs without a Python frame.")},
      {Py_tp_call, slot(PyVectorcall_Call)},
      {Py_tp_traverse, slot(traverse)},
      {Py_tp_clear, slot(clear)},
      {Py_tp_dealloc, slot(dealloc)},
      {Py_tp_repr, slot(repr)},
      {Py_tp_descr_get, slot(get)},
      {Py_tp_methods, methods},
      {Py_tp_members, members},
      {0, nullptr},
  };
  PyType_Spec spec = {"gpuinterop._core.Converter", sizeof(Converter), 0,
                      Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC | Py_TPFLAGS_HAVE_VECTORCALL |
                          Py_TPFLAGS_DISALLOW_INSTANTIATION,
                      slots};
  converter_type = reinterpret_cast<PyTypeObject*>(PyType_FromSpec(&spec));
  if (!converter_type) throw nb::python_error();
  m.def(
      "imports", &imports, "family"_a = int(Family::Other),
      "Decorator of a converter (obj, copyif=False): plain objects of the family (NUMPY, TORCH, "
      "CUPY, JAX; a function given to _set_memory_reader; 0: any) are imported without calling it. "
      "ANY_PROTOCOL: one object alone is given to import_any.");
  m.def("exports", &exports, "library"_a = nb::none(),
        "Decorator of a converter (x, copyif=False), or without a library (x, library, "
        "copyif=False): plain arrays are exported without calling it, to a library that "
        "_set_exporter() has registered.");
  m.def("_set_exporter", &set_exporter, "library"_a, "on_cuda"_a = false, "maker"_a = nb::none(),
        "module"_a = nb::none(), "mask"_a = 0, "wanted"_a = 0,
        "Export plain arrays by the exchange table of the class `maker`, or, with a module, those "
        "whose traits under `mask` are `wanted`, by maker(x, module). None: forget the library.");
  m.attr("ANY_PROTOCOL") = int(Family::Protocols);
  m.attr("NUMPY") = int(Family::Numpy);
  m.attr("TORCH") = int(Family::Torch);
  m.attr("CUPY") = int(Family::Cupy);
  m.attr("JAX") = int(Family::Jax);
}

}  // namespace gpuinterop
