// The array: a Layout over a Buffer. One C++ value inside every Python array object.
#pragma once

#include <Python.h>

#include <string>

#include "arrays/dtype.hpp"
#include "arrays/layout.hpp"
#include "devices/buffer.hpp"
#include "devices/device_objects.hpp"
#include "interpreter/error.hpp"
#include "interpreter/references.hpp"

namespace gpuinterop {

// Calls forget(type) before the type is destroyed. Throws PythonError.
void before_destruction(PyTypeObject* type, void (*forget)(PyTypeObject*));

struct Array {
  Layout layout;
  char* data = nullptr;  // address of element [0,...,0]; null when empty
  // Null: this object is the root owner. For a view of an owner: the root owner's Python object.
  // For foreign memory, and views of it: the foreign object. Because of it an Array value may only
  // be copied and dropped with the GIL held; code without the GIL holds the BufferRef instead.
  PyRef base;
  // Declared after base, so that it is destroyed first: the release of imported memory may still need
  // the stream of its owner.
  BufferRef buffer;  // null for an empty array without memory
  Device device;
  DTypeId dtype = kFloat32;
  bool readonly = false;
  bool is_copied =
      false;  // DLPack's flag: this array is the only owner of a copy that was made for it

  int64_t itemsize() const noexcept { return itemsize_of(dtype); }
  int64_t nbytes() const noexcept { return layout.size() * itemsize(); }  // wrap(): it fits
  // The addresses of its bytes: [first, last).
  std::pair<const char*, const char*> bytes(const char* where) const {
    const auto [lo, hi] = layout.span(where);
    return {data + lo * itemsize(), data + (hi + 1) * itemsize()};
  }
};

// The alignment of an element in bytes. No other code has a rule for it. NumPy aligns complex numbers to
// their parts; device code loads a complex number at once.
uint64_t alignment_of(DTypeId dtype, Device device) noexcept;

// Whether the bytes of such an array, and those its strides span, fit 63 bits; NumPy has the same limit.
bool bytes_fit(const Layout& l, int64_t item) noexcept;
void require_bytes(const Layout& l, int64_t item, const char* where);

// ---- arrays/type.cpp -------------------------------------------------------------------
// The Python type gpuinterop._core.Array. Borrowed; set when the module is created.
extern PyTypeObject* array_type;
inline bool is_array(PyObject* o) noexcept { return PyObject_TypeCheck(o, array_type); }
Array& unwrap(PyObject* o) noexcept;  // o must be an Array (or subclass) instance
// Raises Kind::Bounds while Theano's low-level setters have moved the object outside its memory.
// Entry points that read or write elements call it first; unwrap() alone returns the last valid state.
void require_valid_layout(PyObject* o);
// New object of `type` (Array or a Python subclass; __init__ is not run). Throws.
PyObject* wrap(PyTypeObject* type, Array&& a);

// ---- arrays/array.cpp --------------------------------------------------------------------------
// A view of `owner` (an Array object): base, buffer, device, dtype and flags as for a view; the
// caller sets layout and data.
Array view_of(PyObject* owner);
// Called for each new array with memory; null unless this thread records. The recorder sets it.
using NoteMade = void (*)(const Array&);
extern constinit thread_local NoteMade note_made [[gnu::tls_model("initial-exec")]];
// A fresh C-ordered array that owns its memory.
Array make_empty(Device device, DTypeId dtype, int ndim, const int64_t* shape, const char* where);
// As above, of the shape and dtype of `a`.
Array empty_like(const Array& a, Device device, const char* where);
// As above, with the given dense layout. `zeroed`: of zeros, in host memory only.
Array make_empty(Device device, DTypeId dtype, Layout layout, const char* where,
                 bool zeroed = false);

// ---- index/getitem.cpp --------------------------------------------------------------------
// target[...] = value for every assignable value: arrays, scalars, foreign arrays, lists.
// `target_type` decides the dtype rule (CudaNdarray refuses casts). Throws.
void assign(const Array& target, PyTypeObject* target_type, PyObject* value, const char* where);

// ---- arrays/functions.cpp ----------------------------------------------------------------
// Throw. The objects are borrowed.
PyObject* dtype_object(DTypeId id);

// ---- elementwise/copy.cpp ---------------------------------------------------------------------------
// dst[...] = src for equal shapes, any strides, any devices; overlap is safe. On CUDA it is queued on the
// current stream; from or to the host it blocks unless `async`. May drop the GIL.
void copy_elements(const Array& dst, const Array& src, const char* where, bool async = false);
// A C-contiguous copy; reported to copy scopes.
Array copy_for(const Array& a, Device target, const char* where);
// Whether their dtypes allow that: equal ones, or, on one device, two that the core casts.
bool copy_takes_dtypes(const Array& dst, const Array& src);
// The same in host memory, or by a kernel on one GPU, without a report and without waiting; they do not overlap.
// May drop the GIL.
void copy_unreported(const Array& dst, const Array& src, const char* where);
// Reports to this thread's active copy scopes that bytes are about to move. way: "host_to_device",
// "device_to_host", "peer", "copy" (on one device), "host" (host memory). May throw PythonError:
// a policy such as no_copies() refuses. `watching` is an ordinary counter, so idle cost is one load.
extern std::atomic<int> watching;
// While such an object exists, this thread moves a result or Python scalars. Copy scopes do not count these
// copies; transfers between host and device are still logged.
class Uncounted {
 public:
  explicit Uncounted(bool on) noexcept;
  ~Uncounted();
  Uncounted(const Uncounted&) = delete;
  Uncounted& operator=(const Uncounted&) = delete;

 private:
  bool before_;
};
void note_copy_slow(const char* way, int64_t nbytes, const char* where);
inline void note_copy(const char* way, int64_t nbytes, const char* where) {
  if (watching.load(std::memory_order_relaxed)) note_copy_slow(way, nbytes, where);
}
// Fills with the itemsize bytes at `item`.
void fill_elements(const Array& dst, const void* item, const char* where);

}  // namespace gpuinterop
