// In: the dictionaries (__cuda_array_interface__, __array_interface__) and the buffer protocol.
#include <cstring>

#include "array/error.hpp"
#include "cuda/cuda.hpp"
#include "cuda/device_state.hpp"
#include "cuda/stream.hpp"
#include "exchange/export.hpp"
#include "python/array_type.hpp"
#include "python/error_translation.hpp"
#include "python/exchange_import.hpp"

namespace gpuinterop::exchange {

namespace {

// A copy of the producer's dictionary: an __index__ or a dtype of the producer's runs Python while its
// values are read, and may empty the original.
struct Dict {
  PyRef dict;
  const char* name;
  const char* where;

  Dict(PyObject* original, const char* name, const char* where)
      : dict(PyRef::steal(PyDict_Copy(original))), name(name), where(where) {
    if (!dict) throw PythonError();
  }

  std::string key(const char* k) const { return std::string(name) + "[\"" + k + "\"]"; }
  PyObject* find(const char* k) const {  // borrowed or null
    PyObject* v = PyDict_GetItemString(dict.get(), k);
    return v == Py_None ? nullptr : v;
  }
  PyObject* require(const char* k) const {
    PyObject* v = PyDict_GetItemString(dict.get(), k);
    if (!v)
      fail(Kind::Protocol, where, key(k), "a dictionary without it", "report it to the producer");
    return v;
  }
  [[noreturn]] void wrong(const char* k, const char* expected, PyObject* got) const {
    fail(Kind::Protocol, where, key(k) + " as " + expected, repr_text(got),
         "report it to the producer");
  }
};

uint64_t read_uint64(const Dict& d, const char* key, PyObject* o, const char* expected) {
  if (PyBool_Check(o) || !PyIndex_Check(o)) d.wrong(key, expected, o);
  PyRef index = PyRef::steal(PyNumber_Index(o));
  if (!index) throw PythonError();
  const unsigned long long v = PyLong_AsUnsignedLongLong(index.get());
  if (PyErr_Occurred()) {
    PyErr_Clear();
    d.wrong(key, expected, o);
  }
  return v;
}

int read_tuple(const Dict& d, const char* key, PyObject* o, int64_t* out) {
  if (!PyTuple_Check(o) && !PyList_Check(o)) d.wrong(key, "a tuple of ints", o);
  try {
    return read_ints(o, out, d.where, key);
  } catch (const Error& e) {
    fail(e.kind == Kind::Type ? Kind::Protocol : Kind::Exchange, d.where,
         d.key(key) + ": " + e.expected, e.got, "report it to the producer");
  }
}

// The name of the object's own dtype, where "<V2" and the like say too little (bfloat16, float8).
int dtype_by_name(PyObject* obj, int64_t itemsize) {
  PyRef dtype = PyRef::steal(PyObject_GetAttrString(obj, "dtype"));
  PyRef name = dtype ? PyRef::steal(PyObject_Str(dtype.get())) : PyRef();
  const char* text = name ? PyUnicode_AsUTF8AndSize(name.get(), nullptr) : nullptr;
  forgive();
  if (!text) return -1;
  if (const char* dot = std::strrchr(text, '.')) text = dot + 1;  // "torch.bfloat16"
  for (int i = 0; i < kDTypeCount; ++i)
    if (kDTypes[i].itemsize == itemsize && std::strcmp(kDTypes[i].name, text) == 0) return i;
  return -1;
}

DTypeId read_typestr(const Dict& d, PyObject* obj) {
  PyObject* value = d.require("typestr");
  Py_ssize_t n = 0;
  const char* t = PyUnicode_Check(value) ? PyUnicode_AsUTF8AndSize(value, &n) : nullptr;
  if (!t) {
    forgive();
    d.wrong("typestr", "a string such as \"<f4\"", value);
  }
  if (n < 3 || size_t(n) != std::strlen(t) || !std::strchr("<>|=", t[0]))
    d.wrong("typestr", "a string such as \"<f4\"", value);
  int64_t itemsize = 0;
  for (const char* c = t + 2; *c; ++c) {
    if (*c < '0' || *c > '9' || itemsize > 1 << 20) {
      if (t[1] == 'M' || t[1] == 'm') break;  // "<M8[ns]": refused below by its kind
      d.wrong("typestr", "a string such as \"<f4\"", value);
    }
    itemsize = itemsize * 10 + (*c - '0');
  }
  if (t[0] == '>' && itemsize > 1)
    fail(Kind::Exchange, d.where, "little-endian data", "typestr " + repr_text(value),
         "convert it in the producer: x.astype(x.dtype.newbyteorder(\"=\"))");
  for (int i = 0; t[1] != 'V' && i < kDTypeCount; ++i)
    if (kDTypes[i].kind == t[1] && kDTypes[i].itemsize == itemsize) return DTypeId(i);
  // ml_dtypes calls its float8_e5m2 "<f1", complex32 "<W4" and its others "|V1".
  if (t[1] == 'V' || t[1] == 'f' || t[1] == 'W') {
    const int id = dtype_by_name(obj, itemsize);
    if (id >= 0) return DTypeId(id);
  }
  fail(Kind::DType, d.where, "a dtype of numbers that this library holds",
       "typestr " + repr_text(value) + (t[1] == 'V' ? ", structured or unknown" : ""),
       "cast it in the producer, or pass one field of a structured array");
}

struct Pointer {
  uintptr_t address = 0;
  bool readonly = false;
};

Pointer read_data(const Dict& d, PyObject* value) {
  constexpr const char* expected = "a tuple of a non-negative 64-bit address and a bool";
  if (!PyTuple_Check(value) || PyTuple_Size(value) != 2) d.wrong("data", expected, value);
  const auto address =
      static_cast<uintptr_t>(read_uint64(d, "data", PyTuple_GetItem(value, 0), expected));
  const int readonly = PyObject_IsTrue(PyTuple_GetItem(value, 1));
  if (readonly < 0) throw PythonError();
  return {address, bool(readonly)};
}

void describe(const Dict& d, PyObject* obj, Checked* c) {
  if (PyObject* mask = d.find("mask"))
    fail(Kind::Unsupported, d.where, "data without a mask", "mask " + type_text(mask),
         "fill it in the producer: x.filled(value)");
  int64_t shape[kMaxDims], strides[kMaxDims];
  const int ndim = read_tuple(d, "shape", d.require("shape"), shape);
  c->dtype = read_typestr(d, obj);
  PyObject* steps = d.find("strides");
  if (steps && read_tuple(d, "strides", steps, strides) != ndim)
    fail(Kind::Exchange, d.where, std::to_string(ndim) + " strides, one for each dimension",
         repr_text(steps), "report it to the producer");
  c->layout =
      layout_of_bytes(ndim, shape, steps ? strides : nullptr, itemsize_of(c->dtype), d.where);
}

// The attribute, or null: absent, or refused by its producer (noted).
PyRef read_attribute(PyObject* obj, PyObject* name, const char* label, Attempts* tried) {
  bool failed;
  PyRef value = PyRef::steal(attribute_or_null(obj, name, &failed));
  if (!failed) return value;
  // torch raises RuntimeError from this attribute for tensors inside autograd.
  if (!PyErr_ExceptionMatches(PyExc_Exception)) throw PythonError();
  tried->add(label, take_error_text());
  tried->kind = Kind::Exchange;
  return {};
}

}  // namespace

bool import_cuda_interface(PyObject* obj, const Options& o, Array* out, Attempts* tried) {
  constexpr char name[] = "__cuda_array_interface__";
  PyRef value = read_attribute(obj, names.cuda_interface, name, tried);
  if (!value) return false;
  if (!PyDict_Check(value.get()))
    fail(Kind::Protocol, o.where, std::string(name) + " as a dictionary", type_text(value.get()),
         "report it to the producer");
  const Dict d(value.get(), name, o.where);
  const uint64_t version = read_uint64(d, "version", d.require("version"), "an int from 0 to 3");
  if (version > 3)
    fail(Kind::Exchange, o.where, "version 3 of " + std::string(name) + " or an earlier one",
         "version " + std::to_string(version), "upgrade gpuinterop");
  Checked c;
  c.device = o.has_device && o.device.is_cuda() ? o.device : Device{DeviceType::Cuda, 0};
  c.memory = Memory::Device;
  describe(d, obj, &c);
  const Pointer pointer = read_data(d, d.require("data"));
  c.readonly = pointer.readonly;

  // None and absence differ: version 3 says by None that nothing is pending, an older dictionary or
  // one without the key says nothing, and its producer works on its default stream.
  void* producer =
      version >= 3 && PyDict_GetItemString(d.dict.get(), "stream") ? nullptr : CU_STREAM_LEGACY;
  if (PyObject* s = d.find("stream")) {
    const uint64_t handle = read_uint64(d, "stream", s, "None or a positive int");
    if (handle == 0)
      fail(Kind::Stream, o.where, d.key("stream") + " as None or a positive int", repr_text(s),
           "1 is the legacy default stream, 2 the per-thread one; 0 is forbidden because it means "
           "both");
    producer = reinterpret_cast<void*>(static_cast<uintptr_t>(handle));
  }
  if (!cuda::available())
    fail(Kind::Exchange, o.where, "host memory, because no CUDA driver answers here", name,
         "copy it to the host in the producer; " + cuda::unavailable_reason());
  if (c.layout.size()) {
    // The dictionary does not name the device: the pointer does.
    c.data = reinterpret_cast<char*>(pointer.address);
    const cuda::PointerInfo info = cuda::inspect(c.data);
    if (info.known) c.device.id = info.device;
  }
  // No address to ask: the stream tells, if it is no default one.
  else if (!(o.has_device && o.device.is_cuda()) && producer &&
           !cuda::is_default(static_cast<CUstream>(producer)))
    c.device.id = cuda::device_of_stream(reinterpret_cast<uintptr_t>(producer));
  check_memory(&c, Trust::Never, o.may_copy(), o.where);
  if (producer) check_stream(c.device, producer, o.where);
  Buffer* buffer = adopt_borrowed(c, {producer});
  *out = make_array(std::move(c), buffer, PyRef::borrow(obj));
  join_stream_order(buffer, producer, o.where);
  return true;
}

namespace {

// What NumPy calls PyArrayInterface.
struct StructInterface {
  int two, nd;
  char typekind;
  int itemsize, flags;
  intptr_t *shape, *strides;
  void* data;
};

// The address in the capsule of __array_struct__, which keeps the memory alive; null without one.
const void* address_in(PyObject* capsule) {
  if (!capsule || !PyCapsule_IsValid(capsule, nullptr)) return nullptr;
  auto* s = static_cast<const StructInterface*>(PyCapsule_GetPointer(capsule, nullptr));
  return s->two == 2 ? s->data : nullptr;
}

}  // namespace

bool import_array_interface(const ForeignType& p, PyObject* obj, const Options& o, Array* out,
                            Attempts* tried) {
  constexpr char name[] = "__array_interface__";
  // A wrapper may make an array for each question. Its dictionary does not keep the memory alive, but
  // the capsule does: while it is held, the dictionary's array has another address.
  const PyRef held = optional_attribute(obj, "__array_struct__");
  PyRef value = read_attribute(obj, names.array_interface, name, tried);
  if (!value) return false;
  if (!PyDict_Check(value.get()))
    fail(Kind::Protocol, o.where, std::string(name) + " as a dictionary", type_text(value.get()),
         "report it to the producer");
  const Dict d(value.get(), name, o.where);
  PyObject* data = d.find("data");
  if (!data || !PyTuple_Check(data)) {
    // The memory is behind the buffer protocol, which describes it as well.
    tried->add(name, "it names no address");
    return false;
  }
  const uint64_t version = read_uint64(d, "version", d.require("version"), "3");
  if (version != 3) d.wrong("version", "3", d.require("version"));
  Checked c;
  describe(d, obj, &c);
  const Pointer pointer = read_data(d, data);
  c.readonly = pointer.readonly || p.family == Family::Jax;
  if (c.layout.size()) c.data = reinterpret_cast<char*>(pointer.address);
  const void* address = address_in(held.get());
  if (address && c.data && address != c.data)
    fail(Kind::ConversionType, o.where, "an object that keeps its memory alive",
         type_text(obj) + ", which shows another array each time it is read",
         "pass the array itself: numpy.asarray(x)");
  check_memory(&c, Trust::Never, o.may_copy(), o.where);
  Buffer* buffer = adopt_borrowed(c, {});
  *out = make_array(std::move(c), buffer, PyRef::borrow(obj));
  return true;
}

// ---- buffer protocol --------------------------------------------------------------------------

namespace {

void release_view(Buffer* b) noexcept {
  GilForCleanup gil;
  if (!gil.held()) return;
  ErrorSaver saver;
  auto* view = static_cast<Py_buffer*>(b->context);
  PyBuffer_Release(view);
  delete view;
}

DTypeId dtype_of_format(const Py_buffer& v, PyObject* obj, const char* where) {
  const char* f = v.format ? v.format : "B";
  const char order = *f && std::strchr("@=<>!", *f) ? *f++ : '@';
  const bool complex = *f == 'Z';
  f += complex;
  const char* kinds = std::strchr("bhilqn", *f)   ? "i"
                      : std::strchr("BHILQN", *f) ? "u"
                      : std::strchr("efd", *f)    ? "f"
                      : *f == '?'                 ? "b"
                                                  : "";
  if (*f && !f[1] && *kinds) {
    if ((order == '>' || order == '!') && v.itemsize > 1)
      fail(Kind::Exchange, where, "little-endian data",
           std::string("buffer format \"") + v.format + "\"", "convert it in the producer");
    for (int i = 0; i < kDTypeCount; ++i)
      if (kDTypes[i].kind == (complex ? 'c' : *kinds) && kDTypes[i].itemsize == v.itemsize)
        return DTypeId(i);
  }
  const int id = dtype_by_name(obj, v.itemsize);
  if (id >= 0) return DTypeId(id);
  fail(Kind::DType, where, "a dtype of numbers that this library holds",
       std::string("buffer format \"") + (v.format ? v.format : "B") + "\"",
       "cast it in the producer");
}

}  // namespace

bool import_buffer(PyObject* obj, const Options& o, Array* out, Attempts* tried) {
  if (!PyObject_CheckBuffer(obj)) return false;
  struct View {
    Py_buffer* v;
    ~View() {
      if (!v) return;
      PyBuffer_Release(v);
      delete v;
    }
  } view{new Py_buffer{}};
  if (PyObject_GetBuffer(obj, view.v, PyBUF_FULL_RO) != 0) {
    if (!PyErr_ExceptionMatches(PyExc_Exception)) throw PythonError();
    tried->add("buffer protocol", take_error_text());
    tried->kind = Kind::Exchange;
    return false;
  }
  const Py_buffer& v = *view.v;
  Checked c;
  c.dtype = dtype_of_format(v, obj, o.where);
  c.readonly = v.readonly;
  const int64_t item = itemsize_of(c.dtype);
  int64_t shape[kMaxDims], strides[kMaxDims];
  if (v.ndim < 0 || v.ndim > kMaxDims || v.suboffsets)
    fail(Kind::Exchange, o.where, "a buffer of at most 64 dimensions without suboffsets",
         repr_text(obj), "copy it in the producer");
  for (int i = 0; i < v.ndim; ++i) {
    shape[i] = v.shape ? v.shape[i] : v.len / v.itemsize;
    if (v.strides) strides[i] = v.strides[i];
  }
  c.layout = layout_of_bytes(v.ndim, shape, v.strides ? strides : nullptr, item, o.where);
  if (c.layout.size()) c.data = static_cast<char*>(v.buf);
  check_memory(&c, Trust::Never, o.may_copy(), o.where);
  Buffer* buffer = adopt_borrowed(c, {});
  buffer->needs_base = false;  // the view holds the object, and its lock on resizing
  buffer->context = std::exchange(view.v, nullptr);
  buffer->release = release_view;
  *out = make_array(std::move(c), buffer, PyRef::borrow(obj));
  return true;
}

}  // namespace gpuinterop::exchange
