// Data that the core keeps for a foreign type: its C exchange API, and whether its objects are ordinary. Python
// checks everything else.
#pragma once

#include <nanobind/nanobind.h>

#include <string>

#include "exchange/dlpack.hpp"

namespace gpuinterop::exchange {

// Interned once, so that keyword names are mostly compared by address.
#define GPUINTEROP_NAMES(X)                     \
  X(stream, "stream")                           \
  X(max_version, "max_version")                 \
  X(dlpack, "__dlpack__")                       \
  X(dlpack_device, "__dlpack_device__")         \
  X(api, "__dlpack_c_exchange_api__")           \
  X(old_api, "__c_dlpack_exchange_api__")       \
  X(cuda_interface, "__cuda_array_interface__") \
  X(array_interface, "__array_interface__")     \
  X(dtype, "dtype")                             \
  X(requires_grad, "requires_grad")             \
  X(is_neg, "is_neg")                           \
  X(is_conj, "is_conj")
struct Names {
#define X(name, text) PyObject* name;
  GPUINTEROP_NAMES(X)
#undef X
};
extern Names names;
void make_names();  // once, when the module is made; throws nanobind::python_error

enum class Family : uint8_t {
  Other,
  Numpy,      // numpy.ndarray itself
  Torch,      // torch.Tensor and its subclasses
  Cupy,       // cupy.ndarray itself
  Jax,        // immutable, though its capsules cannot express it
  Described,  // has no C protocol: `reader`, a function of its converter, reads its memory
  Protocols,  // of a converter that accepts any object with a protocol
};

struct ForeignType {
  PyTypeObject* type;  // borrowed: the entry is removed before the type is destroyed
  bool own = false;    // a class of this library
  const DLPackExchangeAPI* api = nullptr;  // null: none that can be used for import
  Family family = Family::Other;
  // numpy.ndarray, torch.Tensor, torch.nn.Parameter, cupy.ndarray or a class of JAX itself: its ordinary
  // objects are shared without a converter.
  bool ordinary = false;
  // Protocols do not report why such objects must not be shared, so Python checks each one first.
  bool judged = false;
  // Described: the function (obj) -> (shape, strides, dtype, address, device or -1, stream).
  PyObject* reader = nullptr;
  // torch.nn.Parameter: shared through an alias.
  bool parameter = false;
};

extern ForeignType* recent_foreign_types[64];
ForeignType& find_foreign_type(PyTypeObject* type);  // throws PythonError
inline ForeignType& foreign_type_of(PyTypeObject* type) {
  ForeignType* p = recent_foreign_types[reinterpret_cast<uintptr_t>(type) >> 4 & 63];
  return p && p->type == type ? *p : find_foreign_type(type);
}

// The table that a type publishes, in a supported major version; null if there is none.
const DLPackExchangeAPI* find_api(PyTypeObject* type);

// ---- exchange/c_api.cpp ----
// The calls of a foreign table. After a null or false result a Python error is set; a C++ exception becomes
// one too. Ownership of the struct afterwards:
//   fetch_struct: the caller, if there is a struct.
//   give_struct: the consumer, if its function returned 0, with or without an object. After any other result
//   give_struct() calls the deleter, unless the consumer has done so: torch returns -1 if it refuses the
//   struct, but also if it took the struct and then could not allocate its object.
DLManagedTensorVersioned* fetch_struct(const DLPackExchangeAPI* api, PyObject* object);
PyObject* give_struct(const DLPackExchangeAPI* api, DLManagedTensorVersioned* m);
// The stream on which the library works on a CUDA device: the legacy one if it reports none.
bool find_work_stream(const DLPackExchangeAPI* api, int device, void** stream);

// ---- exchange/torch_state.cpp ----
void describe_torch(ForeignType* p, PyObject* tensor_class);
// False if autograd tracks the tensor, or a negation or conjugation is pending, by torch's own methods.
bool holds_its_values(PyObject* tensor, DLDataTypeCode code);
// False for torch's integers of 1 to 7 bits, which torch exports as if they had 8.
bool has_whole_bytes(PyObject* tensor);
// Whether torch's current stream, given by its handle, is a process-lifetime stream: torch's own are. The
// creator of an external one (ExternalStream) may destroy it while gpuinterop still uses torch's memory.
bool torch_keeps_stream(int device, void* stream);
// Torch's current stream in this thread; the legacy one if torch is not loaded or too old to report it.
void* torch_work_stream(int device);

// ---- exchange/import_cupy.cpp ----
bool describe_cupy(PyTypeObject* type);  // true for cupy.ndarray itself

// ---- exchange/foreign_types.cpp ----
// Null if the attribute is missing; any other error is thrown.
PyRef optional_attribute(PyObject* o, PyObject* name);
PyRef optional_attribute(PyObject* o, const char* name);
// str() of an attribute; "" if it is missing or has none.
std::string text_attribute(PyObject* o, const char* name);

// Clears the pending Python error and returns it as "TypeError: text".
std::string take_error_text();

}  // namespace gpuinterop::exchange
