// cuFFT as a table of functions, opened on first use. The enumerators are a part of its ABI.
#pragma once

#include <cuda.h>

#include <cstddef>
#include <string>

namespace gpuinterop::cufft {

using Plan = int;
// From real (R, D) to complex numbers (C, Z) or back, in single (R, C) or double precision (D, Z).
enum Type { kR2C = 0x2a, kC2R = 0x2c, kC2C = 0x29, kD2Z = 0x6a, kZ2D = 0x6c, kZ2Z = 0x69 };
enum Direction { kForward = -1, kInverse = 1 };

#define GPUINTEROP_CUFFT(X)                                                                     \
  X(Create, cufftCreate, (Plan*))                                                               \
  X(Destroy, cufftDestroy, (Plan))                                                              \
  X(SetAutoAllocation, cufftSetAutoAllocation, (Plan, int))                                     \
  X(MakePlanMany, cufftMakePlanMany64,                                                          \
    (Plan, int, long long*, long long*, long long, long long, long long*, long long, long long, \
     Type, long long, size_t*))                                                                 \
  X(SetStream, cufftSetStream, (Plan, CUstream))                                                \
  X(SetWorkArea, cufftSetWorkArea, (Plan, void*))                                               \
  X(R2C, cufftExecR2C, (Plan, void*, void*))                                                    \
  X(C2R, cufftExecC2R, (Plan, void*, void*))                                                    \
  X(C2C, cufftExecC2C, (Plan, void*, void*, int))                                               \
  X(D2Z, cufftExecD2Z, (Plan, void*, void*))                                                    \
  X(Z2D, cufftExecZ2D, (Plan, void*, void*))                                                    \
  X(Z2Z, cufftExecZ2Z, (Plan, void*, void*, int))

struct Library {
#define X(name, symbol, arguments) int(*name) arguments = nullptr;
  GPUINTEROP_CUFFT(X)
#undef X
};

// Opens the library at the path, once. Kind::Library error with what is missing.
void open(const std::string& path);
bool is_open() noexcept;
// The functions are null before open().
const Library& library() noexcept;
void check(int status, const char* call, const char* where);

}  // namespace gpuinterop::cufft
