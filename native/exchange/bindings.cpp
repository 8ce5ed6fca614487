// Functions of the exchange part in the module.
#include <nanobind/nanobind.h>

#include "arrays/type.hpp"
#include "exchange/c_api.hpp"
#include "exchange/import_any.hpp"
#include "interpreter/error_translation.hpp"
#include "interpreter/parameters.hpp"
#include "interpreter/register.hpp"

namespace nb = nanobind;

namespace gpuinterop {

namespace {

// Functions in C, because the calls of nanobind with names cost a quarter of a conversion.
PyObject* import_any(PyObject*, PyObject* const* args, Py_ssize_t nargs, PyObject* names) {
  static const Parameters parameters("import_any", "cls obj device copy where realign", 2);
  const auto [cls, obj, device, copy, where, realign, unused, unused_too] =
      parameters.read(args, nargs, names);
  auto* type = cls == Py_None ? nullptr : reinterpret_cast<PyTypeObject*>(cls);
  if (type && !(PyType_Check(cls) && PyType_IsSubtype(type, array_type)))
    fail(Kind::Type, "from_dlpack", "CudaNdarray, GpuArray, a subclass of these, or None as cls",
         repr_text(cls), "omit cls, or pass a class: from_dlpack(x, cls=gpuinterop.GpuArray)");
  exchange::Options o;
  // The text is valid as long as the caller's argument.
  if (where && !(o.where = PyUnicode_AsUTF8AndSize(where, nullptr))) throw PythonError();
  if (device && device != Py_None) {
    int kind, id;
    if (!PyArg_ParseTuple(device, "ii", &kind, &id)) throw PythonError();
    o.has_device = true;
    o.device = read_device(kind, id, o.where);
  }
  if (copy && copy != Py_None && (o.copy = PyObject_IsTrue(copy)) < 0) throw PythonError();
  o.allow_unaligned = realign == Py_None;
  o.realign = realign && realign != Py_False;
  return exchange::import_any(type, obj, o);
}

PyObject* share_ordinary(PyObject*, PyObject* obj) {
  exchange::ForeignType& p = exchange::foreign_type_of(Py_TYPE(obj));
  PyObject* found =
      p.ordinary && !exchange::converters_changed ? exchange::import_ordinary(p, obj) : nullptr;
  if (found || PyErr_Occurred()) return found;
  Py_RETURN_NONE;
}

PyMethodDef functions[] = {
    {"import_any", as_method(guarded<import_any>), METH_FASTCALL | METH_KEYWORDS,
     "import_any(cls, obj, device=None, copy=None, where='from_dlpack', realign=False)\n--\n\n"
     "Return an array of class `cls` over the memory of `obj`, by the first protocol that works. "
     "`realign`: copy memory that is not aligned; None: share it, only to inspect its layout."},
    {"share_ordinary", guarded<share_ordinary>, METH_O,
     "share_ordinary(obj)\n--\n\nReturn an array over an ordinary array of numpy, torch or cupy, "
     "or "
     "None for objects that a converter must check."},
    {nullptr, nullptr, 0, nullptr},
};

}  // namespace

void register_exchange(nanobind::module_& m) {
  using namespace nb::literals;
  exchange::make_names();
  if (PyModule_AddFunctions(m.ptr(), functions) < 0) throw nb::python_error();
  m.def(
      "export_via",
      [](nb::handle x, nb::type_object type) {
        return nb::steal(exchange_export(x.ptr(), reinterpret_cast<PyTypeObject*>(type.ptr())));
      },
      "x"_a, "type"_a,
      "Return an object of `type` over the memory of `x`, by that type's DLPack C exchange API.");
  m.def(
      "_look_into",
      [](nb::handle capsule, const std::string& where) -> nb::object {
        if (!PyCapsule_CheckExact(capsule.ptr())) return nb::none();
        return nb::steal(wrap(array_type, exchange::look_into(capsule.ptr(), where.c_str(), true)));
      },
      nb::sig("def _look_into(capsule: object, where: str) -> Array | None"),
      nb::arg("capsule").none(), nb::arg("where"),
      "Return the array that a DLPack capsule describes, without ownership; None for another "
      "object. The capsule is not consumed: it can be imported once, so checks run before that.");
  m.def(
      "_set_converters_changed",
      [](bool changed) {
        exchange::converters_changed = changed;
        exchange::forget_callers();
      },
      nb::arg("changed"),
      "Set whether share_ordinary leaves all objects to the converters, and forget the rules of "
      "callers.");
  m.def("result_types", &result_classes, nb::sig("def result_types() -> tuple[Any, Any]"),
        "Return CudaNdarray and GpuArray, the classes of results of float32 and of other dtypes.");
  m.def("gpuarray_class", &gpuarray_class, nb::sig("def gpuarray_class() -> Any"),
        "Return GpuArray, the class of results that a CudaNdarray cannot hold.");
  m.def("_set_result_types", &set_result_types, nb::arg("float32_class"), nb::arg("other_class"),
        "Set the classes of the objects that the C exchange API returns to consumers.");
  try {
    publish_exchange_api();
  } catch (const PythonError&) {
    throw nanobind::python_error();
  }
}

}  // namespace gpuinterop
