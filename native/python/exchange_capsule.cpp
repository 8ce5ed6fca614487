// In: DLPack, by the C exchange API, by __dlpack__, and by a capsule in the hand.
#include <cstring>
#include <optional>

#include "array/error.hpp"
#include "array/gil.hpp"
#include "cuda/cuda.hpp"
#include "python/error_translation.hpp"
#include "python/exchange_import.hpp"

namespace gpuinterop::exchange {

namespace {

// Owns a managed tensor until an array does.
struct Owned {
  DLManagedTensorVersioned* m;
  ~Owned() {
    if (!m) return;
    ErrorSaver saver;
    call_deleter(m);
  }
};

[[noreturn]] void refuse_version(const DLPackVersion& v, const char* where) {
  fail(Kind::Exchange, where, "DLPack version 1",
       "version " + std::to_string(v.major) + "." + std::to_string(v.minor),
       "upgrade gpuinterop, or ask the producer for max_version=(1, 3)");
}

}  // namespace

bool import_c_api(const ForeignType& p, PyObject* obj, const Options& o, Array* out,
                  Attempts* tried) {
  if (!p.api) return false;
  const bool torch = p.family == Family::Torch;
  Owned owned{nullptr};
  // Asks the table. False: the producer refused.
  auto fetch = [&](PyObject* from) {
    int rc = -1;
    try {
      rc = p.api->managed_tensor_from_py_object_no_sync(from, &owned.m);
    } catch (const std::exception& e) {
      PyErr_Format(PyExc_RuntimeError, "a C++ exception: %s", e.what());
    } catch (...) {
      PyErr_SetString(PyExc_RuntimeError, "a C++ exception");
    }
    if (rc == 0 && owned.m) return true;
    owned.m = nullptr;
    if (rc != 0 && PyErr_Occurred() && !PyErr_ExceptionMatches(PyExc_Exception))
      throw PythonError();
    tried->add("DLPack C exchange API", rc ? take_error_text() : "success without a tensor");
    tried->kind = Kind::Exchange;
    return false;
  };
  if (!fetch(obj)) return false;
  if (owned.m->version.major != kMajor) refuse_version(owned.m->version, o.where);
  const DLDataType& dtype = owned.m->dl_tensor.dtype;
  if (torch && !(is_plain_torch(p, owned.m) &&
                 (dtype.code > kDLUInt || dtype.bits != 8 || has_whole_bytes(obj)))) {
    if (o.only_plain) return false;
    refuse_foreign(obj, o.where);
  }
  // Modules give their parameters other memory (module.double(), module.to()), and torch's struct holds
  // the parameter, not the memory: a tensor of its own does.
  PyRef alias;
  if (torch && p.parameter) {
    alias = PyRef::steal(run_python([&] { return PyObject_CallMethod(obj, "detach", nullptr); }));
    if (!alias) throw PythonError();
    Owned before{std::exchange(owned.m, nullptr)};
    if (!fetch(alias.get())) return false;
  }
  Checked c = check({owned.m->dl_tensor, owned.m->flags}, torch ? Trust::ByPage : Trust::Never,
                    o.may_copy(), o.where);
  if (p.family == Family::Jax) c.readonly = true;
  void* producer = nullptr;
  if (c.device.is_cuda()) {
    // Whatever context the producer leaves current goes with ours. Torch looks into a thread-local.
    std::optional<cuda::DeviceGuard> context;
    if (!torch) context.emplace(c.device.id);
    if (p.api->current_work_stream &&
        p.api->current_work_stream(kDLCUDA, c.device.id, &producer) != 0)
      PyErr_Clear();
    if (!producer) producer = CU_STREAM_LEGACY;
  }
  // Without a deleter nothing but the Python object keeps the memory.
  const Producer worker{producer, false,
                        torch && producer && torch_keeps_stream(c.device.id, producer)};
  Buffer* buffer = owned.m->deleter ? adopt(c, owned.m, worker) : adopt_borrowed(c, worker);
  owned.m = nullptr;
  fill_array(out, std::move(c), buffer, PyRef::borrow(obj));
  if (producer) join_stream_order(buffer, producer, o.where);
  return true;
}

// ---- capsules ---------------------------------------------------------------------------------

Claim::Claim(PyObject* capsule, const char* name, const char* used_name)
    : name_(name), destructor_(PyCapsule_GetDestructor(capsule)) {
  // Renamed for consumers and destructors that look at the name, without a destructor for those
  // that do not.
  if (PyCapsule_SetName(capsule, used_name) != 0 || PyCapsule_SetDestructor(capsule, nullptr) != 0)
    throw PythonError();
  capsule_ = PyRef::borrow(capsule);
}

Claim::~Claim() {
  if (!capsule_) return;
  ErrorSaver saver;
  PyCapsule_SetName(capsule_.get(), name_);
  PyCapsule_SetDestructor(capsule_.get(), destructor_);
  capsule_ = PyRef();  // perhaps the last reference, and then the producer frees
}

namespace {

std::string text(const DLDevice& d) { return device_text(d.device_type, d.device_id); }

bool agree(const DLDevice& a, const DLDevice& b) {
  if (is_host(a.device_type) && is_host(b.device_type)) return true;
  if (is_cuda(a.device_type) && is_cuda(b.device_type)) {
    // Managed memory is commonly reported with id 0 wherever it lives.
    const bool managed = a.device_type == kDLCUDAManaged || b.device_type == kDLCUDAManaged;
    return managed || a.device_id == b.device_id;
  }
  return a.device_type == b.device_type && a.device_id == b.device_id;
}

template <class Managed>
Array consume(Claim claim, Managed* m, const Incoming& in, PyObject* owner, const DLDevice* claimed,
              const DLDevice* wanted, bool readonly, const Options& o) {
  if (wanted && !agree(in.tensor.device, *wanted))
    fail(Kind::DeviceMismatch, o.where,
         "memory on " + text(*wanted) + ", as __dlpack__(dl_device=...) was asked",
         text(in.tensor.device) + ": the producer ignored the request",
         "leave device out and move the result: x.to_device(...)");
  if (!wanted && claimed && !agree(in.tensor.device, *claimed))
    fail(Kind::DeviceMismatch, o.where,
         "memory on " + text(*claimed) + ", as __dlpack_device__() says",
         text(in.tensor.device) + " in the capsule", "report it to the producer");
  Checked c = check(in, Trust::Never, o.may_copy(), o.where);
  c.readonly |= readonly;
  if (o.look) return make_array(std::move(c), nullptr, PyRef::borrow(owner));
  // A capsule does not tell the stream that its producer goes on with.
  constexpr Producer unknown{nullptr, true};
  // Nothing of the producer's was touched until here.
  Buffer* buffer = m->deleter ? adopt(c, m, unknown) : adopt_borrowed(c, unknown);
  Array a = make_array(std::move(c), buffer, PyRef::borrow(owner));
  if (o.claim)
    *o.claim = std::move(claim);
  else
    claim.keep();
  return a;
}

}  // namespace

Array consume_capsule(PyObject* capsule, PyObject* owner, const DLDevice* claimed,
                      const DLDevice* wanted, bool readonly, const Options& o) {
  const char* name = PyCapsule_GetName(capsule);
  if (!name && PyErr_Occurred()) PyErr_Clear();
  if (name && std::strcmp(name, kVersionedName) == 0) {
    auto* m = static_cast<DLManagedTensorVersioned*>(PyCapsule_GetPointer(capsule, name));
    if (!m) throw PythonError();
    if (m->version.major != kMajor) {
      // Only the deleter is promised to stay where it is.
      const DLPackVersion version = m->version;
      if (o.look) refuse_version(version, o.where);
      Claim(capsule, name, kVersionedUsed).keep();
      Owned owned{m};
      refuse_version(version, o.where);
    }
    return consume(Claim(capsule, name, kVersionedUsed), m, {m->dl_tensor, m->flags}, owner,
                   claimed, wanted, readonly, o);
  }
  if (name && std::strcmp(name, kLegacyName) == 0) {
    auto* m = static_cast<DLManagedTensor*>(PyCapsule_GetPointer(capsule, name));
    if (!m) throw PythonError();
    return consume(Claim(capsule, name, kLegacyUsed), m, {m->dl_tensor, 0}, owner, claimed, wanted,
                   readonly, o);
  }
  const bool used =
      name && (std::strcmp(name, kVersionedUsed) == 0 || std::strcmp(name, kLegacyUsed) == 0);
  fail(Kind::Exchange, o.where, "a DLPack capsule that nobody has used",
       used ? "a capsule that was consumed already; a capsule can be consumed once"
            : "a capsule named " +
                  (name ? "\"" + std::string(name).substr(0, 60) + "\"" : std::string("nothing")),
       used ? "ask the producer for a new one: x.__dlpack__()"
            : "pass what x.__dlpack__() returns, or x itself");
}

Array look_into(PyObject* capsule, const char* where, bool realign) {
  Options o;
  o.where = where;
  o.look = true;
  o.realign = realign;
  return consume_capsule(capsule, capsule, nullptr, nullptr, false, o);
}

// ---- __dlpack__ -------------------------------------------------------------------------------

namespace {

struct Call {
  PyObject* obj;
  ForeignType& peer;
  PyRef method;
  PyObject *stream = nullptr, *dl_device = nullptr, *copy = nullptr;  // borrowed; null: not passed
};

PyRef max_version() {
  static PyObject* value = nullptr;
  if (!value) value = Py_BuildValue("(ii)", int(kMajor), int(kMinor));
  return PyRef::borrow(value);
}

PyRef call_with(const Call& c, uint8_t keywords) {
  PyRef version = max_version();
  PyObject* values[5] = {nullptr};
  PyObject* keys[4];
  int n = 0;
  auto add = [&](uint8_t bit, PyObject* key, PyObject* value) {
    if (!value || !(keywords & bit)) return;
    keys[n] = key;
    values[++n] = value;
  };
  add(kMaxVersion, names.max_version, version.get());
  add(kStream, names.stream, c.stream);
  add(kDlDevice, names.dl_device, c.dl_device);
  add(kCopy, names.copy, c.copy);
  if (n == 1 && keys[0] == names.max_version) {
    static PyObject* only_version = nullptr;  // the common case, without making a tuple
    if (!only_version) only_version = PyTuple_Pack(1, names.max_version);
    return PyRef::steal(run_python([&] {
      return PyObject_Vectorcall(c.method.get(), values + 1, PY_VECTORCALL_ARGUMENTS_OFFSET,
                                 only_version);
    }));
  }
  PyRef kwnames = PyRef::steal(PyTuple_New(n));
  if (!kwnames) throw PythonError();
  for (int i = 0; i < n; ++i) {
    Py_INCREF(keys[i]);
    PyTuple_SetItem(kwnames.get(), i, keys[i]);
  }
  return PyRef::steal(run_python([&] {
    return PyObject_Vectorcall(c.method.get(), values + 1, PY_VECTORCALL_ARGUMENTS_OFFSET,
                               kwnames.get());
  }));
}

// A TypeError that speaks of a keyword means an older signature, and so does a ValueError that speaks of
// max_version: array_api_strict's, as long as it plays an older standard. Others are the producer's own.
bool is_about_keywords(PyObject* value) {
  PyRef words = value ? PyRef::steal(PyObject_Str(value)) : PyRef();
  const char* text = words ? PyUnicode_AsUTF8AndSize(words.get(), nullptr) : nullptr;
  if (!text) {
    PyErr_Clear();
    return false;
  }
  if (PyErr_GivenExceptionMatches(value, PyExc_ValueError)) return std::strstr(text, "max_version");
  return std::strstr(text, "keyword") || std::strstr(text, "takes no arguments") ||
         std::strstr(text, "unexpected argument");
}

// Whether the error that is set is such a ValueError.
bool is_of_version() {
  if (!PyErr_ExceptionMatches(PyExc_ValueError)) return false;
  PyObject *type, *value, *trace;
  PyErr_Fetch(&type, &value, &trace);
  PyErr_NormalizeException(&type, &value, &trace);
  const bool found = is_about_keywords(value);
  PyErr_Restore(type, value, trace);
  return found;
}

// Calls with what the type is known to take, and with less when it says that it does not know a
// keyword: at most three calls, and the first error is the one that is shown.
PyRef negotiate(Call& c, uint8_t* passed) {
  const uint8_t known = c.peer.keywords;
  const uint8_t steps[] = {known, uint8_t(known & kStream), 0};
  PyObject *type = nullptr, *value = nullptr, *trace = nullptr;
  uint8_t before = 0xff;
  bool for_now = false;  // a version that is played is no property of the type
  for (uint8_t keywords : steps) {
    if (keywords == before) continue;
    before = keywords;
    PyRef result = call_with(c, keywords);
    if (result) {
      if (keywords != known && !for_now) c.peer.keywords = keywords;
      Py_XDECREF(type);
      Py_XDECREF(value);
      Py_XDECREF(trace);
      *passed = keywords;
      return result;
    }
    const bool by_version = is_of_version();
    for_now |= by_version;
    if (!by_version && !PyErr_ExceptionMatches(PyExc_TypeError)) {
      if (!type) return {};  // refused at the first call, whose words are the right ones
      // An older signature that then refused for a reason of its own: that reason counts.
      Py_XDECREF(type);
      Py_XDECREF(value);
      Py_XDECREF(trace);
      return {};
    }
    PyObject *t, *v, *tr;
    PyErr_Fetch(&t, &v, &tr);
    PyErr_NormalizeException(&t, &v, &tr);
    const bool retry = is_about_keywords(v);
    if (!type) {
      type = t, value = v, trace = tr;
    } else {
      Py_XDECREF(t);
      Py_XDECREF(v);
      Py_XDECREF(tr);
    }
    if (!retry) break;
  }
  PyErr_Restore(type, value, trace);
  return {};
}

DLDevice read_claim(PyObject* result, const Options& o) {
  const bool pair = PyTuple_Check(result) && PyTuple_Size(result) == 2;
  long v[2] = {0, 0};
  for (int i = 0; pair && i < 2; ++i) {
    PyObject* item = PyTuple_GetItem(result, i);
    if (PyBool_Check(item) || !PyIndex_Check(item)) goto wrong;
    PyRef index = PyRef::steal(PyNumber_Index(item));
    if (!index) throw PythonError();
    int overflow;
    v[i] = PyLong_AsLongAndOverflow(index.get(), &overflow);
    if (overflow || v[i] != int32_t(v[i])) goto wrong;
  }
  if (pair) return {static_cast<DLDeviceType>(v[0]), int32_t(v[1])};
wrong:
  fail(Kind::Protocol, o.where, "a tuple of two ints from __dlpack_device__()", repr_text(result),
       "report it to the producer");
}

// The producer said no in its own words: remembered, so that other protocols may be tried.
bool refused(Attempts* tried) {
  if (!PyErr_ExceptionMatches(PyExc_BufferError) && !PyErr_ExceptionMatches(PyExc_AttributeError) &&
      !PyErr_ExceptionMatches(PyExc_NotImplementedError))
    throw PythonError();
  tried->add("__dlpack__", take_error_text());
  tried->kind = Kind::Exchange;
  return false;
}

}  // namespace

bool import_dlpack(ForeignType& p, PyObject* obj, const Options& o, Array* out, Attempts* tried) {
  bool failed;
  PyRef device_method = PyRef::steal(attribute_or_null(obj, names.dlpack_device, &failed));
  if (failed) return refused(tried);
  Call call{obj, p, PyRef::steal(attribute_or_null(obj, names.dlpack, &failed))};
  if (failed) return refused(tried);
  if (!call.method || !device_method) {
    if (!call.method && !device_method) return false;
    tried->add("__dlpack__",
               call.method ? "__dlpack_device__ is missing" : "only __dlpack_device__ is there");
    tried->kind = Kind::Protocol;
    return false;
  }
  PyObject* no_args[1];
  PyRef claim_object = PyRef::steal(
      run_python([&] { return PyObject_Vectorcall(device_method.get(), no_args, 0, nullptr); }));
  if (!claim_object) return refused(tried);
  const DLDevice claimed = read_claim(claim_object.get(), o);
  if (!is_host(claimed.device_type) && !is_cuda(claimed.device_type))
    fail(Kind::Exchange, o.where, "memory on \"cpu\" or \"cuda\"", text(claimed),
         "copy it to the host in the producer");

  // A download is asked of the producer first, who knows when its memory is ready. Uploads and peer
  // copies are made here, because the protocol orders only the producer's own device.
  const DLDevice wanted = to_dl(o.device);
  const bool move = o.has_device && !o.device.is_cuda() && is_cuda(claimed.device_type);
  const bool on_cuda = is_cuda(claimed.device_type) && !move;
  PyRef stream, dl_device;
  std::optional<cuda::DeviceGuard> guard;
  void* ours = nullptr;
  if (on_cuda) {
    if (!cuda::available())
      fail(Kind::Exchange, o.where, "host memory, because no CUDA driver answers here",
           text(claimed) + "; " + cuda::unavailable_reason(),
           "copy it to the host in the producer");
    const int id = claimed.device_type == kDLCUDAManaged ? 0 : claimed.device_id;
    // Producers such as torch refuse to export from a device that is not the current one.
    guard.emplace(id);
    ours = cuda::current_stream(id);
    const bool order = !cuda::is_capturing(static_cast<CUstream>(ours));
    stream = PyRef::steal(order ? PyLong_FromVoidPtr(ours) : PyLong_FromLong(-1));
    if (!stream) throw PythonError();
    call.stream = stream.get();
  }
  if (move) {
    dl_device = PyRef::steal(Py_BuildValue("(ii)", int(wanted.device_type), int(wanted.device_id)));
    if (!dl_device) throw PythonError();
    call.dl_device = dl_device.get();
    if (o.copy == 0) call.copy = Py_False;
  }
  uint8_t passed = 0;
  PyRef capsule = negotiate(call, &passed);
  if (!capsule && move) {
    // It does not move memory: take it where it is, the caller of this function moves it.
    if (PyErr_ExceptionMatches(PyExc_BufferError) || PyErr_ExceptionMatches(PyExc_ValueError) ||
        PyErr_ExceptionMatches(PyExc_NotImplementedError) ||
        PyErr_ExceptionMatches(PyExc_RuntimeError)) {
      PyErr_Clear();
      Options here = o;
      here.has_device = false;
      return import_dlpack(p, obj, here, out, tried);
    }
  }
  if (!capsule && on_cuda && ours == CU_STREAM_PER_THREAD &&
      PyErr_ExceptionMatches(PyExc_BufferError)) {
    // torch does not know the per-thread default stream: order on the legacy one, then here.
    PyErr_Clear();
    PyRef legacy = PyRef::steal(PyLong_FromLong(1));
    call.stream = legacy.get();
    capsule = negotiate(call, &passed);
    if (capsule) passed &= uint8_t(~kStream);
  }
  if (!capsule && o.copy == 1 && !call.copy && PyErr_ExceptionMatches(PyExc_BufferError) &&
      (p.keywords & kCopy)) {
    // What cannot be shared may still be copied by those who know how to read it.
    PyErr_Clear();
    const PyRef nbytes = PyRef::steal(PyObject_GetAttrString(obj, "nbytes"));
    const long long bytes = nbytes ? PyLong_AsLongLong(nbytes.get()) : -1;
    PyErr_Clear();
    if (bytes > 0) note_copy(on_cuda ? "copy" : "host", bytes, o.where);
    call.copy = Py_True;
    capsule = negotiate(call, &passed);
  }
  if (!capsule) return refused(tried);
  if (!PyCapsule_CheckExact(capsule.get()))
    fail(Kind::Protocol, o.where, "a capsule from __dlpack__()",
         "an object of type " + type_text(capsule.get()), "report it to the producer");
  const bool asked = move && (passed & kDlDevice);
  *out = consume_capsule(capsule.get(), obj, &claimed, asked ? &wanted : nullptr,
                         p.family == Family::Jax, o);
  if (on_cuda && out->buffer) {
    // A producer that took the stream has made it wait; one that did not may work on the legacy one.
    join_stream_order(out->buffer.get(), passed & kStream ? nullptr : CU_STREAM_LEGACY, o.where);
  }
  return true;
}

}  // namespace gpuinterop::exchange
