// Import of arrays: checks every field of a foreign struct, on a copy, before taking ownership of its
// memory.
#pragma once

#include "exchange/dlpack.hpp"

namespace gpuinterop::exchange {

// The contents of a struct, in either of its two layouts.
struct Incoming {
  DLTensor tensor;     // a copy; shape and strides still point into the producer's memory
  uint64_t flags = 0;  // 0 for a legacy struct
};

// How far a producer's device pointers are trusted.
enum class Trust : uint8_t {
  Never,   // query the driver for every pointer
  ByPage,  // query once per 2 MiB page, for a C++ allocator of this process
};

// The array over foreign memory that was checked, without its base and buffer: the memory is not owned yet.
struct Checked : Array {
  char* low = nullptr;  // lowest byte touched
  int64_t reach = 0;    // bytes from `low` on
  Memory memory = Memory::Host;
};

// Throws and leaves everything untouched when the struct is malformed or not supported.
Checked check(const Incoming& in, Trust trust, bool may_copy, const char* where);

// The dtype that a struct with these flags describes.
DTypeId checked_dtype(const DLDataType& t, uint64_t flags, const char* where);
// The part of check() that is shared with the dict protocols: layout, dtype, readonly, data and
// device are set; fills the rest and verifies pointer, span and alignment.
void check_memory(Checked* c, Trust trust, bool may_copy, const char* where);

// Extents and strides of foreign origin as a Layout, whose bytes fit 63 bits with elements of `item`
// bytes. `strides` in elements or null for compact.
Layout checked_layout(int32_t ndim, const int64_t* shape, const int64_t* strides, int64_t item,
                      const char* where);
// As above for strides in bytes, which it divides in place.
Layout layout_of_bytes(int32_t ndim, const int64_t* shape, int64_t* strides, int64_t item,
                       const char* where);

// Whether the elements are aligned as sharing requires. An array of check() is, unless the caller allows a copy.
bool is_aligned(const Array& a) noexcept;

// The stream on which the producer uses the memory after gpuinterop has released it.
struct Producer {
  // On release the legacy stream waits for gpuinterop's uses. So does another stream that certainly exists;
  // otherwise the memory is returned after these uses. Null: unknown, and treated as a stream that keeps
  // order with the legacy stream, as most do.
  void* stream = nullptr;
  // True: the stream is unknown and may keep no such order.
  bool elsewhere = false;
  // True: streams of this producer are never destroyed.
  bool alive = false;
};

// ---- exchange/import_release.cpp ----
// Makes the buffer of imported memory.
Buffer* adopt(const Checked& c, DLManagedTensorVersioned* owned, Producer producer);
Buffer* adopt(const Checked& c, DLManagedTensor* owned, Producer producer);
Buffer* adopt_borrowed(const Checked& c, Producer producer);  // kept alive by Array::base
// Adds the buffer of imported CUDA memory to the order of streams: the current stream waits once for
// `producer` (a real handle, or null), and for one of Producer::alive not before the first use.
void join_stream_order(Buffer* b, void* producer, const char* where);
// Called before Python code gets the address: the current stream waits for a producer for which it did not
// wait at the import.
void join_before_use(const Array& a, const char* where);
// Stores the object that keeps a buffer of adopt_borrowed() alive, without a reference.
void remember_base(Buffer* b, PyObject* base) noexcept;

// The array over an adopted buffer; `base` may be null.
Array make_array(Checked&& c, Buffer* stolen, PyRef base);
void fill_array(Array* fresh, Checked&& c, Buffer* stolen, PyRef base);  // in place

}  // namespace gpuinterop::exchange
