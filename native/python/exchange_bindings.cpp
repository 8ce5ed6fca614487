// Functions of the exchange part in the module, as plain C functions: a conversion takes tens of
// nanoseconds, and argument parsing must not cost more.
#include "array/text_arguments.hpp"
#include "python/array_type.hpp"
#include "python/error_translation.hpp"
#include "python/exchange_c_api.hpp"
#include "python/exchange_import.hpp"
#include "python/register.hpp"

namespace nb = nanobind;

namespace gpuinterop {

namespace {

PyMethodDef exchange_functions[] = {
    {"import_any", as_method(guarded<exchange_import_any>), METH_FASTCALL | METH_KEYWORDS,
     "import_any(cls, obj, device=None, copy=None, where='from_dlpack',"
     " realign=False)\n--\n\n"
     "Return an array of class `cls` over the memory of `obj`, by the first protocol that works. "
     "`realign`: copy memory that is not aligned; None: share it, only to inspect its layout."},
    {"export_via", guarded<exchange_export_via>, METH_VARARGS,
     "export_via(x, type)\n--\n\n"
     "Return an object of `type` over the memory of `x`, by that type's DLPack C exchange API."},
    {"share_plain", guarded<exchange_share_plain>, METH_O,
     "share_plain(obj)\n--\n\nReturn an array over an ordinary array of numpy, torch or cupy, or "
     "None for objects that a converter must check."},
    {nullptr, nullptr, 0, nullptr},
};

}  // namespace

void register_exchange(nanobind::module_& m) {
  exchange::make_names();
  if (PyModule_AddFunctions(m.ptr(), exchange_functions) < 0) throw nb::python_error();
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
  try {
    publish_exchange_api();
  } catch (const PythonError&) {
    throw nanobind::python_error();
  }
}

}  // namespace gpuinterop
