// The exchange part's entries in the module, as plain C functions: the conversions take tens of
// nanoseconds, and argument handling must not cost more than they do.
#include "python/error_translation.hpp"
#include "python/exchange_c_api.hpp"
#include "python/foreign_types.hpp"
#include "python/register.hpp"

namespace gpuinterop {

namespace {

template <class F>
PyCFunction as_function(F* f) {
  return reinterpret_cast<PyCFunction>(reinterpret_cast<void (*)()>(f));
}

PyMethodDef exchange_functions[] = {
    {"import_any", as_function(exchange_import_any), METH_FASTCALL | METH_KEYWORDS,
     "import_any(cls, obj, device=None, copy=None, where='from_dlpack',"
     " realign=False)\n--\n\n"
     "An array of class `cls` over the memory of `obj`, by the first protocol that works. "
     "`realign`: "
     "memory that is not aligned is copied; None: it is shared, for looking at its geometry "
     "alone."},
    {"export_via", exchange_export_via, METH_VARARGS,
     "export_via(x, type)\n--\n\n"
     "An object of `type` over the memory of `x`, through that type's DLPack C exchange API."},
    {"_look_into", exchange_look_into, METH_VARARGS,
     "_look_into(capsule, where='from_dlpack', realign=False)\n--\n\nWhat a DLPack capsule "
     "describes, as an array that owns nothing; "
     "the "
     "capsule stays unused. None for another object."},
    {"share_plain", exchange_share_plain, METH_O,
     "share_plain(obj)\n--\n\nAn array over an ordinary array of numpy, torch or cupy; None for "
     "what "
     "needs a converter's look."},
    {"_set_converters_changed", exchange_set_converters_changed, METH_O,
     "_set_converters_changed(changed)\n--\n\nWhether share_plain leaves all to the converters."},
    {"_set_result_types", as_function(exchange_set_result_types), METH_FASTCALL,
     "_set_result_types(float32_class, other_class)\n--\n\n"
     "Classes of the objects that consumers of the C exchange API get back."},
    {nullptr, nullptr, 0, nullptr},
};

}  // namespace

void register_exchange(nanobind::module_& m) {
  exchange::make_names();
  if (PyModule_AddFunctions(m.ptr(), exchange_functions) < 0) throw nanobind::python_error();
  try {
    publish_exchange_api();
  } catch (const PythonError&) {
    throw nanobind::python_error();
  }
}

}  // namespace gpuinterop
