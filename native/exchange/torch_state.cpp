// Torch: its DLPack table ignores autograd and the pending negation and conjugation of a tensor, so the core
// checks these before it shares the memory as values.
#include <nanobind/nanobind.h>
#include <nanobind/stl/vector.h>
#include <sys/uio.h>
#include <unistd.h>

#include <utility>
#include <vector>

#include "devices/device_state.hpp"
#include "devices/stream.hpp"
#include "exchange/foreign_types.hpp"
#include "interpreter/error.hpp"
#include "interpreter/error_translation.hpp"
#include "interpreter/gil.hpp"
#include "interpreter/hooks.hpp"

namespace nb = nanobind;

namespace gpuinterop::exchange {

namespace {

// Three facts decide whether a tensor's memory holds its values: a bit each for "negation pending" and
// "conjugation pending", and the pointer to autograd's data, which is null for a tensor that autograd does
// not track. Reading them through Python costs more than the whole conversion. All are at fixed offsets in
// the C++ tensor, whose address the exported struct contains. gpuinterop/converters/torch.py finds the offsets.
// They only ever show that a tensor is plain: if they are not found beyond doubt, and for every tensor whose
// bits or pointer are set, Python checks the tensor.
struct Places {
  const DLPackExchangeAPI* api = nullptr;  // null: not found
  ptrdiff_t managed = 0;                   // of the exported struct, behind its context
  int flags = 0, autograd = 0;             // words of the tensor
  unsigned long long pending = 0;          // the two bits
  int object = 0;  // the word of the Python object with the address of the C++ tensor; 0: not found
  unsigned long long dense = 0;  // bits next to `pending`: which tensors with dense memory have,
  unsigned long long meta = 0;   // and which tensors on the device "meta" have
} places;

PyObject* whole_bytes[2];  // torch.uint8 and torch.int8, never released

constexpr int kWords = 32, kTries = 4;

// Reads memory that may be unmapped.
std::vector<uint64_t> read_words(uintptr_t from, size_t n) {
  std::vector<uint64_t> words(n);
  iovec out{words.data(), n * 8}, in{reinterpret_cast<void*>(from), n * 8};
  if (from % 8 || process_vm_readv(getpid(), &out, 1, &in, 1, 0) != static_cast<ssize_t>(n * 8))
    throw nb::value_error("no memory there");
  return words;
}

// The distance of the exported struct from its context, the address of the C++ tensor, and its words.
std::vector<uint64_t> tensor_words(nb::handle tensor) {
  const DLPackExchangeAPI* api = foreign_type_of(Py_TYPE(tensor.ptr())).api;
  DLManagedTensorVersioned* m = api ? fetch_struct(api, tensor.ptr()) : nullptr;
  if (!m) throw PythonError();
  const auto context = reinterpret_cast<uintptr_t>(m->manager_ctx);
  const uint64_t distance = reinterpret_cast<uintptr_t>(m) - context;
  std::vector<uint64_t> words{distance};
  try {
    if (!context || distance == 0 || distance > 64) throw nb::value_error("no context there");
    words.push_back(read_words(context, 1)[0]);
    for (const uint64_t word : read_words(words[1], kWords)) words.push_back(word);
  } catch (...) {
    call_deleter(m);
    throw;
  }
  call_deleter(m);
  return words;
}

}  // namespace

void find_torch_places(const ForeignType& p) {
  // A mode that is active now (fake tensors, for example) may disturb the search, so try again with another
  // class.
  static int tries = 0;
  p.searched = true;
  if (places.api || tries >= kTries) return;
  // The comparison also reads memory behind a tensor, which may match by chance, so try twice.
  for (const int end = tries + 2; tries < end && !places.api; ++tries) {
    try {
      const PyRef offsets = call_hook(Hook::Foreign, "(s)", "torch places");
      Places read;
      if (offsets.get() == Py_None) continue;
      if (!PyArg_ParseTuple(offsets.get(), "niiKiKK", &read.managed, &read.flags, &read.autograd,
                            &read.pending, &read.object, &read.dense, &read.meta))
        throw PythonError();
      read.api = p.api;
      places = read;
    } catch (const PythonError&) {
      forgive();
    }
  }
}

void register_torch(nb::module_& m) {
  m.def("_read_words", &read_words, nb::arg("address"), nb::arg("count"),
        "Return words of this process's memory; ValueError if there is none.");
  m.def("_tensor_words", &tensor_words, nb::arg("tensor"),
        "Return the distance of a tensor's DLPack struct from its context, the address of the C++ "
        "tensor "
        "and the words there.");
}

void describe_torch(ForeignType* p, PyObject* base) {
  auto* type = reinterpret_cast<PyObject*>(p->type);
  p->family = Family::Torch;
  PyRef dispatch = optional_attribute(type, "__torch_dispatch__");
  PyRef own = optional_attribute(base, "__torch_dispatch__");
  // Such a class wraps other tensors or none (FakeTensor, DTensor), but its table exports the memory all the
  // same.
  if (dispatch.get() != own.get()) p->api = nullptr;
  p->judged = !p->api;
  p->plain &= !p->judged;
  if (whole_bytes[0]) return;
  const PyRef torch = PyRef::steal(PyImport_ImportModule("torch"));
  if (torch) {
    whole_bytes[0] = optional_attribute(torch.get(), "uint8").release();
    whole_bytes[1] = optional_attribute(torch.get(), "int8").release();
  }
  forgive();
}

bool has_dense_memory(const ForeignType& p, PyObject* tensor) {
  if (!p.searched) find_torch_places(p);
  if (!places.object || p.api != places.api) return true;
  const auto* const* words = reinterpret_cast<const uint64_t* const*>(tensor);
  const uint64_t* object = words[places.object];
  return !object || ((object[places.flags] & places.dense) == places.dense &&
                     !(object[places.flags] & places.meta));
}

bool is_plain_torch(const ForeignType& p, const DLManagedTensorVersioned* m) noexcept {
  const auto* context = static_cast<const char*>(m->manager_ctx);
  if (p.api != places.api || reinterpret_cast<const char*>(m) - context != places.managed)
    return false;
  const auto* tensor = *reinterpret_cast<const uint64_t* const*>(context);
  return !(tensor[places.flags] & places.pending) && !tensor[places.autograd];
}

bool has_whole_bytes(PyObject* tensor) {
  PyRef dtype = PyRef::checked(PyObject_GetAttr(tensor, names.dtype));
  return dtype.get() == whole_bytes[0] || dtype.get() == whole_bytes[1];
}

void* torch_work_stream(int device) {
  static const DLPackExchangeAPI* api = nullptr;  // torch is never unloaded
  if (!api) {
    static PyObject* name = PyUnicode_InternFromString("torch");
    const PyRef torch = name ? PyRef::steal(PyImport_GetModule(name)) : PyRef();
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
