// Shapes and strides: the only layout arithmetic of the project. Pure C++, strides in ELEMENTS.
//
// Invariant of every Layout: a dimension of extent 1 has the stride of a contiguous array, so that no
// consumer misreads it, and an empty array has the C strides that NumPy reports. Theano's "stride 0 for
// size 1" is only displayed (Array._strides).
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <initializer_list>
#include <string>
#include <utility>

namespace gpuinterop {

constexpr int kMaxDims = 64;    // NumPy's own limit
constexpr int kInlineDims = 5;  // more dimensions are stored on the heap

class Layout {
 public:
  Layout() noexcept = default;  // 0-d
  Layout(int ndim, const int64_t* shape, const int64_t* strides);
  Layout(const Layout& o);
  Layout(Layout&& o) noexcept;
  Layout& operator=(const Layout& o) { return *this = Layout(o); }
  Layout& operator=(Layout&& o) noexcept;
  ~Layout() { delete[] heap_; }

  // Uninitialised extents and strides; the caller fills them and calls finish().
  static Layout with_ndim(int ndim);
  static Layout c_order(int ndim, const int64_t* shape, const char* where) {
    return compact(ndim, shape, true, where);
  }
  static Layout f_order(int ndim, const int64_t* shape, const char* where) {
    return compact(ndim, shape, false, where);
  }
  // Without gaps, in the order of memory of the operands: NumPy's order="K". See read_memory_order.
  static Layout in_memory_order(int ndim, const int64_t* shape, const Layout* const* operands,
                                int count, const char* where);
  // Recomputes size and contiguity and restores the invariant. `where` names the caller in errors:
  // a negative extent or an overflowing product is a Kind::Shape error.
  void finish(const char* where);

  int ndim() const noexcept { return ndim_; }
  bool has_shape(int ndim, const int64_t* wanted) const noexcept {
    return ndim == ndim_ && std::equal(wanted, wanted + ndim, shape());
  }
  int64_t size() const noexcept { return size_; }
  int64_t* shape() noexcept { return data(); }
  int64_t* strides() noexcept { return data() + ndim_; }
  const int64_t* shape() const noexcept { return data(); }
  const int64_t* strides() const noexcept { return data() + ndim_; }
  // Extents <= 1 are skipped; an empty array is contiguous both ways.
  bool is_c_contiguous() const noexcept { return c_contiguous_; }
  bool is_f_contiguous() const noexcept { return f_contiguous_; }
  // Along one of the `ndim` axes to which the layout is broadcast: 0 where it has one element, or no axis.
  int64_t stride_along(int axis, int ndim) const noexcept {
    const int own = axis - (ndim - ndim_);
    return own < 0 || shape()[own] == 1 ? 0 : strides()[own];
  }
  bool has_negative_stride() const noexcept;
  // Whether two indices certainly have one address (a zero stride on an extent > 1).
  bool has_zero_stride() const noexcept;

  // Elements reached relative to element [0,...,0]: lo <= 0 <= hi, both inclusive; {0,-1} if empty.
  // Kind::Bounds error when the span does not fit 63 bits.
  std::pair<int64_t, int64_t> span(const char* where) const;

  // Of axes from 0 to below ndim(); a Kind::Shape error unless each occurs once.
  Layout permuted(const int64_t* axes, int n, const char* where) const;
  // NumPy's rule; a Kind::Shape error names both shapes.
  Layout broadcast_to(int ndim, const int64_t* shape, const char* where) const;
  // The same elements in C order under another shape (no -1 here): true and `out` set when strides
  // allow a view.
  bool reshaped(int ndim, const int64_t* shape, Layout* out, const char* where) const;

 private:
  static Layout compact(int ndim, const int64_t* shape, bool by_rows, const char* where);
  void reset() noexcept {  // to 0-d, the state after a move
    ndim_ = 0;
    size_ = 1;
    c_contiguous_ = f_contiguous_ = true;
  }
  int64_t* data() noexcept { return heap_ ? heap_ : inline_; }
  const int64_t* data() const noexcept { return heap_ ? heap_ : inline_; }

  int64_t size_ = 1;
  int64_t* heap_ =
      nullptr;  // shape then strides, of kMaxDims; set when ndim_ has been > kInlineDims
  int32_t ndim_ = 0;
  bool c_contiguous_ = true, f_contiguous_ = true;
  int64_t inline_[2 * kInlineDims];
};

// The first axis, from the innermost on, whose stride is not that of an array without gaps; -1 if there is none. The
// innermost axis is the last (by rows) or the first, and its stride `step`. Axes of length 1 are skipped. The only test of
// contiguity; for an empty array it does not count.
int first_gap(int ndim, const int64_t* shape, const int64_t* strides, bool by_rows,
              int64_t step = 1) noexcept;
std::string shape_text(int ndim, const int64_t* values);  // "(3, 4)", "(3,)", "()"
std::string layout_text(const Layout& l);  // "shape (3, 4) with strides (4, 1) (elements)"
// The axes of `ndim` from the longest step in memory to the shortest, as NumPy's iterator orders them for
// order="K". The operands broadcast to ndim axes. C order wins where two operands differ, and an axis along
// which no operand steps (length 1, or broadcast) stays in place. Directions do not count.
void read_memory_order(int ndim, const Layout* const* operands, int count, int64_t* axes);
// Replaces one -1 in `shape` by the length that `size` implies; Kind::Shape errors otherwise.
void resolve_minus_one(int ndim, int64_t* shape, int64_t size, const char* where);
// NumPy's broadcast of two shapes into `out` (kMaxDims entries); returns ndim.
int broadcast_shapes(int na, const int64_t* a, int nb, const int64_t* b, int64_t* out,
                     const char* where);

}  // namespace gpuinterop
