// In: what the files of the import share. Each source of memory is one function; exchange_import.cpp
// asks them in order.
#pragma once

#include <Python.h>

#include <string>
#include <utility>

#include "array/error.hpp"
#include "array/gil.hpp"

#include "exchange/import.hpp"
#include "python/foreign_types.hpp"

namespace gpuinterop::exchange {

struct Options {
  const char* where = "from_dlpack";
  bool has_device = false;
  Device device;      // wanted, when has_device
  int copy = -1;      // None, 0 or 1
  bool look = false;  // leave a capsule as it is; the array is for looking at, while the capsule is
  bool realign = false;     // copy what cannot be shared because its elements are not aligned
  bool as_it_lies = false;  // with `realign`: do not, because the array is for looking at alone
  bool only_plain = false;  // import_c_api: false for a tensor that Python would have to judge
  bool may_copy() const noexcept { return copy == 1 || realign; }
};

// What came in. `done` false: the protocol is not there or its producer refused; see `attempts`.
struct Attempts {
  std::string text;  // one line for each protocol that was there and failed
  Kind kind = Kind::ConversionType;
  void add(const char* protocol, const std::string& why) {
    text += std::string("\n    ") + protocol + ": " + why;
  }
};

// Asks the converter of the object's library, in Python, what forbids sharing the object, and throws that
// error. Returns when there is none.
void refuse_foreign(PyObject* obj, const char* where);

// Each returns true with *out set, false to go on with the next protocol, and throws when the answer
// is final (malformed data must not be tried a second time by another door).
bool import_c_api(const ForeignType& p, PyObject* obj, const Options& o, Array* out,
                  Attempts* tried);
bool import_dlpack(const ForeignType& p, PyObject* obj, const Options& o, Array* out,
                   Attempts* tried);
bool import_cuda_interface(PyObject* obj, const Options& o, Array* out, Attempts* tried);
// The array interface and the buffer protocol, both as NumPy reads them.
bool import_by_numpy(const ForeignType& p, PyObject* obj, const Options& o, Array* out,
                     Attempts* tried);
// An ordinary array of cupy.ndarray itself. False: go on with the protocols, whatever the reason.
bool import_cupy(PyObject* obj, const char* where, Array* out);

// An ordinary GPU array of a library without a C protocol, by what its converter's function reads.
// False: Python has to judge it.
bool import_described(const ForeignType& p, PyObject* obj, const char* where, Array* out);

// A plain object (ForeignType::plain), shared. Null, with or without a Python error: Python has to judge
// it, or to say what is wrong.
PyObject* import_plain(ForeignType& p, PyObject* obj);
extern bool converters_changed;  // somebody registered another converter for a plain class

// Takes over a capsule; `owner` is what the array shows as its base. `claimed` is what
// __dlpack_device__ said, or null.
Array consume_capsule(PyObject* capsule, PyObject* owner, const DLDevice* claimed, bool readonly,
                      const Options& o);

// What a capsule describes, for looking at while the capsule is: it owns nothing, and the capsule stays
// unused. `realign`: memory that is not aligned may be looked at too.
Array look_into(PyObject* capsule, const char* where, bool realign);

// ---- python/foreign_memory.cpp ----
// The layout and dtype that Python objects describe; strides in bytes, or None for C order.
Checked read_parts(PyObject* shape, PyObject* strides, PyObject* dtype, const char* where,
                   bool in_elements = false);

inline PyObject* attribute_or_null(PyObject* obj, PyObject* name, bool* failed) {
  PyObject* value = run_python([&] { return PyObject_GetAttr(obj, name); });
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
