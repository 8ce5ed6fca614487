// import_any(cls, obj, device=None, copy=None, stream=None, where="from_dlpack", realign=False): the
// order in which the doors of a foreign object are tried, and what happens to what came through.
#include "python/exchange_import.hpp"

#include <cstring>

#include "array/error.hpp"
#include "array/hooks.hpp"
#include "cuda/cuda.hpp"
#include "exchange/export.hpp"
#include "python/error_translation.hpp"
#include "python/exchange_c_api.hpp"

namespace gpuinterop {

void exchange::order_import(Buffer* b, void* producer, const Options& o) {
  join_stream_order(b, o.order ? producer : nullptr, o.where);
}

bool exchange::converters_changed = false;

using namespace exchange;

namespace {

// The table's row of the one dtype that a class holds (its attribute _only), or -1.
int only_dtype(PyTypeObject* cls) {
  static PyTypeObject* last = nullptr;
  static int answer = -1;
  if (cls == array_type) return -1;
  if (cls == last) return answer;
  PyRef value = PyRef::steal(PyObject_GetAttr(reinterpret_cast<PyObject*>(cls), names.only_dtype));
  int row = -1;
  if (!value && !PyErr_ExceptionMatches(PyExc_AttributeError)) throw PythonError();
  PyErr_Clear();
  if (value && value.get() != Py_None) {
    row = dtype_id_of(value.get());
  }
  // Classes are few and live long; holding the last one makes the comparison safe.
  Py_INCREF(reinterpret_cast<PyObject*>(cls));
  PyRef before = PyRef::steal(reinterpret_cast<PyObject*>(std::exchange(last, cls)));
  answer = row;
  return row;
}

[[noreturn]] void refuse_dtype(PyTypeObject* cls, int wanted, const Array& a, const ForeignType& p,
                               const Options& o) {
  PyRef name = PyRef::steal(PyObject_GetAttrString(reinterpret_cast<PyObject*>(cls), "__name__"));
  const char* cls_name = name ? PyUnicode_AsUTF8AndSize(name.get(), nullptr) : nullptr;
  PyErr_Clear();
  const std::string target = kDTypes[wanted].name;
  const std::string cast =
      p.family == Family::Torch ? "x.to(torch." + target + ")" : "x.astype('" + target + "')";
  fail(Kind::DType, o.where, target + ", the only dtype of a " + (cls_name ? cls_name : "class"),
       std::string("dtype ") + kDTypes[a.dtype].name,
       "write the cast: " + cast + ", or keep the dtype with GpuArray");
}

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
    fail(Kind::ConversionType, o.where, std::string("an object that speaks ") + protocols,
         "an object of type " + type_text(obj) + ", which has none of them",
         "call gpuinterop.from_any, which knows the arrays of more libraries, or "
         "gpuinterop.asarray for numbers and lists");
  fail(tried.kind, o.where, "one protocol of the object to work",
       "an object of type " + type_text(obj) + "; tried:" + tried.text,
       "mend the first cause above, or copy it in the producer");
}

void import_foreign(ForeignType& p, PyObject* obj, const Options& o, Array* out);

// An object may change its class while it is asked, and what is known of a type goes with the type.
PyRef type_of(PyObject* obj) { return PyRef::borrow(reinterpret_cast<PyObject*>(Py_TYPE(obj))); }

// Its value can be copied, out of an array that NumPy makes of it.
void import_scalar(PyObject* scalar, const Options& o, Array* out) {
  if (o.copy != 1 && !(o.copy != 0 && o.has_device && o.device.is_cuda()))
    fail(Kind::ConversionType, o.where,
         "an array; a NumPy scalar is a value without memory to share", type_text(scalar),
         "pass copy=True for a copy, or an array: numpy.asarray(x)");
  const PyRef numpy = PyRef::steal(PyImport_ImportModule("numpy"));
  const PyRef value =
      numpy ? PyRef::steal(PyObject_CallMethod(numpy.get(), "asarray", "O", scalar)) : PyRef();
  if (!value) throw PythonError();
  import_foreign(foreign_type_of(Py_TYPE(value.get())), value.get(), o, out);
}

void import_foreign(ForeignType& p, PyObject* obj, const Options& o, Array* out) {
  const bool torch = p.family == Family::Torch;
  if ((torch && !p.api) || p.family == Family::TorchWrapper) refuse_torch_state(p, obj, o.where);
  if (p.family == Family::Masked) {
    // No protocol carries a mask; where nothing is masked, the data is the array.
    const PyRef rule = PyRef::steal(PyImport_ImportModule("gpuinterop.host_views"));
    const PyRef free =
        rule ? PyRef::steal(PyObject_CallMethod(rule.get(), "refuse_mask", "Os", obj, o.where))
             : PyRef();
    const PyRef data = free ? PyRef::steal(PyObject_GetAttrString(obj, "data")) : PyRef();
    if (!data) throw PythonError();
    const PyRef type = type_of(data.get());
    ForeignType& inner = foreign_type_of(Py_TYPE(data.get()));
    if (inner.family == Family::Masked)  // it may be the same array again, without end
      fail(Kind::ConversionType, o.where, "a masked array whose data has no mask",
           "data of type " + type_text(data.get()), "pass numpy.asarray(x)");
    return import_foreign(inner, data.get(), o, out);
  }
  if (p.family == Family::Scalar) return import_scalar(obj, o, out);
  if (p.family == Family::Cupy && p.plain && o.order && !o.has_device &&
      import_cupy(obj, o.where, out))
    return;
  Attempts tried;
  if (p.api && import_c_api(p, obj, o, out, &tried)) return;
  if (PyCapsule_CheckExact(obj)) {
    *out = consume_capsule(obj, obj, nullptr, nullptr, false, o);
    return;
  }
  if (PyType_Check(obj))  // it has the protocols' methods, but they ask for an instance
    fail(Kind::ConversionType, o.where, "an array", "the class itself, " + repr_text(obj),
         "pass an array of that class");
  if (torch && p.api) nothing_worked(obj, o, tried);  // __dlpack__ is the same door
  if (import_dlpack(p, obj, o, out, &tried)) {
    if (torch) {
      refuse_torch_negation(p, obj, o.where);
      refuse_torch_values(p, obj, out->dtype, o.where);
    }
    if (p.family == Family::Jax && out->dtype == kBool) refuse_jax_dtype(obj, o.where);
    return;
  }
  if (import_cuda_interface(p, obj, o, out, &tried) ||
      import_array_interface(p, obj, o, out, &tried) || import_buffer(p, obj, o, out, &tried))
    return;
  nothing_worked(obj, o, tried);
}

// A copy in aligned memory of what the caller allowed to be copied.
Array moved(const Array& a, Device target, const Options& o) {
  Array out = copy_for(a, target, o.where);
  out.is_copied = true;
  return out;
}

// What came in. When it is refused after all, its capsule gets it back, if nothing has used the memory
// yet; else the producer's deleter may have to take it back while an error is on its way.
struct Held {
  Claim claim;
  Array array;
  ~Held() {
    if (!claim && !PyErr_Occurred()) return;
    ErrorSaver saver;
    Buffer* b = array.buffer.get();
    if (claim && b && b->refs.load(std::memory_order_relaxed) == 1 && !b->stream)
      b->release = nullptr;
    else
      claim.keep();
    array = Array();
    claim = Claim();
  }
};

// A weak proxy has the attributes of the object that it stands for, and keeps nothing alive.
PyRef behind_proxy(PyObject* obj) {
  if (!PyWeakref_CheckProxy(obj)) return PyRef::borrow(obj);
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wdeprecated-declarations"
  // From 3.13 on; what replaces it is not in the stable ABI of 3.12.
  PyObject* target = PyWeakref_GetObject(obj);
#pragma GCC diagnostic pop
  if (!target) throw PythonError();
  return PyRef::borrow(target == Py_None ? obj : target);
}

PyObject* import_object(PyTypeObject* cls, PyObject* given, Options o) {
  const PyRef strong = behind_proxy(given);
  PyObject* obj = strong.get();
  PyRef type = type_of(obj);
  ForeignType* peer = &foreign_type_of(Py_TYPE(obj));
  PyRef alias;
  if (peer->parameter && peer->family == Family::Torch) {
    alias = alias_of_parameter(*peer, obj, o.where);
    obj = alias.get();
    type = type_of(obj);
    peer = &foreign_type_of(Py_TYPE(obj));
  }
  ForeignType& p = *peer;
  Held held;
  Array& a = held.array;
  o.claim = &held.claim;
  p.own ? import_own(obj, &a) : import_foreign(p, obj, o, &a);
  const int wanted = cls ? only_dtype(cls) : -1;
  if (wanted >= 0 && wanted != a.dtype) refuse_dtype(cls, wanted, a, p, o);
  const bool elsewhere = o.has_device && o.device != a.device;
  if (elsewhere && o.copy == 0)
    fail(Kind::CopyForbidden, o.where,
         "memory on " + device_text(int(o.device.type), o.device.id) + ", because copy=False",
         "memory on " + device_text(int(a.device.type), a.device.id),
         "leave copy out, or set it to None");
  if (elsewhere || (o.copy == 1 && !a.is_copied) || (o.realign && !o.as_it_lies && !is_aligned(a)))
    a = moved(a, elsewhere ? o.device : a.device, o);
  if (!cls) cls = exchange_result_type(a.dtype);
  held.claim.keep();
  PyObject* result = wrap(cls, std::move(a));
  if (!result) throw PythonError();
  return result;
}

// ---- arguments --------------------------------------------------------------------------------

// A pair of DLPack's numbers, or an object with .type and .index (gpuinterop.devices.Device).
void read_device(PyObject* o, Options* out) {
  if (o == Py_None) return;
  long type = 0, id = 0;
  if (PyTuple_Check(o) && PyTuple_Size(o) == 2) {
    type = PyLong_AsLong(PyTuple_GetItem(o, 0));
    id = PyLong_AsLong(PyTuple_GetItem(o, 1));
  } else {
    PyRef kind = PyRef::steal(PyObject_GetAttrString(o, "type"));
    PyRef index = kind ? PyRef::steal(PyObject_GetAttrString(o, "index")) : PyRef();
    if (kind && index && PyUnicode_Check(kind.get()))
      type = PyUnicode_CompareWithASCIIString(kind.get(), "cuda") == 0  ? 2
             : PyUnicode_CompareWithASCIIString(kind.get(), "cpu") == 0 ? 1
                                                                        : 0;
    id = index && index.get() != Py_None ? PyLong_AsLong(index.get()) : 0;
  }
  if (PyErr_Occurred()) {
    PyErr_Clear();
    type = 0;
  }
  if ((type != 1 && type != 2) || id < 0 || id != int32_t(id))
    fail(Kind::Device, out->where, "a device (\"cpu\", \"cuda\", \"cuda:1\", ...)", repr_text(o),
         "see gpuinterop.devices()");
  out->has_device = true;
  out->device = {static_cast<DeviceType>(type), type == 1 ? 0 : int32_t(id)};
}

Options read_options(PyObject* const* args, Py_ssize_t nargs, PyObject* kwnames) {
  // device, copy, stream, where, realign
  PyObject* given[5] = {Py_None, Py_None, Py_None, Py_None, Py_False};
  for (Py_ssize_t i = 2; i < nargs; ++i) given[i - 2] = args[i];
  for (Py_ssize_t i = 0, n = kwnames ? PyTuple_Size(kwnames) : 0; i < n; ++i) {
    PyObject* key = PyTuple_GetItem(kwnames, i);
    PyObject* const known[] = {names.device, names.copy, names.stream, names.where, names.realign};
    int at = -1;
    for (int k = 0; k < 5; ++k)
      if (key == known[k] || PyUnicode_Compare(key, known[k]) == 0) at = k;
    if (at < 0) {
      PyErr_Format(PyExc_TypeError, "import_any() got an unexpected keyword argument '%U'", key);
      throw PythonError();
    }
    given[at] = args[nargs + i];
  }
  Options o;
  if (given[3] != Py_None) {
    o.where = PyUnicode_AsUTF8AndSize(given[3], nullptr);  // lives as long as the caller's argument
    if (!o.where) throw PythonError();
  }
  read_device(given[0], &o);
  if (given[1] != Py_None) {
    o.copy = PyObject_IsTrue(given[1]);
    if (o.copy < 0) throw PythonError();
  }
  if (given[2] != Py_None) {
    const long s = PyBool_Check(given[2]) ? 0 : PyLong_AsLong(given[2]);
    PyErr_Clear();
    if (s != -1)
      fail(Kind::Stream, o.where, "stream=None (ready on the current stream) or -1 (no ordering)",
           repr_text(given[2]), "choose the stream with \"with stream:\" before the call");
    o.order = false;
  }
  o.as_it_lies = given[4] == Py_None;
  o.realign = given[4] == Py_True || o.as_it_lies;
  return o;
}

}  // namespace

PyObject* exchange_import_any(PyObject*, PyObject* const* args, Py_ssize_t nargs,
                              PyObject* kwnames) {
  return guard((PyObject*)nullptr, [&]() -> PyObject* {
    auto* cls =
        nargs < 1 || args[0] == Py_None ? nullptr : reinterpret_cast<PyTypeObject*>(args[0]);
    if (nargs < 2 || nargs > 7)
      fail(Kind::Type, "import_any", "an array class or None, and an object",
           std::to_string(nargs) + " arguments",
           "import_any(cls, obj, device=None, copy=None, stream=None, where=..., realign=False)");
    if (cls && !(PyType_Check(args[0]) && PyType_IsSubtype(cls, array_type)))
      fail(Kind::Type, "from_dlpack", "as cls CudaNdarray, GpuArray, a class of these, or None",
           repr_text(args[0]), "leave cls out, or choose: from_dlpack(x, cls=gpuinterop.GpuArray)");
    if (nargs == 2 && !kwnames) return import_object(cls, args[1], Options());
    return import_object(cls, args[1], read_options(args, nargs, kwnames));
  });
}

PyObject* exchange::import_plain(const ForeignType& p, PyObject* obj) {
  try {
    if (p.family != Family::Cupy) return import_object(nullptr, obj, Options());
    Array a;
    if (!import_cupy(obj, "from_cupy", &a)) return nullptr;
    PyTypeObject* cls = exchange_result_type(a.dtype);
    return wrap(cls, std::move(a));
  } catch (const Error&) {
    return nullptr;
  }
}

PyObject* exchange_share_plain(PyObject*, PyObject* obj) {
  return guard((PyObject*)nullptr, [&]() -> PyObject* {
    const ForeignType& p = foreign_type_of(Py_TYPE(obj));
    PyObject* found = p.plain && !converters_changed ? import_plain(p, obj) : nullptr;
    if (found || PyErr_Occurred()) return found;
    Py_RETURN_NONE;
  });
}

// look_into() for Python; None for an object that is no capsule.
PyObject* exchange_look_into(PyObject*, PyObject* args) {
  return guard((PyObject*)nullptr, [&]() -> PyObject* {
    PyObject* obj;
    const char* where = "from_dlpack";
    int realign = 0;
    if (!PyArg_ParseTuple(args, "O|sp", &obj, &where, &realign)) throw PythonError();
    if (!PyCapsule_CheckExact(obj)) Py_RETURN_NONE;
    PyObject* seen = wrap(array_type, look_into(obj, where, realign));
    if (!seen) throw PythonError();
    return seen;
  });
}

PyObject* exchange_set_converters_changed(PyObject*, PyObject* value) {
  const int changed = PyObject_IsTrue(value);
  if (changed < 0) return nullptr;
  converters_changed = changed;
  Py_RETURN_NONE;
}

// The protocols an object has, by name, without using them.
PyObject* exchange_protocols_of(PyObject*, PyObject* obj) {
  return guard((PyObject*)nullptr, [&]() -> PyObject* {
    PyRef list = PyRef::steal(PyList_New(0));
    if (!list) throw PythonError();
    auto add = [&](const char* name) {
      PyRef text = PyRef::steal(PyUnicode_FromString(name));
      if (!text || PyList_Append(list.get(), text.get()) < 0) throw PythonError();
    };
    auto has = [&](PyObject* name) {
      PyRef value = PyRef::steal(PyObject_GetAttr(obj, name));
      const bool there = bool(value) || !PyErr_ExceptionMatches(PyExc_AttributeError);
      PyErr_Clear();
      return there;
    };
    if (is_array(obj) || foreign_type_of(Py_TYPE(obj)).api) add("DLPack C exchange API");
    if (PyCapsule_IsValid(obj, kLegacyName) || PyCapsule_IsValid(obj, kVersionedName))
      add("DLPack capsule");
    if (has(names.dlpack)) add("__dlpack__");
    if (has(names.cuda_interface)) add("__cuda_array_interface__");
    if (has(names.array_interface)) add("__array_interface__");
    if (PyObject_CheckBuffer(obj)) add("buffer protocol");
    return PyList_AsTuple(list.get());
  });
}

}  // namespace gpuinterop
