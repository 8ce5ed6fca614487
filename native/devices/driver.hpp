// The CUDA driver as a table of functions, filled from libcuda on first use.
// Symbols are named with their version, because cuda.h renames calls by macro and CUDA 12 and 13
// headers disagree on which version a plain name means. A version never changes once published.
#pragma once

#include <cuda.h>

#include <atomic>
#include <string>

namespace gpuinterop::cuda {

// X(name here, symbol, arguments): present in every driver of CUDA 12, the oldest that is supported.
#define GPUINTEROP_DRIVER_REQUIRED(X)                                                            \
  X(Init, cuInit, (unsigned))                                                                    \
  X(DriverGetVersion, cuDriverGetVersion, (int*))                                                \
  X(GetErrorName, cuGetErrorName, (CUresult, const char**))                                      \
  X(GetErrorString, cuGetErrorString, (CUresult, const char**))                                  \
  X(DeviceGet, cuDeviceGet, (CUdevice*, int))                                                    \
  X(DeviceGetCount, cuDeviceGetCount, (int*))                                                    \
  X(DeviceGetName, cuDeviceGetName, (char*, int, CUdevice))                                      \
  X(DeviceGetAttribute, cuDeviceGetAttribute, (int*, CUdevice_attribute, CUdevice))              \
  X(DeviceTotalMem, cuDeviceTotalMem_v2, (size_t*, CUdevice))                                    \
  X(DevicePrimaryCtxRetain, cuDevicePrimaryCtxRetain, (CUcontext*, CUdevice))                    \
  X(DevicePrimaryCtxGetState, cuDevicePrimaryCtxGetState, (CUdevice, unsigned*, int*))           \
  X(CtxGetCurrent, cuCtxGetCurrent, (CUcontext*))                                                \
  X(CtxGetId, cuCtxGetId, (CUcontext, unsigned long long*))                                      \
  X(CtxSetCurrent, cuCtxSetCurrent, (CUcontext))                                                 \
  X(CtxPushCurrent, cuCtxPushCurrent_v2, (CUcontext))                                            \
  X(CtxPopCurrent, cuCtxPopCurrent_v2, (CUcontext*))                                             \
  X(CtxSynchronize, cuCtxSynchronize, ())                                                        \
  X(MemGetInfo, cuMemGetInfo_v2, (size_t*, size_t*))                                             \
  X(MemHostAlloc, cuMemHostAlloc, (void**, size_t, unsigned))                                    \
  X(MemFreeHost, cuMemFreeHost, (void*))                                                         \
  X(MemcpyHtoDAsync, cuMemcpyHtoDAsync_v2, (CUdeviceptr, const void*, size_t, CUstream))         \
  X(MemcpyDtoHAsync, cuMemcpyDtoHAsync_v2, (void*, CUdeviceptr, size_t, CUstream))               \
  X(MemcpyDtoDAsync, cuMemcpyDtoDAsync_v2, (CUdeviceptr, CUdeviceptr, size_t, CUstream))         \
  X(MemcpyPeerAsync, cuMemcpyPeerAsync,                                                          \
    (CUdeviceptr, CUcontext, CUdeviceptr, CUcontext, size_t, CUstream))                          \
  X(MemsetD8Async, cuMemsetD8Async, (CUdeviceptr, unsigned char, size_t, CUstream))              \
  X(MemsetD16Async, cuMemsetD16Async, (CUdeviceptr, unsigned short, size_t, CUstream))           \
  X(MemsetD32Async, cuMemsetD32Async, (CUdeviceptr, unsigned, size_t, CUstream))                 \
  X(PointerGetAttributes, cuPointerGetAttributes,                                                \
    (unsigned, CUpointer_attribute*, void**, CUdeviceptr))                                       \
  X(StreamCreateWithPriority, cuStreamCreateWithPriority, (CUstream*, unsigned, int))            \
  X(StreamGetCtx, cuStreamGetCtx, (CUstream, CUcontext*))                                        \
  X(StreamSynchronize, cuStreamSynchronize, (CUstream))                                          \
  X(StreamQuery, cuStreamQuery, (CUstream))                                                      \
  X(StreamWaitEvent, cuStreamWaitEvent, (CUstream, CUevent, unsigned))                           \
  X(StreamIsCapturing, cuStreamIsCapturing, (CUstream, CUstreamCaptureStatus*))                  \
  X(StreamBeginCapture, cuStreamBeginCapture_v2, (CUstream, CUstreamCaptureMode))                \
  X(StreamEndCapture, cuStreamEndCapture, (CUstream, CUgraph*))                                  \
  X(ThreadExchangeStreamCaptureMode, cuThreadExchangeStreamCaptureMode, (CUstreamCaptureMode*))  \
  X(EventCreate, cuEventCreate, (CUevent*, unsigned))                                            \
  X(EventDestroy, cuEventDestroy_v2, (CUevent))                                                  \
  X(EventRecord, cuEventRecord, (CUevent, CUstream))                                             \
  X(EventQuery, cuEventQuery, (CUevent))                                                         \
  X(EventSynchronize, cuEventSynchronize, (CUevent))                                             \
  X(EventElapsedTime, cuEventElapsedTime, (float*, CUevent, CUevent))                            \
  X(ModuleLoadDataEx, cuModuleLoadDataEx,                                                        \
    (CUmodule*, const void*, unsigned, CUjit_option*, void**))                                   \
  X(ModuleUnload, cuModuleUnload, (CUmodule))                                                    \
  X(ModuleGetFunction, cuModuleGetFunction, (CUfunction*, CUmodule, const char*))                \
  X(FuncGetAttribute, cuFuncGetAttribute, (int*, CUfunction_attribute, CUfunction))              \
  X(FuncSetAttribute, cuFuncSetAttribute, (CUfunction, CUfunction_attribute, int))               \
  X(LaunchKernel, cuLaunchKernel,                                                                \
    (CUfunction, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, CUstream, \
     void**, void**))                                                                            \
  X(GraphDestroy, cuGraphDestroy, (CUgraph))                                                     \
  X(GraphLaunch, cuGraphLaunch, (CUgraphExec, CUstream))                                         \
  X(GraphExecDestroy, cuGraphExecDestroy, (CUgraphExec))                                         \
  X(GraphGetNodes, cuGraphGetNodes, (CUgraph, CUgraphNode*, size_t*))                            \
  X(DeviceGetDefaultMemPool, cuDeviceGetDefaultMemPool, (CUmemoryPool*, CUdevice))               \
  X(MemAllocAsync, cuMemAllocAsync, (CUdeviceptr*, size_t, CUstream))                            \
  X(MemFreeAsync, cuMemFreeAsync, (CUdeviceptr, CUstream))                                       \
  X(MemPoolSetAttribute, cuMemPoolSetAttribute, (CUmemoryPool, CUmemPool_attribute, void*))      \
  X(MemPoolGetAttribute, cuMemPoolGetAttribute, (CUmemoryPool, CUmemPool_attribute, void*))      \
  X(MemPoolTrimTo, cuMemPoolTrimTo, (CUmemoryPool, size_t))                                      \
  X(StreamGetId, cuStreamGetId, (CUstream, unsigned long long*))                                 \
  X(StreamGetCaptureInfo, cuStreamGetCaptureInfo_v2,                                             \
    (CUstream, CUstreamCaptureStatus*, cuuint64_t*, CUgraph*, const CUgraphNode**, size_t*))     \
  X(GraphInstantiateWithFlags, cuGraphInstantiateWithFlags,                                      \
    (CUgraphExec*, CUgraph, unsigned long long))                                                 \
  X(GraphAddChildGraphNode, cuGraphAddChildGraphNode,                                            \
    (CUgraphNode*, CUgraph, const CUgraphNode*, size_t, CUgraph))                                \
  X(StreamUpdateCaptureDependencies, cuStreamUpdateCaptureDependencies,                          \
    (CUstream, CUgraphNode*, size_t, unsigned))                                                  \
  X(UserObjectCreate, cuUserObjectCreate, (CUuserObject*, void*, CUhostFn, unsigned, unsigned))  \
  X(UserObjectRelease, cuUserObjectRelease, (CUuserObject, unsigned))                            \
  X(GraphRetainUserObject, cuGraphRetainUserObject, (CUgraph, CUuserObject, unsigned, unsigned)) \
  X(TensorMapEncodeTiled, cuTensorMapEncodeTiled,                                                \
    (CUtensorMap*, CUtensorMapDataType, cuuint32_t, void*, const cuuint64_t*, const cuuint64_t*, \
     const cuuint32_t*, const cuuint32_t*, CUtensorMapInterleave, CUtensorMapSwizzle,            \
     CUtensorMapL2promotion, CUtensorMapFloatOOBfill))

// Null if the driver is older than 12.5 (the first), 12.4 (the second) or 11.8.
#define GPUINTEROP_DRIVER_OPTIONAL(X)                                             \
  X(CtxRecordEvent, cuCtxRecordEvent, (CUcontext, CUevent))                       \
  X(FuncGetParamInfo, cuFuncGetParamInfo, (CUfunction, size_t, size_t*, size_t*)) \
  X(LaunchKernelEx, cuLaunchKernelEx, (const CUlaunchConfig*, CUfunction, void**, void**))

struct Driver {
#define X(name, symbol, arguments) CUresult(CUDAAPI* name) arguments = nullptr;
  GPUINTEROP_DRIVER_REQUIRED(X)
  GPUINTEROP_DRIVER_OPTIONAL(X)
#undef X
  int version = 0;  // 13000 is CUDA 13.0
  int devices = 0;
  bool ok = false;           // libcuda was found and complete, cuInit worked, there is a device
  bool initialised = false;  // cuInit worked, so a forked child may not use CUDA
  std::string path;          // of the library that was loaded
  std::string reason;        // why not ok: what was tried, with the result of each attempt
};

// Loads on the first call, from any thread; never throws. Functions may be called when ok.
const Driver& load_driver() noexcept;
extern std::atomic<const Driver*> loaded_driver;  // null before that
inline const Driver& driver() noexcept {
  const Driver* found = loaded_driver.load(std::memory_order_acquire);
  return found ? *found : load_driver();
}

// "CUDA_ERROR_INVALID_VALUE (1): invalid argument".
std::string describe(CUresult code);

}  // namespace gpuinterop::cuda
