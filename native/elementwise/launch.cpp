#include "elementwise/launch.hpp"

#include <nanobind/nanobind.h>

#include <array>
#include <string>

#include "elementwise/call_cache.hpp"
#include "elementwise/calls.hpp"
#include "interpreter/error.hpp"
#include "interpreter/hooks.hpp"
#include "interpreter/text_arguments.hpp"

namespace nb = nanobind;

namespace gpuinterop::ops {

namespace {

struct Compiled : Prepared {
  cuda::Kernel kernel;
};

constexpr const char* kClassNames[] = {"flat", "rows", "general", "tile"};  // of LayoutClass

std::shared_ptr<const Compiled> build(OpId op, const IterationSpace& w,
                                      const KernelVariant& variant, int device, const char* where) {
  nb::list stored;
  for (int i = 0; i < w.operands; ++i) {
    const StoredType type = w.type[i];
    const std::string bits = "u" + std::to_string(8 * w.itemsize[i]);  // CUDA's type of that size
    stored.append(type < kRaw ? kDTypes[type].name : bits.c_str());
  }
  const std::string modes(variant.modes, static_cast<size_t>(w.operands));
  const nb::object answer =
      prepare_in_python("kernel", {
                                      {"op", op},
                                      {"name", op_info(op).name.c_str()},
                                      {"stored", nb::tuple(stored)},
                                      {"modes", modes.c_str()},
                                      {"layout", kClassNames[static_cast<int>(variant.layout)]},
                                      {"ndim", variant.ndim},
                                      {"vector", variant.vector},
                                      {"unroll", variant.unroll},
                                      {"tile", variant.tile},
                                      {"across", variant.across},
                                      {"skew", variant.skew},
                                      {"threads", kThreads},
                                      {"capability", cuda::compute_capability(device, where)},
                                  });
  const nb::bytes image = nb::cast<nb::bytes>(answer[0]);
  const auto module = cuda::Module::load(device, image.c_str(), where);
  // A CUDA graph of any library may hold the kernel after the call cache has dropped it.
  module->keep_loaded();
  auto made = std::make_shared<Compiled>();
  made->kernel = module->kernel(nb::cast<const char*>(answer[1]), where);
  return made;
}

}  // namespace

void launch(OpId op, const IterationSpace& w, int device, const char* where) {
  if (const int d = dimension_to_halve(w); d >= 0) {
    IterationSpace part = w;  // the first half, then the second
    const int64_t all = w.shape[d];
    // A multiple of any vector, if the dimension is long.
    const int64_t half = all > 1024 ? all / 2 & ~int64_t{255} : all / 2;
    for (const int64_t extent : {half, all - half}) {
      part.shape[d] = extent;
      part.size = w.size / all * extent;
      launch(op, part, device, where);
      for (int i = 0; i < w.operands; ++i)
        if (!w.constant[i]) part.data[i] += half * w.stride[d][i] * w.itemsize[i];
    }
    return;
  }
  cuda::DeviceGuard guard(device);
  CUstream stream = cuda::current_stream(device);
  ElementwiseLaunch prepared;
  describe_launch(w, &prepared, where);
  const KernelVariant& variant = prepared.variant;
  auto write_key = [&](CallKey& key) {
    key.begin(Subject::Kernel, op);
    key.put(std::array<uint8_t, 8>{uint8_t(device), uint8_t(variant.layout), variant.ndim,
                                   variant.vector, variant.unroll, variant.tile, variant.across,
                                   variant.skew});
    key.append(w.type, static_cast<size_t>(w.operands));
    key.append(variant.modes, static_cast<size_t>(w.operands));
  };
  // A reference, because a launch may let other threads run, which may empty the call cache.
  const auto compiled = find_or_prepare<Compiled>(
      write_key, [&] { return build(op, w, variant, device, where); }, where);
  void* arguments[] = {prepared.parameters};
  cuda::queue(w.buffer, w.operands, stream, where,
              [&] { cuda::launch_here(compiled->kernel, prepared.how, stream, arguments, where); });
}

}  // namespace gpuinterop::ops
