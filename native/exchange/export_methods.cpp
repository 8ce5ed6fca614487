// Export by the Python protocols: __dlpack__, __dlpack_device__, the two interface dictionaries, and buffers.
#include <algorithm>
#include <cstddef>
#include <optional>

#include "arrays/type.hpp"
#include "captures/recorder.hpp"
#include "devices/cuda.hpp"
#include "devices/stream.hpp"
#include "exchange/export_structs.hpp"
#include "exchange/foreign_types.hpp"
#include "exchange/import.hpp"
#include "exchange/import_any.hpp"
#include "interpreter/error.hpp"
#include "interpreter/error_translation.hpp"
#include "interpreter/hooks.hpp"
#include "interpreter/parameters.hpp"

namespace gpuinterop {

using namespace exchange;

namespace {

constexpr char kDlpack[] = "__dlpack__";
constexpr char kBuffer[] = "memoryview";

// ---- capsules ---------------------------------------------------------------------------------

// Frees the struct of a capsule that was not consumed; a consumer renames the capsule.
template <class Managed>
void destroy_capsule(PyObject* capsule, const char* unused_name) {
  if (!PyCapsule_IsValid(capsule, unused_name)) return;
  auto* m = static_cast<Managed*>(PyCapsule_GetPointer(capsule, unused_name));
  // The deleter may belong to another library and run Python, so keep a pending exception.
  ErrorSaver saver;
  call_deleter(m);
}
void destroy_legacy(PyObject* c) { destroy_capsule<DLManagedTensor>(c, kLegacyName); }
void destroy_versioned(PyObject* c) {
  destroy_capsule<DLManagedTensorVersioned>(c, kVersionedName);
}

template <class Managed>
PyObject* capsule_of(Managed* m, const char* name, PyCapsule_Destructor destructor) {
  PyObject* capsule = PyCapsule_New(m, name, destructor);
  if (!capsule) {
    ErrorSaver saver;
    m->deleter(m);
  }
  return capsule;
}

// ---- arguments --------------------------------------------------------------------------------

std::pair<long, long> read_pair(PyObject* o, const char* what) {
  std::pair<long, long> pair;
  if (PyTuple_Check(o) && PyArg_ParseTuple(o, "ll", &pair.first, &pair.second)) return pair;
  forgive();
  fail(Kind::Type, kDlpack, what, repr_text(o), "pass a tuple of two ints");
}

// The minor version to write, or -1 for the legacy struct.
int read_version(PyObject* o) {
  if (o == Py_None) return -1;
  const auto [major, minor] = read_pair(o, "max_version as a tuple (major, minor)");
  if (major < 0 || minor < 0)
    fail(Kind::Bounds, kDlpack, "max_version of non-negative ints", repr_text(o), "pass (1, 3)");
  if (major == 0) return -1;
  return major > long(kMajor) || minor > long(kMinor) ? int(kMinor) : int(minor);
}

// The stream order that the consumer requests.
struct RequestedStream {
  bool requested = false;
  bool order = true;
  void* handle = CU_STREAM_LEGACY;
};

RequestedStream read_stream(PyObject* o) {
  RequestedStream s;
  if (o == Py_None) return s;
  s.requested = true;
  if (PyBool_Check(o) || !PyIndex_Check(o))
    fail(Kind::Type, kDlpack, "stream as None or an int", repr_text(o),
         "pass the stream's handle as an int, for example stream.cuda_stream");
  const PyRef index = PyRef::checked(PyNumber_Index(o));
  int overflow = 0;
  const long long v = PyLong_AsLongLongAndOverflow(index.get(), &overflow);
  if (overflow == 0 && v == -1) {
    s.order = false;
    return s;
  }
  const unsigned long long handle =
      overflow > 0 ? PyLong_AsUnsignedLongLong(index.get()) : static_cast<unsigned long long>(v);
  if (overflow < 0 || (!overflow && v <= 0) || PyErr_Occurred()) {
    PyErr_Clear();
    fail(Kind::Stream, kDlpack, "-1, 1, 2 or a stream handle; 0 is used for two different streams",
         repr_text(o), "pass 1 for the legacy default stream, 2 for the per-thread one");
  }
  s.handle = reinterpret_cast<void*>(static_cast<uintptr_t>(handle));
  return s;
}

using DevicePair = std::pair<long, long>;

std::optional<DevicePair> read_dl_device(PyObject* o) {
  if (o == Py_None) return {};
  return read_pair(o, "dl_device as a tuple (device type, device id)");
}

// The device on which the consumer needs the memory; `a.device` if it is already there.
Device target_device(const std::optional<DevicePair>& pair, const Array& a, PyObject* shown) {
  if (!pair) return a.device;
  const auto [type, id] = *pair;
  if (type == kDLCPU && id == 0) return {};
  if (type == kDLCUDA && id == int32_t(id)) return {DeviceType::Cuda, int32_t(id)};
  const Memory memory = a.buffer ? a.buffer->memory : Memory::Host;
  if ((type == kDLCUDAHost && memory == Memory::Pinned) ||
      (type == kDLCUDAManaged && memory == Memory::Managed))
    return a.device;
  fail(Kind::Export, kDlpack, "dl_device (1, 0) for the host or (2, n) for cuda:n",
       type == int32_t(type) && id == int32_t(id) && type != kDLCPU
           ? device_text(int32_t(type), int32_t(id))
           : repr_text(shown),
       "pass a device of gpuinterop.devices()");
}

// None: -1.
int read_copy(PyObject* o) {
  if (o == Py_None) return -1;
  if (o == Py_True) return 1;
  if (o == Py_False) return 0;
  fail_with("not_an_optional_bool", kDlpack, {"copy", repr_text(o)});
}

// The rules of the library whose code called the method, which Python reads from its converter; for an unknown
// library the defaults. The protocol does not name the consumer; only the module name in the globals of the
// calling frame identifies it.
struct Caller {
  PyObject* module = nullptr;  // its name; owned, so that no other object has this address
  int gaps = true;             // it accepts strided memory that is not contiguous
  int negative = true;         // it accepts negative strides
  int reads_later = false;     // it reads the memory after its call has returned
};
Caller callers[32];  // the latest ones

Caller find_caller() {
  static PyObject* const key =
      PyRef::checked(PyUnicode_InternFromString("__name__")).release();  // until the process ends
  static size_t next = 0;
  PyObject* globals = PyEval_GetGlobals();
  PyObject* module = globals ? PyDict_GetItem(globals, key) : nullptr;
  if (!module || !PyUnicode_CheckExact(module)) return {};
  for (const Caller& known : callers)
    if (known.module == module) return known;
  PyRef kept = PyRef::borrow(module);
  Caller found{module};
  const PyRef answer = call_hook(Hook::Foreign, "(sO)", "caller", module);
  if (answer.get() != Py_None &&
      !PyArg_ParseTuple(answer.get(), "ppp", &found.gaps, &found.negative, &found.reads_later))
    throw PythonError();
  const PyRef replaced = PyRef::steal(std::exchange(callers[next++ % 32], found).module);
  kept.release();
  return found;
}

// DLPack requires BufferError for every device to which the array cannot be exported.
void require_device(Device target) {
  if (!target.is_cuda() || (target.id >= 0 && target.id < cuda::device_count())) return;
  const std::string here = cuda::available()
                               ? ", of " + std::to_string(cuda::device_count()) + " CUDA devices"
                               : "; " + cuda::unavailable_reason();
  fail(Kind::Export, kDlpack, "an existing device as dl_device", device_text(target) + here,
       "pass a device of gpuinterop.devices()");
}

PyObject* finish(const Array& a, const RequestedStream& s, int version, bool copied, bool lent) {
  if (!a.device.is_cuda()) {
    // Wait for a device that writes to host memory (pinned) before a host consumer reads it.
    settle_for_host(a, kDlpack);
  } else if (s.order) {
    if (s.requested) check_stream(a.device, s.handle, kDlpack);
    hand_over(a, s.handle, kDlpack);
  } else {
    join_before_use(a, kDlpack);
    note_foreign_use(a, kUsedElsewhere | kUsedBeside);
  }
  if (version < 0) return capsule_of(make_legacy(a, kDlpack, lent), kLegacyName, destroy_legacy);
  return capsule_of(make_versioned(a, copied, uint32_t(version), lent), kVersionedName,
                    destroy_versioned);
}

PyObject* dlpack(PyObject* self, PyObject* const* args, Py_ssize_t nargs, PyObject* kwnames) {
  static const Parameters parameters(kDlpack, "* stream max_version dl_device copy", 0);
  auto values = parameters.read(args, nargs, kwnames);
  std::replace(values.begin(), values.end(), static_cast<PyObject*>(nullptr), Py_None);
  const RequestedStream stream = read_stream(values[0]);
  const int version = read_version(values[1]);
  const std::optional<DevicePair> place = read_dl_device(values[2]);
  const int copy = read_copy(values[3]);
  require_valid_layout(self);
  // By value: a copy scope, a finaliser or another thread may change the object's shape.
  const Array a = unwrap(self);
  if (!a.device.is_cuda()) ops::require_values(kDlpack, a);
  require_no_fork(a, kDlpack);
  if (version < 1 && is_subbyte(a.dtype))
    fail(Kind::Export, kDlpack,
         "a dtype of whole bytes, because the consumer does not support padded elements",
         std::string(kDTypes[a.dtype].name) + ", stored as one element per byte",
         "use a consumer that passes max_version=(1, 1) or later");
  const Device target = target_device(place, a, values[2]);
  if (!target.is_cuda() && stream.requested)
    fail(Kind::Stream, kDlpack, "stream=None for host memory, which has no streams",
         repr_text(values[0]), "omit stream, or pass stream=None");
  if (copy == 1 || target != a.device) {
    if (copy == 0)
      fail_with("copy_forbidden", kDlpack, {device_text(a.device), device_text(target)});
    require_device(target);
    return finish(copy_for(a, target, kDlpack), stream, version, true, false);
  }
  const Caller caller = find_caller();
  if ((!caller.gaps && !a.layout.is_c_contiguous()) ||
      (!caller.negative && a.layout.has_negative_stride()))
    call_hook(Hook::Foreign, "(sOsO)", "check strides", self, kDlpack, caller.module);
  return finish(a, stream, version, false, caller.reads_later);
}

PyObject* dlpack_device(PyObject* self, PyObject*) {
  const Array& a = unwrap(self);
  return Py_BuildValue("ii", int(a.device.type), int(a.device.id));
}

// ---- interface dictionaries -------------------------------------------------------------------

// AttributeError makes hasattr() false, as other libraries expect for a protocol that does not apply.
[[noreturn]] void no_attribute(const char* name, const std::string& why) {
  PyErr_Format(PyExc_AttributeError, "%s: %s", name, why.c_str());
  throw PythonError();
}

PyObject* interface_of(const Array& a, const std::string& typestr, PyObject* stream) {
  const Layout& l = a.layout;
  // NumPy before 2.3 refuses a null pointer, even for empty arrays; CUDA's interface requires one.
  alignas(64) static char nothing[64];
  const bool dummy = !a.data && !stream;
  const auto address = reinterpret_cast<uintptr_t>(dummy ? nothing : a.data);
  PyRef dict = PyRef::checked(Py_BuildValue(
      "{s:N,s:s,s:(KO),s:N,s:i}", "shape", int_tuple(l.ndim(), l.shape(), 1), "typestr",
      typestr.c_str(), "data", static_cast<unsigned long long>(address),
      is_readonly(a) ? Py_True : Py_False, "strides",
      l.is_c_contiguous() ? Py_NewRef(Py_None) : int_tuple(l.ndim(), l.strides(), a.itemsize()),
      "version", 3));
  if (stream && PyDict_SetItemString(dict.get(), "stream", stream) < 0) throw PythonError();
  return dict.release();
}

// Makes the streams of consumers that ignore the dictionary's "stream" wait as well: torch works on its current
// stream, others on the legacy one. Not during a capture, which could not record the wait.
void order_for_others(const Array& a, CUstream last) {
  const int device = a.device.id;
  CUstream torch = static_cast<CUstream>(torch_work_stream(device));
  if ((last == CU_STREAM_LEGACY && torch == last) || cuda::any_capture()) return;
  for (CUstream stream : {CU_STREAM_LEGACY, torch})
    cuda::wait(device, stream, last, "__cuda_array_interface__");
}

PyObject* cuda_array_interface(PyObject* self, void*) {
  const Array a = unwrap(self);  // by value: see dlpack()
  if (!a.device.is_cuda())
    no_attribute("__cuda_array_interface__",
                 "the array is on device \"cpu\"; x.to_device(\"cuda\") moves it");
  const std::string typestr = typestr_of(a.dtype);
  if (typestr.empty())
    no_attribute("__cuda_array_interface__",
                 std::string("it has no name for ") + kDTypes[a.dtype].name + "; use DLPack");
  require_valid_layout(self);
  require_no_fork(a, "__cuda_array_interface__");
  const cuda::DeviceGuard context(a.device.id);
  join_before_use(a, "__cuda_array_interface__");
  // Waiting for the stream of the last use covers all earlier uses, because it has waited for them.
  CUstream handle = CU_STREAM_LEGACY;
  if (a.buffer) handle = cuda::last_use_stream(*a.buffer.get(), "__cuda_array_interface__");
  order_for_others(a, handle);
  note_foreign_use(a, kUsedElsewhere | kUsedBeside | kUsedOnLegacy);
  const PyRef stream = PyRef::checked(PyLong_FromVoidPtr(handle));
  return interface_of(a, typestr, stream.get());
}

PyObject* array_interface(PyObject* self, void*) {
  const Array a = unwrap(self);  // by value: see dlpack()
  if (a.device.is_cuda())
    no_attribute("__array_interface__", "the array is on device \"" + device_text(a.device) +
                                            "\"; numpy.asarray(x) downloads it");
  const std::string typestr = typestr_of(a.dtype);
  // NumPy would read "<V2" as raw bytes; without this attribute it calls __array__, which returns the
  // dtype.
  if (typestr.empty() || kDTypes[a.dtype].kind == 'V')
    no_attribute("__array_interface__",
                 std::string("it has no name for ") + kDTypes[a.dtype].name + "; use DLPack");
  require_valid_layout(self);
  ops::require_values("numpy.asarray", a);
  settle_for_host(a, "__array_interface__");
  return interface_of(a, typestr, nullptr);
}

// ---- buffers ----------------------------------------------------------------------------------

// The element type as the struct module spells it, and NumPy complex numbers; null where there is no letter.
const char* buffer_format(DTypeId dtype) noexcept {
  static constexpr const char* formats[] = {"?", "b", "h", "i", "l", "B",  "H",
                                            "I", "L", "e", "f", "d", "Zf", "Zd"};
  static_assert(std::size(formats) == kBFloat16 && sizeof(long) == 8);
  return dtype < kBFloat16 ? formats[dtype] : nullptr;
}

// Without an object of errors.messages, because NumPy asks each array for a buffer before it calls __array__, and
// drops the error: such an object would double the time of a small download.
[[noreturn]] void no_buffer(const char* expected, const std::string& got, const char* fix) {
  PyErr_Format(PyExc_BufferError, "%s: expected %s\n  got: %s\n  fix: %s", kBuffer, expected,
               got.c_str(), fix);
  throw PythonError();
}

void require_requested(const Array& a, int flags) {
  const auto requested = [&](int wanted) { return (flags & wanted) == wanted; };
  if (a.device.is_cuda())
    no_buffer("host memory, because Python reads buffers on the host",
              "an array on " + device_text(a.device), "move it first: x.to_device(\"cpu\")");
  if (!buffer_format(a.dtype))
    no_buffer("a dtype that a buffer can name", kDTypes[a.dtype].name,
              "cast it, or pass its bytes: numpy.asarray(x).view(\"uint8\")");
  if (requested(PyBUF_WRITABLE) && is_readonly(a)) fail_with("read_only", kBuffer);
  const Layout& l = a.layout;
  const bool c = l.is_c_contiguous(), f = l.is_f_contiguous();
  if (((!requested(PyBUF_STRIDES) || requested(PyBUF_C_CONTIGUOUS)) && !c) ||
      (requested(PyBUF_F_CONTIGUOUS) && !f) || (requested(PyBUF_ANY_CONTIGUOUS) && !c && !f))
    fail(Kind::Contiguity, kBuffer, "contiguous memory, as the reader of the buffer requires",
         layout_text(l), "pass a copy: x.copy()");
}

// What a buffer holds besides the array: its memory, so that it counts among those that share it, and the layout of this
// moment, because Theano's setters and assignment to `shape` may change the array's own.
struct Exported {
  BufferRef memory;
  Py_ssize_t sizes[2 * kMaxDims];  // of which 2 * ndim are allocated
};

int get_buffer(PyObject* self, Py_buffer* view, int flags) {
  view->obj = nullptr;
  require_valid_layout(self);
  const Array a = unwrap(self);  // by value: see dlpack()
  require_requested(a, flags);
  ops::require_values(kBuffer, a);
  settle_for_host(a, kBuffer);
  const auto n = static_cast<size_t>(a.layout.ndim());
  void* const place = PyMem_Malloc(offsetof(Exported, sizes) + 2 * n * sizeof(Py_ssize_t));
  if (!place) throw std::bad_alloc();
  new (place) BufferRef(a.buffer);
  auto* const sizes = static_cast<Exported*>(place)->sizes;
  for (size_t i = 0; i < n; ++i) {
    sizes[i] = a.layout.shape()[i];
    sizes[n + i] = a.layout.strides()[i] * a.itemsize();
  }
  alignas(16) static char nothing[16];  // readers refuse a null pointer, for empty arrays too
  *view = Py_buffer{};
  view->obj = Py_NewRef(self);
  view->buf = a.data ? a.data : nothing;
  view->len = a.nbytes();
  view->itemsize = a.itemsize();
  view->readonly = is_readonly(a);
  // hashlib and other readers of plain bytes refuse several axes, so they get one, as from a memoryview.
  view->ndim = flags & PyBUF_ND ? a.layout.ndim() : 1;
  view->format = flags & PyBUF_FORMAT ? const_cast<char*>(buffer_format(a.dtype)) : nullptr;
  view->shape = flags & PyBUF_ND ? sizes : nullptr;
  view->strides = (flags & PyBUF_STRIDES) == PyBUF_STRIDES ? sizes + n : nullptr;
  view->internal = place;
  return 0;
}

void release_buffer(PyObject*, Py_buffer* view) {
  static_cast<Exported*>(view->internal)->memory.~BufferRef();
  PyMem_Free(view->internal);
}

PyObject* get_ptr(PyObject* o, void*) {
  exchange::join_before_use(unwrap(o), "ptr");
  return PyLong_FromUnsignedLongLong(reinterpret_cast<uintptr_t>(shown_data(o)));
}

int set_ptr(PyObject* o, PyObject* value, void*) {
  require_value(value, "_dev_data");
  const unsigned long long address = PyLong_Check(value) ? PyLong_AsUnsignedLongLong(value) : 0;
  if (!PyLong_Check(value) || PyErr_Occurred()) {
    forgive();
    fail(PyLong_Check(value) ? Kind::Bounds : Kind::Type, "_dev_data",
         "an int as address, from 0 to 2**64 - 1", repr_text(value),
         "assign an address inside the array's memory");
  }
  if (shown_layout(o).size())
    check_aligned(address, unwrap(o).dtype, unwrap(o).device, "_dev_data");
  change_geometry(o, shown_layout(o), reinterpret_cast<char*>(static_cast<uintptr_t>(address)),
                  "_dev_data");
  return 0;
}

}  // namespace

void exchange::forget_callers() {
  for (Caller& known : callers)
    const PyRef module = PyRef::steal(std::exchange(known, Caller()).module);
}

PyMethodDef exchange_methods[] = {
    {"__dlpack__", as_method(guarded<dlpack>), METH_FASTCALL | METH_KEYWORDS,
     "__dlpack__($self, /, *, stream=None, max_version=None, dl_device=None, copy=None)\n--\n\n"
     "A DLPack capsule that shares the memory and keeps it alive, ready on `stream`."},
    {"__dlpack_device__", dlpack_device, METH_NOARGS,
     "__dlpack_device__($self, /)\n--\n\nDLPack's (device type, device id)."},
    {nullptr, nullptr, 0, nullptr},
};

PyType_Slot exchange_slots[] = {
    {Py_bf_getbuffer, slot(guarded<get_buffer>)},
    {Py_bf_releasebuffer, slot(release_buffer)},
    {0, nullptr},
};

PyGetSetDef exchange_getset[] = {
    {"ptr", guarded<get_ptr>, nullptr, "Address of element [0, ..., 0]; 0 when empty.", nullptr},
    {"gpudata", guarded<get_ptr>, nullptr, "Address of element [0, ..., 0]; 0 when empty.",
     nullptr},
    {"_dev_data", guarded<get_ptr>, guarded<set_ptr>,
     "The address; a view may be moved inside its memory.", nullptr},
    {"__cuda_array_interface__", guarded<cuda_array_interface>, nullptr,
     "CUDA Array Interface, version 3; on CUDA devices only.", nullptr},
    {"__array_interface__", guarded<array_interface>, nullptr,
     "NumPy's array interface; on the host only.", nullptr},
    {nullptr, nullptr, nullptr, nullptr, nullptr},
};

}  // namespace gpuinterop
