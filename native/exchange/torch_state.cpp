// Torch: its DLPack table ignores autograd and the pending negation and conjugation of a tensor, so the core
// checks these before it shares the memory as values.
#include <nanobind/nanobind.h>

#include "devices/device_state.hpp"
#include "devices/stream.hpp"
#include "exchange/foreign_types.hpp"
#include "interpreter/error.hpp"
#include "interpreter/error_translation.hpp"
#include "interpreter/gil.hpp"
#include "interpreter/hooks.hpp"

namespace gpuinterop::exchange {

namespace {

PyObject* whole_bytes[2];  // torch.uint8 and torch.int8, never released

bool is_false(PyObject* tensor, PyObject* method) {
  PyObject* const args[] = {tensor};
  const PyRef answer = PyRef::steal(PyObject_VectorcallMethod(method, args, 1, nullptr));
  if (!answer) throw PythonError();
  return answer.get() == Py_False;
}

}  // namespace

void describe_torch(ForeignType* p, PyObject* base) {
  auto* type = reinterpret_cast<PyObject*>(p->type);
  p->family = Family::Torch;
  PyRef dispatch = optional_attribute(type, "__torch_dispatch__");
  PyRef own = optional_attribute(base, "__torch_dispatch__");
  // Such a class wraps other tensors or none (FakeTensor, DTensor), but its table exports the memory all the
  // same.
  if (dispatch.get() != own.get()) p->api = nullptr;
  p->judged = !p->api;
  p->ordinary &= !p->judged;
  if (whole_bytes[0]) return;
  const PyRef torch = PyRef::steal(PyImport_ImportModule("torch"));
  if (torch) {
    whole_bytes[0] = optional_attribute(torch.get(), "uint8").release();
    whole_bytes[1] = optional_attribute(torch.get(), "int8").release();
  }
  forgive();
}

bool holds_its_values(PyObject* tensor, DLDataTypeCode code) {
  const PyRef tracked = PyRef::checked(PyObject_GetAttr(tensor, names.requires_grad));
  return tracked.get() == Py_False && is_false(tensor, names.is_neg) &&
         (code != kDLComplex || is_false(tensor, names.is_conj));
}

bool has_whole_bytes(PyObject* tensor) {
  PyRef dtype = PyRef::checked(PyObject_GetAttr(tensor, names.dtype));
  return dtype.get() == whole_bytes[0] || dtype.get() == whole_bytes[1];
}

void* torch_work_stream(int device) {
  static const DLPackExchangeAPI* api = nullptr;  // torch is never unloaded
  if (!api) {
    static PyObject* const name = PyRef::checked(PyUnicode_InternFromString("torch")).release();
    const PyRef torch = PyRef::steal(PyImport_GetModule(name));
    const PyRef tensor = torch ? optional_attribute(torch.get(), "Tensor") : PyRef();
    if (tensor && PyType_Check(tensor.get()))
      api = find_api(reinterpret_cast<PyTypeObject*>(tensor.get()));
    forgive();
    if (!api) return CU_STREAM_LEGACY;
  }
  void* stream = nullptr;
  if (!find_work_stream(api, device, &stream)) forgive();
  return stream;
}

bool torch_keeps_stream(int device, void* handle) {
  const auto stream = static_cast<CUstream>(handle);
  if (cuda::is_default(stream) || cuda::lives_until_exit(stream)) return true;
  // If torch creates a stream of its own at this address later, its memory is only returned late.
  static CUstream from_outside = nullptr;
  if (stream == from_outside) return false;
  bool keeps = false;
  try {
    const auto number = reinterpret_cast<unsigned long long>(stream);
    keeps = call_hook(Hook::Foreign, "(siK)", "torch stream", device, number).get() == Py_True;
  } catch (const PythonError&) {
    forgive();
  }
  if (keeps)
    cuda::note_process_lifetime(stream);
  else
    from_outside = stream;
  return keeps;
}

}  // namespace gpuinterop::exchange
