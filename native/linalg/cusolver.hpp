// cuSOLVER, and the routines of cuBLAS for many small matrices, as tables of functions, opened on first use. As for
// cuBLAS, the enumerators below have had these values since CUDA 11.
#pragma once

#include <cuda.h>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <mutex>
#include <string>

#include "arrays/dtype.hpp"
#include "interpreter/gil.hpp"
#include "product/cublas.hpp"

namespace gpuinterop::solver {

using Handle = struct SolverHandleTag*;
using Parameters = struct SolverParametersTag*;
using JacobiParameters = struct JacobiParametersTag*;
using blas::DataType;

enum Triangle { kLower = 0, kUpper = 1 };
enum Vectors { kNoVectors = 0, kVectors = 1 };

#define GPUINTEROP_CUSOLVER(X)                                                                     \
  X(Create, cusolverDnCreate, (Handle*))                                                           \
  X(SetStream, cusolverDnSetStream, (Handle, CUstream))                                            \
  X(CreateParameters, cusolverDnCreateParams, (Parameters*))                                       \
  X(CreateJacobi, cusolverDnCreateGesvdjInfo, (JacobiParameters*))                                 \
  X(SetJacobiTolerance, cusolverDnXgesvdjSetTolerance, (JacobiParameters, double))                 \
  X(LuSize, cusolverDnXgetrf_bufferSize,                                                           \
    (Handle, Parameters, int64_t, int64_t, DataType, const void*, int64_t, DataType, size_t*,      \
     size_t*))                                                                                     \
  X(Lu, cusolverDnXgetrf,                                                                          \
    (Handle, Parameters, int64_t, int64_t, DataType, void*, int64_t, int64_t*, DataType, void*,    \
     size_t, void*, size_t, int*))                                                                 \
  X(LuSolve, cusolverDnXgetrs,                                                                     \
    (Handle, Parameters, blas::Operation, int64_t, int64_t, DataType, const void*, int64_t,        \
     const int64_t*, DataType, void*, int64_t, int*))                                              \
  X(CholeskySize, cusolverDnXpotrf_bufferSize,                                                     \
    (Handle, Parameters, Triangle, int64_t, DataType, const void*, int64_t, DataType, size_t*,     \
     size_t*))                                                                                     \
  X(Cholesky, cusolverDnXpotrf,                                                                    \
    (Handle, Parameters, Triangle, int64_t, DataType, void*, int64_t, DataType, void*, size_t,     \
     void*, size_t, int*))                                                                         \
  X(QrSize, cusolverDnXgeqrf_bufferSize,                                                           \
    (Handle, Parameters, int64_t, int64_t, DataType, const void*, int64_t, DataType, const void*,  \
     DataType, size_t*, size_t*))                                                                  \
  X(Qr, cusolverDnXgeqrf,                                                                          \
    (Handle, Parameters, int64_t, int64_t, DataType, void*, int64_t, DataType, void*, DataType,    \
     void*, size_t, void*, size_t, int*))                                                          \
  X(EighSize, cusolverDnXsyevd_bufferSize,                                                         \
    (Handle, Parameters, Vectors, Triangle, int64_t, DataType, const void*, int64_t, DataType,     \
     const void*, DataType, size_t*, size_t*))                                                     \
  X(Eigh, cusolverDnXsyevd,                                                                        \
    (Handle, Parameters, Vectors, Triangle, int64_t, DataType, void*, int64_t, DataType, void*,    \
     DataType, void*, size_t, void*, size_t, int*))                                                \
  X(SvdSize, cusolverDnXgesvd_bufferSize,                                                          \
    (Handle, Parameters, signed char, signed char, int64_t, int64_t, DataType, const void*,        \
     int64_t, DataType, const void*, DataType, const void*, int64_t, DataType, const void*,        \
     int64_t, DataType, size_t*, size_t*))                                                         \
  X(Svd, cusolverDnXgesvd,                                                                         \
    (Handle, Parameters, signed char, signed char, int64_t, int64_t, DataType, void*, int64_t,     \
     DataType, void*, DataType, void*, int64_t, DataType, void*, int64_t, DataType, void*, size_t, \
     void*, size_t, int*))                                                                         \
  X(PolarSvdSize, cusolverDnXgesvdp_bufferSize,                                                    \
    (Handle, Parameters, Vectors, int, int64_t, int64_t, DataType, const void*, int64_t, DataType, \
     const void*, DataType, const void*, int64_t, DataType, const void*, int64_t, DataType,        \
     size_t*, size_t*))                                                                            \
  X(PolarSvd, cusolverDnXgesvdp,                                                                   \
    (Handle, Parameters, Vectors, int, int64_t, int64_t, DataType, void*, int64_t, DataType,       \
     void*, DataType, void*, int64_t, DataType, void*, int64_t, DataType, void*, size_t, void*,    \
     size_t, int*, double*))

// cuSOLVER has had these since CUDA 12.8 and 12.6. Null before.
#define GPUINTEROP_CUSOLVER_RECENT(X)                                                            \
  X(EigSize, cusolverDnXgeev_bufferSize,                                                         \
    (Handle, Parameters, Vectors, Vectors, int64_t, DataType, const void*, int64_t, DataType,    \
     const void*, DataType, const void*, int64_t, DataType, const void*, int64_t, DataType,      \
     size_t*, size_t*))                                                                          \
  X(Eig, cusolverDnXgeev,                                                                        \
    (Handle, Parameters, Vectors, Vectors, int64_t, DataType, void*, int64_t, DataType, void*,   \
     DataType, void*, int64_t, DataType, void*, int64_t, DataType, void*, size_t, void*, size_t, \
     int*))                                                                                      \
  X(BatchedEighSize, cusolverDnXsyevBatched_bufferSize,                                          \
    (Handle, Parameters, Vectors, Triangle, int64_t, DataType, const void*, int64_t, DataType,   \
     const void*, DataType, size_t*, size_t*, int64_t))                                          \
  X(BatchedEigh, cusolverDnXsyevBatched,                                                         \
    (Handle, Parameters, Vectors, Triangle, int64_t, DataType, void*, int64_t, DataType, void*,  \
     DataType, void*, size_t, void*, size_t, int*, int64_t))

// One function for each dtype: float32, float64, complex64, complex128.
#define GPUINTEROP_CUSOLVER_TYPED(X)                                                               \
  X(MakeQSize, cusolverDnSorgqr_bufferSize, cusolverDnDorgqr_bufferSize,                           \
    cusolverDnCungqr_bufferSize, cusolverDnZungqr_bufferSize,                                      \
    (Handle, int, int, int, const void*, int, const void*, int*))                                  \
  X(MakeQ, cusolverDnSorgqr, cusolverDnDorgqr, cusolverDnCungqr, cusolverDnZungqr,                 \
    (Handle, int, int, int, void*, int, const void*, void*, int, int*))                            \
  X(JacobiSvdSize, cusolverDnSgesvdj_bufferSize, cusolverDnDgesvdj_bufferSize,                     \
    cusolverDnCgesvdj_bufferSize, cusolverDnZgesvdj_bufferSize,                                    \
    (Handle, Vectors, int, int, int, const void*, int, const void*, const void*, int, const void*, \
     int, int*, JacobiParameters))                                                                 \
  X(JacobiSvd, cusolverDnSgesvdj, cusolverDnDgesvdj, cusolverDnCgesvdj, cusolverDnZgesvdj,         \
    (Handle, Vectors, int, int, int, void*, int, void*, void*, int, void*, int, void*, int, int*,  \
     JacobiParameters))                                                                            \
  X(BatchedCholesky, cusolverDnSpotrfBatched, cusolverDnDpotrfBatched, cusolverDnCpotrfBatched,    \
    cusolverDnZpotrfBatched, (Handle, Triangle, int, void* const*, int, int*, int))
#define GPUINTEROP_CUBLAS_TYPED(X)                                                                 \
  X(BatchedLu, cublasSgetrfBatched, cublasDgetrfBatched, cublasCgetrfBatched, cublasZgetrfBatched, \
    (blas::Handle, int, void* const*, int, int*, int*, int))                                       \
  X(BatchedLuSolve, cublasSgetrsBatched, cublasDgetrsBatched, cublasCgetrsBatched,                 \
    cublasZgetrsBatched,                                                                           \
    (blas::Handle, blas::Operation, int, int, const void* const*, int, const int*, void* const*,   \
     int, int*, int))                                                                              \
  X(BatchedQr, cublasSgeqrfBatched, cublasDgeqrfBatched, cublasCgeqrfBatched, cublasZgeqrfBatched, \
    (blas::Handle, int, int, void* const*, int, void* const*, int*, int))

struct Library {
#define X(name, symbol, arguments) int(*name) arguments = nullptr;
  GPUINTEROP_CUSOLVER(X)
  GPUINTEROP_CUSOLVER_RECENT(X)
#undef X
#define X(name, s, d, c, z, arguments) int(*name[4]) arguments = {};
  GPUINTEROP_CUSOLVER_TYPED(X)
  GPUINTEROP_CUBLAS_TYPED(X)
#undef X
};

// The caller of the routines in errors: gpuinterop/linalg puts the name of its function in its place.
constexpr const char* kWhere = "linalg";

// Opens both libraries at the given paths, once. Kind::Library error with what is missing.
void open(const std::string& cusolver, const std::string& cublas);
// The functions are null before open().
const Library& library() noexcept;
void check(int status, const char* call);

// cudaDataType, and the place in the tables of typed functions, of float32, float64, complex64 and complex128.
DataType data_type(DTypeId dtype) noexcept;
DTypeId real_part(DTypeId dtype) noexcept;
int type_index(DTypeId dtype) noexcept;

// The bytes of a routine's two work areas.
struct WorkSize {
  size_t device = 0, host = 0;
  int elements = 0;  // in which some routines count the one on the device
};

// Exclusive use of a device's handle, without the GIL. Made under cuda::DeviceGuard.
class Use {
 public:
  Use(int device, CUstream stream);

  Handle handle;
  Parameters parameters;
  JacobiParameters jacobi(DTypeId dtype);
  // The work area on the host, for the calls until the next use.
  void* host(size_t bytes);
  // What query() returns, kept for later calls with this key.
  WorkSize work_size(const std::string& key, const std::function<WorkSize()>& query);

 private:
  GilRelease released_;  // before the lock, whose holders may wait for the GIL's holder
  struct PerDevice& device_;
  std::lock_guard<std::mutex> lock_;
};

}  // namespace gpuinterop::solver
