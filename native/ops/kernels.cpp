#include "ops/kernels.hpp"

#include <nanobind/nanobind.h>

#include <bit>
#include <cstring>
#include <string>
#include <unordered_map>
#include <vector>

#include "array/error.hpp"
#include "array/hooks.hpp"
#include "array/text_arguments.hpp"
#include "cuda/module.hpp"

namespace nb = nanobind;

namespace gpuinterop::ops {

namespace {

struct Compiled {
  std::shared_ptr<cuda::Module> module;
  cuda::Kernel kernel;
};
// Shared, because a launch may let other threads run, which may empty the kernel cache.
using CompiledRef = std::shared_ptr<const Compiled>;

// Guarded by the GIL. Never destroyed: at exit the driver may be unloaded before static objects are.
auto& compiled = *new std::unordered_map<std::string, CompiledRef>;

const char* class_name(LayoutClass c) {
  switch (c) {
    case LayoutClass::Flat: return "flat";
    case LayoutClass::Rows: return "rows";
    case LayoutClass::General: return "general";
    case LayoutClass::Tile: return "tile";
  }
  return "";
}

// Short enough to need no allocation for three operands.
std::string key_for(OpId op, const IterationSpace& w, const KernelVariant& variant, int device) {
  const int flags = static_cast<int>(variant.layout) | variant.wide << 2 |
                    (variant.tile > 32) << 3 | std::countr_zero(variant.vector) << 4;
  const int aligned = std::countr_zero(variant.across) | std::countr_zero(variant.skew) << 4;
  const uint8_t parts[] = {uint8_t(device), uint8_t(flags), uint8_t(aligned), variant.unroll,
                           variant.ndim};
  std::string key(reinterpret_cast<const char*>(&op), sizeof op);
  key.append(reinterpret_cast<const char*>(parts), sizeof parts);
  key.append(reinterpret_cast<const char*>(w.type), static_cast<size_t>(w.operands));
  return key.append(variant.modes, static_cast<size_t>(w.operands));
}

CompiledRef build(const std::string& key, OpId op, const IterationSpace& w,
                  const KernelVariant& variant, int device, const char* where) {
  nb::list rows;
  for (int i = 0; i < w.operands; ++i) rows.append(static_cast<int>(w.type[i]));
  const nb::tuple stored(rows);
  const std::string modes(variant.modes, static_cast<size_t>(w.operands));
  std::string symbol;
  auto compile = [&](bool fresh) {
    const nb::object answer = nb::steal(
        call_hook(Hook::Prepare, "(siOssiiiOiiiiiO)", "kernel", int(op), stored.ptr(),
                  modes.c_str(), class_name(variant.layout), int(variant.ndim), int(variant.vector),
                  int(variant.unroll), variant.wide ? Py_True : Py_False, int(variant.tile),
                  int(variant.across), int(variant.skew), kThreads,
                  cuda::compute_capability(device, where), fresh ? Py_True : Py_False)
            .release());
    symbol = nb::cast<std::string>(answer[1]);
    return nb::cast<nb::bytes>(answer[0]);
  };
  auto made = std::make_shared<Compiled>();
  made->module = cuda::load_or_recompile(device, compile, where);
  made->kernel = made->module->kernel(symbol.c_str(), where);
  compiled.emplace(key, made);
  return made;
}

}  // namespace

void forget_kernels() noexcept { compiled.clear(); }

void forget_kernels_of(OpId op) {
  for (auto it = compiled.begin(); it != compiled.end();) {
    const bool of_op = std::memcmp(it->first.data(), &op, sizeof op) == 0;
    // A CUDA graph of any library may hold functions of the module, so keep it loaded.
    if (of_op) it->second->module->keep_loaded();
    it = of_op ? compiled.erase(it) : std::next(it);
  }
}

void launch(OpId op, const IterationSpace& w, int device, const char* where) {
  cuda::DeviceGuard guard(device);
  CUstream stream = cuda::current_stream(device);
  ElementwiseLaunch planned;
  plan_launch(w, &planned, where);
  const std::string key = key_for(op, w, planned.variant, device);
  const auto found = compiled.find(key);
  const CompiledRef compiled_kernel =
      found != compiled.end() ? found->second : build(key, op, w, planned.variant, device, where);
  cuda::Launch how;
  how.grid[0] = planned.grid;
  how.block[0] = planned.block_x;
  how.block[1] = planned.block_y;
  void* arguments[] = {planned.parameters};
  cuda::queue(w.buffer, w.operands, stream, where,
              [&] { cuda::launch_here(compiled_kernel->kernel, how, stream, arguments, where); });
}

}  // namespace gpuinterop::ops
