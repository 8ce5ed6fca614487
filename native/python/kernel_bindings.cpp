// Kernels written by the user: loaded from machine code, launched with arrays and plain bytes.
#include <nanobind/stl/string.h>

#include <cstring>
#include <vector>

#include "array/array.hpp"
#include "cuda/module.hpp"
#include "ops/graph.hpp"
#include "python/kernel_bindings.hpp"
#include "python/raise.hpp"

namespace nb = nanobind;
using namespace nb::literals;

namespace gpuinterop {

namespace {

struct LoadedKernel {
  std::shared_ptr<cuda::Module> module;
  cuda::Kernel kernel;
};

void read_triple(nb::handle sizes, unsigned* out, const char* what) {
  const size_t n = nb::len(sizes);
  if (n < 1 || n > 3)
    fail(Kind::Shape, "kernel", std::string(what) + " of one to three extents", std::to_string(n),
         "pass (x, y, z)");
  for (size_t i = 0; i < n; ++i) {
    int overflow = 0;
    const int64_t v = PyLong_AsLongLongAndOverflow(nb::handle(sizes[i]).ptr(), &overflow);
    if (overflow || v < 1 || v > 0x7fffffff)
      fail(Kind::Shape, "kernel", std::string(what) + " of extents from 1 to 2^31 - 1",
           overflow ? "one beyond 64 bits" : std::to_string(v),
           v == 0 ? "launch nothing for an empty array" : "let each thread take several elements");
    out[i] = static_cast<unsigned>(v);
  }
}

// Every argument as the bytes the kernel takes; arrays that it uses join `used`.
void launch(const LoadedKernel& self, nb::handle grid, nb::handle block, int64_t shared,
            nb::handle arguments, nb::handle used) {
  const char* where = self.kernel.name.c_str();
  cuda::Launch how;
  read_triple(grid, how.grid, "a grid");
  read_triple(block, how.block, "a block");
  how.shared_bytes = static_cast<unsigned>(shared);
  const size_t n = nb::len(arguments);
  std::vector<void*> pointers(n);
  std::vector<std::vector<char>> values(n);
  for (size_t i = 0; i < n; ++i) {
    nb::bytes bytes = nb::cast<nb::bytes>(arguments[i]);
    values[i].assign(bytes.c_str(), bytes.c_str() + bytes.size());
    pointers[i] = values[i].data();
  }
  const int device = self.kernel.device;
  cuda::DeviceGuard guard(device);
  CUstream stream = cuda::current_stream(device);
  for (size_t i = 0; i < nb::len(used); ++i) {
    nb::object item = used[i];
    const Array& a = unwrap(item.ptr());
    if (a.device != Device{DeviceType::Cuda, device})
      fail(Kind::DeviceMismatch, where, "arrays on cuda:" + std::to_string(device),
           "an array elsewhere", "move it: x.to_device('cuda:" + std::to_string(device) + "')");
    cuda::order(a.buffer.get(), stream, where);
    ops::note_use(a);
  }
  if (shared > 48 * 1024) cuda::allow_shared_memory(self.kernel, static_cast<int>(shared), where);
  cuda::launch_here(self.kernel, how, stream, pointers.data(), where);
}

}  // namespace

void register_kernels(nb::module_& m) {
  nb::class_<LoadedKernel>(m, "LoadedKernel", "A kernel in a device's memory.")
      .def("launch", launch, "grid"_a, "block"_a, "shared"_a, "arguments"_a, "used"_a,
           "Queue it on the current stream: arguments as bytes, and the arrays it touches.")
      .def(
          "repeat",
          [](const LoadedKernel& k, int times) {
            // Launches with zeros for arguments: the bare cost of the driver's call, for benchmarks of
            // kernels that read none of them.
            const uint64_t zeros[16] = {};
            void* pointers[16];
            for (auto& p : pointers) p = const_cast<uint64_t*>(zeros);
            cuda::DeviceGuard guard(k.kernel.device);
            CUstream stream = cuda::current_stream(k.kernel.device);
            for (int i = 0; i < times; ++i)
              cuda::launch_here(k.kernel, {}, stream, pointers, k.kernel.name.c_str());
          },
          "times"_a, "Launch one thread many times: what a launch costs.")
      .def(
          "attribute",
          [](const LoadedKernel& k, int what) {
            return cuda::function_attribute(k.kernel, static_cast<CUfunction_attribute>(what),
                                            k.kernel.name.c_str());
          },
          "what"_a, "A CUfunction_attribute: 4 is the registers of a thread, 3 its local bytes.");
  m.def(
      "_load_kernel",
      [](int device, nb::callable compile, const std::string& name) {
        LoadedKernel k;
        k.module = cuda::load_or_recompile(device, code_from(compile), name.c_str());
        k.kernel = k.module->kernel(name.c_str(), name.c_str());
        return k;
      },
      nb::sig("def _load_kernel(device: int, compile: collections.abc.Callable[[bool], bytes], "
              "name: str) -> "
              "LoadedKernel"),
      "device"_a, "compile"_a, "name"_a,
      "Load the cubin or PTX that compile(fresh: bool) returns; the kernel called `name`.");
  m.def(
      "_compute_capability",
      [](int device) {
        return cuda::device_limits(device, "compute_capability").compute_capability;
      },
      "device"_a, "Times ten: 90 for 9.0.");
}

}  // namespace gpuinterop
