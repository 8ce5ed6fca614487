#include "arrays/layout.hpp"

#include <algorithm>
#include <cstdlib>

#include "arrays/dimensions.hpp"
#include "interpreter/error.hpp"

namespace gpuinterop {

namespace {

int64_t checked_product(int ndim, const int64_t* shape, const char* where) {
  int64_t total = 1;
  bool empty = false, overflow = false;
  for (int i = 0; i < ndim; ++i) {
    if (shape[i] < 0) fail_with("negative_length", where, {shape_text(ndim, shape)});
    if (shape[i] == 0)
      empty = true;
    else
      overflow |= __builtin_mul_overflow(total, shape[i], &total);
  }
  // NumPy refuses (0, 2**62, 2**62) as well: strides of such a shape do not fit.
  if (overflow) fail_with("shape_too_large", where, {shape_text(ndim, shape)});
  return empty ? 0 : total;
}

// The strides of a contiguous array whose fastest axis is the last (by rows) or the first.
void fill_strides(int ndim, const int64_t* shape, bool by_rows, int64_t* strides) {
  int64_t step = 1;
  for (int k = 0; k < ndim; ++k) {
    const int i = by_rows ? ndim - 1 - k : k;
    strides[i] = step;
    step *= std::max<int64_t>(shape[i], 1);
  }
}

// Element by element, not vectorised: these values were mostly written one by one just before, and a wider
// load would have to wait until those writes have left the core.
void copy_words(const int64_t* from, int n, int64_t* to) noexcept {
  for (int i = 0; i < n; ++i) {
    int64_t word = from[i];
    asm("" : "+r"(word));
    to[i] = word;
  }
}

void check_ndim(int ndim, const char* where) {
  if (ndim < 0 || ndim > kMaxDims)
    fail_with("too_many_dimensions", where, {int64_t{kMaxDims}, int64_t{ndim}});
}

}  // namespace

int first_gap(int ndim, const int64_t* shape, const int64_t* strides, bool by_rows,
              int64_t step) noexcept {
  for (int k = 0; k < ndim; ++k) {
    const int i = by_rows ? ndim - 1 - k : k;
    if (shape[i] == 1) continue;
    if (strides[i] != step) return i;
    if (__builtin_mul_overflow(step, shape[i], &step)) return i;  // beyond all memory
  }
  return -1;
}

Layout::Layout(int ndim, const int64_t* shape, const int64_t* strides) : Layout(with_ndim(ndim)) {
  copy_words(shape, ndim, this->shape());
  copy_words(strides, ndim, this->strides());
  finish("layout");
}

Layout::Layout(const Layout& o)
    : size_(o.size_),
      heap_(o.ndim_ > kInlineDims ? new int64_t[2 * kMaxDims] : nullptr),
      ndim_(o.ndim_),
      c_contiguous_(o.c_contiguous_),
      f_contiguous_(o.f_contiguous_) {
  copy_words(o.data(), 2 * ndim_, data());
}

Layout::Layout(Layout&& o) noexcept
    : size_(o.size_),
      heap_(std::exchange(o.heap_, nullptr)),
      ndim_(o.ndim_),
      c_contiguous_(o.c_contiguous_),
      f_contiguous_(o.f_contiguous_) {
  if (!heap_) copy_words(o.inline_, 2 * ndim_, inline_);
  o.reset();
}

Layout& Layout::operator=(Layout&& o) noexcept {
  if (this == &o) return *this;
  size_ = o.size_;
  ndim_ = o.ndim_;
  c_contiguous_ = o.c_contiguous_;
  f_contiguous_ = o.f_contiguous_;
  // A borrowed DLTensor may point into heap_, so it is kept as long as this layout.
  if (!heap_ && o.ndim_ > kInlineDims)
    heap_ = std::exchange(o.heap_, nullptr);
  else
    copy_words(o.data(), 2 * ndim_, data());
  o.reset();
  return *this;
}

Layout Layout::with_ndim(int ndim) {
  check_ndim(ndim, "layout");
  Layout out;
  if (ndim > kInlineDims) out.heap_ = new int64_t[2 * kMaxDims];
  out.ndim_ = ndim;
  return out;
}

Layout Layout::compact(int ndim, const int64_t* shape, bool by_rows, const char* where) {
  check_ndim(ndim, where);
  const int64_t size = checked_product(ndim, shape, where);
  Layout out = with_ndim(ndim);
  copy_words(shape, ndim, out.shape());
  fill_strides(ndim, shape, by_rows, out.strides());
  if (by_rows) {  // what finish() would find
    out.size_ = size;
    out.f_contiguous_ = size == 0 || first_gap(ndim, shape, out.strides(), false) < 0;
  } else {
    out.finish(where);
  }
  return out;
}

Layout Layout::in_memory_order(int ndim, const int64_t* shape, const Layout* const* operands,
                               int count, const char* where) {
  bool by_rows = true;  // the common case, which needs no comparison of axes
  for (int i = 0; i < count && by_rows; ++i) by_rows = operands[i]->is_c_contiguous();
  if (by_rows || ndim < 2) return compact(ndim, shape, true, where);
  int64_t axes[kMaxDims], extents[kMaxDims], steps[kMaxDims];
  read_memory_order(ndim, operands, count, axes);
  for (int k = 0; k < ndim; ++k) extents[k] = shape[axes[k]];
  fill_strides(ndim, extents, true, steps);
  Layout out = compact(ndim, shape, true, where);
  for (int k = 0; k < ndim; ++k) out.strides()[axes[k]] = steps[k];
  out.finish(where);
  return out;
}

void Layout::finish(const char* where) {
  const int64_t* n = shape();
  int64_t* s = strides();
  size_ = checked_product(ndim_, n, where);
  c_contiguous_ = size_ == 0 || first_gap(ndim_, n, s, true) < 0;
  f_contiguous_ = size_ == 0 || first_gap(ndim_, n, s, false) < 0;
  // Strides of dimensions of length 1: C's when C-contiguous, F's when F-contiguous, else as if the
  // dimensions to the right were contiguous.
  if (c_contiguous_ || f_contiguous_) {
    fill_strides(ndim_, n, c_contiguous_, s);
  } else {
    for (int i = ndim_ - 1; i >= 0; --i) {
      if (n[i] != 1) continue;
      int64_t implied = 1;
      if (i + 1 < ndim_ && __builtin_mul_overflow(n[i + 1], s[i + 1], &implied)) implied = 1;
      if (implied < 0 && __builtin_sub_overflow(0, implied, &implied)) implied = 1;
      s[i] = implied == 0 ? 1 : implied;
    }
  }
}

bool Layout::has_negative_stride() const noexcept {
  for (int i = 0; i < ndim_; ++i)
    if (shape()[i] > 1 && strides()[i] < 0) return true;
  return false;
}

bool Layout::has_zero_stride() const noexcept {
  for (int i = 0; i < ndim_; ++i)
    if (shape()[i] > 1 && strides()[i] == 0) return true;
  return false;
}

std::pair<int64_t, int64_t> Layout::span(const char* where) const {
  if (size_ == 0) return {0, -1};
  int64_t lo = 0, hi = 0;
  for (int i = 0; i < ndim_; ++i) {
    int64_t reach;
    bool overflow = __builtin_mul_overflow(shape()[i] - 1, strides()[i], &reach);
    if (!overflow)
      overflow = reach < 0 ? __builtin_add_overflow(lo, reach, &lo)
                           : __builtin_add_overflow(hi, reach, &hi);
    if (overflow)
      fail(Kind::Bounds, where, "strides whose reach fits 63 bits", layout_text(*this),
           "pass the strides of real memory");
  }
  return {lo, hi};
}

Layout Layout::permuted(const int64_t* axes, int n, const char* where) const {
  uint64_t used_axes = 0;
  bool ok = n == ndim_;
  Layout out = with_ndim(ndim_);
  for (int i = 0; ok && i < n; ++i) {
    const int64_t axis = axes[i];
    ok = !(used_axes >> axis & 1);
    if (!ok) break;
    used_axes |= uint64_t{1} << axis;
    out.shape()[i] = shape()[axis];
    out.strides()[i] = strides()[axis];
  }
  if (!ok)
    fail(Kind::Shape, where, "each axis exactly once",
         "axes " + shape_text(n, axes) + " for shape " + shape_text(ndim_, shape()),
         "pass a permutation of the axes");
  out.finish(where);
  return out;
}

Layout Layout::broadcast_to(int ndim, const int64_t* target, const char* where) const {
  check_ndim(ndim, where);
  Layout out = with_ndim(ndim);
  const int lead = ndim - ndim_;
  bool ok = lead >= 0;
  for (int i = 0; i < ndim && ok; ++i) {
    const bool same = i >= lead && shape()[i - lead] == target[i];
    ok = i < lead || same || (shape()[i - lead] == 1 && target[i] >= 0);
    out.shape()[i] = target[i];
    out.strides()[i] = same ? strides()[i - lead] : 0;
  }
  if (!ok)
    fail(Kind::Shape, where, "a shape that broadcasts to " + shape_text(ndim, target),
         "shape " + shape_text(ndim_, shape()),
         "reshape it: each axis length, counted from the right, must be equal or 1");
  out.finish(where);
  return out;
}

bool Layout::reshaped(int ndim, const int64_t* target, Layout* out, const char* where) const {
  check_ndim(ndim, where);
  if (checked_product(ndim, target, where) != size_)
    fail(Kind::Shape, where, std::to_string(size_) + " elements, as many as the array has",
         "shape " + shape_text(ndim, target) + " for an array of shape " +
             shape_text(ndim_, shape()),
         "pass a shape with the same element count; one axis length may be -1");
  if (c_contiguous_) {
    *out = c_order(ndim, target, where);
    return true;
  }
  // Each dimension that is left after merging is split, from its end, into some of the new ones.
  const Dimensions<1> old(*this);
  Layout result = with_ndim(ndim);
  std::copy_n(target, ndim, result.shape());
  int axis = ndim - 1;
  for (int d = old.ndim - 1; d >= 0; --d) {
    int64_t step = old.stride[d][0];
    for (int64_t left = old.shape[d]; left > 1; --axis) {
      if (left % target[axis]) return false;
      left /= target[axis];
      result.strides()[axis] = step;
      if (__builtin_mul_overflow(step, target[axis], &step)) step = 0;
    }
  }
  result.finish(where);
  *out = std::move(result);
  return true;
}

void read_memory_order(int ndim, const Layout* const* operands, int count, int64_t* axes) {
  auto step = [&](const Layout& l, int64_t axis) {
    return std::abs(l.stride_along(static_cast<int>(axis), ndim));
  };
  int64_t fastest[kMaxDims];  // the fastest axis first
  for (int axis = ndim - 1; axis >= 0; --axis) {
    const int faster = ndim - 1 - axis;
    int place = faster;
    for (int i = faster - 1; i >= 0; --i) {
      bool compared = false, stays = false;
      for (int k = 0; k < count; ++k) {
        const int64_t outer = step(*operands[k], axis), inner = step(*operands[k], fastest[i]);
        if (!outer || !inner) continue;
        compared = true;
        stays = stays || inner <= outer;
      }
      if (stays) break;
      if (compared) place = i;
    }
    std::copy_backward(fastest + place, fastest + faster, fastest + faster + 1);
    fastest[place] = axis;
  }
  std::reverse_copy(fastest, fastest + ndim, axes);
}

std::string layout_text(const Layout& l) {
  return "shape " + shape_text(l.ndim(), l.shape()) + " with strides " +
         shape_text(l.ndim(), l.strides()) + " (elements)";
}

std::string shape_text(int ndim, const int64_t* values) {
  std::string text = "(";
  for (int i = 0; i < ndim; ++i) {
    if (i) text += ", ";
    text += std::to_string(values[i]);
  }
  return text + (ndim == 1 ? ",)" : ")");
}

void resolve_minus_one(int ndim, int64_t* shape, int64_t size, const char* where) {
  int unknown = -1;
  int64_t product = 1;
  bool bad = false, overflow = false;
  for (int i = 0; i < ndim; ++i) {
    if (shape[i] == -1) {
      bad |= unknown >= 0;
      unknown = i;
    } else {
      bad |= shape[i] < 0;
      overflow |= __builtin_mul_overflow(product, shape[i], &product);
    }
  }
  if (bad)
    fail(Kind::Shape, where, "axis lengths of 0 or more, and at most one -1",
         "shape " + shape_text(ndim, shape), "pass -1 for one axis at most");
  if (unknown < 0) return;
  if (overflow || product == 0 || size % product != 0)
    fail(Kind::Shape, where, "axis lengths that divide the " + std::to_string(size) + " elements",
         "shape " + shape_text(ndim, shape),
         product == 0 && !overflow
             ? "pass the length instead of -1, because with a 0 it could be any"
             : "choose the other axis lengths so that their product divides " +
                   std::to_string(size));
  shape[unknown] = size / product;
}

int broadcast_shapes(int na, const int64_t* a, int nb, const int64_t* b, int64_t* out,
                     const char* where) {
  const int ndim = std::max(na, nb);
  check_ndim(ndim, where);
  for (int i = 1; i <= ndim; ++i) {
    const int64_t x = i <= na ? a[na - i] : 1, y = i <= nb ? b[nb - i] : 1;
    if (x != y && x != 1 && y != 1)
      fail_with("shapes_do_not_broadcast", where, {shape_text(na, a), shape_text(nb, b)});
    out[ndim - i] = x == 1 ? y : x;
  }
  return ndim;
}

}  // namespace gpuinterop
