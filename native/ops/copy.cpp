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

void take(const Array& src, const Array& indices, int axis, const Array& dst, const char* where) {
  if (dst.layout.size() == 0) return;
  // Both inputs get dst's shape: src has stride 0 along the axes of the indices, these along the others.
  const int n = dst.layout.ndim(), k = indices.layout.ndim();
  int64_t walked[kMaxDims], looked[kMaxDims];
  for (int d = 0; d < n; ++d) {
    const bool inside = d >= axis && d < axis + k;
    walked[d] = inside ? 0 : src.layout.strides()[d < axis ? d : d - k + 1];
    looked[d] = inside ? indices.layout.strides()[d - axis] : 0;
  }
  Layout from = Layout::with_ndim(n), by = Layout::with_ndim(n);
  for (int d = 0; d < n; ++d) {
    from.shape()[d] = by.shape()[d] = dst.layout.shape()[d];
    from.strides()[d] = walked[d];
    by.strides()[d] = looked[d];
  }
  from.finish(where);
  by.finish(where);
  IterationSpace w;
  w.inputs = 3;
  w.add_array(indices);
  w.add_array(src);
  w.address[1] = true;
  w.add_constant({static_cast<uint64_t>(src.layout.strides()[axis]), 0}, 8);
  w.add_array(dst);
  const Layout* layouts[] = {&by, &from, nullptr, &dst.layout};
  const StoredType raw = raw_type(dst.itemsize()), types[] = {kInt64, raw, kInt64, raw};
  run(kTake, types, w, layouts, dst, where);
}

}  // namespace gpuinterop::ops
