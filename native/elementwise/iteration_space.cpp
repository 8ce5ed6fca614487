#include "elementwise/iteration_space.hpp"

#include <algorithm>
#include <cstdlib>

namespace gpuinterop::ops {

namespace {

// Whether all operands are one contiguous run of memory. This common case of several dimensions needs no loop over
// them.
bool is_one_run(const IterationSpace& w, int ndim, const int64_t* shape) {
  bool c_order = true, f_order = true;
  for (int i = 0; i < w.operands; ++i) {
    const Layout* l = w.layout[i];
    if (!l || l->size() == 1) continue;
    if (l->size() != w.size) return false;
    c_order = c_order && l->is_c_contiguous();
    f_order = f_order && l->is_f_contiguous() && l->ndim() == ndim &&
              std::equal(shape, shape + ndim, l->shape());
    if (!c_order && !f_order) return false;
  }
  return true;
}

}  // namespace

void build_iteration_space(IterationSpace& w, int ndim, const int64_t* shape) {
  w.size = 1;
  for (int d = 0; d < ndim; ++d) w.size *= shape[d];
  if (w.size <= 1) {
    w.ndim = 0;
    return;
  }
  if (ndim > 1 && is_one_run(w, ndim, shape)) {
    w.ndim = 1;
    w.shape[0] = w.size;
    for (int i = 0; i < w.operands; ++i)
      w.stride[0][i] = w.layout[i] && w.layout[i]->size() != 1 ? 1 : 0;
    return;
  }
  int n = 0;
  for (int d = 0; d < ndim; ++d) {
    if (shape[d] == 1) continue;
    w.shape[n] = shape[d];
    for (int i = 0; i < w.operands; ++i) {
      const Layout* l = w.layout[i];
      const int own = l ? d - (ndim - l->ndim()) : -1;
      w.stride[n][i] = own < 0 || l->shape()[own] == 1 ? 0 : l->strides()[own];
    }
    ++n;
  }
  // The results determine the direction and the order of the dimensions, so that writes are coalesced.
  // Without results the dimensions keep their order.
  const int lead = w.inputs;
  for (int d = 0; d < n && lead < w.operands; ++d) {
    if (w.stride[d][lead] >= 0) continue;
    for (int i = 0; i < w.operands; ++i) {
      if (w.constant[i]) continue;
      w.data[i] += (w.shape[d] - 1) * w.stride[d][i] * w.itemsize[i];
      w.stride[d][i] = -w.stride[d][i];
    }
  }
  for (int d = 1; d < n && lead < w.operands; ++d)
    for (int e = d; e > 0 && w.stride[e - 1][lead] < w.stride[e][lead]; --e) {
      std::swap(w.shape[e - 1], w.shape[e]);
      std::swap_ranges(w.stride[e], w.stride[e] + w.operands, w.stride[e - 1]);
    }
  w.ndim = merge_dimensions(w.shape, w.stride, n, w.operands);
}

}  // namespace gpuinterop::ops
