// cuBLAS and cublasLt as tables of functions, opened on first use. Their headers are not used: the few
// enumerators below are part of the ABI: since CUDA 11, and kComputeEmulated since cuBLAS 12.9.
#pragma once

#include <cuda.h>

#include <cstddef>
#include <cstdint>
#include <mutex>
#include <string>

#include "interpreter/gil.hpp"

namespace gpuinterop::blas {

using Handle = struct HandleTag*;
using LtHandle = struct LtHandleTag*;
using Object = struct ObjectTag*;  // cublasLt's descriptors, layouts and preferences

enum Operation { kNone = 0, kTranspose = 1 };
// cudaDataType; a pair is a complex number.
enum DataType { kReal32 = 0, kReal64 = 1, kReal16 = 2, kPair32 = 4, kPair64 = 5, kBrain16 = 14 };
// kComputeEmulated: float32 as the sum of nine products of bfloat16, on Blackwell.
enum Compute { kCompute32 = 68, kComputeTf32 = 77, kComputeEmulated = 78, kCompute64 = 70 };
enum { kDefaultAlgorithm = -1 };

enum LtDescriptor { kLtTransA = 3, kLtTransB = 4, kLtEpilogue = 7, kLtBiasPointer = 8 };
enum LtLayout { kLtBatchCount = 5, kLtBatchStride = 6 };
enum LtPreference {
  kLtMaxWorkspace = 1,
  kLtAlignA = 5,
  kLtAlignB = 6,
  kLtAlignC = 7,
  kLtAlignD = 8
};
enum LtEpilogue { kLtBias = 4 };

struct LtHeuristic {
  uint64_t algorithm[8];
  size_t workspace;
  int status;
  float waves;
  int reserved[4];
};

#define GPUINTEROP_CUBLAS(X)                                                                      \
  X(Create, cublasCreate_v2, (Handle*))                                                           \
  X(SetStream, cublasSetStream_v2, (Handle, CUstream))                                            \
  X(SetWorkspace, cublasSetWorkspace_v2, (Handle, void*, size_t))                                 \
  X(GemmEx, cublasGemmEx_64,                                                                      \
    (Handle, Operation, Operation, int64_t, int64_t, int64_t, const void*, const void*, DataType, \
     int64_t, const void*, DataType, int64_t, const void*, void*, DataType, int64_t, Compute,     \
     int))                                                                                        \
  X(GemmStridedBatchedEx, cublasGemmStridedBatchedEx_64,                                          \
    (Handle, Operation, Operation, int64_t, int64_t, int64_t, const void*, const void*, DataType, \
     int64_t, long long, const void*, DataType, int64_t, long long, const void*, void*, DataType, \
     int64_t, long long, int64_t, Compute, int))

#define GPUINTEROP_CUBLASLT(X)                                                                  \
  X(Create, cublasLtCreate, (LtHandle*))                                                        \
  X(DescCreate, cublasLtMatmulDescCreate, (Object*, Compute, DataType))                         \
  X(DescDestroy, cublasLtMatmulDescDestroy, (Object))                                           \
  X(DescSet, cublasLtMatmulDescSetAttribute, (Object, LtDescriptor, const void*, size_t))       \
  X(LayoutCreate, cublasLtMatrixLayoutCreate, (Object*, DataType, uint64_t, uint64_t, int64_t)) \
  X(LayoutDestroy, cublasLtMatrixLayoutDestroy, (Object))                                       \
  X(LayoutSet, cublasLtMatrixLayoutSetAttribute, (Object, LtLayout, const void*, size_t))       \
  X(PreferenceCreate, cublasLtMatmulPreferenceCreate, (Object*))                                \
  X(PreferenceDestroy, cublasLtMatmulPreferenceDestroy, (Object))                               \
  X(PreferenceSet, cublasLtMatmulPreferenceSetAttribute,                                        \
    (Object, LtPreference, const void*, size_t))                                                \
  X(Heuristic, cublasLtMatmulAlgoGetHeuristic,                                                  \
    (LtHandle, Object, Object, Object, Object, Object, Object, int, LtHeuristic*, int*))        \
  X(Matmul, cublasLtMatmul,                                                                     \
    (LtHandle, Object, const void*, const void*, Object, const void*, Object, const void*,      \
     const void*, Object, void*, Object, const uint64_t*, void*, size_t, CUstream))

struct Library {
#define X(name, symbol, arguments) int(*name) arguments = nullptr;
  GPUINTEROP_CUBLAS(X)
#undef X
};
struct LtLibrary {
#define X(name, symbol, arguments) int(*name) arguments = nullptr;
  GPUINTEROP_CUBLASLT(X)
#undef X
};

// Opens both libraries at the given paths, once. Kind::Library error with what is missing.
void open(const std::string& cublas, const std::string& cublas_lt);
bool is_open() noexcept;
// The functions are null before open(); handle() checks that.
const Library& library() noexcept;
const LtLibrary& lt_library() noexcept;
void check(int status, const char* call, const char* where);

// Exclusive use of a device's handles: one call at a time may set their stream and workspace, or a pointer in
// a description. Without the GIL, because the calls may wait for the device.
class HandleLock {
 public:
  explicit HandleLock(int device);

 private:
  GilRelease released_;  // before the lock, whose holders may wait for the GIL's holder
  std::lock_guard<std::mutex> lock_;
};
// The handle of the current device; made at first use. Call these functions and cuBLAS under a HandleLock.
Handle handle(int device, CUstream stream, const char* where);
// The same with a workspace for the calls until the next handle().
Handle handle(int device, CUstream stream, void* workspace, size_t bytes, const char* where);
LtHandle lt_handle(int device, const char* where);

}  // namespace gpuinterop::blas
