// Arrays in: every field of a foreign struct is checked on a copy before its memory is owned.
#pragma once

#include "exchange/dlpack.hpp"

namespace gpuinterop::exchange {

// What a struct says, in either of its two layouts.
struct Incoming {
  DLTensor tensor;     // a copy; shape and strides still point into the producer's memory
  uint64_t flags = 0;  // 0 for a legacy struct
};

// How far a producer's device pointers are believed.
enum class Trust : uint8_t {
  Never,   // ask the driver about every pointer
  ByPage,  // ask once per 2 MiB page: an allocator that lives in this process as C++ code
};

// A checked description of foreign memory, not yet owned.
struct Checked {
  Layout layout;
  char* data = nullptr;  // element [0,...,0]; null when empty
  char* low = nullptr;   // lowest byte touched
  int64_t nbytes = 0;    // bytes from `low` on
  Device device;
  Memory memory = Memory::Host;
  DTypeId dtype = 0;
  bool readonly = false;
  bool copied = false;
  bool misaligned = false;  // only ever true when the caller said that a copy is welcome
};

// Throws and leaves everything untouched when the struct is malformed or not supported.
Checked check(const Incoming& in, Trust trust, bool may_copy, const char* where);

// The part of check() that is shared with the dict protocols: layout, dtype, readonly, data and
// device are set; fills the rest and verifies pointer, span and alignment.
void check_memory(Checked* c, Trust trust, bool may_copy, const char* where);

// Extents and strides of foreign origin as a Layout, whose bytes fit 63 bits with elements of `item`
// bytes. `strides` in elements or null for compact.
Layout checked_layout(int32_t ndim, const int64_t* shape, const int64_t* strides, int64_t item,
                      const char* where);
// The same of strides in bytes, which it divides in place.
Layout layout_of_bytes(int32_t ndim, const int64_t* shape, int64_t* strides, int64_t item,
                       const char* where);

// Whether the elements lie where sharing needs them; see Checked::misaligned.
bool is_aligned(const Array& a) noexcept;

// Where the producer will use the memory next, once we have let go of it.
struct Producer {
  // On release the legacy stream is made to wait for our own uses, and so is another that is alive
  // for certain. Else the memory goes back when the uses are over. Null: not known, and taken for
  // one that keeps order with the legacy stream, as most do.
  void* stream = nullptr;
  // True: it is not known, and may well keep no such order.
  bool elsewhere = false;
  // True: streams of this producer are never destroyed.
  bool alive = false;
};

// ---- exchange/import_release.cpp ----
// Makes the buffer of imported memory.
Buffer* adopt(const Checked& c, DLManagedTensorVersioned* owned, Producer producer);
Buffer* adopt(const Checked& c, DLManagedTensor* owned, Producer producer);
Buffer* adopt_borrowed(const Checked& c, Producer producer);  // kept alive by Array::base
// The buffer of imported CUDA memory takes its place in the order of streams: our current stream
// waits for `producer` (a real handle, or null), once; for one of Producer::alive at the first use.
void join_stream_order(Buffer* b, void* producer, const char* where);
// Before Python code gets the address: our current stream waits for a producer that it has not waited for
// at the import.
void join_before_use(const Array& a, const char* where);
// Tells a buffer of adopt_borrowed() who keeps it alive; not counted.
void remember_base(Buffer* b, PyObject* base) noexcept;

// The array over an adopted buffer; `base` may be null.
Array make_array(Checked&& c, Buffer* stolen, PyRef base);
void fill_array(Array* fresh, Checked&& c, Buffer* stolen, PyRef base);  // in place

}  // namespace gpuinterop::exchange
