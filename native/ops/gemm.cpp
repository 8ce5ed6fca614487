#include "ops/gemm.hpp"

#include <algorithm>
#include <climits>
#include <cstring>
#include <unordered_map>

#include "array/error.hpp"
#include "cuda/cuda.hpp"
#include "cuda/state.hpp"
#include "ops/cublas.hpp"

namespace gpuinterop::ops {

namespace {

using namespace blas;

// A matrix as cuBLAS sees it: columns next to each other, `ld` elements apart.
struct Matrix {
  char* data;
  bool by_rows;  // memory runs along rows, so cuBLAS sees the transpose
  int64_t ld;
};

struct Sizes {
  int64_t m, n, k;
};

// Whether memory can be handed over as it is. Extents of 1 take any stride.
bool as_matrix(const Array& x, Matrix* to) {
  const int nd = x.layout.ndim();
  const int64_t rows = x.layout.shape()[nd - 2], columns = x.layout.shape()[nd - 1];
  const int64_t across = x.layout.strides()[nd - 2], along = x.layout.strides()[nd - 1];
  to->data = x.data;
  if ((columns <= 1 || along == 1) && (rows <= 1 || across >= std::max<int64_t>(columns, 1))) {
    to->by_rows = true;
    to->ld = rows <= 1 ? std::max<int64_t>(columns, 1) : across;
    return true;
  }
  if ((rows <= 1 || across == 1) && (columns <= 1 || along >= std::max<int64_t>(rows, 1))) {
    to->by_rows = false;
    to->ld = columns <= 1 ? std::max<int64_t>(rows, 1) : along;
    return true;
  }
  return false;
}

Array compact(const Array& x, const char* where) {
  Array copy = make_empty(x.device, x.dtype, x.layout.ndim(), x.layout.shape(), where);
  copy_elements(copy, x, where);
  return copy;
}

struct Types {
  DataType data;
  Compute compute;
  DataType scale;
};

Types types_of(DTypeId dtype, bool tf32, const char* where) {
  switch (dtype) {
    case kFloat32: return {kReal32, tf32 ? kComputeTf32 : kCompute32, kReal32};
    case kFloat64: return {kReal64, kCompute64, kReal64};
    case kFloat16: return {kReal16, kCompute32, kReal32};
    case kBFloat16: return {kBrain16, kCompute32, kReal32};
    case kComplex64: return {kPair32, tf32 ? kComputeTf32 : kCompute32, kPair32};
    case kComplex128: return {kPair64, kCompute64, kPair64};
    default:
      fail(Kind::DType, where, "floating or complex matrices", kDTypes[dtype].name,
           "cast them first");
  }
}

// alpha or beta in the type that cuBLAS scales in.
struct Scale {
  double parts[2];
  Scale(double value, DataType type) {
    if (type == kReal32) {
      float f[2] = {static_cast<float>(value), 0};
      std::memcpy(parts, f, sizeof f);
    } else if (type == kPair32) {
      float f[2] = {static_cast<float>(value), 0};
      std::memcpy(parts, f, sizeof f);
    } else {
      parts[0] = value;
      parts[1] = 0;
    }
  }
};

int to_int(int64_t n, const char* where) {
  if (n > INT_MAX)
    fail(Kind::Bounds, where, "matrix extents and strides below 2**31, as cuBLAS counts",
         std::to_string(n), "split the matrix");
  return static_cast<int>(n);
}

// What Hopper's kernels want; smaller devices need less and are content with it.
constexpr size_t kWorkspace = 32u << 20;

// One product in cuBLAS's orientation: column-major D (m x n) = op(A) op(B).
struct Product {
  Operation op_a, op_b;
  int m, n, k;
  Matrix a, b, c, d;
  int64_t stride_a, stride_b, stride_c, stride_d;
  int batch;
  const void* bias;
};

Product orient(const Sizes& s, Matrix a, Matrix b, Matrix c, Matrix d, const char* where) {
  Product p = {};
  p.k = to_int(s.k, where);
  p.batch = 1;
  p.c = c;
  p.d = d;
  if (d.by_rows) {
    // Row-major D is column-major D', and D' = B' A'.
    p.m = to_int(s.n, where);
    p.n = to_int(s.m, where);
    p.a = b;
    p.b = a;
    p.op_a = b.by_rows ? kNone : kTranspose;
    p.op_b = a.by_rows ? kNone : kTranspose;
  } else {
    p.m = to_int(s.m, where);
    p.n = to_int(s.n, where);
    p.a = a;
    p.b = b;
    p.op_a = a.by_rows ? kTranspose : kNone;
    p.op_b = b.by_rows ? kTranspose : kNone;
  }
  for (const Matrix* x : {&p.a, &p.b, &p.c, &p.d})
    if (x->data) to_int(x->ld, where);
  return p;
}

void run_gemm(const Product& p, const Types& t, double alpha, double beta, int device,
              CUstream stream, const char* where) {
  BufferRef workspace = allocate({DeviceType::Cuda, device}, kWorkspace, where);
  cuda::order(workspace.get(), stream, where);
  Handle h = handle(device, stream, where);
  // Given for each call: it belongs to this stream at this point of it, and in a capture to the graph.
  check(library().SetWorkspace(h, workspace->ptr, kWorkspace), "cublasSetWorkspace", where);
  const Scale a(alpha, t.scale), b(beta, t.scale);
  if (p.batch == 1) {
    check(library().GemmEx(h, p.op_a, p.op_b, p.m, p.n, p.k, &a, p.a.data, t.data, int(p.a.ld),
                           p.b.data, t.data, int(p.b.ld), &b, p.d.data, t.data, int(p.d.ld),
                           t.compute, kDefaultAlgorithm),
          "cublasGemmEx", where);
  } else {
    check(library().GemmStridedBatchedEx(h, p.op_a, p.op_b, p.m, p.n, p.k, &a, p.a.data, t.data,
                                         int(p.a.ld), p.stride_a, p.b.data, t.data, int(p.b.ld),
                                         p.stride_b, &b, p.d.data, t.data, int(p.d.ld), p.stride_d,
                                         p.batch, t.compute, kDefaultAlgorithm),
          "cublasGemmStridedBatchedEx", where);
  }
}

// ---- cublasLt: C apart from D, bias in the epilogue ---------------------------------------------

struct LtPlan {
  Object description = nullptr, a = nullptr, b = nullptr, c = nullptr, d = nullptr;
  LtHeuristic choice = {};
  bool usable = false;
};

uint32_t alignment_of(const void* p) {
  const auto address = reinterpret_cast<uintptr_t>(p);
  return address ? static_cast<uint32_t>(std::min<uintptr_t>(address & (~address + 1), 256)) : 256;
}

Object make_layout(const Types& t, int64_t rows, int64_t columns, int64_t ld, int batch,
                   int64_t stride, const char* where) {
  Object layout;
  check(lt_library().LayoutCreate(&layout, t.data, uint64_t(rows), uint64_t(columns), ld),
        "cublasLtMatrixLayoutCreate", where);
  if (batch > 1) {
    int32_t count = batch;
    check(lt_library().LayoutSet(layout, kLtBatchCount, &count, sizeof count),
          "cublasLtMatrixLayoutSetAttribute", where);
    check(lt_library().LayoutSet(layout, kLtBatchStride, &stride, sizeof stride),
          "cublasLtMatrixLayoutSetAttribute", where);
  }
  return layout;
}

LtPlan make_lt_plan(const Product& p, const Types& t, int device, const char* where) {
  const LtLibrary& lt = lt_library();
  LtPlan plan;
  check(lt.DescCreate(&plan.description, t.compute, t.scale), "cublasLtMatmulDescCreate", where);
  const int32_t ops[2] = {p.op_a, p.op_b};
  check(lt.DescSet(plan.description, kLtTransA, &ops[0], sizeof ops[0]),
        "cublasLtMatmulDescSetAttribute", where);
  check(lt.DescSet(plan.description, kLtTransB, &ops[1], sizeof ops[1]),
        "cublasLtMatmulDescSetAttribute", where);
  if (p.bias) {
    const int32_t epilogue = kLtBias;
    check(lt.DescSet(plan.description, kLtEpilogue, &epilogue, sizeof epilogue),
          "cublasLtMatmulDescSetAttribute", where);
    check(lt.DescSet(plan.description, kLtBiasPointer, &p.bias, sizeof p.bias),
          "cublasLtMatmulDescSetAttribute", where);
  }
  const bool ta = p.op_a == kTranspose, tb = p.op_b == kTranspose;
  plan.a = make_layout(t, ta ? p.k : p.m, ta ? p.m : p.k, p.a.ld, p.batch, p.stride_a, where);
  plan.b = make_layout(t, tb ? p.n : p.k, tb ? p.k : p.n, p.b.ld, p.batch, p.stride_b, where);
  plan.c = make_layout(t, p.m, p.n, p.c.ld, p.batch, p.stride_c, where);
  plan.d = make_layout(t, p.m, p.n, p.d.ld, p.batch, p.stride_d, where);
  Object preference;
  check(lt.PreferenceCreate(&preference), "cublasLtMatmulPreferenceCreate", where);
  const uint64_t workspace = kWorkspace;
  lt.PreferenceSet(preference, kLtMaxWorkspace, &workspace, sizeof workspace);
  const struct {
    LtPreference what;
    const void* data;
  } sides[] = {
      {kLtAlignA, p.a.data}, {kLtAlignB, p.b.data}, {kLtAlignC, p.c.data}, {kLtAlignD, p.d.data}};
  for (const auto& side : sides) {
    const uint32_t bytes = alignment_of(side.data);
    lt.PreferenceSet(preference, side.what, &bytes, sizeof bytes);
  }
  int found = 0;
  const int status = lt.Heuristic(lt_handle(device, where), plan.description, plan.a, plan.b,
                                  plan.c, plan.d, preference, 1, &plan.choice, &found);
  lt.PreferenceDestroy(preference);
  plan.usable = status == 0 && found > 0 && plan.choice.status == 0;
  return plan;
}

// False when cublasLt has no kernel for it.
bool run_lt(const Product& p, const Types& t, double alpha, double beta, int device,
            CUstream stream, const char* where) {
  // The heuristic costs far more than the launch, so its answers are kept. They depend on sizes,
  // strides and alignments; the bias pointer is set anew each time.
  struct Key {
    int64_t v[23];
    bool operator==(const Key& o) const { return std::memcmp(v, o.v, sizeof v) == 0; }
  };
  struct KeyHash {
    size_t operator()(const Key& k) const {
      uint64_t h = 1469598103934665603ull;
      for (int64_t x : k.v) h = (h ^ uint64_t(x)) * 1099511628211ull;
      return h;
    }
  };
  thread_local std::unordered_map<Key, LtPlan, KeyHash> plans;
  const Key key = {{device,
                    t.data,
                    t.compute,
                    p.op_a,
                    p.op_b,
                    p.m,
                    p.n,
                    p.k,
                    p.a.ld,
                    p.b.ld,
                    p.c.ld,
                    p.d.ld,
                    p.batch,
                    p.stride_a,
                    p.stride_b,
                    p.stride_c,
                    p.stride_d,
                    p.bias != nullptr,
                    alignment_of(p.a.data),
                    alignment_of(p.b.data),
                    alignment_of(p.c.data),
                    alignment_of(p.d.data),
                    p.bias ? alignment_of(p.bias) : 0}};
  auto it = plans.find(key);
  if (it == plans.end()) {
    if (plans.size() > 4096) {
      for (auto& [_, old] : plans) {
        for (Object layout : {old.a, old.b, old.c, old.d}) lt_library().LayoutDestroy(layout);
        lt_library().DescDestroy(old.description);
      }
      plans.clear();
    }
    it = plans.emplace(key, make_lt_plan(p, t, device, where)).first;
  }
  LtPlan& plan = it->second;
  if (!plan.usable) return false;
  if (p.bias)
    check(lt_library().DescSet(plan.description, kLtBiasPointer, &p.bias, sizeof p.bias),
          "cublasLtMatmulDescSetAttribute", where);
  BufferRef workspace;
  if (plan.choice.workspace) {
    workspace =
        allocate({DeviceType::Cuda, device}, static_cast<int64_t>(plan.choice.workspace), where);
    cuda::order(workspace.get(), stream, where);
  }
  const Scale a(alpha, t.scale), b(beta, t.scale);
  check(lt_library().Matmul(lt_handle(device, where), plan.description, &a, p.a.data, plan.a,
                            p.b.data, plan.b, &b, p.c.data, plan.c, p.d.data, plan.d,
                            plan.choice.algorithm, workspace ? workspace->ptr : nullptr,
                            plan.choice.workspace, stream),
        "cublasLtMatmul", where);
  return true;
}

int64_t batch_count(const Array& x) {
  int64_t n = 1;
  for (int d = 0; d < x.layout.ndim() - 2; ++d) n *= x.layout.shape()[d];
  return n;
}

}  // namespace

void gemm(const Array& out, const Array& a0, const Array& b0, const Array* c0, const Array* bias,
          double alpha, double beta, bool tf32, const char* where) {
  const int nd = out.layout.ndim();
  const Types types = types_of(out.dtype, tf32, where);
  const Sizes sizes = {out.layout.shape()[nd - 2], out.layout.shape()[nd - 1],
                       a0.layout.shape()[a0.layout.ndim() - 1]};
  if (out.layout.size() == 0) return;

  // Operands that cuBLAS cannot read are copied, nothing else is.
  Array a = a0, b = b0, d = out;
  Matrix ma, mb, mc = {}, md;
  if (!as_matrix(a, &ma)) as_matrix(a = compact(a0, where), &ma);
  if (!as_matrix(b, &mb)) as_matrix(b = compact(b0, where), &mb);
  const bool through_copy = !as_matrix(d, &md);
  if (through_copy)
    as_matrix(d = make_empty(out.device, out.dtype, nd, out.layout.shape(), where), &md);
  if (!c0) beta = 0;
  Array c = c0 ? *c0 : d;
  const bool in_place = c0 && !through_copy && c.data == d.data && c.layout.ndim() == nd &&
                        std::equal(c.layout.strides(), c.layout.strides() + nd, d.layout.strides());
  bool separate = c0 && !in_place;
  if (separate && (!as_matrix(c, &mc) || mc.by_rows != md.by_rows)) {
    copy_elements(d, c, where);  // one pass more, in return for any strides of c
    separate = false;
  }
  const int leading = nd - 2;
  const int64_t inner = leading ? d.layout.shape()[leading - 1] : 1;
  const int64_t products = inner ? batch_count(d) / inner : 0;
  if (separate && products > 1) {  // cublasLt might refuse one of them, and then d must hold c
    copy_elements(d, c, where);
    separate = false;
  }
  if (!separate) {
    c = d;
    mc = md;
  }

  const int device = out.device.id;
  cuda::DeviceGuard guard(device);
  // cuBLAS allocates for a new handle and loads its kernels when they are first used.
  cuda::RelaxedCapture relaxed;
  CUstream stream = cuda::current_stream(device);
  for (const Array* x : {&a, &b, &c, &d})
    if (x->buffer) cuda::order(x->buffer.get(), stream, where);
  if (bias) cuda::order(bias->buffer.get(), stream, where);

  // Batches: the innermost leading axis goes to cuBLAS, the others are walked here; axes that
  // continue each other have been merged by the caller.
  auto batch_stride = [&](const Array& x) {
    return leading ? x.layout.strides()[leading - 1] : int64_t(0);
  };
  for (int64_t outer = 0; outer < products; ++outer) {
    auto shifted = [&](const Array& x, Matrix m) {
      int64_t rest = outer, at = 0;
      for (int axis = leading - 2; axis >= 0; --axis) {
        at += rest % x.layout.shape()[axis] * x.layout.strides()[axis];
        rest /= x.layout.shape()[axis];
      }
      m.data += at * x.itemsize();
      return m;
    };
    Product p =
        orient(sizes, shifted(a, ma), shifted(b, mb), shifted(c, mc), shifted(d, md), where);
    const bool swapped = md.by_rows;
    p.batch = to_int(inner, where);
    p.stride_a = batch_stride(swapped ? b : a);
    p.stride_b = batch_stride(swapped ? a : b);
    p.stride_c = batch_stride(c);
    p.stride_d = batch_stride(d);
    p.bias = bias ? bias->data : nullptr;
    if (separate || bias) {
      if (run_lt(p, types, alpha, beta, device, stream, where)) continue;
      if (bias)
        fail(Kind::Cuda, where, "a cublasLt kernel that adds a vector", "none for these sizes",
             "add the vector in an operation of its own");
      copy_elements(d, c, where);
      p.c = p.d;
    }
    run_gemm(p, types, alpha, beta, device, stream, where);
  }
  if (through_copy) copy_elements(out, d, where);
}

}  // namespace gpuinterop::ops
