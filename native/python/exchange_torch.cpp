// Torch: its DLPack table ignores autograd and the pending negation and conjugation of a tensor, so the core
// checks these before it shares the memory as values.
#include <sys/uio.h>
#include <unistd.h>

#include "array/error.hpp"
#include "array/gil.hpp"
#include "array/hooks.hpp"
#include "cuda/device_state.hpp"
#include "cuda/stream.hpp"
#include "python/error_translation.hpp"
#include "python/foreign_types.hpp"

namespace gpuinterop::exchange {

namespace {

// Three facts decide whether a tensor's memory holds its values: a bit each for "negation pending" and
// "conjugation pending", and the pointer to autograd's data, which is null for a tensor that autograd does
// not track. Reading them through Python costs more than the whole conversion. All are at fixed offsets in
// the C++ tensor, whose address the exported struct contains. The offsets are found at run time from test
// tensors, because they differ between versions of torch. They only ever show that a tensor is plain: if
// they are not found beyond doubt, and for every tensor whose bits or pointer are set, Python checks the
// tensor.
struct Places {
  const DLPackExchangeAPI* api = nullptr;  // null: not found
  ptrdiff_t managed = 0;                   // of the exported struct, behind its context
  int flags = 0, autograd = 0;             // words of the tensor
  uint64_t pending = 0;                    // the two bits
  int object = 0;  // the word of the Python object with the address of the C++ tensor; 0: not found
  uint64_t dense = 0;  // bits beside `pending`: which tensors with dense memory have,
  uint64_t meta = 0;   // and which tensors on the device "meta" have
} places;

PyObject* whole_bytes[2];  // torch.uint8 and torch.int8, never released

constexpr int kWords = 32, kProbes = 6, kTries = 4;

// Reads memory that may be unmapped.
bool read_words(const void* from, uint64_t* to, int n) noexcept {
  iovec out{to, size_t(n) * 8}, in{const_cast<void*>(from), size_t(n) * 8};
  return process_vm_readv(getpid(), &out, 1, &in, 1, 0) == ssize_t(n) * 8;
}

// The words of the C++ tensor behind `tensor`, of exactly the class `type`, and its address.
bool read_tensor(const DLPackExchangeAPI* api, PyTypeObject* type, PyObject* tensor,
                 ptrdiff_t* managed, uint64_t* words, uint64_t* address = nullptr) {
  if (!tensor || Py_TYPE(tensor) != type) return false;
  DLManagedTensorVersioned* m = fetch_struct(api, tensor);
  if (!m) return false;
  auto* context = static_cast<char*>(m->manager_ctx);
  uint64_t first = 0;
  const ptrdiff_t distance = reinterpret_cast<char*>(m) - context;
  const bool ok = context && distance > 0 && distance <= 64 &&
                  (!*managed || *managed == distance) && read_words(context, &first, 1) &&
                  first % 8 == 0 && read_words(reinterpret_cast<void*>(first), words, kWords);
  *managed = distance;
  if (address) *address = first;
  call_deleter(m);
  return ok;
}

// The words in which a state of a tensor sets one bit, the same in every probe, and clears it again.
struct Bit {
  uint64_t bit[kWords] = {};
  bool ruled_out[kWords] = {};

  void compare(const uint64_t* without, const uint64_t* with, const uint64_t* after) {
    for (int k = 0; k < kWords; ++k) {
      const uint64_t b = without[k] ^ with[k];
      ruled_out[k] |=
          !b || b & (b - 1) || !(with[k] & b) || after[k] != without[k] || (bit[k] && bit[k] != b);
      bit[k] = b;
    }
  }
};

// Finds the rest of Places, which saves time only: torch takes milliseconds to refuse a tensor without dense
// memory, because its exception looks up the names of the calling functions.
void find_dense(Places* found, PyObject* torch, PyObject* zeros, PyObject* plain) {
  constexpr int kObjectWords = 6;
  ptrdiff_t managed = 0;
  uint64_t words[kWords], object[kObjectWords], first = 0;
  auto flags_of = [&](PyObject* tensor) -> uint64_t {
    uint64_t address = 0, value = 0;
    const auto* at = reinterpret_cast<const uint64_t*>(tensor) + found->object;
    const bool ok = tensor && read_words(at, &address, 1) && address && address % 8 == 0 &&
                    read_words(reinterpret_cast<uint64_t*>(address) + found->flags, &value, 1);
    return ok ? value : 0;
  };
  if (!read_tensor(found->api, Py_TYPE(plain), plain, &managed, words, &first) ||
      !read_words(plain, object, kObjectWords))
    return;
  for (int k = kObjectWords - 1; k > 0; --k)
    if (object[k] == first) found->object = k;
  const PyRef sparse_layout = optional_attribute(torch, "sparse_coo");
  const PyRef size = PyRef::steal(Py_BuildValue("((ii))", 1, 1));
  auto made = [&](PyObject* options) {
    const PyRef held = PyRef::steal(options);
    return PyRef::steal(held ? PyObject_Call(zeros, size.get(), held.get()) : nullptr);
  };
  if (!found->object || !sparse_layout || !size) return;
  const PyRef sparse =
      made(Py_BuildValue("{sssO}", "device", "cpu", "layout", sparse_layout.get()));
  const PyRef meta = made(Py_BuildValue("{ss}", "device", "meta"));
  const uint64_t plain_flags = words[found->flags];
  found->dense = plain_flags & ~flags_of(sparse.get());
  found->meta = flags_of(meta.get()) & ~plain_flags;
  if (!sparse || !meta || flags_of(plain) != plain_flags) found->object = 0;
}

// Makes tensors with and without the three facts and compares them word by word.
bool find_places(const DLPackExchangeAPI* api, PyTypeObject* type, PyObject* torch) {
  PyRef zeros = optional_attribute(torch, "zeros");
  PyRef no_args = PyRef::steal(PyTuple_New(0));
  if (!zeros || !no_args) return false;
  auto make = [&](int i) {
    PyRef size =
        PyRef::steal(i % 2 ? Py_BuildValue("((i))", i + 1) : Py_BuildValue("((ii))", i, 3));
    PyRef dtype = optional_attribute(torch, i % 3 == 1 ? "complex128" : "complex64");
    PyRef options = PyRef::steal(Py_BuildValue("{sssO}", "device", "cpu", "dtype", dtype.get()));
    return size && options ? PyRef::steal(PyObject_Call(zeros.get(), size.get(), options.get()))
                           : PyRef();
  };
  auto turned = [&](const char* function, const PyRef& t) {
    return t ? PyRef::steal(PyObject_CallMethod(torch, function, "O", t.get())) : PyRef();
  };
  Places found;
  Bit bits[2];
  bool grad[kWords];
  for (bool& possible : grad) possible = true;
  for (int i = 0; i < kProbes; ++i) {
    const PyRef plain = make(i);
    ptrdiff_t* at = &found.managed;
    uint64_t p[kWords], once[kWords], twice[kWords];
    if (!read_tensor(api, type, plain.get(), at, p)) return false;
    const char* const functions[] = {"_neg_view", "conj"};
    for (int f = 0; f < 2; ++f) {
      const PyRef set = turned(functions[f], plain), unset = turned(functions[f], set);
      if (!read_tensor(api, type, set.get(), at, once) ||
          !read_tensor(api, type, unset.get(), at, twice))
        return false;
      bits[f].compare(p, once, twice);
    }
    if (!PyRef::steal(PyObject_CallMethod(plain.get(), "requires_grad_", nullptr)) ||
        !read_tensor(api, type, plain.get(), at, once))
      return false;
    for (int k = 0; k < kWords; ++k) grad[k] &= !p[k] && once[k] > 4096 && once[k] % 8 == 0;
  }
  int grads = 0, flags = 0;
  for (int k = 0; k < kWords; ++k) {
    if (grad[k]) ++grads, found.autograd = k;
    // Require two bits of one word: other words, such as the reference count, may also change twice alike.
    if (bits[0].ruled_out[k] || bits[1].ruled_out[k] || bits[0].bit[k] == bits[1].bit[k]) continue;
    ++flags;
    found.flags = k;
    found.pending = bits[0].bit[k] | bits[1].bit[k];
  }
  if (grads != 1 || flags != 1) return false;
  found.api = api;
  if (const PyRef plain = make(0)) find_dense(&found, torch, zeros.get(), plain.get());
  forgive();
  places = found;
  return true;
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
  p->plain &= !p->judged;
  // A mode that is active now (fake tensors, for example) may disturb the probes, so try again with another
  // class.
  static int tries = 0;
  if (places.api || !p->api || tries >= kTries) return;
  PyRef torch = PyRef::steal(PyImport_ImportModule("torch"));
  if (torch && !whole_bytes[0]) {
    whole_bytes[0] = optional_attribute(torch.get(), "uint8").release();
    whole_bytes[1] = optional_attribute(torch.get(), "int8").release();
  }
  // The comparison also reads memory behind a tensor, which may match by chance, so try twice.
  for (const int end = tries + 2; torch && tries < end; ++tries) {
    const bool found = find_places(p->api, reinterpret_cast<PyTypeObject*>(base), torch.get());
    forgive();
    if (found) return;
  }
  forgive();
}

bool has_dense_memory(const ForeignType& p, PyObject* tensor) noexcept {
  if (!places.object || p.api != places.api) return true;
  const auto* const* words = reinterpret_cast<const uint64_t* const*>(tensor);
  const uint64_t* made = words[places.object];
  return !made || ((made[places.flags] & places.dense) == places.dense &&
                   !(made[places.flags] & places.meta));
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
    keeps = call_hook(Hook::Foreign, "(Kisi)", number, device, "from_torch", -4).get() == Py_True;
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
