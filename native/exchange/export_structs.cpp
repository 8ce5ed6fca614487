#include "exchange/export_structs.hpp"

#include <cstdlib>
#include <cstring>
#include <new>

#include "devices/cuda.hpp"
#include "devices/device_state.hpp"
#include "devices/stream.hpp"
#include "interpreter/error.hpp"

namespace gpuinterop::exchange {

thread_local const void* watched_struct = nullptr;

namespace {

// The struct that a consumer holds. Shape and strides follow it in the same block.
template <class Managed>
struct Export {
  Managed managed;
  Loan loan;
  BufferRef buffer;
  PyRef base;  // only for memory that a Python object keeps alive
};

// Called on any thread, with or without the GIL, a pending exception or a running interpreter.
template <class Managed>
void drop(Managed* managed) noexcept {
  if (managed == watched_struct) watched_struct = nullptr;
  auto* self = static_cast<Export<Managed>*>(managed->manager_ctx);
  give_back(self->loan);
  if (self->base) {
    GilForCleanup gil;
    // Python objects can no longer be released: leak the object, its memory and this block together.
    if (!gil.held()) return;
    ErrorSaver saver;
    self->buffer.reset();
    self->base = PyRef();
  }
  self->~Export<Managed>();
  std::free(self);
}

template <class Managed>
Managed* make(const Array& a, bool lent) {
  const int ndim = a.layout.ndim();
  const size_t dims = sizeof(int64_t) * size_t(ndim);
  void* block = std::malloc(sizeof(Export<Managed>) + 2 * dims);
  if (!block) throw std::bad_alloc();
  auto* self = new (block) Export<Managed>;
  self->buffer = a.buffer;
  if (a.buffer && a.buffer->needs_base) self->base = a.base;
  auto* shape = reinterpret_cast<int64_t*>(static_cast<char*>(block) + sizeof(Export<Managed>));
  std::memcpy(shape, a.layout.shape(), dims);
  // A Layout's strides are canonical, so dimensions of length 1 and empty arrays need no correction.
  std::memcpy(shape + ndim, a.layout.strides(), dims);
  DLTensor& t = self->managed.dl_tensor;
  t.data = a.data;
  t.device = to_dl(a.device);
  t.ndim = ndim;
  t.dtype = to_dl(a.dtype);
  t.shape = shape;
  t.strides = shape + ndim;
  t.byte_offset = 0;
  self->managed.manager_ctx = self;
  self->managed.deleter = [](Managed* m) { drop(m); };
  if (lent) lend(self->loan, a);
  return &self->managed;
}

}  // namespace

std::string device_text(int32_t type, int32_t id) {
  if (type == kDLCPU || type == kDLCUDA)
    return device_text(Device{static_cast<DeviceType>(type), id});
  return "device " + std::to_string(id) + " of DLPack type " + std::to_string(type);
}

DLManagedTensorVersioned* make_versioned(const Array& a, bool copied, uint32_t minor, bool lent) {
  DLManagedTensorVersioned* m = make<DLManagedTensorVersioned>(a, lent);
  m->version = {kMajor, minor};
  m->flags = (is_readonly(a) ? DLPACK_FLAG_BITMASK_READ_ONLY : 0) |
             (copied ? DLPACK_FLAG_BITMASK_IS_COPIED : 0) |
             (is_subbyte(a.dtype) ? DLPACK_FLAG_BITMASK_IS_SUBBYTE_TYPE_PADDED : 0);
  return m;
}

DLManagedTensor* make_legacy(const Array& a, const char* where, bool lent) {
  if (a.readonly)
    fail(Kind::ReadOnly, where, "a consumer that understands read-only data (DLPack 1.0 or later)",
         "a read-only array and a consumer that requested the legacy DLPack struct",
         "pass a copy: x.copy()");
  return make<DLManagedTensor>(a, lent);
}

void require_no_fork(const Array& a, const char* where) {
  if (a.device.is_cuda() && cuda::forked()) cuda::require(where);
}

void check_stream(Device device, void* stream, const char* where) {
  // The default streams exist in every context.
  if (stream == CU_STREAM_LEGACY || stream == CU_STREAM_PER_THREAD) return;
  cuda::DeviceState& d = cuda::device_state(device.id, where);
  cuda::require_context(d, where);
  cuda::check_address(static_cast<CUstream>(stream), where);
  CUcontext context = nullptr;
  const CUresult code = cuda::driver().StreamGetCtx(static_cast<CUstream>(stream), &context);
  if (code == CUDA_SUCCESS && context == d.primary) return;
  fail(Kind::Stream, where,
       "a live stream of the primary context of " + device_text(kDLCUDA, device.id),
       code == CUDA_SUCCESS ? "a stream of another device or context" : cuda::describe(code),
       "pass a stream of the array's own device");
}

namespace {

// Whether a stream that receives the array must wait for another one.
bool has_to_wait(const Array& a, void* consumer) noexcept {
  const void* last = a.layout.size() ? last_stream(*a.buffer.get()) : nullptr;
  return last && (last != consumer || consumer == CU_STREAM_PER_THREAD);
}

}  // namespace

void hand_over(const Array& a, void* consumer, const char* where) {
  Buffer* b = a.buffer.get();
  if (!b || !a.device.is_cuda()) return;
  if (has_to_wait(a, consumer))
    cuda::wait(a.device.id, static_cast<CUstream>(consumer), cuda::last_use_stream(*b, where),
               where);
  // The stream on which the producer continues keeps its own order. It counts as used there, because the
  // producer may have allocated the memory on another stream.
  if (b->producer_alive && consumer == b->producer) {
    if (!b->stream) b->stream = consumer;
    return;
  }
  if (consumer == CU_STREAM_LEGACY)
    note_foreign_use(a, kUsedOnLegacy);
  else
    note_foreign_use(a,
                     last_stream(*b) == consumer ? kUsedElsewhere : kUsedElsewhere | kUsedBeside);
}

void note_foreign_use(const Array& a, uint32_t bits) noexcept {
  // The bits are nearly always set already, and a plain load is cheaper than an atomic write.
  if (a.buffer && (a.buffer->foreign_use.load(std::memory_order_relaxed) & bits) != bits)
    a.buffer->foreign_use.fetch_or(bits, std::memory_order_relaxed);
}

void settle_for_host(const Array& a, const char* where) {
  const Buffer* b = a.buffer.get();
  if (!b || !b->stream) return;
  const cuda::DeviceGuard context(b->device.id);
  const CUstream stream = cuda::last_use_stream(*b, where);
  if (cuda::is_capturing(stream))
    fail(Kind::Capture, where, "an export to the host outside a graph capture",
         "an array whose last use is on a capturing stream",
         "export it before or after the capture");
  cuda::synchronize_stream(b->device.id, stream, where);
}

}  // namespace gpuinterop::exchange
