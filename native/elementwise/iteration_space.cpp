#include "elementwise/iteration_space.hpp"

#include <algorithm>

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

// The first result determines the direction and the order of the dimensions, so that writes are coalesced.
struct ByResult {
  int result;
  int64_t direction(const int64_t* stride) const { return stride[result]; }
  int64_t pace(const int64_t* stride) const { return stride[result]; }
};

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
  w.ndim = 0;
  for (int d = 0; d < ndim; ++d)
    w.add(shape[d], w.operands,
          [&](int i) -> int64_t { return w.layout[i] ? w.layout[i]->stride_along(d, ndim) : 0; });
  if (w.inputs == w.operands) return w.merge(w.operands);
  w.arrange(w.operands, ByResult{w.inputs},
            [&](int i, int64_t elements) { w.data[i] += elements * w.itemsize[i]; });
}

}  // namespace gpuinterop::ops
