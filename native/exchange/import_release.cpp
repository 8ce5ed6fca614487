// Release of imported memory. The producer may use it again at once, so its stream must wait for the uses of
// gpuinterop and of the consumers to which gpuinterop exported the memory.
#include <new>

#include "devices/cuda.hpp"
#include "devices/deferred_release.hpp"
#include "devices/device_state.hpp"
#include "devices/stream.hpp"
#include "exchange/export_structs.hpp"
#include "exchange/import.hpp"
#include "interpreter/gil.hpp"

namespace gpuinterop::exchange {

namespace {

template <class Managed>
void end_now(void* managed) noexcept {
  call_deleter(static_cast<Managed*>(managed));
}

// As above when a deferred release runs, between two operations of unrelated Python code.
template <class Managed>
void end_later(void* managed) noexcept {
  ErrorSaver saver;
  end_now<Managed>(managed);
}

void drop_object(void* object) noexcept {
  ErrorSaver saver;
  Py_DECREF(static_cast<PyObject*>(object));
}

// Handle 2 is another stream in every thread; the legacy stream keeps order with all of them.
Producer without_thread_handle(Producer p) noexcept {
  if (p.stream == CU_STREAM_PER_THREAD) p.stream = CU_STREAM_LEGACY;
  return p;
}

// `producer` waits for all work that gpuinterop and its consumers have queued. False when a capture forbids
// it.
bool order_back(cuda::DeviceState& d, const Buffer& b, CUstream producer, uint32_t consumers) {
  try {
    const CUstream last = cuda::last_use_stream(b, "release");
    cuda::wait(d.ordinal, producer, last, "release");
    if (consumers & kUsedOnLegacy) cuda::wait(d.ordinal, producer, CU_STREAM_LEGACY, "release");
  } catch (...) {
    return false;
  }
  return !(consumers & kUsedElsewhere);
}

// Calls finish(what), or later(what) with the GIL if the producer's stream cannot wait. A stream that may be
// destroyed is only compared, and its handle never reaches the driver.
void release_in_order(Buffer* b, cuda::Finish finish, cuda::Finish later, void* what) noexcept {
  auto named = static_cast<CUstream>(b->producer);
  cuda::DeviceState* d = cuda::started_device(b->device.id);
  const uint32_t consumers = b->foreign_use.load(std::memory_order_relaxed);
  if (!d || cuda::driver_is_gone() || (!b->stream && !consumers)) return finish(what);
  // Exported without a use by gpuinterop.
  if (!b->stream) b->stream = last_stream(*b) ? last_stream(*b) : CU_STREAM_LEGACY;
  const CUstream target = named ? named : CU_STREAM_LEGACY;
  if (b->stream == target && b->stream != CU_STREAM_PER_THREAD && !b->producer_elsewhere &&
      !(consumers & (target == CU_STREAM_LEGACY ? kUsedElsewhere : ~0u))) [[likely]]
    return finish(what);
  const bool alive = !named || named == CU_STREAM_LEGACY || b->producer_alive;
  const bool known = named && alive && !b->producer_elsewhere;
  // If it was used on the legacy stream and on another one, wait for everything.
  const bool everything =
      consumers & kUsedElsewhere || (consumers && b->stream != CU_STREAM_LEGACY);
  // Query before order_back(), because that queues work on the same stream.
  if (!known && !everything && cuda::is_done(*d, *b)) return finish(what);
  if (alive) {
    bool ordered = false;
    try {
      ordered = order_back(*d, *b, target, consumers);
    } catch (...) {  // no stream to wait with
    }
    if (ordered && (known || (b->stream == CU_STREAM_LEGACY && !b->producer_elsewhere)))
      return finish(what);
  }
  cuda::release_when_done(*d, *b, everything, finish, later, what);
}

template <class Managed>
void release_host(Buffer* b) noexcept {
  end_now<Managed>(b->context);
}

template <class Managed>
void release_cuda(Buffer* b) noexcept {
  release_in_order(b, end_now<Managed>, end_later<Managed>, b->context);
}

void nothing(void*) noexcept {}

// Whether the object still reports this stream. An object that holds the stream alive does so, but some hold
// none and report the stream that is current (CuPy), so read the attribute again.
bool still_names(PyObject* owner, const void* stream) noexcept {
  ErrorSaver saver;
  PyRef dict = PyRef::steal(PyObject_GetAttrString(owner, "__cuda_array_interface__"));
  PyObject* named =
      dict && PyDict_Check(dict.get()) ? PyDict_GetItemString(dict.get(), "stream") : nullptr;
  return named && PyLong_Check(named) && PyLong_AsVoidPtr(named) == stream;
}

// The context is the owner's Python object, without a reference: the holder of the buffer also holds the
// owner, and releases it right after the buffer. A deferred release holds the owner longer.
void release_borrowed(Buffer* b) noexcept {
  auto* base = static_cast<PyObject*>(holds_gil() ? b->context : nullptr);
  if (!base) return release_in_order(b, nothing, nothing, nullptr);
  Py_INCREF(base);
  if (b->producer && b->producer != CU_STREAM_LEGACY && b->producer != b->stream)
    b->producer_alive = still_names(base, b->producer);
  release_in_order(b, drop_object, drop_object, base);
}

Buffer* describe(const Checked& c) {
  auto* b = new Buffer;
  b->ptr = c.low;
  b->nbytes = c.reach;
  b->device = c.device;
  b->memory = c.memory;
  b->readonly = c.readonly;
  return b;
}

Buffer* with_producer(const Checked& c, void* context, Producer producer,
                      void (*release)(Buffer*) noexcept) {
  cuda::run_completed_releases();
  Buffer* b = describe(c);
  b->context = context;
  producer = without_thread_handle(producer);
  b->producer = producer.stream;
  // A producer reuses memory in the order of the stream that it was allocated on. Unless that is a default
  // stream, it may differ from the producer's current one.
  b->producer_elsewhere =
      producer.elsewhere ||
      (b->producer && !cuda::is_default(static_cast<CUstream>(producer.stream)));
  b->producer_alive = producer.alive;
  b->release = release;
  return b;
}

template <class Managed>
Buffer* adopt_managed(const Checked& c, Managed* owned, Producer producer) {
  if (c.device.is_cuda()) return with_producer(c, owned, producer, release_cuda<Managed>);
  Buffer* b = describe(c);
  b->context = owned;
  b->release = release_host<Managed>;
  return b;
}

}  // namespace

Buffer* adopt(const Checked& c, DLManagedTensorVersioned* owned, Producer producer) {
  return adopt_managed(c, owned, producer);
}
Buffer* adopt(const Checked& c, DLManagedTensor* owned, Producer producer) {
  return adopt_managed(c, owned, producer);
}
Buffer* adopt_borrowed(const Checked& c, Producer producer) {
  Buffer* b =
      c.device.is_cuda() ? with_producer(c, nullptr, producer, release_borrowed) : describe(c);
  b->needs_base = true;
  return b;
}
void join_stream_order(Buffer* b, void* producer, const char* where) {
  if (!b->device.is_cuda()) return;
  const auto producer_stream = static_cast<CUstream>(producer);
  CUstream stream = cuda::current_stream(b->device.id);
  const bool wait = producer && producer != stream;
  // The first use waits for a process-lifetime stream, and memory that gpuinterop never uses needs no event,
  // neither now nor on release.
  if (wait && b->producer_alive && producer == b->producer && !cuda::is_default(producer_stream) &&
      !cuda::is_capturing(producer_stream) && !cuda::is_capturing(stream))
    return;
  if (wait) cuda::wait(b->device.id, stream, producer_stream, where);
  // This is the first use, so there is no other stream to wait for.
  if (stream == CU_STREAM_PER_THREAD)
    cuda::order(b, stream, where);
  else
    b->stream = stream;
}
void join_before_use(const Array& a, const char* where) {
  Buffer* b = a.buffer.get();
  if (b && !b->stream && last_stream(*b)) cuda::order(b, cuda::current_stream(b->device.id), where);
}
void remember_base(Buffer* b, PyObject* base) noexcept {
  if (b->release == release_borrowed) b->context = base;
}

}  // namespace gpuinterop::exchange
