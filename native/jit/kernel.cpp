// User kernels: loaded from machine code, launched with arrays and plain bytes.

#include <cstring>
#include <vector>

#include "arrays/array.hpp"
#include "captures/recorder.hpp"
#include "interpreter/error_translation.hpp"
#include "interpreter/text_arguments.hpp"
#include "jit/kernel.hpp"

namespace nb = nanobind;
using namespace nb::literals;

namespace gpuinterop {

namespace {

std::string listed(const std::vector<size_t>& sizes) {
  std::string out = std::to_string(sizes.size()) + " arguments, in bytes:";
  for (size_t size : sizes) out += " " + std::to_string(size);
  return out;
}

// The driver reads as many bytes as the kernel declares, so the sizes must match.
[[noreturn]] void refuse_arguments(const LoadedKernel& k, const std::vector<size_t>& given) {
  const std::vector<size_t>& wanted = *k.parameters;
  fail(Kind::Type, k.kernel.name, listed(wanted), listed(given),
       "pass one argument for each parameter, and numbers of their types: numpy.float64(x) for a "
       "double, numpy.int64(n) for a long long");
}

void require_geometry(const LoadedKernel& k, const cuda::Launch& how) {
  // The same on all CUDA devices; the x limit of a grid is that of its type.
  constexpr unsigned kMaxBlockZ = 64, kMaxGridYZ = 65535;
  auto text = [](const unsigned* v) {
    return "(" + std::to_string(v[0]) + ", " + std::to_string(v[1]) + ", " + std::to_string(v[2]) +
           ")";
  };
  const unsigned *b = how.block, *g = how.grid;
  const unsigned most = static_cast<unsigned>(k.max_threads);
  // Check each length first, so that the product stays within 64 bits.
  if (b[0] > most || b[1] > most || b[2] > kMaxBlockZ || uint64_t{b[0]} * b[1] * b[2] > most)
    fail(Kind::Shape, k.kernel.name,
         "a block of at most " + std::to_string(most) + " threads, " + std::to_string(kMaxBlockZ) +
             " of them in z",
         text(b), "launch more blocks, of fewer threads each");
  if (g[1] > kMaxGridYZ || g[2] > kMaxGridYZ)
    fail(Kind::Shape, k.kernel.name,
         "a grid of at most " + std::to_string(kMaxGridYZ) + " blocks in y and in z", text(g),
         "put the largest length first: x may be up to 2^31 - 1");
}

void read_triple(nb::handle sizes, unsigned* out, const char* what, const char* where) {
  const size_t n = nb::len(sizes);
  bool valid = n >= 1 && n <= 3;
  for (size_t i = 0; valid && i < n; ++i) {
    int overflow = 0;
    const int64_t v = PyLong_AsLongLongAndOverflow(nb::handle(sizes[i]).ptr(), &overflow);
    valid = !overflow && v >= 1 && v <= 0x7fffffff;
    out[i] = static_cast<unsigned>(v);
  }
  if (!valid)
    fail(Kind::Shape, where, std::string(what) + " of one to three ints from 1 to 2^31 - 1",
         repr_text(sizes.ptr()), "omit the launch if there is nothing to compute");
}

// Converts every argument to the bytes of its parameter, and orders the arrays in `used`.
void launch(const LoadedKernel& self, nb::handle grid, nb::handle block, int64_t shared,
            nb::handle arguments, nb::handle used) {
  const char* where = self.kernel.name.c_str();
  cuda::Launch how;
  read_triple(grid, how.grid, "a grid", where);
  read_triple(block, how.block, "a block", where);
  how.shared_bytes = static_cast<unsigned>(shared);
  const size_t n = nb::len(arguments);
  std::vector<void*> pointers(n);
  std::vector<std::vector<char>> values(n);
  std::vector<size_t> sizes(n);
  for (size_t i = 0; i < n; ++i) {
    nb::bytes bytes = nb::cast<nb::bytes>(arguments[i]);
    values[i].assign(bytes.c_str(), bytes.c_str() + bytes.size());
    pointers[i] = values[i].data();
    sizes[i] = values[i].size();
  }
  if (self.parameters && *self.parameters != sizes) [[unlikely]]
    refuse_arguments(self, sizes);
  require_geometry(self, how);
  const int device = self.kernel.device;
  cuda::DeviceGuard guard(device);
  CUstream stream = cuda::current_stream(device);
  std::vector<BufferRef> held;  // the objects' arrays may change while other threads run
  std::vector<Buffer*> buffers;
  for (size_t i = 0; i < nb::len(used); ++i) {
    nb::object item = used[i];
    const Array& a = unwrap(item.ptr());
    if (a.device != Device{DeviceType::Cuda, device})
      fail(Kind::DeviceMismatch, where, "arrays on cuda:" + std::to_string(device),
           "an array on " + device_text(a.device),
           "move it: x.to_device('cuda:" + std::to_string(device) + "')");
    held.push_back(a.buffer);
    buffers.push_back(a.buffer.get());
    ops::note_use(a);
  }
  if (!self.module->is_kept_loaded() && cuda::is_capturing(stream)) self.module->keep_loaded();
  if (shared > 48 * 1024) cuda::allow_shared_memory(self.kernel, static_cast<int>(shared), where);
  cuda::queue(buffers.data(), static_cast<int>(buffers.size()), stream, where,
              [&] { cuda::launch_here(self.kernel, how, stream, pointers.data(), where); });
}

}  // namespace

void register_kernels(nb::module_& m) {
  nb::class_<LoadedKernel>(m, "LoadedKernel", "A kernel in a device's memory.")
      .def("launch", launch, "grid"_a, "block"_a, "shared"_a, "arguments"_a, "used"_a,
           "Queue the kernel on the current stream: arguments as bytes, and the arrays that it "
           "uses.")
      .def(
          "repeat",
          [](const LoadedKernel& k, int times) {
            // Launches with zeros as arguments: the cost of the driver's call alone, for benchmarks of
            // kernels that read no arguments.
            const uint64_t zeros[16] = {};
            void* pointers[16];
            for (auto& p : pointers) p = const_cast<uint64_t*>(zeros);
            cuda::DeviceGuard guard(k.kernel.device);
            CUstream stream = cuda::current_stream(k.kernel.device);
            GilRelease released;
            for (int i = 0; i < times; ++i)
              cuda::launch_here(k.kernel, {}, stream, pointers, k.kernel.name.c_str());
          },
          "times"_a, "Launch one thread many times, to measure the cost of a launch.");
  m.def(
      "_load_kernel",
      [](int device, nb::bytes image, const std::string& symbol, const std::string& name) {
        const char* where = name.c_str();
        LoadedKernel k;
        k.module = cuda::Module::load(device, image.c_str(), where);
        k.kernel = k.module->kernel(symbol.c_str(), where);
        k.kernel.name = name;  // name in messages
        k.parameters = cuda::parameter_sizes(k.kernel);
        k.max_threads =
            cuda::function_attribute(k.kernel, CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK, where);
        return k;
      },
      "device"_a, "image"_a, "symbol"_a, "name"_a,
      "Load a kernel from a cubin or PTX; `name` is the one in messages.");
  m.def(
      "_compute_capability",
      [](int device) { return cuda::compute_capability(device, "compute_capability"); }, "device"_a,
      "Return the compute capability times ten: 90 for 9.0.");
}

}  // namespace gpuinterop
