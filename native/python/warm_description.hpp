// What of a call's arguments decides the steps that it takes, as bytes.
#pragma once

#include <string>
#include <vector>

#include "ops/launch_plan_cache.hpp"
#include "python/warm_steps.hpp"

namespace gpuinterop {

constexpr Py_ssize_t kMostListed = 64;  // items of a sequence that are described

// Whether an object that is no number or text can be known by its address: it has one meaning.
inline bool stays_as_it_is(PyObject* o) {
  static PyTypeObject *dtype = nullptr, *ufunc = nullptr,
                      *generic = nullptr;  // the GIL guards them
  if (!generic) {
    const PyRef numpy = PyRef::steal(PyImport_ImportModule("numpy"));
    if (!numpy) throw PythonError();
    auto type = [&](const char* name) {
      PyObject* found = PyObject_GetAttrString(numpy.get(), name);
      if (!found) throw PythonError();
      return reinterpret_cast<PyTypeObject*>(found);
    };
    dtype = type("dtype");
    ufunc = type("ufunc");
    generic = type("generic");
  }
  if (o == Py_None || PyBool_Check(o) || Py_TYPE(o) == ufunc) return true;
  if (PyType_IsSubtype(Py_TYPE(o), dtype)) return true;
  if (!PyType_Check(o)) return false;
  auto* type = reinterpret_cast<PyTypeObject*>(o);
  return type == &PyBool_Type || type == &PyLong_Type || type == &PyFloat_Type ||
         type == &PyComplex_Type || PyType_IsSubtype(type, generic);
}

// Writes the description of a call. Objects that are known by their address are held by whoever keeps it.
struct Describer {
  std::string& key;
  std::vector<PyRef>* held = nullptr;  // what the key names by its address, where that is wanted
  bool on_gpu = false;

  template <class T>
  void put(const T& value) {
    key.append(reinterpret_cast<const char*>(&value), sizeof value);
  }

  void hold(PyObject* o) {
    if (held) held->push_back(PyRef::borrow(o));
  }

  bool array(PyObject* o, Look look) {
    const Array& a = unwrap(o);
    if (!a.device.is_cuda()) return false;
    require_valid_layout(o);
    on_gpu = true;
    if (look == Look::Layout) {
      key.push_back('L');
      append_key(key, o);
    } else {
      key.push_back('A');
      put(Py_TYPE(o));
      put(a.device.id);
      put(a.dtype);
    }
    hold(reinterpret_cast<PyObject*>(Py_TYPE(o)));
    return true;
  }

  bool value(PyObject* o) {
    if (PyLong_CheckExact(o)) {
      int overflow = 0;
      put(PyLong_AsLongLongAndOverflow(o, &overflow));
      key.push_back('I');
      return !overflow;
    }
    if (PyFloat_CheckExact(o)) {
      put(PyFloat_AsDouble(o));
      key.push_back('D');
    } else if (PyUnicode_CheckExact(o)) {
      Py_ssize_t n;
      const char* text = PyUnicode_AsUTF8AndSize(o, &n);
      if (!text) {
        PyErr_Clear();  // half a character
        return false;
      }
      put(n);
      key.append(text, static_cast<size_t>(n));
      key.push_back('S');
    } else {
      if (!stays_as_it_is(o)) return false;
      put(o);
      key.push_back('P');
      hold(o);
    }
    return true;
  }

  bool one(PyObject* o, Look look) {
    if (is_array(o)) return array(o, look);
    if (look == Look::Value) return value(o);
    PyTypeObject* type = Py_TYPE(o);
    if (o != Py_None && type != &PyBool_Type && type != &PyLong_Type && type != &PyFloat_Type &&
        type != &PyComplex_Type)
      return false;
    key.push_back('T');
    put(type);
    return true;
  }

  bool argument(PyObject* o, Look look) {
    const bool tuple = PyTuple_CheckExact(o);
    if (look == Look::Value || !(tuple || PyList_CheckExact(o))) return one(o, look);
    const Py_ssize_t n = tuple ? PyTuple_Size(o) : PyList_Size(o);
    if (n > kMostListed) return false;
    key.push_back(tuple ? '(' : '[');
    put(n);
    for (Py_ssize_t i = 0; i < n; ++i)
      if (!one(tuple ? PyTuple_GetItem(o, i) : PyList_GetItem(o, i), look)) return false;
    return true;
  }

  // False: no such call is kept. `first`: the parameter to begin with.
  bool call(const BoundCall& given, size_t first) {
    key.clear();
    const auto& parameters = given.signature->parameters;
    for (size_t i = first; i < given.signature->named(); ++i)
      if (!argument(given.values[i], parameters[i].look)) return false;
    put(given.n_rest);
    for (Py_ssize_t i = 0; i < given.n_rest; ++i)
      if (!one(given.rest[i], parameters.back().look)) return false;
    return on_gpu;
  }
};

}  // namespace gpuinterop
