// Functions of the exchange part in the module.
#include <nanobind/nanobind.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/pair.h>

#include <optional>
#include <utility>

#include "array/text_arguments.hpp"
#include "python/array_type.hpp"
#include "python/error_translation.hpp"
#include "python/exchange_c_api.hpp"
#include "python/exchange_import.hpp"
#include "python/register.hpp"

namespace nb = nanobind;

namespace gpuinterop {

namespace {

nb::object import_any(nb::handle cls, nb::handle obj, std::optional<std::pair<int, int>> device,
                      std::optional<bool> copy, const char* where, std::optional<bool> realign) {
  auto* type = cls.is_none() ? nullptr : reinterpret_cast<PyTypeObject*>(cls.ptr());
  if (type && !(PyType_Check(cls.ptr()) && PyType_IsSubtype(type, array_type)))
    fail(Kind::Type, "from_dlpack", "CudaNdarray, GpuArray, a subclass of these, or None as cls",
         repr_text(cls.ptr()),
         "omit cls, or pass a class: from_dlpack(x, cls=gpuinterop.GpuArray)");
  exchange::Options o;
  o.where = where;
  o.has_device = device.has_value();
  if (device) o.device = read_device(device->first, device->second, where);
  if (copy) o.copy = *copy;
  o.allow_unaligned = !realign;
  o.realign = realign.value_or(true);
  return nb::steal(exchange::import_any(type, obj.ptr(), o));
}

nb::object share_plain(nb::handle obj) {
  exchange::ForeignType& p = exchange::foreign_type_of(Py_TYPE(obj.ptr()));
  PyObject* found =
      p.plain && !exchange::converters_changed ? exchange::import_plain(p, obj.ptr()) : nullptr;
  if (PyErr_Occurred()) throw PythonError();
  return found ? nb::steal(found) : nb::none();
}

}  // namespace

void register_exchange(nanobind::module_& m) {
  using namespace nb::literals;
  exchange::make_names();
  m.def(
      "import_any", &import_any, "cls"_a.none(), "obj"_a.none(), "device"_a = nb::none(),
      "copy"_a = nb::none(), "where"_a = "from_dlpack", "realign"_a.none() = false,
      "Return an array of class `cls` over the memory of `obj`, by the first protocol that works. "
      "`realign`: copy memory that is not aligned; None: share it, only to inspect its layout.");
  m.def(
      "export_via",
      [](nb::handle x, nb::type_object type) {
        return nb::steal(exchange_export(x.ptr(), reinterpret_cast<PyTypeObject*>(type.ptr())));
      },
      "x"_a, "type"_a,
      "Return an object of `type` over the memory of `x`, by that type's DLPack C exchange API.");
  m.def(
      "share_plain", &share_plain, "obj"_a.none(),
      "Return an array over an ordinary array of numpy, torch or cupy, or None for objects that a "
      "converter must check.");
  m.def(
      "_look_into",
      [](nb::handle capsule, const std::string& where, bool realign) -> nb::object {
        if (!PyCapsule_CheckExact(capsule.ptr())) return nb::none();
        return nb::steal(
            wrap(array_type, exchange::look_into(capsule.ptr(), where.c_str(), realign)));
      },
      nb::sig("def _look_into(capsule: object, where: str = 'from_dlpack', realign: bool = False) "
              "-> Array | None"),
      nb::arg("capsule").none(), nb::arg("where") = "from_dlpack", nb::arg("realign") = false,
      "Return the array that a DLPack capsule describes, without ownership; the capsule is not "
      "consumed. None for another object.");
  m.def(
      "_set_converters_changed", [](bool changed) { exchange::converters_changed = changed; },
      nb::arg("changed"), "Set whether share_plain leaves all objects to the converters.");
  m.def("_set_result_types", &set_exchange_result_types, nb::arg("float32_class"),
        nb::arg("other_class"),
        "Set the classes of the objects that the C exchange API returns to consumers.");
  exchange::register_torch(m);
  try {
    publish_exchange_api();
  } catch (const PythonError&) {
    throw nanobind::python_error();
  }
}

}  // namespace gpuinterop
