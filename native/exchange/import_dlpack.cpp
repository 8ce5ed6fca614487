// Import by DLPack: the C exchange API, __dlpack__, and capsules passed directly.
#include <optional>
#include <string_view>

#include "devices/cuda.hpp"
#include "exchange/import_any.hpp"
#include "interpreter/error.hpp"
#include "interpreter/error_translation.hpp"
#include "interpreter/gil.hpp"

namespace gpuinterop::exchange {

namespace {

// Owns a managed tensor until an array takes ownership.
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
       "upgrade gpuinterop, or call x.__dlpack__(max_version=(1, 3))");
}

}  // namespace

bool import_c_api(const ForeignType& p, PyObject* obj, const Options& o, Array* out,
                  Attempts* tried) {
  if (!p.api) return false;
  const bool torch = p.family == Family::Torch;
  Owned owned{nullptr};
  // Calls the table. False: the producer refused.
  auto fetch = [&](PyObject* from) {
    owned.m = fetch_struct(p.api, from);
    return owned.m || note_refusal("DLPack C exchange API", tried);
  };
  if (!fetch(obj)) return false;
  if (owned.m->version.major != kMajor) refuse_version(owned.m->version, o.where);
  const DLDataType& dtype = owned.m->dl_tensor.dtype;
  if (torch && !(holds_its_values(obj, static_cast<DLDataTypeCode>(dtype.code)) &&
                 (dtype.code > kDLUInt || dtype.bits != 8 || has_whole_bytes(obj)))) {
    if (o.only_ordinary) return false;
    if (is_refused(obj, o)) throw PythonError();
  }
  // Modules replace the memory of their parameters (module.double(), module.to()), and torch's struct holds
  // the parameter, not the memory. A detached tensor holds the memory.
  PyRef alias;
  if (torch && p.parameter) {
    alias = PyRef::checked(PyObject_CallMethod(obj, "detach", nullptr));
    Owned before{std::exchange(owned.m, nullptr)};
    if (!fetch(alias.get())) return false;
  }
  Checked c = check({owned.m->dl_tensor, owned.m->flags}, torch ? Trust::ByPage : Trust::Never,
                    o.may_copy(), o.where);
  if (p.family == Family::Jax) c.readonly = true;
  void* producer = nullptr;
  if (c.device.is_cuda()) {
    // The guard also restores the context if the producer changes it. Torch only reads a thread-local.
    std::optional<cuda::DeviceGuard> context;
    if (!torch) context.emplace(c.device.id);
    if (!find_work_stream(p.api, c.device.id, &producer)) {
      forgive();
    }
  }
  // Without a deleter only the Python object keeps the memory alive.
  const Producer worker{producer, false,
                        torch && producer && torch_keeps_stream(c.device.id, producer)};
  Buffer* buffer = owned.m->deleter ? adopt(c, owned.m, worker) : adopt_borrowed(c, worker);
  owned.m = nullptr;
  fill_array(out, std::move(c), buffer, PyRef::borrow(obj));
  if (producer) join_stream_order(buffer, producer, o.where);
  return true;
}

// ---- capsules ---------------------------------------------------------------------------------

namespace {

std::string text(const DLDevice& d) { return device_text(d.device_type, d.device_id); }

bool agree(const DLDevice& a, const DLDevice& b) {
  if (is_host(a.device_type) && is_host(b.device_type)) return true;
  if (is_cuda(a.device_type) && is_cuda(b.device_type)) {
    // Managed memory is often reported with id 0, whatever its device.
    const bool managed = a.device_type == kDLCUDAManaged || b.device_type == kDLCUDAManaged;
    return managed || a.device_id == b.device_id;
  }
  return a.device_type == b.device_type && a.device_id == b.device_id;
}

[[noreturn]] void refuse_used(const char* where) {
  fail(Kind::Exchange, where, "a DLPack capsule that was not consumed",
       "a consumed capsule; a capsule can be imported once",
       "request a new capsule: x.__dlpack__()");
}

template <class Managed>
Array consume(PyObject* capsule, const char* name, const char* used_name, Managed* m,
              const Incoming& in, PyObject* owner, const DLDevice* claimed, bool readonly,
              const Options& o) {
  if (claimed && !agree(in.tensor.device, *claimed))
    fail(Kind::DeviceMismatch, o.where,
         "memory on " + text(*claimed) + ", as __dlpack_device__() reports",
         text(in.tensor.device) + " in the capsule", "report it to the producer");
  Checked c = check(in, Trust::Never, o.may_copy(), o.where);
  c.readonly |= readonly;
  if (o.look) return make_array(std::move(c), nullptr, PyRef::borrow(owner));
  // The first use of the driver lets other threads run, so check the capsule again.
  if (!PyCapsule_IsValid(capsule, name)) refuse_used(o.where);
  // Rename it for consumers and destructors that check the name, and remove the destructor for those that do
  // not. Until here the producer's struct is unchanged.
  if (PyCapsule_SetName(capsule, used_name) != 0 || PyCapsule_SetDestructor(capsule, nullptr) != 0)
    throw PythonError();
  // A capsule does not report the stream on which its producer continues.
  constexpr Producer unknown{nullptr, true};
  Buffer* buffer = m->deleter ? adopt(c, m, unknown) : adopt_borrowed(c, unknown);
  return make_array(std::move(c), buffer, PyRef::borrow(owner));
}

}  // namespace

Array consume_capsule(PyObject* capsule, PyObject* owner, const DLDevice* claimed, bool readonly,
                      const Options& o) {
  const char* name = PyCapsule_GetName(capsule);
  if (!name) forgive();
  const std::string_view kind = name ? name : "";
  if (kind == kVersionedName) {
    auto* m = static_cast<DLManagedTensorVersioned*>(PyCapsule_GetPointer(capsule, name));
    if (!m) throw PythonError();
    if (m->version.major != kMajor) refuse_version(m->version, o.where);
    return consume(capsule, kVersionedName, kVersionedUsed, m, {m->dl_tensor, m->flags}, owner,
                   claimed, readonly, o);
  }
  if (kind == kLegacyName) {
    auto* m = static_cast<DLManagedTensor*>(PyCapsule_GetPointer(capsule, name));
    if (!m) throw PythonError();
    return consume(capsule, kLegacyName, kLegacyUsed, m, {m->dl_tensor, 0}, owner, claimed,
                   readonly, o);
  }
  if (kind == kVersionedUsed || kind == kLegacyUsed) refuse_used(o.where);
  fail(Kind::Exchange, o.where, "a DLPack capsule",
       "a capsule named \"" + std::string(kind.substr(0, 60)) + "\"",
       "pass the result of x.__dlpack__(), or x itself");
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

// Calls with all keywords. A producer of an older standard refuses one of them, by any error, and is called
// again with fewer keywords; the last error is reported. Refusals are not remembered for the class, because
// without max_version a producer cannot report that memory is read-only.
PyRef call_dlpack(PyObject* method, PyObject* stream, bool* ordered) {
  const auto kept = [](PyObject* made) { return PyRef::checked(made).release(); };
  static PyObject* const version = kept(Py_BuildValue("(ii)", int(kMajor), int(kMinor)));
  static PyObject* const only_version = kept(PyTuple_Pack(1, names.max_version));
  static PyObject* const with_stream[] = {nullptr, kept(PyTuple_Pack(1, names.stream)),
                                          kept(PyTuple_Pack(2, names.stream, names.max_version))};
  PyObject* values[] = {nullptr, stream ? stream : version, version};
  for (int n = stream ? 2 : 1;; --n) {
    PyObject* keywords = stream || n == 0 ? with_stream[n] : only_version;
    PyRef result = PyRef::steal(
        PyObject_Vectorcall(method, values + 1, PY_VECTORCALL_ARGUMENTS_OFFSET, keywords));
    *ordered = stream && n > 0;
    if (result || n == 0 ||
        !(PyErr_ExceptionMatches(PyExc_TypeError) || PyErr_ExceptionMatches(PyExc_ValueError)))
      return result;
    PyErr_Clear();
  }
}

DLDevice read_claim(PyObject* result, const Options& o) {
  int type, id;
  if (PyTuple_Check(result) && PyArg_ParseTuple(result, "ii", &type, &id))
    return {static_cast<DLDeviceType>(type), id};
  forgive();
  fail_with("protocol_broken", o.where,
            {"a tuple of two ints from __dlpack_device__()", repr_text(result)});
}

}  // namespace

bool import_dlpack(const ForeignType& p, PyObject* obj, const Options& o, Array* out,
                   Attempts* tried) {
  bool failed;
  PyRef method = PyRef::steal(attribute_or_null(obj, names.dlpack, &failed));
  if (failed) return note_refusal("__dlpack__", tried);
  DLDevice claimed{kDLCPU, 0};
  if (p.family != Family::Numpy) {  // NumPy has arrays on no other device
    PyRef device_method = PyRef::steal(attribute_or_null(obj, names.dlpack_device, &failed));
    if (failed) return note_refusal("__dlpack__", tried);
    if (!method || !device_method) {
      if (!method && !device_method) return false;
      tried->add("__dlpack__", method ? "__dlpack_device__ is missing" : "__dlpack__ is missing");
      tried->kind = Kind::Protocol;
      return false;
    }
    PyObject* no_args[1];
    PyRef claim_object =
        PyRef::steal(PyObject_Vectorcall(device_method.get(), no_args, 0, nullptr));
    if (!claim_object) return note_refusal("__dlpack__", tried);
    claimed = read_claim(claim_object.get(), o);
  }
  if (!is_host(claimed.device_type) && !is_cuda(claimed.device_type))
    fail_with("memory_elsewhere", o.where, {text(claimed)});

  // The memory is imported on its own device; the caller of this function copies it elsewhere.
  PyRef stream;
  std::optional<cuda::DeviceGuard> guard;
  if (is_cuda(claimed.device_type)) {
    if (!cuda::available())
      fail_with("cuda_memory_without_driver", o.where, {text(claimed), cuda::unavailable_reason()});
    const int id = claimed.device_type == kDLCUDAManaged ? 0 : claimed.device_id;
    // Producers such as torch refuse to export from a device that is not the current one.
    guard.emplace(id);
    CUstream current = cuda::current_stream(id);
    stream = PyRef::checked(cuda::is_capturing(current) ? PyLong_FromLong(-1)
                                                        : PyLong_FromVoidPtr(current));
  }
  bool ordered;
  PyRef capsule = call_dlpack(method.get(), stream.get(), &ordered);
  if (!capsule) return note_refusal("__dlpack__", tried);
  if (!PyCapsule_CheckExact(capsule.get()))
    fail_with("protocol_broken", o.where,
              {"a capsule from __dlpack__()", "an object of type " + type_text(capsule.get())});
  *out = consume_capsule(capsule.get(), obj, &claimed, p.family == Family::Jax, o);
  // A producer that accepted the stream has made it wait; another producer may work on the legacy stream.
  if (stream && out->buffer)
    join_stream_order(out->buffer.get(), ordered ? nullptr : CU_STREAM_LEGACY, o.where);
  return true;
}

}  // namespace gpuinterop::exchange
