// Torch: its DLPack table looks at neither autograd nor the pending negation and conjugation of a
// tensor, so both are looked at here.
#include <sys/uio.h>
#include <unistd.h>

#include "array/error.hpp"
#include "array/gil.hpp"
#include "cuda/device_state.hpp"
#include "cuda/stream.hpp"
#include "python/error_translation.hpp"
#include "python/foreign_types.hpp"

namespace gpuinterop::exchange {

namespace {

// Two facts decide whether a tensor's memory holds its values: a bit for "negation pending" and the
// pointer to what autograd knows, which is null for a tensor that autograd has never seen. Asking
// through Python costs more than the whole conversion; both sit at fixed places of the C++ tensor,
// whose address the exported struct carries. Where, is found out from tensors made for the purpose,
// in the process at hand, because no header of a particular torch is to be relied on. A torch in
// which the places are not found beyond doubt is asked through Python, and so is every tensor whose
// bit or pointer is set: the places only ever tell that there is nothing to ask.
struct Places {
  const DLPackExchangeAPI* api = nullptr;  // null: not found
  ptrdiff_t managed = 0;                   // of the exported struct, behind its context
  int negation = 0, autograd = 0;          // words of the tensor
  uint64_t negated = 0;                    // one bit
} places;

constexpr int kWords = 32, kProbes = 6, kTries = 4;

// Memory that is perhaps not there.
bool read_words(const void* from, uint64_t* to, int n) noexcept {
  iovec out{to, size_t(n) * 8}, in{const_cast<void*>(from), size_t(n) * 8};
  return process_vm_readv(getpid(), &out, 1, &in, 1, 0) == ssize_t(n) * 8;
}

// The words of the C++ tensor behind `tensor`, of exactly the class `type`.
bool read_tensor(const DLPackExchangeAPI* api, PyTypeObject* type, PyObject* tensor,
                 ptrdiff_t* managed, uint64_t* words) {
  DLManagedTensorVersioned* m = nullptr;
  if (!tensor || Py_TYPE(tensor) != type ||
      api->managed_tensor_from_py_object_no_sync(tensor, &m) != 0 || !m)
    return false;
  auto* context = static_cast<char*>(m->manager_ctx);
  uint64_t first = 0;
  const ptrdiff_t distance = reinterpret_cast<char*>(m) - context;
  const bool ok = context && distance > 0 && distance <= 64 &&
                  (!*managed || *managed == distance) && read_words(context, &first, 1) &&
                  first % 8 == 0 && read_words(reinterpret_cast<void*>(first), words, kWords);
  *managed = distance;
  call_deleter(m);
  return ok;
}

// Makes tensors with and without the two facts and compares them word by word.
bool find_places(const DLPackExchangeAPI* api, PyTypeObject* type, PyObject* torch) {
  PyRef zeros = optional_attribute(torch, "zeros");
  PyRef no_args = PyRef::steal(PyTuple_New(0));
  if (!zeros || !no_args) return false;
  auto make = [&](int i) {
    PyRef size = PyRef::steal(i % 2 ? Py_BuildValue("(i)", i + 1) : Py_BuildValue("(ii)", i, 3));
    PyRef args = PyRef::steal(PyTuple_Pack(1, size.get()));
    PyRef dtype = optional_attribute(torch, i % 3 == 1 ? "float64" : "float32");
    PyRef options = PyRef::steal(Py_BuildValue("{sssO}", "device", "cpu", "dtype", dtype.get()));
    return args && options ? PyRef::steal(PyObject_Call(zeros.get(), args.get(), options.get()))
                           : PyRef();
  };
  auto negate = [&](const PyRef& t) {
    return t ? PyRef::steal(PyObject_CallMethod(torch, "_neg_view", "O", t.get())) : PyRef();
  };
  auto track = [](const PyRef& t) {
    return bool(PyRef::steal(PyObject_CallMethod(t.get(), "requires_grad_", nullptr)));
  };
  Places found;
  uint64_t bit[kWords];
  bool neg[kWords], grad[kWords];
  for (int k = 0; k < kWords; ++k) bit[k] = 0, neg[k] = grad[k] = true;
  for (int i = 0; i < kProbes; ++i) {
    const PyRef plain = make(i), once = negate(plain), twice = negate(once);
    uint64_t p[kWords], g[kWords], n[kWords], nn[kWords];
    ptrdiff_t* at = &found.managed;
    if (!read_tensor(api, type, plain.get(), at, p) || !read_tensor(api, type, once.get(), at, n) ||
        !read_tensor(api, type, twice.get(), at, nn) || !track(plain) ||
        !read_tensor(api, type, plain.get(), at, g) || !truth_of_call(once.get(), "is_neg") ||
        truth_of_call(twice.get(), "is_neg"))
      return false;
    for (int k = 0; k < kWords; ++k) {
      const uint64_t b = p[k] ^ n[k];
      neg[k] &= b && !(b & (b - 1)) && (n[k] & b) && nn[k] == p[k] && (!bit[k] || bit[k] == b);
      bit[k] = b;
      grad[k] &= p[k] == 0 && g[k] > 4096 && g[k] % 8 == 0;
    }
  }
  int negs = 0, grads = 0;
  for (int k = 0; k < kWords; ++k) {
    if (neg[k]) ++negs, found.negation = k, found.negated = bit[k];
    if (grad[k]) ++grads, found.autograd = k;
  }
  if (negs != 1 || grads != 1) return false;
  found.api = api;
  places = found;
  return true;
}

bool call_is_true(PyObject* function, PyObject* argument) {
  PyObject* result = PyObject_Vectorcall(function, &argument, 1, nullptr);
  if (!result) throw PythonError();
  Py_DECREF(result);
  return result == Py_True;
}

bool truth_of(PyObject* o, const char* attribute) {
  return truth(PyObject_GetAttrString(o, attribute));
}

void refuse_functorch(PyObject* t, const char* where) {
  PyRef functorch = PyRef::steal(PyImport_ImportModule("torch._C._functorch"));
  if (!functorch) {
    PyErr_Clear();
    return;
  }
  if (truth(PyObject_CallMethod(functorch.get(), "is_functorch_wrapped_tensor", "O", t)))
    fail(Kind::ConversionType, where, "a tensor outside a torch.func transform",
         "a tensor that a transform (vmap, grad, jvp) is tracing",
         "convert before or after the transform");
}

// A dual tensor has requires_grad=False, and autograd's pointer set. Asking for the tangent takes a
// microsecond, so the level is looked at first: outside of dual_level() there are no tangents.
void refuse_tangent(PyObject* t, const char* where) {
  static PyObject* module = nullptr;  // lives as long as torch
  if (!module) module = PyImport_ImportModule("torch.autograd.forward_ad");
  PyRef level = module ? optional_attribute(module, "_current_level") : PyRef();
  const long depth = level ? PyLong_AsLong(level.get()) : -1;
  PyErr_Clear();
  if (depth < 0) return;
  PyRef parts = PyRef::steal(PyObject_CallMethod(module, "unpack_dual", "O", t));
  PyRef tangent = parts ? optional_attribute(parts.get(), "tangent") : PyRef();
  PyErr_Clear();
  if (tangent && tangent.get() != Py_None)
    fail(Kind::Exchange, where, "a tensor without a tangent, which no other library carries on",
         "a dual tensor of torch.autograd.forward_ad",
         "pass torch.autograd.forward_ad.unpack_dual(x).primal, or x.detach()");
}

// Torch exports its integers of 1 to 7 bits as if they were of 8.
void refuse_part_bytes(PyObject* tensor, const char* where) {
  static PyObject* whole[2];  // torch.uint8 and torch.int8, which live as long as torch
  PyRef dtype = PyRef::steal(PyObject_GetAttr(tensor, names.dtype));
  if (!dtype) throw PythonError();
  if (dtype.get() == whole[0] || dtype.get() == whole[1]) return;
  const std::string name = repr_text(dtype.get());
  const bool is_uint8 = name == "torch.uint8";
  if (!is_uint8 && name != "torch.int8")
    fail(Kind::DType, where, "a dtype whose elements are whole bytes of plain memory",
         "a torch tensor of dtype " + name,
         "pass the bytes: x.view(torch.uint8), or make the tensor of torch.int8");
  PyObject*& known = whole[is_uint8];
  if (!known) known = dtype.release();
}

}  // namespace

void describe_torch(ForeignType* p, PyObject* base) {
  auto* type = reinterpret_cast<PyObject*>(p->type);
  PyRef dispatch = optional_attribute(type, "__torch_dispatch__");
  PyRef plain = optional_attribute(base, "__torch_dispatch__");
  p->family = dispatch.get() == plain.get() ? Family::Torch : Family::TorchWrapper;
  p->requires_grad = optional_attribute(type, "requires_grad").release();
  p->is_neg = optional_attribute(type, "is_neg").release();
  p->is_conj = optional_attribute(type, "is_conj").release();
  if (p->requires_grad)
    p->get_requires_grad =
        reinterpret_cast<descrgetfunc>(PyType_GetSlot(Py_TYPE(p->requires_grad), Py_tp_descr_get));
  // A mode that is active now (fake tensors, say) may spoil an attempt: another class, another try.
  static int tries = 0;
  if (places.api || !p->api || p->family != Family::Torch || tries >= kTries) return;
  PyRef torch = PyRef::steal(PyImport_ImportModule("torch"));
  // The comparison reads on into whatever lies behind a tensor, which may look like an answer too.
  for (const int end = tries + 2; torch && tries < end; ++tries) {
    const bool found = find_places(p->api, reinterpret_cast<PyTypeObject*>(base), torch.get());
    PyErr_Clear();
    if (found) return;
  }
  PyErr_Clear();
}

bool is_plain_torch(const ForeignType& p, const DLManagedTensorVersioned* m) noexcept {
  const auto* context = static_cast<const char*>(m->manager_ctx);
  if (p.api != places.api || reinterpret_cast<const char*>(m) - context != places.managed)
    return false;
  const auto* tensor = *reinterpret_cast<const uint64_t* const*>(context);
  return !(tensor[places.negation] & places.negated) && !tensor[places.autograd];
}

void refuse_torch_state(const ForeignType& p, PyObject* tensor, const char* where) {
  if (p.family == Family::TorchWrapper)
    fail(Kind::ConversionType, where, "a tensor that holds data of its own",
         type_text(tensor) + ", which stands for other tensors or for none",
         "pass a plain tensor (DTensor: x.full_tensor() or x.to_local())");
  if (!p.get_requires_grad) return;
  PyObject* result =
      p.get_requires_grad(p.requires_grad, tensor, reinterpret_cast<PyObject*>(p.type));
  if (!result) throw PythonError();
  Py_DECREF(result);
  if (result != Py_False) {
    refuse_functorch(tensor, where);
    fail(Kind::Exchange, where, "a tensor outside autograd", "a tensor with requires_grad=True",
         "pass x.detach()");
  }
  refuse_tangent(tensor, where);
}

PyRef alias_of_parameter(const ForeignType& p, PyObject* parameter, const char* where) {
  refuse_torch_state(p, parameter, where);  // the alias would not say that it needs gradients
  PyRef alias =
      PyRef::steal(run_python([&] { return PyObject_CallMethod(parameter, "detach", nullptr); }));
  if (!alias)
    fail(Kind::Exchange, where, "a parameter whose detach() works", take_error_text(),
         "pass x.detach(), where that works");
  return alias;
}

void refuse_torch_negation(const ForeignType& p, PyObject* tensor, const char* where) {
  if (p.is_neg && call_is_true(p.is_neg, tensor))
    fail(Kind::Exchange, where, "a tensor whose memory holds its values",
         "a lazily negated tensor (is_neg() is true)", "pass x.resolve_neg()");
}

void refuse_torch_values(const ForeignType& p, PyObject* tensor, DTypeId dtype, const char* where) {
  const char kind = kDTypes[dtype].kind;
  if (is_complex(dtype) && p.is_conj && call_is_true(p.is_conj, tensor))
    fail(Kind::Exchange, where, "a tensor whose memory holds its values",
         "a lazily conjugated tensor (is_conj() is true)", "pass x.resolve_conj()");
  if ((kind == 'i' || kind == 'u') && kDTypes[dtype].itemsize == 1)
    refuse_part_bytes(tensor, where);
}

bool torch_keeps_stream(int device, void* handle) noexcept {
  const auto stream = static_cast<CUstream>(handle);
  if (cuda::is_default(stream) || cuda::lives_until_exit(stream)) return true;
  // If torch makes one of its own at that address later, its memory goes back late, and no more.
  static CUstream from_outside = nullptr;
  if (stream == from_outside) return false;
  ErrorSaver saver;
  PyRef foreign =
      PyRef::steal(run_python([] { return PyImport_ImportModule("gpuinterop.foreign_handles"); }));
  const bool keeps = foreign && truth(run_python([&] {
                       return PyObject_CallMethod(foreign.get(), "torch_keeps_stream", "iK", device,
                                                  (unsigned long long)stream);
                     }));
  if (keeps)
    cuda::note_process_lifetime(stream);
  else
    from_outside = stream;
  return keeps;
}

void explain_torch(PyObject* t, const char* where) {
  if (truth_of(t, "is_meta"))
    fail(Kind::ConversionType, where, "a tensor with memory", "a meta tensor",
         "create it on a real device: torch.empty_like(x, device=\"cpu\")");
  PyRef layout = optional_attribute(t, "layout");
  const std::string name = layout ? repr_text(layout.get()) : "torch.strided";
  if (name != "torch.strided")
    fail(Kind::Exchange, where, "a dense tensor", "a tensor with layout " + name,
         "pass x.to_dense()");
  if (truth_of(t, "is_nested"))
    fail(Kind::Exchange, where, "a dense tensor", "a nested tensor",
         "pass x.to_padded_tensor(0.0)");
  if (truth_of(t, "is_quantized"))
    fail(Kind::Exchange, where, "a tensor of plain numbers", "a quantized tensor",
         "pass x.dequantize()");
  if (truth_of(t, "is_mkldnn"))
    fail(Kind::Exchange, where, "a dense tensor", "an MKL-DNN tensor", "pass x.to_dense()");
  refuse_functorch(t, where);
}

}  // namespace gpuinterop::exchange
