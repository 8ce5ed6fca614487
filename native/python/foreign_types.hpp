// What is known of a foreign type, looked up once: its C exchange API, the keywords of its
// __dlpack__, and which family of objects needs a second look before it is believed.
#pragma once

#include <Python.h>

#include <string>

#include "exchange/dlpack.hpp"

namespace gpuinterop::exchange {

// Interned once, so that keyword names are mostly compared by address.
struct Names {
  PyObject *stream, *max_version, *dl_device, *copy;
  PyObject *dlpack, *dlpack_device, *api, *old_api;
  PyObject *cuda_interface, *array_interface;
  PyObject *device, *where, *only_dtype, *dtype, *realign;
};
extern Names names;
void make_names();  // once, when the module is made; throws nanobind::python_error

enum class Family : uint8_t {
  Other,
  Numpy,         // numpy.ndarray itself
  Torch,         // torch.Tensor and subclasses that hold data of their own
  TorchWrapper,  // subclasses that stand for other tensors or none (FakeTensor, DTensor)
  Jax,           // immutable, though its capsules cannot say so
  Masked,        // numpy.ma: no protocol carries the mask
  Scalar,        // numpy.generic: its dictionary shows memory that has gone with the dictionary
  Cupy,          // whose memory is used again in the order of the stream it was current on
};

// Keywords of __dlpack__, as bits.
constexpr uint8_t kStream = 1, kMaxVersion = 2, kDlDevice = 4, kCopy = 8;

struct ForeignType {
  PyTypeObject* type;  // not owned: a weak reference removes the entry when the type goes
  bool own = false;    // a class of this library
  const DLPackExchangeAPI* api = nullptr;  // null: none that can be used for import
  Family family = Family::Other;
  uint8_t keywords = kStream | kMaxVersion | kDlDevice | kCopy;  // those not yet seen refused
  // Torch only: requires_grad's descriptor with its __get__, and two methods.
  PyObject *requires_grad = nullptr, *is_neg = nullptr, *is_conj = nullptr;
  descrgetfunc get_requires_grad = nullptr;
  PyObject* weakref = nullptr;
  // numpy.ndarray, torch.Tensor, torch.nn.Parameter or cupy.ndarray itself: shared without asking a converter first.
  bool plain = false;
  // torch.nn.Parameter: shared through an alias.
  bool parameter = false;
};

extern ForeignType* recent_foreign_types[64];
ForeignType& find_foreign_type(PyTypeObject* type);  // throws PythonError
inline ForeignType& foreign_type_of(PyTypeObject* type) {
  ForeignType* p = recent_foreign_types[reinterpret_cast<uintptr_t>(type) >> 4 & 63];
  return p && p->type == type ? *p : find_foreign_type(type);
}

// The table that a type publishes, in a major version we know; null when there is none.
const DLPackExchangeAPI* find_api(PyTypeObject* type);

// ---- python/exchange_torch.cpp ----
void describe_torch(ForeignType* p, PyObject* tensor_class);
// True when the tensor behind an exported struct is known to be outside autograd, with no negation
// pending. False: ask, by the two functions below.
bool is_plain_torch(const ForeignType& p, const DLManagedTensorVersioned* m) noexcept;
// Throw when the tensor, by its own account, is not what its memory shows.
void refuse_torch_state(const ForeignType& p, PyObject* tensor, const char* where);
void refuse_torch_negation(const ForeignType& p, PyObject* tensor, const char* where);
void refuse_torch_values(const ForeignType& p, PyObject* tensor, DTypeId dtype, const char* where);
// A tensor of its own over the memory of a parameter. Modules give their parameters other memory
// (module.double(), module.to()), and torch's export holds the tensor that it came from, not the memory.
PyRef alias_of_parameter(const ForeignType& p, PyObject* parameter, const char* where);
void explain_torch(PyObject* tensor, const char* where);  // throws when it finds a reason
// Whether torch's current stream, given by its handle, lives as long as the process: torch's own do. One
// from outside (ExternalStream) is its maker's to destroy, also while torch's memory is in use here.
bool torch_keeps_stream(int device, void* stream) noexcept;

// ---- python/exchange_cupy.cpp ----
void describe_cupy(ForeignType* p);

// ---- python/foreign_types.cpp ----
// After a producer has failed with a Python error set: throws with the reason in our words when the
// object's own attributes tell it, else returns with the error still set.
void explain_failure(const ForeignType& p, PyObject* obj, const char* where);

// Throws for a jax array of a dtype that DLPack or this library lacks. JAX exports some under another
// name (int1 as bool), and has no exception of its own for the others.
void refuse_jax_dtype(PyObject* x, const char* where);

// Whether the producer's current stream, on which it will use the memory again, is known to keep order
// with the legacy one. Only CuPy tells; the streams of JAX and of torch's pool keep none.
bool works_in_legacy_order(const ForeignType& p) noexcept;

PyRef optional_attribute(PyObject* o, PyObject* name);
PyRef optional_attribute(PyObject* o, const char* name);  // null, without an error, when missing
bool truth(PyObject* stolen);                             // false for null, which clears the error
bool truth_of_call(PyObject* o, const char* method);

// Takes the pending Python error as "TypeError: text".
std::string take_error_text();

}  // namespace gpuinterop::exchange
