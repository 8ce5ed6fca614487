// What the core remembers of a foreign type: its C exchange API, and whether its objects are plain.
// Everything else about a foreign object is judged in Python.
#pragma once

#include <Python.h>

#include <initializer_list>
#include <string>

#include "exchange/dlpack.hpp"

namespace gpuinterop::exchange {

// Interned once, so that keyword names are mostly compared by address.
struct Names {
  PyObject *stream, *max_version, *dl_device, *copy;
  PyObject *dlpack, *dlpack_device, *api, *old_api;
  PyObject *cuda_interface, *array_interface;
  PyObject *device, *where, *dtype, *realign;
};
extern Names names;
void make_names();  // once, when the module is made; throws nanobind::python_error

// Puts the values of keywords where they belong, for functions that are called without a tuple of arguments.
// Throws PythonError for a keyword that is not known.
struct Keyword {
  PyObject* name;
  PyObject** value;
};
void read_keywords(const char* function, PyObject* const* values, PyObject* kwnames,
                   std::initializer_list<Keyword> known);

enum class Family : uint8_t {
  Other,
  Numpy,      // numpy.ndarray itself
  Torch,      // torch.Tensor and its subclasses
  Cupy,       // cupy.ndarray itself
  Jax,        // immutable, though its capsules cannot say so
  Described,  // has no C protocol: `reader`, a function of its converter, reads its memory
  Protocols,  // of a converter: whatever implements one
};

struct ForeignType {
  PyTypeObject* type;  // not owned: a weak reference removes the entry when the type goes
  bool own = false;    // a class of this library
  const DLPackExchangeAPI* api = nullptr;  // null: none that can be used for import
  Family family = Family::Other;
  // numpy.ndarray, torch.Tensor, torch.nn.Parameter or cupy.ndarray itself: its ordinary objects are
  // shared without a converter.
  bool plain = false;
  // No protocol reports what forbids sharing such objects, so Python judges each one first.
  bool judged = false;
  // Described: the function (obj) -> (shape, strides, dtype, address, device or -1, stream).
  PyObject* reader = nullptr;
  // torch.nn.Parameter: shared through an alias.
  bool parameter = false;
  PyObject* weakref = nullptr;
};

extern ForeignType* recent_foreign_types[64];
ForeignType& find_foreign_type(PyTypeObject* type);  // throws PythonError
inline ForeignType& foreign_type_of(PyTypeObject* type) {
  ForeignType* p = recent_foreign_types[reinterpret_cast<uintptr_t>(type) >> 4 & 63];
  return p && p->type == type ? *p : find_foreign_type(type);
}

// The table that a type publishes, in a major version we know; null when there is none.
const DLPackExchangeAPI* find_api(PyTypeObject* type);

// ---- python/exchange_c_api.cpp ----
// The calls of a foreign table. A null or false answer has set a Python error; a C++ exception is one too.
// Who owns the struct after it:
//   fetch_struct: the caller, if there is a struct.
//   give_struct: the consumer, if its function answered 0, with or without an object. After any other answer
//     the struct is ended here, unless the consumer has done so: torch answers -1 when it refuses the struct,
//     but also when it has taken it and then lacks the memory for its object.
DLManagedTensorVersioned* fetch_struct(const DLPackExchangeAPI* api, PyObject* object);
PyObject* give_struct(const DLPackExchangeAPI* api, DLManagedTensorVersioned* m);
// The stream on which the library works on a CUDA device: the legacy one if it names none.
bool find_work_stream(const DLPackExchangeAPI* api, int device, void** stream);

// ---- python/exchange_torch.cpp ----
void describe_torch(ForeignType* p, PyObject* tensor_class);
// True when the tensor behind an exported struct is known to be outside autograd, with no negation or
// conjugation pending. False: Python judges the tensor.
bool is_plain_torch(const ForeignType& p, const DLManagedTensorVersioned* m) noexcept;
// False for torch's integers of 1 to 7 bits, which it exports as if they were of 8.
bool has_whole_bytes(PyObject* tensor);
// Whether torch's current stream, given by its handle, lives as long as the process: torch's own do. One
// from outside (ExternalStream) is its maker's to destroy, also while torch's memory is in use here.
bool torch_keeps_stream(int device, void* stream);

// ---- python/exchange_cupy.cpp ----
bool describe_cupy(PyTypeObject* type);  // true for cupy.ndarray itself

// ---- python/foreign_types.cpp ----
// Null if it is missing; any other error is thrown.
PyRef optional_attribute(PyObject* o, PyObject* name);
PyRef optional_attribute(PyObject* o, const char* name);

// Takes the pending Python error as "TypeError: text".
std::string take_error_text();

}  // namespace gpuinterop::exchange
