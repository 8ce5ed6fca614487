// Arrays out: managed tensors that keep the memory, not the Python object, alive.
#pragma once

#include "exchange/dlpack.hpp"

namespace gpuinterop::exchange {

// A struct for one consumer, in one allocation with its shape and strides. The caller owns it and
// ends it through its deleter, which may run on any thread and needs the GIL only when the memory
// is kept by a Python object (Buffer::needs_base). Holds the GIL on entry, because it may take a
// reference to that object. No ordering of streams is done here.
DLManagedTensorVersioned* make_versioned(const Array& a, bool copied, uint32_t minor = kMinor);
// A struct that this thread gives away: null again once its deleter has run.
extern thread_local const void* watched_struct;
// Kind::ReadOnly error when the old struct cannot carry the array's flag. Neither can it say that
// elements of less than a byte are padded, nor can DLPack 1.0: the caller refuses them.
DLManagedTensor* make_legacy(const Array& a, const char* where);

// What is handed out for reading only: also what repeats elements by a stride of 0, in which a write
// to one element would change others. The struct of the time before flags cannot say so and is given
// all the same: refusing it would take broadcasts away from consumers that only read.
inline bool is_readonly(const Array& a) noexcept {
  return a.readonly || a.layout.has_zero_stride();
}

// CUDA memory means nothing in a process that was forked after CUDA's start: Kind::Cuda error.
void require_no_fork(const Array& a, const char* where);

void note_foreign_use(const Array& a, uint32_t bits) noexcept;  // of Buffer::foreign_use

// A stream that a peer named belongs to the device's primary context, or Kind::Stream.
void check_stream(Device device, void* stream, const char* where);
// Everything queued on the array becomes visible to `consumer` (a real handle), without a host
// synchronisation, and the buffer remembers that a foreign stream may use it.
void hand_over(const Array& a, void* consumer, const char* where);
// The array goes to a consumer that runs on the host: its memory must be quiet. Blocks only for
// memory that a device may still be writing; Kind::Capture error instead of blocking in a capture.
void settle_for_host(const Array& a, const char* where);

// Copies for a caller who asked for one (copy=True, another device); watched by gpuinterop.copy_tracking.
Array copy_for(const Array& a, Device target, const char* where);

}  // namespace gpuinterop::exchange
