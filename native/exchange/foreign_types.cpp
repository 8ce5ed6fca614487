#include "exchange/foreign_types.hpp"

#include <nanobind/nanobind.h>

#include <cstring>
#include <unordered_map>

#include "exchange/import_any.hpp"
#include "interpreter/error.hpp"
#include "interpreter/error_translation.hpp"
#include "interpreter/gil.hpp"

namespace nb = nanobind;

namespace gpuinterop::exchange {

Names names;
ForeignType* recent_foreign_types[64];

PyRef optional_attribute(PyObject* o, PyObject* name) {
  bool failed;
  PyRef value = PyRef::steal(attribute_or_null(o, name, &failed));
  if (failed) throw PythonError();
  return value;
}
PyRef optional_attribute(PyObject* o, const char* name) {
  const PyRef text = PyRef::checked(PyUnicode_InternFromString(name));
  return optional_attribute(o, text.get());
}

std::string text_attribute(PyObject* o, const char* name) {
  const PyRef value = optional_attribute(o, name);
  const PyRef text = value ? PyRef::steal(PyObject_Str(value.get())) : PyRef();
  const char* utf8 = text ? PyUnicode_AsUTF8AndSize(text.get(), nullptr) : nullptr;
  forgive();
  return utf8 ? utf8 : "";
}

void make_names() {
#define X(name, text) names.name = PyRef::checked(PyUnicode_InternFromString(text)).release();
  GPUINTEROP_NAMES(X)
#undef X
}

namespace {

// Never destroyed: types may still be collected during the destruction of static objects.
auto& peers = *new std::unordered_map<PyTypeObject*, ForeignType>;

void forget(PyTypeObject* type) {
  recent_foreign_types[reinterpret_cast<uintptr_t>(type) >> 4 & 63] = nullptr;
  const auto node = peers.extract(type);
  if (node) Py_XDECREF(node.mapped().reader);
}

bool in_package(const std::string& module, const char* package) {
  const size_t n = std::strlen(package);
  return module.compare(0, n, package) == 0 && (module.size() == n || module[n] == '.');
}

// Compare the class itself, because any class can have these names.
bool is_numpy_array(PyTypeObject* type) {
  PyRef numpy = PyRef::steal(PyImport_ImportModule("numpy"));
  PyRef array = numpy ? optional_attribute(numpy.get(), "ndarray") : PyRef();
  forgive();
  return array.get() == reinterpret_cast<PyObject*>(type);
}

void describe(ForeignType* p) {
  PyRef mro = optional_attribute(reinterpret_cast<PyObject*>(p->type), "__mro__");
  const Py_ssize_t n = mro && PyTuple_Check(mro.get()) ? PyTuple_Size(mro.get()) : 0;
  for (Py_ssize_t i = 0; i < n; ++i) {
    PyObject* base = PyTuple_GetItem(mro.get(), i);
    const std::string module = text_attribute(base, "__module__");
    const std::string name = text_attribute(base, "__name__");
    if (module == "torch.nn.parameter" && name == "Parameter") {
      p->parameter = true;
      p->ordinary = i == 0;
    } else if (module == "torch" && name == "Tensor") {
      p->ordinary |= i == 0;
      return describe_torch(p, base);
    } else if (in_package(module, "jax") || in_package(module, "jaxlib")) {
      p->family = Family::Jax;
      p->ordinary = i == 0;
      return;
    } else if (i == 0 && module == "cupy" && describe_cupy(p->type)) {
      p->family = Family::Cupy;
      p->ordinary = true;
      return;
    } else if (i == 0 && module == "numpy" && is_numpy_array(p->type)) {
      p->family = Family::Numpy;
      p->ordinary = true;
      return;
    } else if ((module == "numpy" && name == "generic") || in_package(module, "numpy.ma")) {
      // The dictionary of a scalar refers to memory that is freed with it; no protocol carries a mask.
      p->judged = true;
      return;
    }
  }
}

}  // namespace

const DLPackExchangeAPI* find_api(PyTypeObject* type) {
  for (PyObject* name : {names.api, names.old_api}) {
    PyRef value = optional_attribute(reinterpret_cast<PyObject*>(type), name);
    if (!value) continue;
    if (!PyCapsule_IsValid(value.get(), kApiCapsule)) continue;
    auto* api =
        static_cast<const DLPackExchangeAPI*>(PyCapsule_GetPointer(value.get(), kApiCapsule));
    if (api && api->header.version.major == kMajor) return api;
  }
  return nullptr;
}

ForeignType& find_foreign_type(PyTypeObject* type) {
  ForeignType*& recent = recent_foreign_types[reinterpret_cast<uintptr_t>(type) >> 4 & 63];
  auto it = peers.find(type);
  if (it == peers.end()) {
    ForeignType p{type, bool(PyType_IsSubtype(type, array_type))};
    p.api = find_api(type);
    if (p.api && !p.api->managed_tensor_from_py_object_no_sync) p.api = nullptr;
    describe(&p);
    before_destruction(type, forget);
    it = peers.emplace(type, p).first;
  }
  recent = &it->second;
  return it->second;
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
  forgive();
  return cut_text(std::move(text), 300);
}

}  // namespace gpuinterop::exchange
