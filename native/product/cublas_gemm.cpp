#include "product/cublas_gemm.hpp"

#include <algorithm>
#include <cstring>
#include <memory>

#include "devices/cuda.hpp"
#include "devices/device_state.hpp"
#include "elementwise/call_cache.hpp"
#include "interpreter/error.hpp"

namespace gpuinterop::ops {

namespace {

using namespace blas;

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
  check(lt.DescCreate(&plan.description, t.compute, t.scale), "cublasLtMatmulDescCreate", where);
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

}  // namespace

std::optional<GemmTypes> gemm_types(DTypeId dtype, bool tf32) noexcept {
  using T = GemmTypes;
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

}  // namespace gpuinterop::ops
