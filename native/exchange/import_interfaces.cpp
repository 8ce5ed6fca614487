// Import by __cuda_array_interface__, and by the protocols that NumPy reads on the host: the array interface
// and the buffer protocol.
#include "arrays/type.hpp"
#include "devices/cuda.hpp"
#include "devices/device_state.hpp"
#include "devices/stream.hpp"
#include "exchange/export_structs.hpp"
#include "exchange/import_any.hpp"
#include "interpreter/error.hpp"
#include "interpreter/error_translation.hpp"

namespace gpuinterop::exchange {

namespace {

constexpr char kCudaInterface[] = "__cuda_array_interface__";
constexpr char kArrayInterface[] = "__array_interface__";

// The attribute, or null: it is absent, or reading it raised (noted), as for torch inside autograd.
PyRef read_attribute(PyObject* obj, PyObject* name, const char* label, Attempts* tried) {
  bool failed;
  PyRef value = PyRef::steal(attribute_or_null(obj, name, &failed));
  if (failed) note_refusal(label, tried);
  return value;
}

[[noreturn]] void malformed(PyObject* interface, const char* where) {
  forgive();
  fail_with("protocol_broken", where,
            {std::string(kCudaInterface) + " as its specification describes it, up to version 3",
             repr_text(interface)});
}

// The dtype of a typestr. A typestr cannot express bfloat16 and similar types, so use the object's dtype.
PyRef dtype_of(PyObject* typestr, PyObject* obj) {
  for (int id = 0; id < kDTypeCount; ++id)
    if (kDTypes[id].kind != 'V' &&
        PyUnicode_CompareWithASCIIString(typestr, typestr_of(DTypeId(id)).c_str()) == 0)
      return PyRef::borrow(dtype_object(DTypeId(id)));
  PyRef own = optional_attribute(obj, names.dtype);
  return own ? own : PyRef::borrow(typestr);
}

}  // namespace

bool note_refusal(const char* protocol, Attempts* tried) {
  if (!PyErr_ExceptionMatches(PyExc_Exception) || PyErr_ExceptionMatches(PyExc_MemoryError))
    throw PythonError();
  tried->add(protocol, take_error_text());
  tried->kind = Kind::Exchange;
  return false;
}

bool import_cuda_interface(PyObject* obj, const Options& o, Array* out, Attempts* tried) {
  const PyRef value = read_attribute(obj, names.cuda_interface, kCudaInterface, tried);
  if (!value) return false;
  if (!PyDict_Check(value.get())) malformed(value.get(), o.where);
  // Use a copy, because reading a value may run the producer's Python code, which may empty the original.
  const PyRef dict = PyRef::checked(PyDict_Copy(value.get()));
  auto find = [&](const char* key) {
    PyObject* found = PyDict_GetItemString(dict.get(), key);
    return found == Py_None ? nullptr : found;
  };
  PyObject *shape = find("shape"), *typestr = find("typestr"), *data = find("data"),
           *number = find("version"), *strides = find("strides"), *stream = find("stream");
  unsigned long long address;
  int readonly;
  const long version = number ? PyLong_AsLong(number) : -1;
  // Masks are not supported, so refuse masked data rather than read it as complete.
  if (PyErr_Occurred() || version < 0 || version > 3 || find("mask") || !shape || !typestr ||
      !PyUnicode_Check(typestr) || !data || !PyTuple_Check(data) ||
      !PyArg_ParseTuple(data, "Kp", &address, &readonly))
    malformed(value.get(), o.where);
  // None and absence differ. In version 3 None means that no work is pending. An older dictionary, or one
  // without the key, has no such meaning, and its producer works on its default stream.
  void* producer =
      version >= 3 && PyDict_GetItemString(dict.get(), "stream") ? nullptr : CU_STREAM_LEGACY;
  if (stream) {
    producer = PyLong_Check(stream) ? PyLong_AsVoidPtr(stream) : nullptr;
    if (!producer) malformed(value.get(), o.where);  // 0 would mean two different streams
  }
  if (!cuda::available())
    fail_with("cuda_memory_without_driver", o.where, {kCudaInterface, cuda::unavailable_reason()});
  Checked c = read_parts(shape, strides ? strides : Py_None, dtype_of(typestr, obj).get(), o.where);
  c.device = o.has_device && o.device.is_cuda() ? o.device : Device{DeviceType::Cuda, 0};
  c.memory = Memory::Device;
  c.readonly = readonly;
  if (c.layout.size()) {
    // The dictionary does not name the device, so the driver reports it for the pointer.
    c.data = reinterpret_cast<char*>(static_cast<uintptr_t>(address));
    const cuda::PointerInfo info = cuda::inspect(c.data);
    if (info.known) c.device.id = info.device;
  }
  check_memory(&c, Trust::Never, o.may_copy(), o.where);
  if (producer) check_stream(c.device, producer, o.where);
  *out = array_over(std::move(c), obj, producer, o.where);
  return true;
}

namespace {

// PyArrayInterface in NumPy.
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

bool import_by_numpy(const ForeignType& p, PyObject* obj, const Options& o, Array* out,
                     Attempts* tried) {
  // A wrapper may create an array for each access. Its dictionary does not keep the memory alive, but the
  // capsule does: while it is held, the dictionary's array has another address.
  const PyRef held = optional_attribute(obj, "__array_struct__");
  const PyRef interface = read_attribute(obj, names.array_interface, kArrayInterface, tried);
  const bool described = bool(interface);
  const bool readable = described && PyDict_Check(interface.get());
  if (readable && !PyDict_GetItemString(interface.get(), "shape")) {
    // NumPy 2.1 ends the process on such a dictionary.
    tried->add(kArrayInterface, "KeyError: 'shape'");
    tried->kind = Kind::Exchange;
    return false;
  }
  PyObject* mask = readable ? PyDict_GetItemString(interface.get(), "mask") : nullptr;
  if (mask && mask != Py_None)
    fail(Kind::Exchange, o.where, "data without masked elements",
         std::string(kArrayInterface) + " with a mask", "fill the masked elements in the producer");
  if (!described && !PyObject_CheckBuffer(obj)) return false;
  const PyRef numpy = PyRef::steal(PyImport_ImportModule("numpy"));
  const PyRef source = described ? PyRef::borrow(obj) : PyRef::steal(PyMemoryView_FromObject(obj));
  const PyRef host =
      numpy && source ? PyRef::steal(PyObject_CallMethod(numpy.get(), "asarray", "O", source.get()))
                      : PyRef();
  const PyRef parts = host ? optional_attribute(host.get(), names.array_interface) : PyRef();
  if (!parts) return note_refusal(described ? kArrayInterface : "buffer protocol", tried);
  Checked c = read_parts(optional_attribute(host.get(), "shape").get(),
                         optional_attribute(host.get(), "strides").get(),
                         optional_attribute(host.get(), names.dtype).get(), o.where);
  unsigned long long address;
  int readonly;
  if (!PyArg_ParseTuple(PyDict_GetItemString(parts.get(), "data"), "Kp", &address, &readonly))
    throw PythonError();
  c.readonly = readonly || p.family == Family::Jax;
  if (c.layout.size()) c.data = reinterpret_cast<char*>(static_cast<uintptr_t>(address));
  const void* kept = address_in(held.get());
  if (kept && c.data && kept != c.data)
    fail(Kind::ConversionType, o.where, "an object that keeps its memory alive",
         type_text(obj) + ", which shows another array each time it is read",
         "pass the array itself: numpy.asarray(x)");
  check_memory(&c, Trust::Never, o.may_copy(), o.where);
  // NumPy's array holds the buffer, and its lock on resizing.
  *out = array_over(std::move(c), described ? obj : host.get(), nullptr, o.where);
  return true;
}

}  // namespace gpuinterop::exchange
