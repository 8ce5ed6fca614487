// import_any: the order in which the protocols of a foreign object are tried, and the checks of the imported
// array.
#include "exchange/import_any.hpp"

#include "arrays/type.hpp"
#include "devices/cuda.hpp"
#include "exchange/c_api.hpp"
#include "exchange/export_structs.hpp"
#include "interpreter/error.hpp"
#include "interpreter/error_translation.hpp"
#include "interpreter/hooks.hpp"

namespace gpuinterop {

bool exchange::converters_changed = false;

using namespace exchange;

namespace {

void import_own(PyObject* obj, Array* out) {
  require_valid_layout(obj);
  const Array& a = unwrap(obj);
  *out = view_of(obj);
  out->layout = a.layout;
  out->data = a.data;
}

[[noreturn]] void nothing_worked(PyObject* obj, const Options& o, const Attempts& tried) {
  static const char protocols[] =
      "DLPack (C exchange API or __dlpack__), __cuda_array_interface__, __array_interface__ or the "
      "buffer protocol";
  if (tried.text.empty())
    fail(Kind::ConversionType, o.where, std::string("an object that implements ") + protocols,
         "an object of type " + type_text(obj) + ", which has none of them",
         "call gpuinterop.from_any, which accepts the arrays of more libraries, or "
         "gpuinterop.asarray for numbers and lists");
  fail(tried.kind, o.where, "an object with a protocol that works",
       "an object of type " + type_text(obj) + "; tried:" + tried.text,
       "fix the first cause above, or copy the object in the producer");
}

// Throws the error of the converter of the object's library, if it has one.
void refuse_foreign(PyObject* obj, const Options& o) {
  if (is_refused(obj, o)) throw PythonError();
}

void import_by_protocol(ForeignType& p, PyObject* obj, const Options& o, Array* out) {
  if (p.family == Family::Cupy && import_cupy(obj, o.where, out)) return;
  if (PyCapsule_CheckExact(obj)) {
    *out = consume_capsule(obj, obj, nullptr, false, o);
    return;
  }
  if (PyType_Check(obj))  // it has the protocols' methods, but they need an instance
    fail(Kind::ConversionType, o.where, "an array", "the class itself, " + repr_text(obj),
         "pass an array of that class");
  Attempts tried;
  if (import_c_api(p, obj, o, out, &tried)) return;
  const bool same_code = p.family == Family::Torch && p.api;  // torch's __dlpack__ is the same code
  // CuPy 14 divides negative strides as unsigned numbers for DLPack, but its dictionary has the right ones.
  const bool cupys = p.family == Family::Cupy && import_cuda_interface(obj, o, out, &tried);
  if (cupys) return;
  if (!same_code && import_dlpack(p, obj, o, out, &tried)) {
    if (p.family == Family::Jax && out->dtype == kBool) refuse_foreign(obj, o);  // int1
    return;
  }
  if (!same_code &&
      (import_cuda_interface(obj, o, out, &tried) || import_by_numpy(p, obj, o, out, &tried)))
    return;
  nothing_worked(obj, o, tried);
}

// After a failure the converter of the object's library may give the reason; else the protocol's own error
// is raised.
void import_foreign(ForeignType& p, PyObject* obj, const Options& o, Array* out) {
  try {
    import_by_protocol(p, obj, o, out);
  } catch (const Error&) {
    refuse_foreign(obj, o);
    throw;
  } catch (const PythonError&) {
    if (!PyErr_ExceptionMatches(PyExc_Exception)) throw;
    PyObject *type, *value, *trace;
    PyErr_Fetch(&type, &value, &trace);
    PyRef first[] = {PyRef::steal(type), PyRef::steal(value), PyRef::steal(trace)};
    refuse_foreign(obj, o);
    PyErr_Restore(first[0].release(), first[1].release(), first[2].release());
    throw;
  }
}

// A copy in aligned memory. The caller has allowed copies.
Array moved(const Array& a, Device target, const Options& o) {
  Array out = copy_for(a, target, o.where);
  out.is_copied = true;
  return out;
}

// The imported array. If an error is pending, the producer's deleter must not change it.
struct Imported {
  Array array;
  ~Imported() {
    ErrorSaver saver;
    array = Array();
  }
};

void require_wanted(const Array& a, PyTypeObject* cls, const ForeignType& p, const Options& o) {
  if (cls && p.family == Family::Torch)
    require_holds(cls, a.dtype, o.where, "x.to(torch.{})");
  else if (cls)
    require_holds(cls, a.dtype, o.where);
  if (o.has_device && o.device != a.device && o.copy == 0)
    fail_with("copy_forbidden", o.where, {device_text(a.device), device_text(o.device)});
}

}  // namespace

PyObject* exchange::import_any(PyTypeObject* cls, PyObject* obj, const Options& o) {
  if (PyWeakref_CheckProxy(obj))
    fail(Kind::ConversionType, o.where, "an object that keeps its memory alive", "a weak proxy",
         "pass the object itself");
  // Reading an object may change its class, and the entry of a type is removed with the type, so hold the
  // type.
  const PyRef type = PyRef::borrow(reinterpret_cast<PyObject*>(Py_TYPE(obj)));
  ForeignType& p = foreign_type_of(Py_TYPE(obj));
  // A capsule can be consumed only once, so check before consuming it.
  if (PyCapsule_CheckExact(obj)) require_wanted(look_into(obj, o.where, o.may_copy()), cls, p, o);
  if (p.judged && is_refused(obj, o)) return nullptr;  // takes half the time of a C++ exception
  Imported imported;
  Array& a = imported.array;
  p.own ? import_own(obj, &a) : import_foreign(p, obj, o, &a);
  require_wanted(a, cls, p, o);
  const bool elsewhere = o.has_device && o.device != a.device;
  if (elsewhere || (o.copy == 1 && !a.is_copied) ||
      (o.realign && !o.allow_unaligned && !is_aligned(a)))
    a = moved(a, elsewhere ? o.device : a.device, o);
  return wrap(cls ? cls : result_type(a.dtype), std::move(a));
}

bool exchange::is_refused(PyObject* obj, const Options& o) {
  if (std::exchange(o.judged, true)) return false;
  const PyRef error = call_hook(Hook::Foreign, "(sOs)", "refuse", obj, o.where);
  if (error.get() == Py_None) return false;
  PyErr_SetObject(reinterpret_cast<PyObject*>(Py_TYPE(error.get())), error.get());
  return true;
}

PyObject* exchange::import_ordinary(ForeignType& p, PyObject* obj, bool narrow) {
  Array a;
  Options o;
  o.only_ordinary = true;
  Attempts tried;
  try {
    const bool done = p.family == Family::Numpy   ? import_dlpack(p, obj, o, &a, &tried)
                      : p.family == Family::Torch ? import_c_api(p, obj, o, &a, &tried)
                      : p.family == Family::Cupy  ? import_cupy(obj, o.where, &a)
                      // JAX exports its 1-bit integers as bools.
                      : p.family == Family::Jax
                          ? import_dlpack(p, obj, o, &a, &tried) && a.dtype != kBool
                          : import_described(p, obj, o.where, &a);
    if (done) return wrap(result_type(narrow ? a.dtype : kBool), std::move(a));
  } catch (const Error&) {
  } catch (const PythonError&) {
    forgive();
  }
  return nullptr;
}

}  // namespace gpuinterop
