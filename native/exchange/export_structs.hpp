// Export of arrays: managed tensors that keep the memory, not the Python object, alive.
#pragma once

#include "arrays/loans.hpp"
#include "exchange/dlpack.hpp"

namespace gpuinterop::exchange {

// A struct for one consumer, in one allocation with its shape and strides. The caller owns it and must call
// its deleter, which may run on any thread and needs the GIL only if a Python object keeps the memory alive
// (Buffer::needs_base). The caller holds the GIL, because make_versioned() may take a reference to that
// object. Streams are not ordered here. With `lent`, the struct is a loan.
DLManagedTensorVersioned* make_versioned(const Array& a, bool copied, uint32_t minor = kMinor,
                                         bool lent = false);
// A struct that this thread passes to a consumer. Its deleter sets the pointer to null.
extern thread_local const void* watched_struct;
// Kind::ReadOnly error if the legacy struct cannot carry the array's flag. Neither it nor DLPack 1.0 can
// mark padded elements of less than a byte, so the caller refuses these.
DLManagedTensor* make_legacy(const Array& a, const char* where, bool lent = false);

// Arrays that are exported as read-only. A stride of 0 repeats elements, so a write to one would change
// others. The legacy struct has no such flag, but carries these arrays too: refusing would take broadcasts
// away from consumers that only read.
inline bool is_readonly(const Array& a) noexcept {
  return a.readonly || a.layout.has_zero_stride();
}

// CUDA memory is unusable in a process that was forked after CUDA's start: Kind::Cuda error.
void require_no_fork(const Array& a, const char* where);

void note_foreign_use(const Array& a, uint32_t bits) noexcept;  // of Buffer::foreign_use

// Kind::Stream error unless a consumer's stream belongs to the device's primary context.
void check_stream(Device device, void* stream, const char* where);
// Makes `consumer` (a real handle) wait for all work queued on the array, without host synchronisation.
// Records in the buffer that a foreign stream may use it.
void hand_over(const Array& a, void* consumer, const char* where);
// Waits until the memory can be read on the host. Blocks only for memory that a device may still be writing;
// raises Kind::Capture instead of blocking in a capture.
void settle_for_host(const Array& a, const char* where);

}  // namespace gpuinterop::exchange
