// Shared by the files of the import. Each source of memory is one function; import_any.cpp calls them
// in order.
#pragma once

#include <Python.h>

#include <string>
#include <utility>

#include "interpreter/error.hpp"
#include "interpreter/gil.hpp"

#include "exchange/foreign_types.hpp"
#include "exchange/import.hpp"

namespace gpuinterop::exchange {

struct Options {
  const char* where = "from_dlpack";
  bool has_device = false;
  Device device;  // requested, if has_device
  int copy = -1;  // None, 0 or 1
  bool look =
      false;  // do not consume a capsule; the array is a view that is valid as long as the capsule
  bool realign = false;  // copy what cannot be shared because its elements are not aligned
  bool allow_unaligned =
      false;  // with `realign`: share unaligned memory instead, for an array that is only inspected
  bool only_ordinary = false;   // import_c_api: false for a tensor that Python would have to check
  mutable bool judged = false;  // the object's converter has been called for its error
  bool may_copy() const noexcept { return copy == 1 || realign; }
};

// The protocols that the object has but that failed.
struct Attempts {
  std::string text;  // one line for each protocol that the object has and that failed
  Kind kind = Kind::ConversionType;
  void add(const char* protocol, const std::string& why) {
    text += std::string("\n    ") + protocol + ": " + why;
  }
};

// Notes the error that the producer raised, so that other protocols can be tried; false. Throws an exception that is
// not the producer's refusal: interrupts and MemoryError.
bool note_refusal(const char* protocol, Attempts* tried);

// Asks the converter of the object's library in Python, once, whether the object must not be shared. True: its
// error is set.
bool is_refused(PyObject* obj, const Options& o);

// Each returns true with *out set, or false to continue with the next protocol. It throws if the failure is
// final: malformed data must not be read again by another protocol.
bool import_c_api(const ForeignType& p, PyObject* obj, const Options& o, Array* out,
                  Attempts* tried);
bool import_dlpack(const ForeignType& p, PyObject* obj, const Options& o, Array* out,
                   Attempts* tried);
bool import_cuda_interface(PyObject* obj, const Options& o, Array* out, Attempts* tried);
// The array interface and the buffer protocol, both as NumPy reads them.
bool import_by_numpy(const ForeignType& p, PyObject* obj, const Options& o, Array* out,
                     Attempts* tried);
// An ordinary array of class cupy.ndarray itself. False, for any reason: continue with the protocols.
bool import_cupy(PyObject* obj, const char* where, Array* out);

// An ordinary GPU array of a library without a C protocol, by the attributes that its converter's function
// reads. False: Python must check it.
bool import_described(const ForeignType& p, PyObject* obj, const char* where, Array* out);

// An array of class `cls` over the memory of an object; null: of the class for the dtype. Throws.
PyObject* import_any(PyTypeObject* cls, PyObject* obj, const Options& o);
// An ordinary object (ForeignType::ordinary), shared. Null: Python must check it, and raises the error if there is one.
// Of the class for the dtype, or, unless `narrow`, a GpuArray.
PyObject* import_ordinary(ForeignType& p, PyObject* obj, bool narrow = true);
extern bool converters_changed;  // another converter was registered for an ordinary class
void forget_callers();           // the rules of the modules that called __dlpack__

// Consumes a capsule. `owner` becomes the base of the array. `claimed` is the result of __dlpack_device__,
// or null.
Array consume_capsule(PyObject* capsule, PyObject* owner, const DLDevice* claimed, bool readonly,
                      const Options& o);

// A view of the memory that a capsule describes, valid as long as the capsule: it owns nothing, and the
// capsule is not consumed. `realign`: unaligned memory is accepted too.
Array look_into(PyObject* capsule, const char* where, bool realign);

// ---- exchange/foreign_memory.cpp ----
// The layout and dtype that Python objects describe; strides in bytes, or None for C order.
Checked read_parts(PyObject* shape, PyObject* strides, PyObject* dtype, const char* where,
                   bool in_elements = false);
// An array over memory that `base` keeps alive. `stream` is that of the producer; null: its work is ordered with
// the current stream.
Array array_over(Checked&& c, PyObject* base, void* stream, const char* where);

inline PyObject* attribute_or_null(PyObject* obj, PyObject* name, bool* failed) {
  PyObject* value = PyObject_GetAttr(obj, name);
  *failed = false;
  if (!value) {
    if (PyErr_ExceptionMatches(PyExc_AttributeError))
      PyErr_Clear();
    else
      *failed = true;
  }
  return value;
}

}  // namespace gpuinterop::exchange
