// Stands for cuBLAS and cublasLt where the fake driver stands for CUDA: the same calls on host
// memory, in float64, with the arguments checked as the real library checks them.
#include <dlfcn.h>

#include <complex>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <initializer_list>

#include "../queued_work.hpp"

namespace {

enum { R32 = 0, R64 = 1, R16 = 2, C32 = 4, C64 = 5, B16 = 14 };

using Number = std::complex<double>;

Number read(const void* p, int type, long long i) {
  switch (type) {
    case R32: return static_cast<const float*>(p)[i];
    case R64: return static_cast<const double*>(p)[i];
    case C32: return static_cast<const std::complex<float>*>(p)[i];
    case C64: return static_cast<const Number*>(p)[i];
    default: return 0;
  }
}
void write(void* p, int type, long long i, Number v) {
  if (type == R32) static_cast<float*>(p)[i] = float(v.real());
  if (type == R64) static_cast<double*>(p)[i] = v.real();
  if (type == C32) static_cast<std::complex<float>*>(p)[i] = std::complex<float>(v);
  if (type == C64) static_cast<Number*>(p)[i] = v;
}

struct Handle {
  void* stream = nullptr;
};

// gemm, batched gemm, lt matmul, lt with bias, workspaces set, heuristics, last compute type
int calls[7];
bool refusing = false;  // cublasLt finds no kernel
int newest = 78;        // the last type of computation that cublasLt knows
int objects = 0;        // cublasLt objects that are not destroyed yet
int layouts_left = -1;  // then making one fails; -1: never

constexpr int kNotInitialized = 1, kInvalid = 7, kNotSupported = 15;
constexpr int kDefaultAlgorithm = -1;

bool is_op(int op) { return op >= 0 && op <= 2; }
long long at_least_one(long long n) { return n < 1 ? 1 : n; }
long long item_bytes(int type) { return type == C64 ? 16 : type == R64 || type == C32 ? 8 : 4; }
bool is_aligned(const void* p, int type) { return p && reinterpret_cast<uintptr_t>(p) % item_bytes(type) == 0; }

// What the documentation of the gemm functions says that they refuse.
int refusal(const void* handle, int ta, int tb, long long m, long long n, long long k, const void* alpha, const void* a,
            int at, long long lda, const void* b, int bt, long long ldb, const void* beta, const void* c, int ct,
            long long ldc, long long batch, long long stride_c, int compute, int algorithm) {
  if (!handle) return kNotInitialized;
  if (m < 0 || n < 0 || k < 0 || batch < 0) return kInvalid;
  if (!is_op(ta) || !is_op(tb)) return kInvalid;
  if (lda < at_least_one(ta ? k : m) || ldb < at_least_one(tb ? n : k) || ldc < at_least_one(m)) return kInvalid;
  if (!alpha || !beta || !is_aligned(a, at) || !is_aligned(b, bt) || !is_aligned(c, ct)) return kInvalid;
  if (at != bt || at != ct || (at != R32 && at != R64 && at != C32 && at != C64)) return kNotSupported;
  // 68: CUBLAS_COMPUTE_32F, 77: CUBLAS_COMPUTE_32F_FAST_TF32, 70: CUBLAS_COMPUTE_64F
  if (at == R32 || at == C32 ? compute != 68 && compute != 77 : compute != 70) return kNotSupported;
  if (algorithm != kDefaultAlgorithm) return kInvalid;
  // Results on top of each other: not refused by the real one, and not defined there either.
  return batch > 1 && stride_c == 0 ? kInvalid : 0;
}

// The element of an operand that op 2 (CUBLAS_OP_C) conjugates.
Number element(const void* p, int type, int op, long long i) {
  return op == 2 ? std::conj(read(p, type, i)) : read(p, type, i);
}

// Real numbers without the products of imaginary zeros, which are NaN beside an infinity.
Number times(Number x, Number y, int type) {
  return type == R32 || type == R64 ? Number(x.real() * y.real()) : x * y;
}

void product(int ta, int tb, long long m, long long n, long long k, Number alpha, const void* a, long long lda, const void* b,
            long long ldb, Number beta, const void* c, long long ldc, void* d, long long ldd, int type,
            const void* bias) {
  for (long long j = 0; j < n; ++j)
    for (long long i = 0; i < m; ++i) {
      Number sum = 0;
      for (long long q = 0; q < k; ++q)
        sum += times(element(a, type, ta, ta ? i * lda + q : q * lda + i),
                     element(b, type, tb, tb ? q * ldb + j : j * ldb + q), type);
      sum = times(sum, alpha, type);
      if (beta != Number(0)) sum += times(beta, read(c, type, j * ldc + i), type);
      if (bias) sum += read(bias, type, i);
      write(d, type, j * ldd + i, sum);
    }
}

Number scale(const void* p, int type) { return read(p, type, 0); }

struct Desc {
  int ta = 0, tb = 0, epilogue = 1, scale = 0, compute = 0;
  const void* bias = nullptr;
};
struct Layout {
  int type;
  uint64_t rows, cols;
  int64_t ld;
  int32_t batch = 1;
  int64_t stride = 0;
};

// The batched routines are beside those of cuSOLVER.
void* batched(const char* name) {
  void* solver = dlopen(std::getenv("GPUINTEROP_LIBCUSOLVER"), RTLD_NOW);
  return solver ? dlsym(solver, name) : nullptr;
}
template <class... A>
int forwarded(const char* name, A... arguments) {
  auto* call = reinterpret_cast<int (*)(A...)>(batched(name));
  return call ? call(arguments...) : kNotInitialized;
}

}  // namespace

extern "C" {
int fakecublas_calls(int which) { return calls[which]; }
void fakecublas_refuse(int yes) { refusing = yes; }
void fakecublas_set_newest(int compute) { newest = compute; }
int fakecublas_objects() { return objects; }
void fakecublas_fail_after(int layouts) { layouts_left = layouts; }

int cublasCreate_v2(Handle** h) { *h = new Handle; return 0; }
int cublasSetStream_v2(Handle* h, void* stream) { h->stream = stream; return 0; }
int cublasSetWorkspace_v2(void*, void* p, size_t) { ++calls[4]; return reinterpret_cast<uintptr_t>(p) % 256 ? 7 : 0; }
int cublasGemmEx_64(Handle* h, int ta, int tb, int64_t m, int64_t n, int64_t k, const void* alpha, const void* a, int at,
                    int64_t lda, const void* b, int bt, int64_t ldb, const void* beta, void* c, int ct, int64_t ldc,
                    int compute, int algorithm) {
  ++calls[0];
  calls[6] = compute;
  if (int no = refusal(h, ta, tb, m, n, k, alpha, a, at, lda, b, bt, ldb, beta, c, ct, ldc, 1, 0, compute, algorithm))
    return no;
  queue(h->stream, [=, by = scale(alpha, at), plus = scale(beta, at)] {
    product(ta, tb, m, n, k, by, a, lda, b, ldb, plus, c, ldc, c, ldc, at, nullptr);
  });
  return 0;
}
int cublasGemmStridedBatchedEx_64(Handle* h, int ta, int tb, int64_t m, int64_t n, int64_t k, const void* alpha,
                                  const void* a, int at, int64_t lda, long long sa, const void* b, int bt, int64_t ldb,
                                  long long sb, const void* beta, void* c, int ct, int64_t ldc, long long sc,
                                  int64_t batch, int compute, int algorithm) {
  ++calls[1];
  if (int no = refusal(h, ta, tb, m, n, k, alpha, a, at, lda, b, bt, ldb, beta, c, ct, ldc, batch, sc, compute, algorithm))
    return no;
  long long item = item_bytes(at);
  queue(h->stream, [=, by = scale(alpha, at), plus = scale(beta, at)] {
    for (int64_t i = 0; i < batch; ++i) {
      void* out = static_cast<char*>(c) + i * sc * item;
      product(ta, tb, m, n, k, by, static_cast<const char*>(a) + i * sa * item, lda,
              static_cast<const char*>(b) + i * sb * item, ldb, plus, out, ldc, out, ldc, at, nullptr);
    }
  });
  return 0;
}
int cublasLtCreate(void** h) { *h = new int; return 0; }
int cublasLtMatmulDescCreate(Desc** d, int compute, int type) {
  if (type == R64 ? compute != 70 : type != R32 || (compute != 68 && compute != 77 && compute != newest)) return kNotSupported;
  *d = new Desc;
  ++objects;
  (*d)->scale = type;
  (*d)->compute = compute;
  return 0;
}
int cublasLtMatmulDescDestroy(Desc* d) { delete d; --objects; return 0; }
int cublasLtMatmulDescSetAttribute(Desc* d, int what, const void* p, size_t n) {
  if (what == 3 && n == 4) std::memcpy(&d->ta, p, n);
  else if (what == 4 && n == 4) std::memcpy(&d->tb, p, n);
  else if (what == 7 && n == 4) std::memcpy(&d->epilogue, p, n);
  else if (what == 8 && n == 8) std::memcpy(&d->bias, p, n);
  else return 7;
  return 0;
}
int cublasLtMatrixLayoutCreate(Layout** l, int type, uint64_t rows, uint64_t cols, int64_t ld) {
  if (rows < 1 || cols < 1 || ld < int64_t(rows)) return kInvalid;
  if (layouts_left == 0) return 3;  // CUBLAS_STATUS_ALLOC_FAILED
  if (layouts_left > 0) --layouts_left;
  *l = new Layout{type, rows, cols, ld};
  ++objects;
  return 0;
}
int cublasLtMatrixLayoutDestroy(Layout* l) { delete l; --objects; return 0; }
int cublasLtMatrixLayoutSetAttribute(Layout* l, int what, const void* p, size_t n) {
  if (what == 5 && n == 4) std::memcpy(&l->batch, p, n);
  else if (what == 6 && n == 8) std::memcpy(&l->stride, p, n);
  else return 7;
  return 0;
}
int cublasLtMatmulPreferenceCreate(void** p) { *p = new int; ++objects; return 0; }
int cublasLtMatmulPreferenceDestroy(void* p) { delete static_cast<int*>(p); --objects; return 0; }
int cublasLtMatmulPreferenceSetAttribute(void*, int, const void*, size_t) { return 0; }
struct Result { uint64_t algorithm[8]; size_t workspace; int status; float waves; int reserved[4]; };
int cublasLtMatmulAlgoGetHeuristic(void*, Desc*, Layout*, Layout*, Layout*, Layout*, void*, int, Result* r, int* found) {
  ++calls[5];
  *r = {};
  r->workspace = 4096;
  *found = !refusing;
  return 0;
}
int cublasLtMatmul(void* h, Desc* d, const void* alpha, const void* a, Layout* la, const void* b, Layout* lb,
                   const void* beta, const void* c, Layout* lc, void* out, Layout* ld, const uint64_t* algorithm,
                   void* workspace, size_t bytes, void* stream) {
  ++calls[d->epilogue == 4 ? 3 : 2];
  calls[6] = d->compute;
  long long m = ld->rows, n = ld->cols, k = d->ta ? la->rows : la->cols;
  if (!h) return kNotInitialized;
  if (!is_op(d->ta) || !is_op(d->tb) || !alpha || !beta || !algorithm) return kInvalid;
  if ((d->ta ? la->cols : la->rows) != ld->rows || (d->tb ? lb->rows : lb->cols) != ld->cols ||
      uint64_t(d->tb ? lb->cols : lb->rows) != uint64_t(k) || lc->rows != ld->rows || lc->cols != ld->cols)
    return kInvalid;
  for (Layout* l : {la, lb, lc})
    if (l->type != ld->type || l->batch != ld->batch) return kInvalid;
  if (d->scale != ld->type) return kNotSupported;
  if (!is_aligned(a, ld->type) || !is_aligned(b, ld->type) || !is_aligned(c, ld->type) || !is_aligned(out, ld->type))
    return kInvalid;
  // In place, both must be the same matrix.
  if (c == out && (lc->ld != ld->ld || lc->stride != ld->stride)) return kInvalid;
  if (ld->batch > 1 && ld->stride == 0) return kInvalid;
  if (d->epilogue != 1 && (d->epilogue != 4 || !is_aligned(d->bias, ld->type))) return kInvalid;
  if (bytes < 4096 || !workspace || reinterpret_cast<uintptr_t>(workspace) % 256) return kInvalid;
  long long item = item_bytes(la->type);
  queue(stream, [=, by = scale(alpha, d->scale), plus = scale(beta, d->scale), d = *d, la = *la, lb = *lb, lc = *lc,
                 ld = *ld] {
    for (int i = 0; i < ld.batch; ++i)
      product(d.ta, d.tb, m, n, k, by, static_cast<const char*>(a) + i * la.stride * item, la.ld,
              static_cast<const char*>(b) + i * lb.stride * item, lb.ld, plus,
              static_cast<const char*>(c) + i * lc.stride * item, lc.ld, static_cast<char*>(out) + i * ld.stride * item,
              ld.ld, la.type, d.epilogue == 4 ? d.bias : nullptr);
  });
  return 0;
}

#define BATCHED(L)                                                                                                       \
  int cublas##L##getrfBatched(Handle* h, int n, void** a, int ld, int* pivots, int* info, int count) {                   \
    return forwarded("fake" #L "getrfBatched", h, n, a, ld, pivots, info, count);                                        \
  }                                                                                                                      \
  int cublas##L##getrsBatched(Handle* h, int op, int n, int columns, void** a, int ld, const int* pivots, void** b,      \
                              int ldb, int* info, int count) {                                                           \
    return forwarded("fake" #L "getrsBatched", h, op, n, columns, a, ld, pivots, b, ldb, info, count);                   \
  }                                                                                                                      \
  int cublas##L##geqrfBatched(Handle* h, int m, int n, void** a, int ld, void** tau, int* info, int count) {             \
    return forwarded("fake" #L "geqrfBatched", h, m, n, a, ld, tau, info, count);                                        \
  }
BATCHED(S)
BATCHED(D)
BATCHED(C)
BATCHED(Z)
}
