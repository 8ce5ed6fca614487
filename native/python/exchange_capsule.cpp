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
    owned.m = fetch_struct(p.api, from);
    if (owned.m) return true;
    if (!PyErr_ExceptionMatches(PyExc_Exception)) throw PythonError();
    tried->add("DLPack C exchange API", take_error_text());
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
    if (!find_work_stream(p.api, c.device.id, &producer)) {
      forgive();
    }
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
              bool readonly, const Options& o) {
  if (claimed && !agree(in.tensor.device, *claimed))
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

Array consume_capsule(PyObject* capsule, PyObject* owner, const DLDevice* claimed, bool readonly,
                      const Options& o) {
  const char* name = PyCapsule_GetName(capsule);
  if (!name) forgive();
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
                   claimed, readonly, o);
  }
  if (name && std::strcmp(name, kLegacyName) == 0) {
    auto* m = static_cast<DLManagedTensor*>(PyCapsule_GetPointer(capsule, name));
    if (!m) throw PythonError();
    return consume(Claim(capsule, name, kLegacyUsed), m, {m->dl_tensor, 0}, owner, claimed,
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
  return consume_capsule(capsule, capsule, nullptr, false, o);
}

// ---- __dlpack__ -------------------------------------------------------------------------------

namespace {

// Keywords of __dlpack__, as bits.
constexpr uint8_t kStream = 1, kMaxVersion = 2;

PyRef call_dlpack(PyObject* method, PyObject* stream, uint8_t keywords) {
  static PyObject* const version = Py_BuildValue("(ii)", int(kMajor), int(kMinor));
  static PyObject* const names_of[] = {
      nullptr, PyTuple_Pack(1, names.stream), PyTuple_Pack(1, names.max_version),
      PyTuple_Pack(2, names.stream, names.max_version)};  // by kStream | kMaxVersion
  if (!stream) keywords &= uint8_t(~kStream);
  PyObject* values[3] = {nullptr};
  int n = 0;
  if (keywords & kStream) values[++n] = stream;
  if (keywords & kMaxVersion) values[++n] = version;
  return PyRef::steal(run_python([&] {
    return PyObject_Vectorcall(method, values + 1, PY_VECTORCALL_ARGUMENTS_OFFSET,
                               names_of[keywords]);
  }));
}

// A pending Python error, kept aside.
struct SavedError {
  PyRef type, value, trace;
  SavedError() {
    PyObject *t, *v, *tr;
    PyErr_Fetch(&t, &v, &tr);
    PyErr_NormalizeException(&t, &v, &tr);
    type = PyRef::steal(t), value = PyRef::steal(v), trace = PyRef::steal(tr);
  }
  void restore() { PyErr_Restore(type.release(), value.release(), trace.release()); }
  // A TypeError that speaks of a keyword means an older signature, and so does a ValueError that speaks of
  // max_version: array_api_strict's, as long as it plays an older standard.
  bool is_about_keywords() const {
    const bool value_error = PyErr_GivenExceptionMatches(type.get(), PyExc_ValueError);
    if (!value_error && !PyErr_GivenExceptionMatches(type.get(), PyExc_TypeError)) return false;
    PyRef words = value ? PyRef::steal(PyObject_Str(value.get())) : PyRef();
    const char* text = words ? PyUnicode_AsUTF8AndSize(words.get(), nullptr) : nullptr;
    forgive();
    if (!text) return false;
    if (value_error) return std::strstr(text, "max_version");
    return std::strstr(text, "keyword") || std::strstr(text, "takes no arguments") ||
           std::strstr(text, "unexpected argument");
  }
};

// Calls with all keywords, and with fewer when the producer reports that it does not know one. What one
// object's failure shows is not kept for its class: the TypeError may be about something else, and an object
// of the class asked without max_version could not say that its memory is read-only. Of several such errors
// the first is raised; a reason of its own that an older signature then has counts more.
PyRef negotiate(PyObject* method, PyObject* stream, uint8_t* passed) {
  std::optional<SavedError> first;
  for (const uint8_t keywords : {uint8_t(kStream | kMaxVersion), kStream, uint8_t(0)}) {
    if (keywords == kStream && !stream) continue;
    *passed = keywords;
    PyRef result = call_dlpack(method, stream, keywords);
    if (result) return result;
    SavedError error;
    const bool older = error.is_about_keywords();
    const bool own_reason =
        !older && !PyErr_GivenExceptionMatches(error.type.get(), PyExc_TypeError);
    if (own_reason || !first) first.emplace(std::move(error));
    if (!older) break;
  }
  first->restore();
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

bool import_dlpack(const ForeignType& p, PyObject* obj, const Options& o, Array* out,
                   Attempts* tried) {
  bool failed;
  PyRef device_method = PyRef::steal(attribute_or_null(obj, names.dlpack_device, &failed));
  if (failed) return refused(tried);
  PyRef method = PyRef::steal(attribute_or_null(obj, names.dlpack, &failed));
  if (failed) return refused(tried);
  if (!method || !device_method) {
    if (!method && !device_method) return false;
    tried->add("__dlpack__",
               method ? "__dlpack_device__ is missing" : "only __dlpack_device__ is there");
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

  // The memory is imported where it is; the caller of this function moves it.
  PyRef stream;
  std::optional<cuda::DeviceGuard> guard;
  if (is_cuda(claimed.device_type)) {
    if (!cuda::available())
      fail(Kind::Exchange, o.where, "host memory, because no CUDA driver answers here",
           text(claimed) + "; " + cuda::unavailable_reason(),
           "copy it to the host in the producer");
    const int id = claimed.device_type == kDLCUDAManaged ? 0 : claimed.device_id;
    // Producers such as torch refuse to export from a device that is not the current one.
    guard.emplace(id);
    CUstream current = cuda::current_stream(id);
    stream = PyRef::steal(cuda::is_capturing(current) ? PyLong_FromLong(-1)
                                                      : PyLong_FromVoidPtr(current));
    if (!stream) throw PythonError();
  }
  uint8_t passed = 0;
  PyRef capsule = negotiate(method.get(), stream.get(), &passed);
  if (!capsule) return refused(tried);
  if (!PyCapsule_CheckExact(capsule.get()))
    fail(Kind::Protocol, o.where, "a capsule from __dlpack__()",
         "an object of type " + type_text(capsule.get()), "report it to the producer");
  *out = consume_capsule(capsule.get(), obj, &claimed, p.family == Family::Jax, o);
  // A producer that took the stream has made it wait; one that did not may work on the legacy one.
  if (stream && out->buffer)
    join_stream_order(out->buffer.get(), passed & kStream ? nullptr : CU_STREAM_LEGACY, o.where);
  return true;
}

}  // namespace gpuinterop::exchange
