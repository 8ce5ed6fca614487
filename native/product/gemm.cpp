#include "product/gemm.hpp"

#include <algorithm>
#include <cstring>
#include <memory>
#include <optional>

#include "devices/cuda.hpp"
#include "devices/device_state.hpp"
#include "elementwise/call_cache.hpp"
#include "elementwise/overlap.hpp"
#include "interpreter/error.hpp"
#include "jit/cuda_module.hpp"
#include "product/cublas.hpp"
#include "product/tensor_product.hpp"

namespace gpuinterop::ops {

namespace {

using namespace blas;

// ---- one call of cuBLAS or cublasLt --------------------------------------------------------------

struct GemmTypes {
  blas::DataType data;
  blas::Compute compute;
  blas::DataType scale;
};

// A scalar in the type that cuBLAS scales in.
struct Scale {
  double parts[2];
  Scale(Scalar s, DataType type) : parts{s.real, s.imag} {
    if (type == kReal32 || type == kPair32) {
      const float f[2] = {static_cast<float>(s.real), static_cast<float>(s.imag)};
      std::memcpy(parts, f, sizeof f);
    }
  }
};

// NVIDIA's recommendation for Hopper; smaller devices need less.
constexpr size_t kWorkspace = 32u << 20;

// Kept in the call cache.
struct LtPlan : Prepared {
  Object description = nullptr, a = nullptr, b = nullptr, c = nullptr, d = nullptr;
  LtHeuristic choice = {};
  bool usable = false;

  LtPlan() = default;
  LtPlan(const LtPlan&) = delete;
  LtPlan& operator=(const LtPlan&) = delete;
  ~LtPlan() {
    for (Object layout : {a, b, c, d})
      if (layout) lt_library().LayoutDestroy(layout);
    if (description) lt_library().DescDestroy(description);
  }
};

uint32_t alignment_of(const void* p) {
  const auto address = reinterpret_cast<uintptr_t>(p);
  return address ? static_cast<uint32_t>(std::min<uintptr_t>(address & (~address + 1), 256)) : 256;
}

void make_layout(Object& layout, const GemmTypes& t, int64_t rows, int64_t columns, const Matrix& m,
                 int64_t batch, const char* where) {
  check(lt_library().LayoutCreate(&layout, t.data, uint64_t(rows), uint64_t(columns), m.ld),
        "cublasLtMatrixLayoutCreate", where);
  if (batch > 1) {
    const int32_t count = static_cast<int32_t>(batch);
    check(lt_library().LayoutSet(layout, kLtBatchCount, &count, sizeof count),
          "cublasLtMatrixLayoutSetAttribute", where);
    check(lt_library().LayoutSet(layout, kLtBatchStride, &m.stride, sizeof m.stride),
          "cublasLtMatrixLayoutSetAttribute", where);
  }
}

// Fills a plan. After an error the caller destroys the incomplete plan.
void make_lt_plan(LtPlan& plan, const Product& p, const GemmTypes& t, int device,
                  const char* where) {
  const LtLibrary& lt = lt_library();
  const HandleLock lock(device);
  LtHandle handle = lt_handle(device, where);
  auto describe = [&](LtDescriptor what, const auto& value) {
    check(lt.DescSet(plan.description, what, &value, sizeof value),
          "cublasLtMatmulDescSetAttribute", where);
  };
  const int described = lt.DescCreate(&plan.description, t.compute, t.scale);
  if (described && t.compute == kComputeEmulated) return;  // cuBLAS is older than 12.9
  check(described, "cublasLtMatmulDescCreate", where);
  describe(kLtTransA, static_cast<int32_t>(p.op_a));
  describe(kLtTransB, static_cast<int32_t>(p.op_b));
  if (p.bias) {
    describe(kLtEpilogue, static_cast<int32_t>(kLtBias));
    describe(kLtBiasPointer, p.bias);
  }
  const bool ta = p.op_a == kTranspose, tb = p.op_b == kTranspose;
  make_layout(plan.a, t, ta ? p.k : p.m, ta ? p.m : p.k, p.a, p.batch, where);
  make_layout(plan.b, t, tb ? p.n : p.k, tb ? p.k : p.n, p.b, p.batch, where);
  make_layout(plan.c, t, p.m, p.n, p.c, p.batch, where);
  make_layout(plan.d, t, p.m, p.n, p.d, p.batch, where);
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
  const int status = lt.Heuristic(handle, plan.description, plan.a, plan.b, plan.c, plan.d,
                                  preference, 1, &plan.choice, &found);
  lt.PreferenceDestroy(preference);
  plan.usable = status == 0 && found > 0 && plan.choice.status == 0;
}

// Nothing for dtypes that cuBLAS does not multiply.
std::optional<GemmTypes> gemm_types(DTypeId dtype, Precision precision) noexcept {
  using T = GemmTypes;
  const bool tf32 = precision == Precision::Tf32;
  switch (dtype) {
    case kFloat32: return T{kReal32, tf32 ? kComputeTf32 : kCompute32, kReal32};
    case kFloat64: return T{kReal64, kCompute64, kReal64};
    case kFloat16: return T{kReal16, kCompute32, kReal32};
    case kBFloat16: return T{kBrain16, kCompute32, kReal32};
    case kComplex64: return T{kPair32, tf32 ? kComputeTf32 : kCompute32, kPair32};
    case kComplex128: return T{kPair64, kCompute64, kPair64};
    default: return std::nullopt;
  }
}

// C is D.
void run_gemm(const Product& p, const GemmTypes& t, Scalar alpha, Scalar beta, int device,
              CUstream stream, const char* where) {
  // Allocated for each call: it belongs to this stream at this point of it, and in a capture to the graph.
  BufferRef workspace = allocate({DeviceType::Cuda, device}, kWorkspace, where);
  cuda::order(workspace.get(), stream, where);
  const Scale a(alpha, t.scale), b(beta, t.scale);
  const Library& f = library();
  const HandleLock lock(device);
  Handle h = handle(device, stream, workspace->ptr, kWorkspace, where);
  if (p.batch == 1)
    return check(
        f.GemmEx(h, p.op_a, p.op_b, p.m, p.n, p.k, &a, p.a.data, t.data, p.a.ld, p.b.data, t.data,
                 p.b.ld, &b, p.d.data, t.data, p.d.ld, t.compute, kDefaultAlgorithm),
        "cublasGemmEx_64", where);
  check(f.GemmStridedBatchedEx(h, p.op_a, p.op_b, p.m, p.n, p.k, &a, p.a.data, t.data, p.a.ld,
                               p.a.stride, p.b.data, t.data, p.b.ld, p.b.stride, &b, p.d.data,
                               t.data, p.d.ld, p.d.stride, p.batch, t.compute, kDefaultAlgorithm),
        "cublasGemmStridedBatchedEx_64", where);
}

// C may differ from D, and a bias is possible. False if cublasLt has no kernel for the product.
bool run_lt(const Product& p, const GemmTypes& t, Scalar alpha, Scalar beta, int device,
            CUstream stream, const char* where) {
  if (p.batch > INT32_MAX) return false;
  // The heuristic's result depends on sizes, strides and alignments; the bias pointer is set for each call.
  auto write_key = [&](CallKey& key) {
    key.begin(Subject::CublasLt, static_cast<uint32_t>(device));
    key.put(t);
    for (int64_t n : {p.m, p.n, p.k, p.batch}) key.put(n);
    for (const Matrix* m : {&p.a, &p.b, &p.c, &p.d}) {
      key.put(m->stride);
      key.put(m->ld);
      key.put(alignment_of(m->data));
    }
    key.put(p.op_a);
    key.put(p.op_b);
    key.put(p.bias ? alignment_of(p.bias) : 0u);
  };
  auto prepare = [&] {
    auto made = std::make_shared<LtPlan>();
    make_lt_plan(*made, p, t, device, where);
    return std::shared_ptr<const LtPlan>(made);
  };
  // Hold a reference, because Python code that an allocation may run could empty the cache.
  const auto held = find_or_prepare<LtPlan>(write_key, prepare, where);
  const LtPlan& plan = *held;
  if (!plan.usable) return false;
  BufferRef workspace;
  if (plan.choice.workspace) {
    workspace =
        allocate({DeviceType::Cuda, device}, static_cast<int64_t>(plan.choice.workspace), where);
    cuda::order(workspace.get(), stream, where);
  }
  const Scale a(alpha, t.scale), b(beta, t.scale);
  const HandleLock lock(device);
  if (p.bias)
    check(lt_library().DescSet(plan.description, kLtBiasPointer, &p.bias, sizeof p.bias),
          "cublasLtMatmulDescSetAttribute", where);
  check(lt_library().Matmul(lt_handle(device, where), plan.description, &a, p.a.data, plan.a,
                            p.b.data, plan.b, &b, p.c.data, plan.c, p.d.data, plan.d,
                            plan.choice.algorithm, workspace ? workspace->ptr : nullptr,
                            plan.choice.workspace, stream),
        "cublasLtMatmul", where);
  return true;
}

// ---- arrays as matrices of cuBLAS -----------------------------------------------------------------

// Whether cuBLAS can read the memory in place, in row or column order. Axes of length 1 take any stride.
bool as_matrix(const Array& x, bool by_rows, Matrix* to) {
  const int inner = x.layout.ndim() - (by_rows ? 1 : 2),
            outer = x.layout.ndim() - (by_rows ? 2 : 1);
  const int64_t length = x.layout.shape()[inner], lines = x.layout.shape()[outer];
  const int64_t along = x.layout.strides()[inner], across = x.layout.strides()[outer];
  const int64_t batch = x.layout.ndim() > 2 ? x.layout.strides()[x.layout.ndim() - 3] : 0;
  *to = {x.data, by_rows, lines <= 1 ? length : across, batch};
  return (length <= 1 || along == 1) && (lines <= 1 || across >= length);
}
bool as_matrix(const Array& x, Matrix* to) {
  return as_matrix(x, true, to) || as_matrix(x, false, to);
}

// The same memory under another layout.
Array with_layout(const Array& x, Layout layout) {
  Array view = x;
  view.layout = std::move(layout);
  return view;
}

bool reshape(Array& x, std::initializer_list<int64_t> shape, const char* where) {
  Layout layout;
  if (!x.layout.reshaped(static_cast<int>(shape.size()), shape.begin(), &layout, where))
    return false;
  x.layout = std::move(layout);
  return true;
}

// The caller's arrays, or the copies and views that replace them.
struct Operands {
  Array out, a, b, c;
  bool has_c;

  // c is one vector, added to every row of out.
  bool c_is_row() const { return has_c && c.layout.ndim() == 1; }

  // cuBLAS iterates over the innermost leading axis, gemm() over the others.
  int leading() const { return out.layout.ndim() - 2; }
  int64_t batch() const { return leading() > 0 ? out.layout.shape()[leading() - 1] : 1; }
  int64_t products() const {
    int64_t count = 1;
    for (int axis = 0; axis < leading() - 1; ++axis) count *= out.layout.shape()[axis];
    return count;
  }
};

// What adds c: cuBLAS, after it was copied to the result; cublasLt, which reads it as a matrix; or the epilogue
// of cublasLt, which reads a row.
enum class Addend { InResult, Matrix, Row };

// Replaces a c of shape (1, n) by a vector of length n.
void flatten_row(Operands& o, const char* where) {
  const Layout& c = o.c.layout;
  if (c.ndim() < 2 || c.size() != c.shape()[c.ndim() - 1] || o.out.layout.size() == c.size())
    return;
  const int64_t n = c.size(), stride = c.strides()[c.ndim() - 1];
  Layout row(1, &n, &stride);
  row.finish(where);
  o.c.layout = std::move(row);
}

// Merges batch axes as far as strides allow. Afterwards all operands have out's number of axes, except a
// row.
void merge_batches(Operands& o, const char* where) {
  const Layout l = o.out.layout;
  const int nd = l.ndim(), leading = nd - 2;
  const int64_t* shape = l.shape();
  const int64_t m = shape[nd - 2], n = shape[nd - 1];
  const int64_t k = o.a.layout.shape()[o.a.layout.ndim() - 1];
  int64_t count = 1;
  for (int d = 0; d < leading; ++d) count *= shape[d];
  auto spread = [&](Array& x, int64_t rows, int64_t columns) {
    int64_t full[kMaxDims];
    std::copy_n(shape, leading, full);
    full[nd - 2] = rows;
    full[nd - 1] = columns;
    x.layout = x.layout.broadcast_to(nd, full, where);
  };
  if (o.b.layout.ndim() == 2 && o.a.layout.ndim() == nd &&
      std::equal(shape, shape + leading, o.a.layout.shape())) {
    // Use one tall matrix instead of many. Matrices of one row may repeat, overlap or have negative strides,
    // but the rows of the tall one may not.
    Operands flat = o;
    Matrix unused;
    const bool matrix = o.has_c && !o.c_is_row();
    if (matrix) spread(flat.c, m, n);
    if (reshape(flat.out, {count * m, n}, where) && reshape(flat.a, {count * m, k}, where) &&
        as_matrix(flat.a, &unused) && (!matrix || reshape(flat.c, {count * m, n}, where))) {
      o = std::move(flat);
      return;
    }
  }
  spread(o.a, m, k);
  spread(o.b, k, n);
  if (o.has_c) spread(o.c, m, n);
  if (leading < 2) return;
  Operands merged = o;
  if (reshape(merged.out, {count, m, n}, where) && reshape(merged.a, {count, m, k}, where) &&
      reshape(merged.b, {count, k, n}, where) &&
      (!o.has_c || reshape(merged.c, {count, m, n}, where)))
    o = std::move(merged);
}

Addend place_addend(Operands& o, const Matrix& d, Matrix* c, Scalar beta, const char* where) {
  const Layout& l = o.out.layout;
  const int64_t n = l.shape()[l.ndim() - 1];
  *c = d;
  if (!o.has_c) return Addend::InResult;
  // In cublasLt's column-major order the row is a column.
  if (o.c_is_row() && l.ndim() == 2 && beta == Scalar{1, 0} && d.by_rows &&
      !is_complex(o.out.dtype) && o.c.layout.shape()[0] == n &&
      (n <= 1 || o.c.layout.strides()[0] == 1))
    return Addend::Row;
  o.c = with_layout(o.c, o.c.layout.broadcast_to(l.ndim(), l.shape(), where));
  if (is_same_place(o.c, o.out)) return Addend::InResult;
  // cublasLt reads both matrices in one order. It might refuse one of several products, and then out must
  // hold c.
  Matrix matrix;
  if (o.products() == 1 && as_matrix(o.c, d.by_rows, &matrix)) {
    *c = matrix;
    return Addend::Matrix;
  }
  copy_elements(o.out, o.c, where);  // one pass more, in return for any strides of c
  return Addend::InResult;
}

Product orient(const Operands& o, const Matrix& a, const Matrix& b, const Matrix& c,
               const Matrix& d) {
  const int64_t* shape = o.out.layout.shape() + o.leading();
  Product p = {};
  p.k = o.a.layout.shape()[o.a.layout.ndim() - 1];
  p.batch = o.batch();
  p.c = c;
  p.d = d;
  // Row-major D is column-major D', and D' = B' A'.
  p.m = shape[d.by_rows ? 1 : 0];
  p.n = shape[d.by_rows ? 0 : 1];
  p.a = d.by_rows ? b : a;
  p.b = d.by_rows ? a : b;
  p.op_a = p.a.by_rows == d.by_rows ? kNone : kTranspose;
  p.op_b = p.b.by_rows == d.by_rows ? kNone : kTranspose;
  return p;
}

// The matrix of `x` in the nth product. n is an index into the leading axes without the innermost one.
Matrix nth_matrix(const Array& x, Matrix m, const Operands& o, int64_t n) {
  int64_t elements = 0;
  for (int axis = o.leading() - 2; axis >= 0; --axis) {
    const int64_t length = o.out.layout.shape()[axis];
    elements += n % length * x.layout.strides()[axis];
    n /= length;
  }
  m.data += elements * x.itemsize();
  return m;
}

}  // namespace

bool cublas_takes(DTypeId dtype) noexcept {
  return gemm_types(dtype, Precision::Exact).has_value();
}

void gemm(const Array& out, const Array& a0, const Array& b0, const Array* c0, Scalar alpha,
          Scalar beta, Precision precision, const char* where) {
  const GemmTypes types = *gemm_types(out.dtype, precision);
  const bool on_tensor_cores = precision == Precision::Tf32x3 && out.dtype == kFloat32;
  Operands o{out, a0, b0, c0 ? *c0 : Array(), c0 != nullptr};
  if (c0) flatten_row(o, where);
  Matrix a, b, c, d;
  // Copy only operands that cuBLAS cannot read, and do so before broadcasting repeats them.
  if (!as_matrix(o.a, &a)) o.a = copy_for(a0, a0.device, where);
  if (!as_matrix(o.b, &b)) o.b = copy_for(b0, b0.device, where);
  if (out.layout.ndim() > 2) merge_batches(o, where);
  const bool through_copy = !as_matrix(o.out, &d);
  if (through_copy) {
    o.out = empty_like(o.out, out.device, where);
    as_matrix(o.out, &d);
  }
  as_matrix(o.a, &a);
  as_matrix(o.b, &b);
  const Addend addend = place_addend(o, d, &c, beta, where);
  if (!o.has_c) beta = {0, 0};

  const int device = out.device.id;
  cuda::DeviceGuard guard(device);
  // cuBLAS allocates for a new handle and loads its kernels on first use.
  cuda::RelaxedCapture relaxed;
  CUstream stream = cuda::current_stream(device);
  auto order_all = [&] {
    for (const Array* x : {&o.a, &o.b, &o.out, &o.c}) cuda::order(x->buffer.get(), stream, where);
  };
  order_all();
  for (int64_t i = 0; i < o.products(); ++i) {
    Product p = orient(o, nth_matrix(o.a, a, o, i), nth_matrix(o.b, b, o, i), c,
                       nth_matrix(o.out, d, o, i));
    if (addend == Addend::InResult) p.c = p.d;  // of this product
    const bool row = addend == Addend::Row;
    p.bias = row ? o.c.data : nullptr;
    const Scalar kept = row ? Scalar{0, 0} : beta;
    if (on_tensor_cores) {
      if (tensor_product(p, alpha.real, beta.real, device, stream, where)) continue;
      const GemmTypes emulated{kReal32, kComputeEmulated, kReal32};
      const bool blackwell = cuda::compute_capability(device, where) / 10 == 10;
      if (blackwell && run_lt(p, emulated, alpha, kept, device, stream, where)) continue;
    }
    if (addend != Addend::InResult) {
      if (run_lt(p, types, alpha, kept, device, stream, where)) continue;
      // cublasLt has no kernel for these sizes: cuBLAS adds what the result holds.
      const Layout& l = o.out.layout;
      copy_elements(o.out, with_layout(o.c, o.c.layout.broadcast_to(l.ndim(), l.shape(), where)),
                    where);
    }
    run_gemm(p, types, alpha, beta, device, stream, where);
  }
  // Allocating a workspace and compiling copies let other threads run. Their uses of the operands may have
  // been queued before the products.
  order_all();
  if (through_copy) {
    // The copy is C-contiguous, so C order also undoes the merge of its axes.
    const Layout whole = Layout::c_order(out.layout.ndim(), out.layout.shape(), where);
    copy_elements(out, with_layout(o.out, whole), where);
  }
}

}  // namespace gpuinterop::ops
