#include "python/foreign_types.hpp"

#include <nanobind/nanobind.h>

#include <cstring>
#include <unordered_map>

#include "array/error.hpp"
#include "array/gil.hpp"
#include "python/error_translation.hpp"

namespace nb = nanobind;

namespace gpuinterop::exchange {

Names names;
ForeignType* recent_foreign_types[64];

PyRef optional_attribute(PyObject* o, PyObject* name) {
  PyRef value = PyRef::steal(run_python([&] { return PyObject_GetAttr(o, name); }));
  if (!value) PyErr_Clear();
  return value;
}
PyRef optional_attribute(PyObject* o, const char* name) {
  PyRef value = PyRef::steal(run_python([&] { return PyObject_GetAttrString(o, name); }));
  if (!value) PyErr_Clear();
  return value;
}

bool truth(PyObject* stolen) {
  PyRef value = PyRef::steal(stolen);
  const int t = value ? PyObject_IsTrue(value.get()) : -1;
  if (t < 0) PyErr_Clear();
  return t > 0;
}
bool truth_of_call(PyObject* o, const char* method) {
  return truth(run_python([&] { return PyObject_CallMethod(o, method, nullptr); }));
}

void make_names() {
  auto intern = [](const char* text) {
    PyObject* s = PyUnicode_InternFromString(text);
    if (!s) throw nb::python_error();
    return s;
  };
  names = {intern("stream"),
           intern("max_version"),
           intern("dl_device"),
           intern("copy"),
           intern("__dlpack__"),
           intern("__dlpack_device__"),
           intern("__dlpack_c_exchange_api__"),
           intern("__c_dlpack_exchange_api__"),
           intern("__cuda_array_interface__"),
           intern("__array_interface__"),
           intern("device"),
           intern("where"),
           intern("_only"),
           intern("dtype"),
           intern("realign")};
}

namespace {

// Never destroyed: types may still be collected while static objects are.
std::unordered_map<PyTypeObject*, ForeignType>& peers() {
  static auto* map = new std::unordered_map<PyTypeObject*, ForeignType>;
  return *map;
}

PyObject* forget(PyObject* self, PyObject*) {
  auto* type = static_cast<PyTypeObject*>(PyLong_AsVoidPtr(self));
  auto it = peers().find(type);
  if (it != peers().end()) {
    ForeignType p = it->second;
    ForeignType*& recent = recent_foreign_types[reinterpret_cast<uintptr_t>(type) >> 4 & 63];
    if (recent == &it->second) recent = nullptr;
    peers().erase(it);
    Py_XDECREF(p.requires_grad);
    Py_XDECREF(p.is_neg);
    Py_XDECREF(p.is_conj);
    Py_XDECREF(p.weakref);
  }
  Py_RETURN_NONE;
}
PyMethodDef forget_def = {"forget", forget, METH_O, nullptr};

std::string text_attribute(PyObject* o, const char* name) {
  PyRef value = optional_attribute(o, name);
  const char* text = value && PyUnicode_Check(value.get())
                         ? PyUnicode_AsUTF8AndSize(value.get(), nullptr)
                         : nullptr;
  if (!text) PyErr_Clear();
  return text ? text : "";
}

bool in_package(const std::string& module, const char* package) {
  const size_t n = std::strlen(package);
  return module.compare(0, n, package) == 0 && (module.size() == n || module[n] == '.');
}

const DLPackExchangeAPI* usable(const DLPackExchangeAPIHeader* h) {
  // An older or newer major version may offer the one we know further down; the chain is foreign
  // memory, so it is not followed without end.
  for (int i = 0; h && i < 16; ++i, h = h->prev_api)
    if (h->version.major == kMajor) return reinterpret_cast<const DLPackExchangeAPI*>(h);
  return nullptr;
}

// Names alone would take in whatever class gives itself these.
bool is_numpy_array(PyTypeObject* type) {
  PyRef numpy = PyRef::steal(PyImport_ImportModule("numpy"));
  PyRef array = numpy ? optional_attribute(numpy.get(), "ndarray") : PyRef();
  PyErr_Clear();
  return array.get() == reinterpret_cast<PyObject*>(type);
}

void describe(ForeignType* p) {
  PyRef mro = optional_attribute(reinterpret_cast<PyObject*>(p->type), "__mro__");
  const Py_ssize_t n = mro && PyTuple_Check(mro.get()) ? PyTuple_Size(mro.get()) : 0;
  bool itself = false;  // torch.nn.Parameter, not a class of somebody's over it
  for (Py_ssize_t i = 0; i < n; ++i) {
    PyObject* base = PyTuple_GetItem(mro.get(), i);
    const std::string module = text_attribute(base, "__module__");
    if (module == "torch.nn.parameter" && text_attribute(base, "__name__") == "Parameter")
      p->parameter = true, itself = i == 0;
    if (module == "torch" && text_attribute(base, "__name__") == "Tensor") {
      describe_torch(p, base);
      p->plain = (i == 0 || itself) && p->api && p->family == Family::Torch;
      return;
    }
    if (in_package(module, "jax") || in_package(module, "jaxlib")) {
      p->family = Family::Jax;
      return;
    }
    if (in_package(module, "cupy")) {
      p->family = Family::Cupy;
      if (i == 0) describe_cupy(p);
      return;
    }
    if (i == 0 && module == "numpy" && is_numpy_array(p->type)) {
      p->family = Family::Numpy;
      p->plain = true;
    }
    if (module == "numpy" && text_attribute(base, "__name__") == "generic") {
      p->family = Family::Scalar;
      return;
    }
    if (in_package(module, "numpy.ma")) {
      p->family = Family::Masked;
      return;
    }
  }
}

}  // namespace

const DLPackExchangeAPI* find_api(PyTypeObject* type) {
  for (PyObject* name : {names.api, names.old_api}) {
    PyRef value = optional_attribute(reinterpret_cast<PyObject*>(type), name);
    if (!value) continue;
    const DLPackExchangeAPI* api = nullptr;
    if (PyCapsule_IsValid(value.get(), kApiCapsule))
      api = usable(static_cast<const DLPackExchangeAPIHeader*>(
          PyCapsule_GetPointer(value.get(), kApiCapsule)));
    if (api) return api;
  }
  return nullptr;
}

ForeignType& find_foreign_type(PyTypeObject* type) {
  ForeignType*& recent = recent_foreign_types[reinterpret_cast<uintptr_t>(type) >> 4 & 63];
  auto it = peers().find(type);
  if (it == peers().end()) {
    PyRef key = PyRef::steal(PyLong_FromVoidPtr(type));
    PyRef callback =
        key ? PyRef::steal(PyCFunction_NewEx(&forget_def, key.get(), nullptr)) : PyRef();
    PyRef weakref =
        callback ? PyRef::steal(PyWeakref_NewRef(reinterpret_cast<PyObject*>(type), callback.get()))
                 : PyRef();
    if (!weakref) throw PythonError();
    ForeignType p{type, bool(PyType_IsSubtype(type, array_type))};
    p.api = find_api(type);
    if (p.api && !p.api->managed_tensor_from_py_object_no_sync) p.api = nullptr;
    describe(&p);
    p.weakref = weakref.release();
    it = peers().emplace(type, p).first;
  }
  recent = &it->second;
  return it->second;
}

// ---- second looks -----------------------------------------------------------------------------

void refuse_jax_dtype(PyObject* x, const char* where) {
  PyRef dtype = optional_attribute(x, "dtype");
  PyRef words = dtype ? PyRef::steal(PyObject_Str(dtype.get())) : PyRef();
  const char* text = words ? PyUnicode_AsUTF8AndSize(words.get(), nullptr) : nullptr;
  PyErr_Clear();
  if (!text) return;
  for (int i = 0; i < kDTypeCount; ++i)
    if (!std::strcmp(text, kDTypes[i].name) && !is_subbyte(DTypeId(i))) return;
  const bool key = !std::strncmp(text, "key<", 4);
  fail(Kind::DType, where, "a dtype whose elements are whole bytes of plain memory",
       std::string("a jax array of dtype ") + text,
       key ? "pass the bits: jax.random.key_data(x)"
           : "convert the values first, for example x.astype('int8')");
}

namespace {

void explain_jax(PyObject* x, const char* where) {
  PyRef jax = PyRef::steal(PyImport_ImportModule("jax"));
  PyRef core = jax ? optional_attribute(jax.get(), "core") : PyRef();
  PyRef tracer = core ? optional_attribute(core.get(), "Tracer") : PyRef();
  PyErr_Clear();
  if (tracer && PyObject_IsInstance(x, tracer.get()) == 1)
    fail(Kind::ConversionType, where, "a jax array with values",
         "a tracer: the conversion runs inside jit, grad or vmap",
         "convert outside the traced function");
  PyErr_Clear();
  if (truth_of_call(x, "is_deleted"))
    fail(Kind::Exchange, where, "a live jax array", "an array that was deleted or donated",
         "keep a reference that is not donated, or convert before the call that donates it");
  PyRef sharding = optional_attribute(x, "sharding");
  PyRef devices = sharding ? optional_attribute(sharding.get(), "device_set") : PyRef();
  const Py_ssize_t n = devices ? PyObject_Size(devices.get()) : 1;
  PyErr_Clear();
  if (n > 1)
    fail(Kind::Exchange, where, "an array on one device",
         "a jax array sharded over " + std::to_string(n) + " devices",
         "convert x.addressable_shards[i].data one by one, or jax.device_put(x, device) first");
  refuse_jax_dtype(x, where);
}

}  // namespace

namespace {

using CurrentStream = intptr_t (*)();

// The function that CuPy's own modules call, under the C signature it is published with.
CurrentStream find_current_stream() {
  PyRef module =
      PyRef::steal(run_python([] { return PyImport_ImportModule("cupy_backends.cuda.stream"); }));
  PyRef table = module ? optional_attribute(module.get(), "__pyx_capi__") : PyRef();
  PyObject* entry = table && PyDict_Check(table.get())
                        ? PyDict_GetItemString(table.get(), "get_current_stream_ptr")
                        : nullptr;
  void* f = entry && PyCapsule_IsValid(entry, "intptr_t (void)")
                ? PyCapsule_GetPointer(entry, "intptr_t (void)")
                : nullptr;
  PyErr_Clear();
  return reinterpret_cast<CurrentStream>(f);
}

}  // namespace

bool works_in_legacy_order(const ForeignType& p) noexcept {
  if (p.family != Family::Cupy) return false;
  // The import may let another thread in, which would wait with the GIL if this initialised itself.
  static CurrentStream current = nullptr;
  static bool known = false;
  if (!known) {
    current = find_current_stream();
    known = true;
  }
  if (!current) return false;  // nobody tells: be careful
  const intptr_t stream = current();
  if (PyErr_Occurred()) {
    PyErr_Clear();
    return false;
  }
  return stream == 0 || stream == 1 || stream == 2;  // another blocking one cannot be told apart
}

void explain_failure(const ForeignType& p, PyObject* obj, const char* where) {
  if (p.family != Family::Torch && p.family != Family::Jax) return;
  PyObject *type, *value, *trace;
  PyErr_Fetch(&type, &value, &trace);
  try {
    p.family == Family::Torch ? explain_torch(obj, where) : explain_jax(obj, where);
  } catch (...) {
    Py_XDECREF(type);
    Py_XDECREF(value);
    Py_XDECREF(trace);
    throw;
  }
  PyErr_Restore(type, value, trace);
}

std::string take_error_text() {
  PyObject *type, *value, *trace;
  PyErr_Fetch(&type, &value, &trace);
  PyErr_NormalizeException(&type, &value, &trace);
  PyRef t = PyRef::steal(type), v = PyRef::steal(value), tr = PyRef::steal(trace);
  std::string text = t ? text_attribute(t.get(), "__name__") : "no exception was set";
  PyRef words = v ? PyRef::steal(PyObject_Str(v.get())) : PyRef();
  const char* utf8 = words ? PyUnicode_AsUTF8AndSize(words.get(), nullptr) : nullptr;
  if (utf8 && *utf8) text += std::string(": ") + utf8;
  PyErr_Clear();
  return cut_text(std::move(text), 300);
}

}  // namespace gpuinterop::exchange
