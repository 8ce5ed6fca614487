// Stands for cuSOLVER, and for cuBLAS's batched routines, where the fake driver stands for CUDA: LAPACK of NumPy's own
// library (GPUINTEROP_FAKE_LAPACK) on host memory, queued on the stream, with the work areas checked.
#include <dlfcn.h>

#include <algorithm>
#include <cmath>
#include <complex>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <string>
#include <vector>

#include "../queued_work.hpp"

namespace {

using Int = int64_t;
enum { R32 = 0, R64 = 1, C32 = 4, C64 = 5 };
constexpr int kInvalid = 3;
constexpr size_t kDeviceBytes = 320, kHostBytes = 24;

struct Handle {
  void* stream = nullptr;
};

bool is_complex(int type) { return type >= C32; }
size_t item(int type) { return type == R32 ? 4 : type == C64 ? 16 : 8; }
char letter(int type) { return type == R32 ? 's' : type == R64 ? 'd' : type == C32 ? 'c' : 'z'; }

// A routine of LAPACK. All arguments are pointers; the lengths of texts follow them.
template <class... A>
void lapack(const std::string& name, int type, A... arguments) {
  static void* library = dlopen(std::getenv("GPUINTEROP_FAKE_LAPACK"), RTLD_NOW);
  const std::string symbol = std::string("scipy_") + letter(type) + name + "_64_";
  auto* routine = reinterpret_cast<void (*)(A..., size_t, size_t)>(dlsym(library, symbol.c_str()));
  routine(arguments..., 1, 1);
}

// Work areas of LAPACK itself.
struct Room {
  std::vector<char> work, real;
  Int size;
  Room(Int m, Int n, int type) : size(66 * (m + n + 4)) {
    work.resize(size_t(size) * item(type));
    real.resize(size_t(8 * (m + n + 4)) * 8);
  }
};

void getrf(Int n, void* a, Int ld, Int* pivots, int* info, int type) {
  Int status;
  lapack("getrf", type, &n, &n, a, &ld, pivots, &status);
  *info = int(status);
}

void getrs(Int n, Int columns, const void* a, Int ld, const Int* pivots, void* b, Int ldb, int type) {
  Int status;
  lapack("getrs", type, "N", &n, &columns, a, &ld, pivots, b, &ldb, &status);
}

template <class T>
bool has_nan(const void* a, Int rows, Int columns, Int ld) {
  for (Int column = 0; column < columns; ++column)
    for (Int row = 0; row < rows; ++row)
      if (std::isnan(static_cast<const T*>(a)[column * ld + row])) return true;
  return false;
}

void gesvd(char job, Int m, Int n, void* a, Int ld, void* s, void* u, Int ldu, void* vt, Int ldvt, int* info, int type) {
  const Int parts = is_complex(type) ? 2 : 1;
  const bool wide = type == R64 || type == C64;
  // LAPACK may not end for NaN. cuSOLVER may report success.
  if (wide ? has_nan<double>(a, m * parts, n, ld * parts) : has_nan<float>(a, m * parts, n, ld * parts)) {
    std::memset(s, 0xff, size_t(n) * (wide ? 8 : 4));
    *info = 0;
    return;
  }
  Room r(m, n, type);
  Int status;
  if (is_complex(type))
    lapack("gesvd", type, &job, &job, &m, &n, a, &ld, s, u, &ldu, vt, &ldvt, r.work.data(), &r.size, r.real.data(), &status);
  else
    lapack("gesvd", type, &job, &job, &m, &n, a, &ld, s, u, &ldu, vt, &ldvt, r.work.data(), &r.size, &status);
  *info = int(status);
}

template <class T>
void adjoint(T* a, Int n) {
  for (Int i = 0; i < n; ++i)
    for (Int j = 0; j <= i; ++j) {
      const T x = a[i * n + j], y = a[j * n + i];
      if constexpr (std::is_floating_point_v<T>) a[i * n + j] = y, a[j * n + i] = x;
      else a[i * n + j] = std::conj(y), a[j * n + i] = std::conj(x);
    }
}

// As gesvd, but with V itself.
void svd_with_v(int vectors, bool economical, Int m, Int n, void* a, Int ld, void* s, void* u, void* v, int* info, int type) {
  gesvd(!vectors ? 'N' : economical ? 'S' : 'A', m, n, a, ld, s, u, m, v, n, info, type);
  if (!vectors) return;
  if (type == R32) adjoint(static_cast<float*>(v), n);
  if (type == R64) adjoint(static_cast<double*>(v), n);
  if (type == C32) adjoint(static_cast<std::complex<float>*>(v), n);
  if (type == C64) adjoint(static_cast<std::complex<double>*>(v), n);
}

void syevd(int vectors, int upper, Int n, void* a, Int ld, void* w, int* info, int type) {
  Room r(n, n, type);
  Int status;
  const char job = vectors ? 'V' : 'N', side = upper ? 'U' : 'L';
  if (is_complex(type))
    lapack("heev", type, &job, &side, &n, a, &ld, w, r.work.data(), &r.size, r.real.data(), &status);
  else
    lapack("syev", type, &job, &side, &n, a, &ld, w, r.work.data(), &r.size, &status);
  *info = int(status);
}

template <class T>
void real_geev(char job, Int n, void* a, Int ld, void* w, void* v, Int ldv, int* info, int type) {
  Room r(n, n, type);
  std::vector<T> re(static_cast<size_t>(n)), im(static_cast<size_t>(n));
  Int status;
  lapack("geev", type, "N", &job, &n, a, &ld, re.data(), im.data(), v, &ldv, v, &ldv, r.work.data(), &r.size, &status);
  for (size_t i = 0; i < re.size(); ++i) static_cast<std::complex<T>*>(w)[i] = {re[i], im[i]};
  *info = int(status);
}

void geev(int vectors, Int n, void* a, Int ld, void* w, void* v, Int ldv, int* info, int type) {
  const char job = vectors ? 'V' : 'N';
  if (type == R32) return real_geev<float>(job, n, a, ld, w, v, ldv, info, type);
  if (type == R64) return real_geev<double>(job, n, a, ld, w, v, ldv, info, type);
  Room r(n, n, type);
  Int status;
  lapack("geev", type, "N", &job, &n, a, &ld, w, v, &ldv, v, &ldv, r.work.data(), &r.size, r.real.data(), &status);
  *info = int(status);
}

void potrf(int upper, Int n, void* a, Int ld, int* info, int type) {
  Int status;
  lapack("potrf", type, upper ? "U" : "L", &n, a, &ld, &status);
  *info = int(status);
}

int sizes(size_t* device, size_t* host) {
  *device = kDeviceBytes;
  *host = kHostBytes;
  return 0;
}
bool refused(const void* device, size_t device_bytes, const void* host, size_t host_bytes) {
  return device_bytes < kDeviceBytes || reinterpret_cast<uintptr_t>(device) % 256 || host_bytes < kHostBytes || !host;
}

int orgqr(Handle* h, int m, int n, int k, void* a, int ld, const void* tau, void* work, int room, int*, int type) {
  if (room < 5 || !work || k > n || n > m || ld < m) return kInvalid;
  queue(h->stream, [=] {
    Room r(m, n, type);
    Int status, rows = m, columns = n, reflectors = k, lead = ld;
    lapack(is_complex(type) ? "ungqr" : "orgqr", type, &rows, &columns, &reflectors, a, &lead, tau, r.work.data(), &r.size, &status);
  });
  return 0;
}

int gesvdj(Handle* h, int vectors, int economical, int m, int n, void* a, int ld, void* s, void* u, void* v, void* work,
           int room, int* info, void* parameters, int type) {
  if (room < 5 || !work || !parameters || m < n) return kInvalid;
  queue(h->stream, [=] { svd_with_v(vectors, economical, m, n, a, ld, s, u, v, info, type); });
  return 0;
}

int potrf_batched(Handle* h, int upper, int n, void** a, int ld, int* info, int count, int type) {
  queue(h->stream, [=] {
    for (int i = 0; i < count; ++i) {
      potrf(upper, n, a[i], ld, info + i, type);
      for (int column = 0; column < n; ++column) {  // the other triangle is a work area
        const int first = upper ? column + 1 : 0, rows = upper ? n - first : column;
        std::memset(static_cast<char*>(a[i]) + (Int(column) * ld + first) * Int(item(type)), 0x41, size_t(rows) * item(type));
      }
    }
  });
  return 0;
}

int getrf_batched(Handle* h, int n, void** a, int ld, int* pivots, int* info, int count, int type) {
  queue(h->stream, [=] {
    std::vector<Int> wide(static_cast<size_t>(n));
    for (int i = 0; i < count; ++i) {
      getrf(n, a[i], ld, wide.data(), info + i, type);
      std::copy(wide.begin(), wide.end(), pivots + int64_t(i) * n);
    }
  });
  return 0;
}

int getrs_batched(Handle* h, int n, int columns, void** a, int ld, const int* pivots, void** b, int ldb, int count, int type) {
  queue(h->stream, [=] {
    for (int i = 0; i < count; ++i) {
      const std::vector<Int> wide(pivots + int64_t(i) * n, pivots + int64_t(i + 1) * n);
      getrs(n, columns, a[i], ld, wide.data(), b[i], ldb, type);
    }
  });
  return 0;
}

int geqrf_batched(Handle* h, int m, int n, void** a, int ld, void** tau, int* info, int count, int type) {
  *info = 0;
  queue(h->stream, [=] {
    for (int i = 0; i < count; ++i) {
      Room r(m, n, type);
      Int status, rows = m, columns = n, lead = ld;
      lapack("geqrf", type, &rows, &columns, a[i], &lead, tau[i], r.work.data(), &r.size, &status);
    }
  });
  return 0;
}

}  // namespace

extern "C" {
int cusolverDnCreate(Handle** h) { *h = new Handle; return 0; }
int cusolverDnSetStream(Handle* h, void* stream) { h->stream = stream; return 0; }
int cusolverDnCreateParams(void** p) { *p = new int; return 0; }
int cusolverDnCreateGesvdjInfo(void** p) { *p = new int; return 0; }
int cusolverDnXgesvdjSetTolerance(void*, double tolerance) { return tolerance > 0 && tolerance < 1e-6 ? 0 : kInvalid; }

int cusolverDnXgetrf_bufferSize(Handle*, void*, Int, Int, int, const void*, Int, int, size_t* d, size_t* h) { return sizes(d, h); }
int cusolverDnXgetrf(Handle* h, void*, Int m, Int n, int type, void* a, Int ld, Int* pivots, int compute, void* work,
                     size_t room, void* host, size_t host_room, int* info) {
  if (refused(work, room, host, host_room) || m != n || ld < m || compute != type) return kInvalid;
  queue(h->stream, [=] { getrf(n, a, ld, pivots, info, type); });
  return 0;
}
int cusolverDnXgetrs(Handle* h, void*, int op, Int n, Int columns, int type, const void* a, Int ld, const Int* pivots,
                     int b_type, void* b, Int ldb, int* info) {
  if (op || b_type != type || ld < n || ldb < n || !info) return kInvalid;
  queue(h->stream, [=] { *info = 0; getrs(n, columns, a, ld, pivots, b, ldb, type); });
  return 0;
}
int cusolverDnXpotrf_bufferSize(Handle*, void*, int, Int, int, const void*, Int, int, size_t* d, size_t* h) { return sizes(d, h); }
int cusolverDnXpotrf(Handle* h, void*, int upper, Int n, int type, void* a, Int ld, int, void* work, size_t room, void* host,
                     size_t host_room, int* info) {
  if (refused(work, room, host, host_room) || ld < n) return kInvalid;
  queue(h->stream, [=] { potrf(upper, n, a, ld, info, type); });
  return 0;
}
int cusolverDnXgeqrf_bufferSize(Handle*, void*, Int, Int, int, const void*, Int, int, const void*, int, size_t* d, size_t* h) {
  return sizes(d, h);
}
int cusolverDnXgeqrf(Handle* h, void*, Int m, Int n, int type, void* a, Int ld, int tau_type, void* tau, int, void* work,
                     size_t room, void* host, size_t host_room, int* info) {
  if (refused(work, room, host, host_room) || ld < m || tau_type != type || !info) return kInvalid;
  queue(h->stream, [=] {
    Room r(m, n, type);
    Int status, rows = m, columns = n, lead = ld;
    lapack("geqrf", type, &rows, &columns, a, &lead, tau, r.work.data(), &r.size, &status);
    *info = int(status);
  });
  return 0;
}
int cusolverDnXsyevd_bufferSize(Handle*, void*, int, int, Int, int, const void*, Int, int, const void*, int, size_t* d, size_t* h) {
  return sizes(d, h);
}
int cusolverDnXsyevd(Handle* h, void*, int vectors, int upper, Int n, int type, void* a, Int ld, int real, void* w, int,
                     void* work, size_t room, void* host, size_t host_room, int* info) {
  if (refused(work, room, host, host_room) || real != type % 4 || ld < n) return kInvalid;
  queue(h->stream, [=] { syevd(vectors, upper, n, a, ld, w, info, type); });
  return 0;
}
int cusolverDnXsyevBatched_bufferSize(Handle*, void*, int, int, Int, int, const void*, Int, int, const void*, int, size_t* d,
                                      size_t* h, Int) {
  return sizes(d, h);
}
int cusolverDnXsyevBatched(Handle* h, void*, int vectors, int upper, Int n, int type, void* a, Int ld, int real, void* w, int,
                           void* work, size_t room, void* host, size_t host_room, int* info, Int count) {
  if (refused(work, room, host, host_room) || real != type % 4 || ld != n) return kInvalid;
  queue(h->stream, [=] {
    for (Int i = 0; i < count; ++i)
      syevd(vectors, upper, n, static_cast<char*>(a) + i * n * n * Int(item(type)), ld,
            static_cast<char*>(w) + i * n * Int(item(real)), info + i, type);
  });
  return 0;
}
int cusolverDnXgesvd_bufferSize(Handle*, void*, signed char, signed char, Int m, Int n, int, const void*, Int, int, const void*,
                                int, const void*, Int, int, const void*, Int, int, size_t* d, size_t* h) {
  return m < n ? kInvalid : sizes(d, h);
}
int cusolverDnXgesvd(Handle* h, void*, signed char job, signed char, Int m, Int n, int type, void* a, Int ld, int real, void* s,
                     int, void* u, Int ldu, int, void* vt, Int ldvt, int, void* work, size_t room, void* host,
                     size_t host_room, int* info) {
  if (refused(work, room, host, host_room) || real != type % 4 || m < n) return kInvalid;
  queue(h->stream, [=] { gesvd(job, m, n, a, ld, s, u, ldu, vt, ldvt, info, type); });
  return 0;
}
int cusolverDnXgesvdp_bufferSize(Handle*, void*, int, int, Int, Int, int, const void*, Int, int, const void*, int, const void*,
                                 Int, int, const void*, Int, int, size_t* d, size_t* h) {
  return sizes(d, h);
}
int cusolverDnXgesvdp(Handle* h, void*, int vectors, int economical, Int m, Int n, int type, void* a, Int ld, int real, void* s,
                      int, void* u, Int, int, void* v, Int, int, void* work, size_t room, void* host, size_t host_room,
                      int* info, double* disturbance) {
  if (refused(work, room, host, host_room) || real != type % 4 || !disturbance) return kInvalid;
  queue(h->stream, [=] { svd_with_v(vectors, economical, m, n, a, ld, s, u, v, info, type); });
  return 0;
}
int cusolverDnXgeev_bufferSize(Handle*, void*, int, int, Int, int, const void*, Int, int, const void*, int, const void*, Int,
                               int, const void*, Int, int, size_t* d, size_t* h) {
  return sizes(d, h);
}
int cusolverDnXgeev(Handle* h, void*, int left, int vectors, Int n, int type, void* a, Int ld, int complex, void* w, int, void*,
                    Int, int, void* v, Int ldv, int, void* work, size_t room, void* host, size_t host_room, int* info) {
  if (refused(work, room, host, host_room) || left || complex != type % 4 + 4) return kInvalid;
  queue(h->stream, [=] { geev(vectors, n, a, ld, w, v, ldv, info, type); });
  return 0;
}

#define TYPED(L, Q, type)                                                                                                    \
  int cusolverDn##L##Q##_bufferSize(Handle*, int, int, int, const void*, int, const void*, int* room) { *room = 5; return 0; } \
  int cusolverDn##L##Q(Handle* h, int m, int n, int k, void* a, int ld, const void* tau, void* work, int room, int* info) {  \
    return orgqr(h, m, n, k, a, ld, tau, work, room, info, type);                                                            \
  }                                                                                                                          \
  int cusolverDn##L##gesvdj_bufferSize(Handle*, int, int, int, int, const void*, int, const void*, const void*, int,         \
                                       const void*, int, int* room, void*) {                                                 \
    *room = 5;                                                                                                               \
    return 0;                                                                                                                \
  }                                                                                                                          \
  int cusolverDn##L##gesvdj(Handle* h, int vectors, int economical, int m, int n, void* a, int ld, void* s, void* u, int,    \
                            void* v, int, void* work, int room, int* info, void* parameters) {                               \
    return gesvdj(h, vectors, economical, m, n, a, ld, s, u, v, work, room, info, parameters, type);                         \
  }                                                                                                                          \
  int cusolverDn##L##potrfBatched(Handle* h, int upper, int n, void** a, int ld, int* info, int count) {                     \
    return potrf_batched(h, upper, n, a, ld, info, count, type);                                                             \
  }                                                                                                                          \
  int fake##L##geqrfBatched(Handle* h, int m, int n, void** a, int ld, void** tau, int* info, int count) {                   \
    return geqrf_batched(h, m, n, a, ld, tau, info, count, type);                                                            \
  }                                                                                                                          \
  int fake##L##getrfBatched(Handle* h, int n, void** a, int ld, int* pivots, int* info, int count) {                         \
    return getrf_batched(h, n, a, ld, pivots, info, count, type);                                                            \
  }                                                                                                                          \
  int fake##L##getrsBatched(Handle* h, int, int n, int columns, void** a, int ld, const int* pivots, void** b, int ldb,      \
                            int*, int count) {                                                                               \
    return getrs_batched(h, n, columns, a, ld, pivots, b, ldb, count, type);                                                 \
  }
TYPED(S, orgqr, R32)
TYPED(D, orgqr, R64)
TYPED(C, ungqr, C32)
TYPED(Z, ungqr, C64)
}
