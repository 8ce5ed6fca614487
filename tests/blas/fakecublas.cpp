// Stands for cuBLAS and cublasLt where the fake driver stands for CUDA: the same calls on host
// memory, in float64, with the arguments checked as the real library checks them.
#include <dlfcn.h>

#include <cstdint>
#include <cstdlib>
#include <cstring>

namespace {

enum { R32 = 0, R64 = 1, R16 = 2, C32 = 4, C64 = 5, B16 = 14 };

double read(const void* p, int type, long long i) {
  switch (type) {
    case R32: return static_cast<const float*>(p)[i];
    case R64: return static_cast<const double*>(p)[i];
    default: return 0;
  }
}
void write(void* p, int type, long long i, double v) {
  if (type == R32) static_cast<float*>(p)[i] = float(v);
  if (type == R64) static_cast<double*>(p)[i] = v;
}

// The fake driver's streams run on threads of their own; this library computes in the caller's.
void wait_for_streams() {
  static auto* synchronize = [] {
    void* driver = dlopen(std::getenv("GPUINTEROP_LIBCUDA"), RTLD_NOW | RTLD_NOLOAD);
    return reinterpret_cast<int (*)()>(driver ? dlsym(driver, "cuCtxSynchronize") : nullptr);
  }();
  if (synchronize) synchronize();
}

// gemm, batched gemm, lt matmul, lt with bias, 64-bit gemm, workspaces set, heuristics, last compute type
int calls[8];
bool refusing = false;  // cublasLt finds no kernel

int product(int ta, int tb, long long m, long long n, long long k, double alpha, const void* a, long long lda, const void* b,
            long long ldb, double beta, const void* c, long long ldc, void* d, long long ldd, int type,
            const void* bias) {
  if (type != R32 && type != R64) return 15;
  wait_for_streams();
  if (m < 0 || n < 0 || k < 0) return 7;
  if (lda < (ta ? k : m) || lda < 1 || ldb < (tb ? n : k) || ldb < 1 || ldc < m || ldd < m) return 7;
  for (long long j = 0; j < n; ++j)
    for (long long i = 0; i < m; ++i) {
      double sum = 0;
      for (long long q = 0; q < k; ++q)
        sum += read(a, type, ta ? i * lda + q : q * lda + i) * read(b, type, tb ? q * ldb + j : j * ldb + q);
      sum *= alpha;
      if (beta != 0) sum += beta * read(c, type, j * ldc + i);
      if (bias) sum += read(bias, type, i);
      write(d, type, j * ldd + i, sum);
    }
  return 0;
}

double scale(const void* p, int type) { return type == R64 ? *static_cast<const double*>(p) : *static_cast<const float*>(p); }

struct Desc {
  int ta = 0, tb = 0, epilogue = 1, scale = 0;
  const void* bias = nullptr;
};
struct Layout {
  int type;
  uint64_t rows, cols;
  int64_t ld;
  int32_t batch = 1;
  int64_t stride = 0;
};

}  // namespace

extern "C" {
int fakecublas_calls(int which) { return calls[which]; }
void fakecublas_refuse(int yes) { refusing = yes; }

int cublasCreate_v2(void** h) { *h = new int; return 0; }
int cublasDestroy_v2(void* h) { delete static_cast<int*>(h); return 0; }
int cublasGetVersion_v2(void*, int* v) { *v = 130000; return 0; }
int cublasSetStream_v2(void*, void*) { return 0; }
int cublasSetWorkspace_v2(void*, void* p, size_t) { ++calls[5]; return reinterpret_cast<uintptr_t>(p) % 256 ? 7 : 0; }
int cublasGemmEx(void*, int ta, int tb, int m, int n, int k, const void* alpha, const void* a, int at, int lda,
                 const void* b, int, int ldb, const void* beta, void* c, int, int ldc, int compute, int) {
  ++calls[0];
  calls[7] = compute;
  return product(ta, tb, m, n, k, scale(alpha, at), a, lda, b, ldb, scale(beta, at), c, ldc, c, ldc, at, nullptr);
}
int cublasGemmStridedBatchedEx(void*, int ta, int tb, int m, int n, int k, const void* alpha, const void* a, int at,
                               int lda, long long sa, const void* b, int, int ldb, long long sb, const void* beta,
                               void* c, int, int ldc, long long sc, int batch, int, int) {
  ++calls[1];
  long long item = at == R64 ? 8 : 4;
  for (int i = 0; i < batch; ++i) {
    void* out = static_cast<char*>(c) + i * sc * item;
    int code = product(ta, tb, m, n, k, scale(alpha, at), static_cast<const char*>(a) + i * sa * item, lda,
                       static_cast<const char*>(b) + i * sb * item, ldb, scale(beta, at), out, ldc, out, ldc, at, nullptr);
    if (code) return code;
  }
  return 0;
}
int cublasGemmStridedBatchedEx_64(void*, int ta, int tb, int64_t m, int64_t n, int64_t k, const void* alpha,
                                  const void* a, int at, int64_t lda, long long sa, const void* b, int, int64_t ldb,
                                  long long sb, const void* beta, void* c, int, int64_t ldc, long long sc,
                                  int64_t batch, int, int) {
  ++calls[4];
  long long item = at == R64 ? 8 : 4;
  for (int64_t i = 0; i < batch; ++i) {
    void* out = static_cast<char*>(c) + i * sc * item;
    int code = product(ta, tb, m, n, k, scale(alpha, at), static_cast<const char*>(a) + i * sa * item, lda,
                       static_cast<const char*>(b) + i * sb * item, ldb, scale(beta, at), out, ldc, out, ldc, at, nullptr);
    if (code) return code;
  }
  return 0;
}

int cublasLtCreate(void** h) { *h = new int; return 0; }
int cublasLtMatmulDescCreate(Desc** d, int, int type) { *d = new Desc; (*d)->scale = type; return 0; }
int cublasLtMatmulDescDestroy(Desc* d) { delete d; return 0; }
int cublasLtMatmulDescSetAttribute(Desc* d, int what, const void* p, size_t n) {
  if (what == 3 && n == 4) std::memcpy(&d->ta, p, n);
  else if (what == 4 && n == 4) std::memcpy(&d->tb, p, n);
  else if (what == 7 && n == 4) std::memcpy(&d->epilogue, p, n);
  else if (what == 8 && n == 8) std::memcpy(&d->bias, p, n);
  else return 7;
  return 0;
}
int cublasLtMatrixLayoutCreate(Layout** l, int type, uint64_t rows, uint64_t cols, int64_t ld) {
  if (ld < int64_t(rows)) return 7;
  *l = new Layout{type, rows, cols, ld};
  return 0;
}
int cublasLtMatrixLayoutDestroy(Layout* l) { delete l; return 0; }
int cublasLtMatrixLayoutSetAttribute(Layout* l, int what, const void* p, size_t n) {
  if (what == 5 && n == 4) std::memcpy(&l->batch, p, n);
  else if (what == 6 && n == 8) std::memcpy(&l->stride, p, n);
  else return 7;
  return 0;
}
int cublasLtMatmulPreferenceCreate(void** p) { *p = new int; return 0; }
int cublasLtMatmulPreferenceDestroy(void* p) { delete static_cast<int*>(p); return 0; }
int cublasLtMatmulPreferenceSetAttribute(void*, int, const void*, size_t) { return 0; }
struct Result { uint64_t algorithm[8]; size_t workspace; int status; float waves; int reserved[4]; };
int cublasLtMatmulAlgoGetHeuristic(void*, Desc*, Layout*, Layout*, Layout*, Layout*, void*, int, Result* r, int* found) {
  ++calls[6];
  *r = {};
  r->workspace = 4096;
  *found = !refusing;
  return 0;
}
int cublasLtMatmul(void*, Desc* d, const void* alpha, const void* a, Layout* la, const void* b, Layout* lb,
                   const void* beta, const void* c, Layout* lc, void* out, Layout* ld, const uint64_t*, void*, size_t,
                   void*) {
  ++calls[d->epilogue == 4 ? 3 : 2];
  long long m = ld->rows, n = ld->cols, k = d->ta ? la->rows : la->cols;
  if ((d->ta ? la->cols : la->rows) != ld->rows || (d->tb ? lb->rows : lb->cols) != ld->cols ||
      uint64_t(d->tb ? lb->cols : lb->rows) != uint64_t(k) || lc->rows != ld->rows || lc->cols != ld->cols)
    return 7;
  long long item = la->type == R64 ? 8 : 4;
  for (int i = 0; i < ld->batch; ++i) {
    int code = product(d->ta, d->tb, int(m), int(n), int(k), scale(alpha, d->scale),
                       static_cast<const char*>(a) + i * la->stride * item, la->ld,
                       static_cast<const char*>(b) + i * lb->stride * item, lb->ld, scale(beta, d->scale),
                       static_cast<const char*>(c) + i * lc->stride * item, lc->ld,
                       static_cast<char*>(out) + i * ld->stride * item, ld->ld, la->type,
                       d->epilogue == 4 ? d->bias : nullptr);
    if (code) return code;
  }
  return 0;
}
}
