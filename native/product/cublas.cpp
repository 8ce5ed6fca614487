#include "product/cublas.hpp"

#include "devices/device_state.hpp"
#include "devices/shared_library.hpp"
#include "interpreter/error.hpp"

namespace gpuinterop::blas {

namespace {

bool opened = false;
Library functions;
LtLibrary lt_functions;

// One for each device. Never destroyed, because that synchronises the device, and at exit the driver may be
// unloaded.
struct PerDevice {
  std::mutex lock;  // of the members below
  Handle handle = nullptr;
  CUstream stream = nullptr;
  void* workspace = nullptr;  // workspace that the handle has for this stream
  LtHandle lt = nullptr;
};
PerDevice devices[kMaxDevices];

}  // namespace

void open(const std::string& cublas, const std::string& cublas_lt) {
  if (opened) return;
  // cuBLAS needs cublasLt and finds it by name if it is already loaded.
  void* lt = open_library(cublas_lt, "cuBLASLt");
  void* main = open_library(cublas, "cuBLAS");
#define X(name, symbol, arguments) load_symbol(main, #symbol, "cuBLAS", &functions.name);
  GPUINTEROP_CUBLAS(X)
#undef X
#define X(name, symbol, arguments) load_symbol(lt, #symbol, "cuBLASLt", &lt_functions.name);
  GPUINTEROP_CUBLASLT(X)
#undef X
  opened = true;
}

bool is_open() noexcept { return opened; }
const Library& library() noexcept { return functions; }
const LtLibrary& lt_library() noexcept { return lt_functions; }

void check(int status, const char* call, const char* where) {
  require_success(status, 3, "cublasStatus_t", call, where);
}

HandleLock::HandleLock(int device) : lock_(devices[device].lock) {}

Handle handle(int device, CUstream stream, const char* where) {
  PerDevice& p = devices[device];
  if (!opened)
    fail(Kind::Library, "gpuinterop.blas", "cuBLAS to be open", "a call before it was opened",
         "call gpuinterop.matmul or gpuinterop.gemm, which open it");
  if (!p.handle) check(library().Create(&p.handle), "cublasCreate", where);
  if (p.stream != stream) {
    p.workspace = nullptr;  // cuBLAS uses its own workspace again
    p.stream = nullptr;     // a call that fails leaves it unknown
    check(functions.SetStream(p.handle, stream), "cublasSetStream", where);
    p.stream = stream;
  }
  return p.handle;
}

Handle handle(int device, CUstream stream, void* workspace, size_t bytes, const char* where) {
  Handle h = handle(device, stream, where);
  PerDevice& p = devices[device];
  // The allocator returns the block that the stream freed last, so it is the same most of the time.
  if (p.workspace != workspace) {
    check(functions.SetWorkspace(h, workspace, bytes), "cublasSetWorkspace", where);
    p.workspace = workspace;
  }
  return h;
}

LtHandle lt_handle(int device, const char* where) {
  PerDevice& p = devices[device];
  if (!p.lt) check(lt_library().Create(&p.lt), "cublasLtCreate", where);
  return p.lt;
}

}  // namespace gpuinterop::blas
