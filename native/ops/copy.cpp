#include "ops/copy.hpp"

#include <cstring>

#include "cuda/cuda.hpp"
#include "ops/kernels.hpp"

namespace gpuinterop::ops {

namespace {

void run(OpId op, const StoredType* types, IterationSpace& w, const Layout* const* layouts,
         const Array& dst, const char* where) {
  build_iteration_space(w, layouts, dst.layout.ndim(), dst.layout.shape());
  const int device = dst.device.id;
  cuda::DeviceGuard guard(device);
  launch(op, types, w, device, cuda::current_stream(device), where);
}

}  // namespace

void copy_strided(const Array& dst, const Array& src, const char* where) {
  if (dst.layout.size() == 0) return;
  IterationSpace w;
  w.inputs = 1;
  w.add_array(src);
  w.add_array(dst);
  const Layout* layouts[] = {&src.layout, &dst.layout};
  const StoredType raw = raw_type(dst.itemsize()), types[] = {raw, raw};
  run(kCopy, types, w, layouts, dst, where);
}

void fill_strided(const Array& dst, const void* item, const char* where) {
  if (dst.layout.size() == 0) return;
  Constant c;
  uint64_t words[2] = {0, 0};
  std::memcpy(words, item, static_cast<size_t>(dst.itemsize()));
  c.low = words[0];
  c.high = words[1];
  IterationSpace w;
  w.inputs = 1;
  w.add_constant(c, dst.itemsize());
  w.add_array(dst);
  const Layout* layouts[] = {nullptr, &dst.layout};
  const StoredType raw = raw_type(dst.itemsize()), types[] = {raw, raw};
  run(kFill, types, w, layouts, dst, where);
}

}  // namespace gpuinterop::ops
