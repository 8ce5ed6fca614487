// The DLPack C exchange API: the table on the Array type, and the use of another type's table to make an
// object of that type from a gpuinterop array.
#include "exchange/c_api.hpp"

#include <optional>

#include "arrays/type.hpp"
#include "captures/recorder.hpp"
#include "devices/cuda.hpp"
#include "exchange/export_structs.hpp"
#include "exchange/foreign_types.hpp"
#include "exchange/import.hpp"
#include "interpreter/error.hpp"
#include "interpreter/error_translation.hpp"
#include "interpreter/hooks.hpp"

namespace gpuinterop {

using namespace exchange;

namespace {

constexpr char kWhere[] = "__dlpack_c_exchange_api__";

// By value: the calls that follow may run Python or let another thread run, and either may change the shape.
Array array_argument(void* object) {
  auto* o = static_cast<PyObject*>(object);
  if (!o || !is_array(o))
    fail(Kind::Type, kWhere, "a gpuinterop array", o ? type_text(o) : "a null pointer",
         "use the table of the object's own type");
  require_valid_layout(o);
  Array a = unwrap(o);
  if (!a.device.is_cuda()) ops::require_values(kWhere, a);
  require_no_fork(a, kWhere);
  return a;
}

// Consumers of this interface work on current_work_stream, so the array must be complete there. "No sync"
// means that no table function blocks or orders streams for the consumer. One event between two streams of
// gpuinterop makes current_work_stream valid for every array.
void order_for_consumer(const Array& a, bool kept) {
  if (!a.device.is_cuda()) return settle_for_host(a, kWhere);
  if (!a.buffer) return;
  CUstream stream = cuda::current_stream(a.device.id);
  cuda::order(a.buffer.get(), stream, kWhere);
  const uint32_t bits = stream == CU_STREAM_LEGACY ? kUsedOnLegacy : kUsedElsewhere;
  if (kept) return note_foreign_use(a, bits);
  const uint32_t before = std::exchange(a.buffer->borrower, cuda::thread_token());
  if (before && before != a.buffer->borrower) note_foreign_use(a, bits);
}

int allocate_tensor(DLTensor* prototype, DLManagedTensorVersioned** out, void* error_context,
                    void (*set_error)(void*, const char*, const char*)) {
  const char* kind = "RuntimeError";
  std::string message = "unknown C++ exception";
  try {
    if (!prototype || !out)
      fail(Kind::Exchange, kWhere, "a prototype and a pointer for the result", "a null pointer",
           "report it to the caller");
    // The lengths are checked as for an import; the prototype's pointer has no meaning.
    Layout layout = checked_layout(prototype->ndim, prototype->shape, nullptr, 1, kWhere);
    const DTypeId dtype =
        checked_dtype(prototype->dtype, DLPACK_FLAG_BITMASK_IS_SUBBYTE_TYPE_PADDED, kWhere);
    const int32_t device = prototype->device.device_type;
    if (device != kDLCPU && device != kDLCUDA)
      fail(Kind::Exchange, kWhere, "\"cpu\" or \"cuda\"",
           device_text(device, prototype->device.device_id), "request one of gpuinterop.devices()");
    const Device place{static_cast<DeviceType>(device),
                       device == kDLCPU ? 0 : prototype->device.device_id};
    Array a = make_empty(place, dtype, std::move(layout), kWhere);
    *out = make_versioned(a, false);
    return 0;
  } catch (const Error& e) {
    kind = e.kind == Kind::OutOfMemory ? "MemoryError"
           : e.kind == Kind::Exchange  ? "BufferError"
                                       : "ValueError";
    const PyGILState_STATE held = PyGILState_Ensure();  // the caller may not hold the GIL
    {
      ErrorSaver saver;
      set_python_error(e);
      message = take_error_text();
    }
    PyGILState_Release(held);
  } catch (const std::bad_alloc&) {
    kind = "MemoryError";
    message = "no host memory";
  } catch (...) {
  }
  if (set_error) set_error(error_context, kind, message.c_str());
  return -1;
}

int from_py_object(void* object, DLManagedTensorVersioned** out) {
  const Array a = array_argument(object);
  order_for_consumer(a, true);
  *out = make_versioned(a, false);
  return 0;
}

int to_py_object(DLManagedTensorVersioned* tensor, void** out) {
  if (!tensor || !out)
    fail(Kind::Exchange, kWhere, "a managed tensor", "a null pointer", "report it to the caller");
  if (tensor->version.major != kMajor)
    fail(Kind::Exchange, kWhere, "DLPack version 1",
         "version " + std::to_string(tensor->version.major), "upgrade gpuinterop");
  // On failure nothing is changed: the caller still owns the tensor.
  Checked c = check({tensor->dl_tensor, tensor->flags}, Trust::Never, false, kWhere);
  PyTypeObject* type = result_type(c.dtype);
  Buffer* buffer =
      adopt(c, tensor, {c.device.is_cuda() ? cuda::current_stream(c.device.id) : nullptr});
  auto release = std::exchange(buffer->release, nullptr);  // until the object exists
  Array a = make_array(std::move(c), buffer, PyRef());
  if (a.device.is_cuda()) cuda::order(buffer, cuda::current_stream(a.device.id), kWhere);
  *out = wrap(type, std::move(a));
  buffer->release = release;
  return 0;
}

int borrow_py_object(void* object, DLTensor* out) {
  order_for_consumer(array_argument(object), false);
  // The layout is stored in the Python object, so it is valid as long as the borrowed struct.
  Array& a = unwrap(static_cast<PyObject*>(object));
  if (a.readonly || is_subbyte(a.dtype))
    fail(a.readonly ? Kind::ReadOnly : Kind::Export, kWhere,
         "an array that a struct without flags can describe",
         a.readonly ? "a read-only array" : kDTypes[a.dtype].name,
         "use managed_tensor_from_py_object_no_sync");
  *out = {a.data,
          to_dl(a.device),
          a.layout.ndim(),
          to_dl(a.dtype),
          a.layout.shape(),
          a.layout.strides(),
          0};
  return 0;
}

int current_work_stream(DLDeviceType type, int32_t id, void** out) {
  if (type != kDLCUDA && type != kDLCUDAManaged) {
    *out = nullptr;
    return 0;
  }
  if (!cuda::available()) cuda::require(kWhere);
  if (id < 0 || id >= cuda::device_count())
    fail_with("no_such_device", kWhere, {int64_t{cuda::device_count()}, int64_t{id}});
  *out = cuda::current_stream(id);
  return 0;
}

DLPackExchangeAPI table = {{{kMajor, kMinor}, nullptr}, allocate_tensor,
                           guarded<from_py_object>,     guarded<to_py_object>,
                           guarded<borrow_py_object>,   guarded<current_work_stream>};

// Calls an entry of a foreign table. True: it returned 0. False: a Python error is set.
template <class F>
bool call_entry(F&& entry) {
  try {
    if (entry() == 0) return true;
  } catch (const std::exception& e) {
    PyErr_Format(PyExc_RuntimeError, "a C++ exception: %s", e.what());
  } catch (...) {
    PyErr_SetString(PyExc_RuntimeError, "a C++ exception");
  }
  if (!PyErr_Occurred())
    PyErr_SetString(PyExc_SystemError, "the table refused the object without an exception");
  return false;
}

template <class T>
T* result_of(T* result, const char* nothing) {
  if (!result && !PyErr_Occurred()) PyErr_SetString(PyExc_SystemError, nothing);
  return result;
}

}  // namespace

DLManagedTensorVersioned* exchange::fetch_struct(const DLPackExchangeAPI* api, PyObject* object) {
  DLManagedTensorVersioned* m = nullptr;
  if (!call_entry([&] { return api->managed_tensor_from_py_object_no_sync(object, &m); }))
    return nullptr;
  return result_of(m, "success without a tensor");
}

PyObject* exchange::give_struct(const DLPackExchangeAPI* api, DLManagedTensorVersioned* m) {
  void* made = nullptr;
  const auto outer = std::exchange(watched_struct, m);
  const bool taken = call_entry([&] { return api->managed_tensor_to_py_object_no_sync(m, &made); });
  const bool ended = std::exchange(watched_struct, outer) != m;
  if (taken) return result_of(static_cast<PyObject*>(made), "success without an object");
  ErrorSaver saver;
  if (!ended) call_deleter(m);
  return nullptr;
}

bool exchange::find_work_stream(const DLPackExchangeAPI* api, int device, void** stream) {
  const auto ask = api->current_work_stream;
  const bool found = !ask || call_entry([&] { return ask(kDLCUDA, device, stream); });
  if (!found || !*stream) *stream = CU_STREAM_LEGACY;
  return found;
}

PyObject* exchange_export(PyObject* x, PyTypeObject* type) {
  const char* where = "export_via";
  const Array a = read_array(x, where);  // by value: the table must get the array that was checked
  if (!a.device.is_cuda()) ops::require_values(where, a);
  require_no_fork(a, where);
  const DLPackExchangeAPI* api = foreign_type_of(type).api;
  if (!api || !api->managed_tensor_to_py_object_no_sync)
    fail(Kind::Export, where, "a type with a DLPack C exchange API (torch 2.10 or later)",
         repr_text(reinterpret_cast<PyObject*>(type)), "use the type's own from_dlpack(x)");
  if (a.readonly || a.layout.has_negative_stride() || is_subbyte(a.dtype))
    fail(Kind::Export, where, "an array that every exchange table can take",
         std::string(kDTypes[a.dtype].name) + (a.readonly ? ", read-only, " : ", ") +
             layout_text(a.layout),
         "pass a copy: x.copy()");
  // The other library uses the CUDA runtime, which makes the primary context current if another context or
  // none was. Make it current first, so that the guard restores the caller's context afterwards.
  std::optional<cuda::DeviceGuard> context;
  if (a.device.is_cuda()) context.emplace(a.device.id);
  if (a.device.is_cuda() && a.buffer) {
    void* consumer = nullptr;
    if (!find_work_stream(api, a.device.id, &consumer)) throw PythonError();
    hand_over(a, consumer, where);
  } else {
    settle_for_host(a, where);
  }
  if (PyObject* made = give_struct(api, make_versioned(a, false))) return made;
  if (PyErr_ExceptionMatches(PyExc_BufferError) || PyErr_ExceptionMatches(PyExc_RuntimeError))
    fail(Kind::Export, where, "an array that the target library can hold",
         std::string("dtype ") + kDTypes[a.dtype].name + ": " + take_error_text(),
         "cast the array first, for example to float32");
  throw PythonError();
}

void publish_exchange_api() {
  const PyRef capsule = PyRef::checked(PyCapsule_New(&table, kApiCapsule, nullptr));
  auto* type = reinterpret_cast<PyObject*>(array_type);
  if (PyObject_SetAttr(type, names.api, capsule.get()) < 0 ||
      PyObject_SetAttr(type, names.old_api, capsule.get()) < 0)
    throw PythonError();
}

}  // namespace gpuinterop
