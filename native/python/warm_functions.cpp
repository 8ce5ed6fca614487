// Functions of which Python decides the first call of a kind and the core makes the later ones.
//
// Such a function returns its result, or Steps: calls of the core's own functions, on the arguments. Steps
// are kept by a description of the arguments (classes and dtypes of arrays, types of numbers, and what the
// function declares to look at), and an equal description finds them again without Python.
#include <nanobind/nanobind.h>
#include <nanobind/stl/string.h>
#include <structmember.h>

#include <cstring>
#include <unordered_map>
#include <vector>

#include "array/error.hpp"
#include "array/gil.hpp"
#include "python/array_type.hpp"
#include "python/error_translation.hpp"
#include "python/register.hpp"
#include "python/warm_description.hpp"
#include "python/warm_steps.hpp"

namespace nb = nanobind;

namespace gpuinterop {

namespace {

constexpr size_t kMostKeptCalls = 4096;  // more kinds than this: start afresh rather than grow

PyRef owned(PyObject* made) {
  if (!made) throw PythonError();
  return PyRef::steal(made);
}

// ---- kept calls -----------------------------------------------------------------------------------

struct KeptCalls {
  struct Kept {
    PyRef object;
    const Steps* steps;  // in the object
    std::vector<PyRef> held;
  };
  std::unordered_map<std::string, Kept, KeyHash, std::equal_to<>> calls;
};

int kept_calls_traverse(PyObject* self, visitproc visit, void* arg) {
  Py_VISIT(Py_TYPE(self));
  if (!nb::inst_ready(self)) return 0;
  for (const auto& [key, kept] : nb::inst_ptr<KeptCalls>(self)->calls) {
    Py_VISIT(kept.object.get());
    for (const PyRef& o : kept.held) Py_VISIT(o.get());
  }
  return 0;
}

int kept_calls_clear(PyObject* self) {
  if (nb::inst_ready(self)) {
    const KeptCalls dropped = std::exchange(*nb::inst_ptr<KeptCalls>(self), KeptCalls{});
  }
  return 0;
}

// ---- the function ---------------------------------------------------------------------------------

struct WarmFunction {
  PyRef function;
  Signature signature;
  PyRef table;    // KeptCalls, or
  PyRef kept_in;  // the name of the attribute of the first argument that holds one, or
  PyRef always;   // the Steps of every call
  const Steps* always_steps = nullptr;  // in them
};

struct WarmObject {
  PyObject_HEAD PyObject* dict;
  PyObject* weakrefs;
  vectorcallfunc vectorcall;
  WarmFunction* value;
};

WarmObject* warm(PyObject* o) { return reinterpret_cast<WarmObject*>(o); }

// Null for none.
PyRef table_of(const WarmFunction& f, PyObject* const* args, Py_ssize_t nargs) {
  if (!f.kept_in) return f.table;
  PyRef found = nargs ? PyRef::steal(PyObject_GetAttr(args[0], f.kept_in.get())) : PyRef();
  if (!found) PyErr_Clear();
  return found && nb::isinstance<KeptCalls>(nb::handle(found.get())) ? found : PyRef();
}

void keep(KeptCalls& table, const std::string& key, std::vector<PyRef> held, PyObject* object,
          const Steps* steps) {
  KeptCalls dropped;  // at the end: Python code may run as classes go
  if (table.calls.size() >= kMostKeptCalls) std::swap(dropped, table);
  table.calls.emplace(key, KeptCalls::Kept{PyRef::borrow(object), steps, std::move(held)});
}

// Whether the pending error is a refusal of this package, which comes again when the call is made again:
// the driver's failures may not, and would then go unseen.
bool is_refusal() {
  static PyObject *base = nullptr, *failure = nullptr;  // the GIL guards them
  if (!base) {
    const ErrorSaver pending;
    const PyRef errors = owned(PyImport_ImportModule("gpuinterop.errors"));
    failure = owned(PyObject_GetAttrString(errors.get(), "CudaError")).release();
    base = owned(PyObject_GetAttrString(errors.get(), "GpuInteropError")).release();
  }
  return PyErr_ExceptionMatches(base) && !PyErr_ExceptionMatches(failure);
}

PyObject* call_warm_function(PyObject* self, PyObject* const* args, size_t flags, PyObject* names) {
  return guard((PyObject*)nullptr, [&]() -> PyObject* {
    static std::string scratch;  // kept for its capacity; the GIL guards it
    const Py_ssize_t nargs = PyVectorcall_NARGS(flags);
    const PyRef alive = PyRef::borrow(self);
    const WarmFunction& f = *warm(self)->value;
    BoundCall given;
    const bool bound = given.bind(f.signature, args, nargs, names);
    if (bound && f.always_steps) return f.always_steps->run(given).release();
    const PyRef table = bound ? table_of(f, args, nargs) : PyRef();
    const size_t first = f.kept_in ? 1 : 0;
    const bool keeps = table && Describer{scratch}.call(given, first);
    if (keeps) {
      auto& calls = nb::inst_ptr<KeptCalls>(nb::handle(table.get()))->calls;
      const auto found = calls.find(std::string_view(scratch));
      const Steps* steps = found == calls.end() ? nullptr : found->second.steps;
      const PyRef object = steps ? found->second.object : PyRef();
      if (steps && (steps->ranges.empty() || steps->in_range(given))) {
        if (!steps->done) return steps->run(given).release();
        // Python made the first call itself, and words the errors of every other.
        try {
          return steps->run(given).release();
        } catch (const PythonError&) {
          if (!is_refusal()) throw;
          PyErr_Clear();
        }
      }
    }
    const std::string key = keeps ? scratch : std::string();  // other calls write it
    PyRef result = owned(run_python([&] {
      return PyObject_Vectorcall(f.function.get(), args, static_cast<size_t>(nargs), names);
    }));
    Steps* steps = steps_in(result.get());
    if (!steps) return result.release();
    if (!bound) throw nb::type_error("steps for arguments that were not bound");
    steps->resolve(f.signature);
    if (keeps) {
      // Python code that ran meanwhile may have changed the arguments.
      std::vector<PyRef> held;
      if (Describer{scratch, &held}.call(given, first) && scratch == key)
        keep(*nb::inst_ptr<KeptCalls>(nb::handle(table.get())), key, std::move(held), result.get(),
             steps);
    }
    if (steps->done) Py_RETURN_NONE;
    return steps->run(given).release();
  });
}

int warm_traverse(PyObject* o, visitproc visit, void* arg) {
  Py_VISIT(Py_TYPE(o));
  Py_VISIT(warm(o)->dict);
  if (const WarmFunction* f = warm(o)->value) {
    Py_VISIT(f->function.get());
    Py_VISIT(f->table.get());
    Py_VISIT(f->always.get());
    for (const Parameter& p : f->signature.parameters) Py_VISIT(p.standard.get());
  }
  return 0;
}

int warm_clear(PyObject* o) {
  // The function itself stays: whoever still holds this object may call it.
  Py_CLEAR(warm(o)->dict);
  if (WarmFunction* f = warm(o)->value) {
    const PyRef dropped = std::exchange(f->table, PyRef());
  }
  return 0;
}

void warm_dealloc(PyObject* o) {
  PyTypeObject* type = Py_TYPE(o);
  PyObject_GC_UnTrack(o);
  if (warm(o)->weakrefs) PyObject_ClearWeakRefs(o);
  Py_CLEAR(warm(o)->dict);
  delete std::exchange(warm(o)->value, nullptr);
  reinterpret_cast<freefunc>(PyType_GetSlot(type, Py_tp_free))(o);
  Py_DECREF(type);
}

// As of a function: an attribute of a class becomes a method.
PyObject* warm_get(PyObject* self, PyObject* object, PyObject*) {
  if (!object || object == Py_None) return Py_NewRef(self);
  static PyObject* method = nullptr;  // the GIL guards it
  if (!method) {
    PyRef types = PyRef::steal(PyImport_ImportModule("types"));
    if (!types || !(method = PyObject_GetAttrString(types.get(), "MethodType"))) return nullptr;
  }
  return PyObject_CallFunctionObjArgs(method, self, object, nullptr);
}

PyObject* warm_repr(PyObject* o) { return PyObject_Repr(warm(o)->value->function.get()); }

// Pickled and copied by its name, as functions are.
PyObject* warm_reduce(PyObject* o, PyObject*) { return PyObject_GetAttrString(o, "__qualname__"); }

PyMethodDef warm_methods[] = {{"__reduce__", warm_reduce, METH_NOARGS, nullptr},
                              {nullptr, nullptr, 0, nullptr}};
PyMemberDef warm_members[] = {
    {const_cast<char*>("__dictoffset__"), T_PYSSIZET, offsetof(WarmObject, dict), READONLY,
     nullptr},
    {const_cast<char*>("__weaklistoffset__"), T_PYSSIZET, offsetof(WarmObject, weakrefs), READONLY,
     nullptr},
    {const_cast<char*>("__vectorcalloffset__"), T_PYSSIZET, offsetof(WarmObject, vectorcall),
     READONLY, nullptr},
    {nullptr, 0, 0, 0, nullptr},
};
PyGetSetDef warm_getset[] = {
    {"__dict__", PyObject_GenericGetDict, PyObject_GenericSetDict, nullptr, nullptr},
    {nullptr, nullptr, nullptr, nullptr, nullptr},
};

PyTypeObject* make_warm_type() {
  static PyType_Slot slots[] = {
      {Py_tp_doc, const_cast<char*>("A function of which the core makes the warm calls.")},
      {Py_tp_dealloc, reinterpret_cast<void*>(warm_dealloc)},
      {Py_tp_traverse, reinterpret_cast<void*>(warm_traverse)},
      {Py_tp_clear, reinterpret_cast<void*>(warm_clear)},
      {Py_tp_call, reinterpret_cast<void*>(PyVectorcall_Call)},
      {Py_tp_descr_get, reinterpret_cast<void*>(warm_get)},
      {Py_tp_repr, reinterpret_cast<void*>(warm_repr)},
      {Py_tp_methods, warm_methods},
      {Py_tp_members, warm_members},
      {Py_tp_getset, warm_getset},
      {0, nullptr},
  };
  // PyCallable by a method look-up without a bound method in between: METHOD_DESCRIPTOR.
  static PyType_Spec spec = {"gpuinterop._core.WarmFunction", sizeof(WarmObject), 0,
                             Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC | Py_TPFLAGS_HAVE_VECTORCALL |
                                 Py_TPFLAGS_METHOD_DESCRIPTOR,
                             slots};
  PyObject* type = PyType_FromSpec(&spec);
  if (!type) throw nb::python_error();
  return reinterpret_cast<PyTypeObject*>(type);
}

nb::object make_warm_function(nb::object function, nb::list parameters, int by_place,
                              bool takes_rest, nb::object kept_in, nb::object always) {
  static PyTypeObject* type = make_warm_type();
  if (nb::len(parameters) > kMostParameters)
    throw nb::value_error("more parameters than a warm function takes");
  auto made = std::make_unique<WarmFunction>();
  made->function = PyRef::borrow(function.ptr());
  made->signature.by_place = by_place;
  made->signature.takes_rest = takes_rest;
  for (nb::handle item : parameters) {
    const auto p = nb::cast<nb::tuple>(item);
    PyObject* name = nb::object(p[0]).release().ptr();
    PyUnicode_InternInPlace(&name);
    made->signature.parameters.push_back(
        {owned(name), nb::len(p) > 2 ? PyRef::borrow(nb::object(p[2]).ptr()) : PyRef(),
         static_cast<Look>(nb::cast<std::string>(p[1]).at(0))});
  }
  if (Steps* steps = steps_in(always.ptr())) {
    steps->resolve(made->signature);
    made->always = PyRef::borrow(always.ptr());
    made->always_steps = steps;
  }
  if (kept_in.is_none())
    made->table = PyRef::steal(nb::cast(KeptCalls{}).release().ptr());
  else
    made->kept_in = PyRef::borrow(kept_in.ptr());
  PyObject* o = PyType_GenericAlloc(type, 0);
  if (!o) throw nb::python_error();
  warm(o)->vectorcall = call_warm_function;
  warm(o)->value = made.release();
  return nb::steal(o);
}

}  // namespace

void register_warm(nb::module_& m) {
  using namespace nb::literals;
  register_steps(m);
  static PyType_Slot of_kept[] = {{Py_tp_traverse, reinterpret_cast<void*>(kept_calls_traverse)},
                                  {Py_tp_clear, reinterpret_cast<void*>(kept_calls_clear)},
                                  {0, nullptr}};
  nb::class_<KeptCalls>(m, "KeptCalls", nb::type_slots(of_kept),
                        "Steps by what describes the arguments of a call.")
      .def(nb::init<>())
      .def("__reduce__",
           [](nb::handle self) { return nb::make_tuple(self.type(), nb::make_tuple()); })
      .def("__len__", [](const KeptCalls& self) { return self.calls.size(); });
  m.def(
      "_warm_function", make_warm_function, "function"_a, "parameters"_a, "by_place"_a,
      "takes_rest"_a, "kept_in"_a = nb::none(), "always"_a = nb::none(),
      "The function, whose warm calls the core makes. `parameters`: (name, look) or (name, look, "
      "default), look being 'o', 'l' or 'v'; those after by_place go by name, and the last one is "
      "*args when takes_rest. `kept_in`: the attribute of the first argument that holds "
      "KeptCalls. `always`: the Steps of every call whose arguments have their places.");
}

}  // namespace gpuinterop
