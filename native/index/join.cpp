// concatenate(), stack(), NumPy's other joins, numpy.roll and numpy.repeat, of arrays of one class, dtype and device,
// outside captures.
#include <algorithm>
#include <optional>
#include <utility>
#include <vector>

#include "arrays/type.hpp"
#include "captures/recorder.hpp"
#include "elementwise/launch.hpp"
#include "interpreter/register.hpp"
#include "interpreter/served.hpp"

namespace gpuinterop {

namespace {

std::optional<int> known_axis(PyObject* axis, int ndim) {
  int overflow = 0;
  if (axis && !PyLong_CheckExact(axis)) return {};
  int64_t along = axis ? PyLong_AsLongLongAndOverflow(axis, &overflow) : 0;
  along += along < 0 ? ndim : 0;
  if (overflow || along < 0 || along >= ndim || ndim > kMaxDims) return {};
  return static_cast<int>(along);
}

struct Parts {
  std::vector<Array> arrays;  // copies, because a finalizer may change the objects
  PyRef type;
};

// The arrays of a list or tuple, of one number of dimensions if `one_ndim`; none for others.
Parts parts_of(PyObject* sequence, const char* where, bool one_ndim = true) {
  Parts parts;
  if (!(PyList_CheckExact(sequence) || PyTuple_CheckExact(sequence)) || ops::recorder) return {};
  const PyRef items = PyRef::checked(PySequence_Tuple(sequence));
  const Py_ssize_t n = PyTuple_Size(items.get());
  parts.arrays.reserve(static_cast<size_t>(n));
  for (Py_ssize_t i = 0; i < n; ++i) {
    PyObject* const item = PyTuple_GetItem(items.get(), i);
    if (!is_array(item)) return {};
    const Array& a = read_array(item, where);
    if (!i) parts.type = PyRef::borrow(reinterpret_cast<PyObject*>(Py_TYPE(item)));
    const Array& first = i ? parts.arrays[0] : a;
    if (reinterpret_cast<PyObject*>(Py_TYPE(item)) != parts.type.get() || a.dtype != first.dtype ||
        a.device != first.device || (one_ndim && a.layout.ndim() != first.layout.ndim()))
      return {};
    parts.arrays.push_back(a);
  }
  return parts;
}

// Up to this many bytes one launch is as fast as a copy of each part, or faster, and its indices fit 32 bits.
constexpr int64_t kOneLaunch = 1 << 28;
constexpr size_t kMostParts = 8;

// Whether the elements from axis `at` on have no gaps, and the axes before step through memory as one, of this stride.
bool has_rows(const Layout& l, int at, int64_t* pitch) {
  *pitch = 0;
  for (int d = at - 1; d >= 0 && !*pitch; --d)
    if (l.shape()[d] > 1) *pitch = l.strides()[d];
  return first_gap(l.ndim() - at, l.shape() + at, l.strides() + at, true) < 0 &&
         first_gap(at, l.shape(), l.strides(), true, *pitch) < 0;
}

// The kernel takes target and parts as rows: see core_body() in gpuinterop/elementwise/promotion.py.
bool copy_by_one_launch(const Array& target, int at, const std::vector<Array>& parts,
                        const char* where) {
  if (!target.device.is_cuda() || target.nbytes() > kOneLaunch || parts.size() > kMostParts)
    return false;
  const int64_t size = target.layout.size();
  const Layout flat = Layout::c_order(1, &size, where), one = {};
  const ops::StoredType raw = ops::raw_type(target.itemsize()), words = ops::raw_type(16);
  ops::IterationSpace w;
  auto add_address = [&](const Array& a, const Layout& layout) {
    w.add_array(a, raw, layout);
    w.address[w.operands - 1] = true;
  };
  add_address(target, flat);
  int64_t row = 1, end = 0;
  for (int d = at; d < target.layout.ndim(); ++d) row *= target.layout.shape()[d];
  w.add_constant({reinterpret_cast<uint64_t>(target.data), static_cast<uint64_t>(row)}, words);
  for (const Array& part : parts) add_address(part, one);
  for (const Array& part : parts) {
    int64_t pitch;
    if (!has_rows(part.layout, at, &pitch)) return false;
    end += row / target.layout.shape()[at] * part.layout.shape()[at];
    w.add_constant({static_cast<uint64_t>(pitch), static_cast<uint64_t>(end)}, words);
  }
  w.inputs = w.operands;
  w.add_array(target, raw, flat);
  ops::build_iteration_space(w, 1, &size);
  ops::launch(ops::kJoin, w, target.device.id, where);
  return true;
}

// Fills `target`, which has no gaps, with the parts, one after the other along an axis.
void copy_in_order(Array target, int at, std::vector<Array> parts, const char* where) {
  std::erase_if(parts, [](const Array& part) { return part.layout.size() == 0; });
  if (parts.empty() || copy_by_one_launch(target, at, parts, where)) return;
  const Uncounted guard(true);
  const Layout whole = target.layout;
  for (const Array& source : parts) {
    target.layout = whole;
    target.layout.shape()[at] = source.layout.shape()[at];
    target.layout.finish(where);
    copy_elements(target, source, where);
    target.data += source.layout.shape()[at] * whole.strides()[at] * target.itemsize();
  }
}

// The array with axes of length 1 before and behind its own.
void add_axes(Array& a, int before, int behind, const char* where) {
  const Layout own = a.layout;
  if (before + behind == 0) return;
  a.layout = Layout::with_ndim(before + own.ndim() + behind);
  for (int d = 0; d < a.layout.ndim(); ++d) {
    const bool is_own = d >= before && d < before + own.ndim();
    a.layout.shape()[d] = is_own ? own.shape()[d - before] : 1;
    a.layout.strides()[d] = is_own ? own.strides()[d - before] : 1;
  }
  a.layout.finish(where);
}

// Null: Python carries the call out.
PyObject* join_along(Parts parts, int at, const char* where) {
  const Array& first = parts.arrays[0];
  const int ndim = first.layout.ndim();
  int64_t shape[kMaxDims], total = 0;
  std::copy_n(first.layout.shape(), ndim, shape);
  for (const Array& a : parts.arrays) {
    for (int d = 0; d < ndim; ++d)
      if (d != at && a.layout.shape()[d] != shape[d]) return nullptr;
    if (__builtin_add_overflow(total, a.layout.shape()[at], &total)) return nullptr;
  }
  shape[at] = total;
  PyRef made = PyRef::steal(wrap(reinterpret_cast<PyTypeObject*>(parts.type.get()),
                                 make_empty(first.device, first.dtype, ndim, shape, where)));
  copy_in_order(unwrap(made.get()), at, std::move(parts.arrays), where);
  return made.release();
}

bool has_options(const Values& v, std::initializer_list<size_t> places) {
  return std::any_of(places.begin(), places.end(), [&](size_t i) { return given(v[i]); });
}

PyObject* concatenate(const Values& v) {
  const char* where = "concatenate";
  Parts parts = parts_of(v[0], where);
  if (parts.arrays.empty() || has_options(v, {2, 3, 4})) return nullptr;
  const auto at = known_axis(v[1], parts.arrays[0].layout.ndim());
  return at ? join_along(std::move(parts), *at, where) : nullptr;
}

PyObject* stack(const Values& v) {
  const char* where = "stack";
  Parts parts = parts_of(v[0], where);
  if (parts.arrays.empty() || has_options(v, {2, 3, 4})) return nullptr;
  const int ndim = parts.arrays[0].layout.ndim() + 1;
  const auto at = known_axis(v[1], ndim);
  if (!at) return nullptr;
  for (Array& a : parts.arrays) {
    add_axes(a, 1, 0, where);
    int64_t axes[kMaxDims];
    for (int d = 0; d < ndim; ++d) axes[d] = d == *at ? 0 : d < *at ? d + 1 : d;
    a.layout = a.layout.permuted(axes, ndim, where);
  }
  return join_along(std::move(parts), *at, where);
}

// numpy.vstack, hstack, dstack and column_stack: arrays of few axes get others before and behind.
template <int kAxis>
PyObject* join_as(const Values& v, const char* where, std::pair<int, int> (*more)(int ndim)) {
  Parts parts = parts_of(v[0], where);
  if (parts.arrays.empty() || has_options(v, {1, 2})) return nullptr;
  for (Array& a : parts.arrays) {
    const auto [before, behind] = more(a.layout.ndim());
    add_axes(a, before, behind, where);
  }
  const int last = parts.arrays[0].layout.ndim() - 1;
  return join_along(std::move(parts), std::min(kAxis, last), where);
}

// Both flattened where that is a view, unless there is an axis.
PyObject* append(const Values& v) {
  const char* where = "append";
  const PyRef two = PyRef::checked(PyTuple_Pack(2, v[0], v[1]));
  PyObject* const axis = given(v[2]);
  Parts parts = parts_of(two.get(), where, axis != nullptr);
  if (parts.arrays.empty()) return nullptr;
  for (Array& a : parts.arrays) {
    const int64_t size = a.layout.size();
    if (!axis && !a.layout.is_c_contiguous()) return nullptr;
    if (!axis) a.layout = Layout::c_order(1, &size, where);
  }
  const auto at = known_axis(axis, parts.arrays[0].layout.ndim());
  return at ? join_along(std::move(parts), *at, where) : nullptr;
}

// The elements moved along one axis, in an array of the given shape; those beyond the end come first.
Array rolled(Array source, int at, int64_t by, const Layout& shape, const char* where) {
  const int64_t n = source.layout.shape()[at], cut = n ? (by % n + n) % n : 0;
  const Array made = make_empty(source.device, source.dtype, shape.ndim(), shape.shape(), where);
  Array target = made;
  target.layout = Layout::c_order(source.layout.ndim(), source.layout.shape(), where);
  auto part = [&](int64_t from, int64_t length) {
    Array one = source;
    one.data += from * source.layout.strides()[at] * source.itemsize();
    one.layout.shape()[at] = length;
    one.layout.finish(where);
    return one;
  };
  copy_in_order(std::move(target), at, {part(n - cut, cut), part(0, n - cut)}, where);
  return made;
}

// Along several axes in turn; `by` has a number for each axis of the array. Null: there is no axis, or there are several
// of a large array on the host, where NumPy moves blocks and needs no memory for the array between two turns.
PyObject* roll_axes(PyObject* x, const int64_t* by, const char* where) {
  Array found = read_array(x, where);
  const int ndim = found.layout.ndim();
  const bool several = std::count(by, by + ndim, 0) < ndim - 1;
  if (several && !found.device.is_cuda() && found.nbytes() > (1 << 16)) return nullptr;
  int moved = 0;
  for (int d = 0; d < ndim; ++d)
    if (by[d] || (d == ndim - 1 && !moved)) {
      found = rolled(std::move(found), d, by[d], unwrap(x).layout, where);
      ++moved;
    }
  return moved ? wrap(Py_TYPE(x), std::move(found)) : nullptr;
}

// Along the axes, or along the flattened array if that is a view.
PyObject* roll(PyObject* x, PyObject* shift, PyObject* axis) {
  const char* where = "roll";
  if (!is_array(x) || ops::recorder) return nullptr;
  int64_t shifts[kMaxDims], axes[kMaxDims], by[kMaxDims] = {};
  const int count = read_ints(shift, shifts, where, "shift");
  Array source = read_array(x, where);
  const Layout own = source.layout;
  if (!axis) {
    const int64_t size = own.size();
    if (!own.is_c_contiguous() || count != 1) return nullptr;
    source.layout = Layout::c_order(1, &size, where);
    return wrap(Py_TYPE(x), rolled(std::move(source), 0, shifts[0], own, where));
  }
  const int places = read_ints(axis, axes, where, "axes");
  if (count != 1 && count != places) return nullptr;
  for (int i = 0; i < places; ++i) {
    int64_t& sum = by[count_axis(axes[i], own.ndim(), where)];
    if (__builtin_add_overflow(sum, shifts[count == 1 ? 0 : i], &sum)) return nullptr;
  }
  return roll_axes(x, by, where);
}

// Each element along an axis, or of the flattened array if that is a view, as often as one number says.
PyObject* repeat(PyObject* x, PyObject* repeats, PyObject* axis) {
  const char* where = "repeat";
  if (!is_array(x) || !PyLong_CheckExact(repeats) || ops::recorder) return nullptr;
  const int64_t count = as_int64(repeats, where);
  Array source = read_array(x, where);
  if (!source.device.is_cuda()) ops::require_values(where, source);
  if (!axis) {
    const int64_t size = source.layout.size();
    if (!source.layout.is_c_contiguous()) return nullptr;
    source.layout = Layout::c_order(1, &size, where);
  }
  const Layout own = source.layout;
  const auto along = known_axis(axis, own.ndim());
  if (!along || count < 0 || own.ndim() == kMaxDims) return nullptr;
  const int behind = *along + 1;  // the place of a further axis for the copies
  source.layout = Layout::with_ndim(own.ndim() + 1);
  for (int d = 0; d < source.layout.ndim(); ++d) {
    source.layout.shape()[d] = d == behind ? count : own.shape()[d - (d > behind)];
    source.layout.strides()[d] = d == behind ? 0 : own.strides()[d - (d > behind)];
  }
  source.layout.finish(where);
  Layout shape = own;
  if (__builtin_mul_overflow(own.shape()[*along], count, &shape.shape()[*along])) return nullptr;
  Array made = make_empty(source.device, source.dtype, shape.ndim(), shape.shape(), where);
  Array target = made;
  target.layout = Layout::c_order(source.layout.ndim(), source.layout.shape(), where);
  const Uncounted guard(true);
  if (made.layout.size()) copy_elements(target, source, where);
  return wrap(Py_TYPE(x), std::move(made));
}

// numpy.fft.fftshift, and its inverse.
PyObject* shift_halves(PyObject* x, PyObject* axis, int sign, const char* where) {
  if (!is_array(x) || ops::recorder) return nullptr;
  const Layout own = read_array(x, where).layout;
  int64_t axes[kMaxDims], by[kMaxDims] = {};
  int places = own.ndim();
  for (int d = 0; d < places; ++d) axes[d] = d;
  if (axis) places = read_ints(axis, axes, where, "axes");
  for (int i = 0; i < places; ++i) {
    const int d = count_axis(axes[i], own.ndim(), where);
    by[d] += sign * (own.shape()[d] / 2);
  }
  return roll_axes(x, by, where);
}

}  // namespace

void register_joining() {
  const char* const parameters = "arrays axis out * dtype casting";
  serve({{"concatenate", parameters, 1}, concatenate});
  serve({{"stack", parameters, 1}, stack});
  using More = std::pair<int, int>;
  serve({{"vstack", "tup * dtype casting", 1}, [](const Values& v) {
           return join_as<0>(v, "vstack", [](int n) { return More(std::max(2 - n, 0), 0); });
         }});
  serve({{"hstack", "tup * dtype casting", 1}, [](const Values& v) {
           return join_as<1>(v, "hstack", [](int n) { return More(n == 0, 0); });
         }});
  serve({{"dstack", "tup", 1}, [](const Values& v) {
           return join_as<2>(v, "dstack", [](int n) { return More(n == 0 ? 2 : n == 1, n < 3); });
         }});
  serve({{"column_stack", "tup", 1}, [](const Values& v) {
           return join_as<1>(v, "column_stack", [](int n) { return More(n == 0, n < 2); });
         }});
  serve({{"append", "arr values axis", 2}, append});
  serve(
      {{"roll", "a shift axis", 2}, [](const Values& v) { return roll(v[0], v[1], given(v[2])); }});
  serve({{"repeat", "x repeats axis", 2},
         [](const Values& v) { return repeat(v[0], v[1], given(v[2])); }});
  serve({{"fftshift", "x axes", 1},
         [](const Values& v) { return shift_halves(v[0], given(v[1]), 1, "fftshift"); }});
  serve({{"ifftshift", "x axes", 1},
         [](const Values& v) { return shift_halves(v[0], given(v[1]), -1, "ifftshift"); }});
}

}  // namespace gpuinterop
