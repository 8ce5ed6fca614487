#include "linalg/cusolver.hpp"

#include <limits>
#include <unordered_map>
#include <vector>

#include "devices/device_state.hpp"
#include "devices/shared_library.hpp"
#include "interpreter/error.hpp"

namespace gpuinterop::solver {

// One for each device, never destroyed, as the handles of cuBLAS.
struct PerDevice {
  std::mutex lock;  // of the members below
  Handle handle = nullptr;
  Parameters parameters = nullptr;
  JacobiParameters jacobi[2] = {};  // of float32 and float64
  CUstream stream = nullptr;
  std::vector<char> host;
  std::unordered_map<std::string, WorkSize> sizes;
};

namespace {

bool solver_opened = false;
Library solver_functions;
PerDevice solver_devices[kMaxDevices];

// More entries are the sign of sizes that do not come back.
constexpr size_t kMostSizes = 4096;

}  // namespace

void open(const std::string& cusolver, const std::string& cublas) {
  if (solver_opened) return;
  void* solver = open_library(cusolver, "cuSOLVER");
  void* blas = open_library(cublas, "cuBLAS");
#define X(name, symbol, arguments) load_symbol(solver, #symbol, "cuSOLVER", &solver_functions.name);
  GPUINTEROP_CUSOLVER(X)
#undef X
#define X(name, symbol, arguments) \
  solver_functions.name = reinterpret_cast<decltype(Library::name)>(find_symbol(solver, #symbol));
  GPUINTEROP_CUSOLVER_RECENT(X)
#undef X
#define LOAD(from, title, name, s, d, c, z)                \
  load_symbol(from, #s, title, &solver_functions.name[0]); \
  load_symbol(from, #d, title, &solver_functions.name[1]); \
  load_symbol(from, #c, title, &solver_functions.name[2]); \
  load_symbol(from, #z, title, &solver_functions.name[3]);
#define X(name, s, d, c, z, arguments) LOAD(solver, "cuSOLVER", name, s, d, c, z)
  GPUINTEROP_CUSOLVER_TYPED(X)
#undef X
#define X(name, s, d, c, z, arguments) LOAD(blas, "cuBLAS", name, s, d, c, z)
  GPUINTEROP_CUBLAS_TYPED(X)
#undef X
#undef LOAD
  solver_opened = true;
}

const Library& library() noexcept { return solver_functions; }

void check(int status, const char* call) {
  require_success(status, 2, "cusolverStatus_t", call, kWhere);
}

DataType data_type(DTypeId dtype) noexcept {
  switch (dtype) {
    case kFloat32: return blas::kReal32;
    case kFloat64: return blas::kReal64;
    case kComplex64: return blas::kPair32;
    default: return blas::kPair64;
  }
}

DTypeId real_part(DTypeId dtype) noexcept {
  return dtype == kFloat32 || dtype == kComplex64 ? kFloat32 : kFloat64;
}

int type_index(DTypeId dtype) noexcept {
  return (is_complex(dtype) ? 2 : 0) + (real_part(dtype) == kFloat64 ? 1 : 0);
}

Use::Use(int device, CUstream stream) : device_(solver_devices[device]), lock_(device_.lock) {
  if (!device_.handle) check(library().Create(&device_.handle), "cusolverDnCreate");
  if (!device_.parameters)
    check(library().CreateParameters(&device_.parameters), "cusolverDnCreateParams");
  if (device_.stream != stream) {
    device_.stream = nullptr;  // a call that fails leaves it unknown
    check(library().SetStream(device_.handle, stream), "cusolverDnSetStream");
    device_.stream = stream;
  }
  handle = device_.handle;
  parameters = device_.parameters;
}

JacobiParameters Use::jacobi(DTypeId dtype) {
  const bool wide = real_part(dtype) == kFloat64;
  JacobiParameters& made = device_.jacobi[wide];
  if (made) return made;
  JacobiParameters fresh;
  check(library().CreateJacobi(&fresh), "cusolverDnCreateGesvdjInfo");
  // By default the values of float32 are wrong in the third digit for some matrices.
  const double tolerance =
      wide ? std::numeric_limits<double>::epsilon() : std::numeric_limits<float>::epsilon();
  check(library().SetJacobiTolerance(fresh, tolerance), "cusolverDnXgesvdjSetTolerance");
  return made = fresh;
}

void* Use::host(size_t bytes) {
  if (device_.host.size() < bytes) device_.host.resize(bytes);
  return device_.host.data();
}

WorkSize Use::work_size(const std::string& key, const std::function<WorkSize()>& query) {
  const auto found = device_.sizes.find(key);
  if (found != device_.sizes.end()) return found->second;
  if (device_.sizes.size() >= kMostSizes) device_.sizes.clear();
  return device_.sizes[key] = query();
}

}  // namespace gpuinterop::solver
