#include "index/calls.hpp"

#include <optional>

#include "captures/recorder.hpp"
#include "elementwise/operands.hpp"
#include "elementwise/overlap.hpp"
#include "index/elements.hpp"
#include "index/host_elements.hpp"
#include "interpreter/error.hpp"
#include "interpreter/served.hpp"

namespace gpuinterop {

namespace {

// An array of integers at which the core can index `view`.
bool is_index_for(const Array& a, const Array& view) {
  return a.device == view.device && is_integer(a.dtype);
}

// Null if the call is Python's: nothing to read, or shapes that do not broadcast.
std::optional<ops::IndexedElements> elements_at(const Array& view, const IndexArrays& key,
                                                ops::OutOfRange mode, const char* where) {
  // Python makes the arrays that a capture in host memory needs.
  if (key.arrays.size() > ops::kMaxIndexArrays || ops::recording_on_host()) return std::nullopt;
  std::vector<Array> indices;
  for (PyObject* o : key.arrays) {
    require_valid_layout(o);
    indices.push_back(unwrap(o));
  }
  for (const int axis : key.axes)
    if (view.layout.shape()[axis] == 0) return std::nullopt;
  try {
    auto at = ops::locate(view, std::move(indices), key.axes, key.axis, mode, where);
    if (at.frame.layout.size() == 0) return std::nullopt;
    at.axes = key.source_axes;
    return at;
  } catch (const Error&) {
    return std::nullopt;
  }
}

bool overlaps_any(const Array& written, const Array& view, const ops::IndexedElements& at,
                  const char* where) {
  bool found = ops::may_overlap(written, view, where);
  for (const Array& a : at.indices) found = found || ops::may_overlap(written, a, where);
  return found;
}

PyRef read(PyTypeObject* type, const Array& view, const IndexArrays& key, ops::OutOfRange mode,
           PyObject* out, const char* where) {
  const auto at = elements_at(view, key, mode, where);
  if (!at) return {};
  if (!out) {
    PyRef made = PyRef::steal(
        wrap(type, make_empty(view.device, view.dtype, at->ndim(), at->shape(), where)));
    const Array target = unwrap(made.get());
    ops::note_fresh(target);
    ops::gather(*at, target, false, where);
    return made;
  }
  ops::check_out(out, view.dtype, view.device, at->ndim(), at->shape(), where);
  const Array target = unwrap(out);
  if (overlaps_any(target, view, *at, where)) return {};
  ops::gather(*at, target, true, where);
  return PyRef::borrow(out);
}

std::optional<ops::OutOfRange> known_mode(PyObject* mode) {
  if (!mode || is_text(mode, "raise")) return ops::OutOfRange::Raise;
  if (is_text(mode, "clip")) return ops::OutOfRange::Clip;
  if (is_text(mode, "wrap")) return ops::OutOfRange::Wrap;
  return {};
}

// A new array of the elements at one index; null: Python names the fault.
PyRef take_one(PyTypeObject* type, const Array& view, int axis, PyObject* index,
               const char* where) {
  const int n = view.layout.ndim() - 1;
  const int64_t length = view.layout.shape()[axis];
  int64_t at = as_int64(index, where);
  at += at < 0 ? length : 0;
  const bool copied = view.device.is_cuda() || ops::cast_loop(view.dtype, view.dtype);
  if (at < 0 || at >= length || ops::recorder || !copied) return {};
  ops::require_set(where, view);
  Array part = view;
  part.layout = Layout::with_ndim(n);
  for (int i = 0; i < n; ++i) {
    const int from = i + (i >= axis);
    part.layout.shape()[i] = view.layout.shape()[from];
    part.layout.strides()[i] = view.layout.strides()[from];
  }
  part.layout.finish(where);
  part.data += at * view.layout.strides()[axis] * view.itemsize();
  PyRef made =
      PyRef::steal(wrap(type, make_empty(view.device, view.dtype, n, part.layout.shape(), where)));
  if (part.layout.size()) copy_unreported(unwrap(made.get()), part, where);
  return made;
}

}  // namespace

PyObject* take(PyObject* x, PyObject* indices, PyObject* axis, PyObject* out, PyObject* mode) {
  const char* where = "take";
  const auto outside = known_mode(mode);
  const bool one = PyLong_CheckExact(indices) && !out && outside == ops::OutOfRange::Raise;
  if (!is_array(x) || !(one || is_array(indices)) || (out && !is_array(out)) || !outside)
    return nullptr;
  Array view = read_array(x, where);
  if (!axis && view.layout.is_c_contiguous()) {
    const int64_t size = view.layout.size();
    view.layout = Layout::c_order(1, &size, where);
  }
  const int ndim = view.layout.ndim();
  if (axis && !PyLong_CheckExact(axis)) return nullptr;
  int64_t along = axis ? as_int64(axis, where) : 0;
  along += along < 0 ? ndim : 0;
  if (along < 0 || along >= ndim || (!axis && ndim != 1)) return nullptr;
  const int at = static_cast<int>(along);
  if (one) return take_one(Py_TYPE(x), view, at, indices, where).release();
  if (!is_index(indices, view)) return nullptr;
  const IndexArrays key{{indices}, {at}, {at}, at};
  return read(Py_TYPE(x), view, key, *outside, out, where).release();
}

PyObject* take_along_axis(PyObject* x, PyObject* indices, PyObject* axis) {
  const char* where = "take_along_axis";
  if (!is_array(x) || (axis && !PyLong_CheckExact(axis))) return nullptr;
  const Array view = read_array(x, where);
  const int ndim = view.layout.ndim();
  if (!is_index(indices, view) || unwrap(indices).layout.ndim() != ndim) return nullptr;
  const int at = count_axis(axis ? as_int64(axis, where) : -1, ndim, where);
  if (!view.device.is_cuda()) return read_line(Py_TYPE(x), view, indices, where).release();
  const IndexArrays key{{indices}, {at}, {at}, ops::kAlong};
  return read(Py_TYPE(x), view, key, ops::OutOfRange::Raise, nullptr, where).release();
}

// The indices of the elements in host memory that are not zero, a row for each axis; nothing: Python carries the call
// out. With `flat` those in the array as one axis.
static std::optional<Array> find_nonzero(PyObject* x, bool flat, const char* where) {
  if (!is_array(x) || ops::recorder) return {};
  Array mask = read_array(x, where);
  const Layout whole = mask.layout;
  if (mask.device.is_cuda() || whole.ndim() == 0 || !ops::cast_loop(mask.dtype, kBool)) return {};
  if (flat && !whole.is_c_contiguous()) return {};
  ops::require_set(where, mask);
  if (mask.dtype != kBool) {
    const Array bools = make_empty({}, kBool, whole.ndim(), whole.shape(), where);
    copy_unreported(bools, mask, where);
    mask = bools;
  }
  if (const int64_t size = whole.size(); flat) mask.layout = Layout::c_order(1, &size, where);
  const int64_t count = ops::count_selected(mask), shape[] = {mask.layout.ndim(), count};
  Array places = make_empty({}, kInt64, 2, shape, where);
  ops::find_selected(mask, places);
  return places;
}

static PyObject* row_of(const Array& places, int row, const char* where) {
  Array made = places;
  const int64_t count = places.layout.shape()[1];
  made.layout = Layout::c_order(1, &count, where);
  if (count) made.data += row * count * made.itemsize();
  return wrap(result_type(kInt64), std::move(made));
}

PyObject* nonzero(PyObject* x) {
  const auto places = find_nonzero(x, false, "nonzero");
  if (!places) return nullptr;
  const int n = static_cast<int>(places->layout.shape()[0]);
  PyRef rows = PyRef::checked(PyTuple_New(n));
  for (int d = 0; d < n; ++d) PyTuple_SetItem(rows.get(), d, row_of(*places, d, "nonzero"));
  return rows.release();
}

PyObject* flatnonzero(PyObject* x) {
  const auto places = find_nonzero(x, true, "flatnonzero");
  return places ? row_of(*places, 0, "flatnonzero") : nullptr;
}

PyObject* argwhere(PyObject* x) {
  auto places = find_nonzero(x, false, "argwhere");
  if (!places) return nullptr;
  const int64_t rows_last[] = {1, 0};
  places->layout = places->layout.permuted(rows_last, 2, "argwhere");
  return wrap(result_type(kInt64), std::move(*places));
}

bool is_index(PyObject* o, const Array& view) {
  return is_array(o) && is_index_for(unwrap(o), view);
}

PyRef read_at(PyTypeObject* type, const Array& view, const IndexArrays& key, const char* where) {
  return read(type, view, key, ops::OutOfRange::Raise, nullptr, where);
}

// Sets or adds the value; in host memory `sum` adds.
static bool change_at(const Array& view, const IndexArrays& key, PyObject* value, const char* where,
                      bool adds, std::shared_ptr<const ops::HostProgram> sum = {}) {
  if (view.readonly) return false;
  const auto at = elements_at(view, key, ops::OutOfRange::Raise, where);
  if (!at) return false;
  for (const Array& a : at->indices)
    if (ops::may_overlap(view, a, where)) return false;
  alignas(16) unsigned char item[16];
  Array source;
  if (is_array(value)) {
    require_valid_layout(value);
    source = unwrap(value);
    if (source.dtype != view.dtype || source.device != view.device ||
        ops::may_overlap(view, source, where))
      return false;
    Array target = at->frame;
    target.layout = Layout::c_order(at->ndim(), at->shape(), where);
    source.layout = fitted(source.layout, target, where);
  } else {
    if (!scalar_bytes(value, view.dtype, item)) return false;
    source.dtype = view.dtype;
    source.data = reinterpret_cast<char*>(item);
  }
  ops::prepare_write(view, where);
  ops::scatter(*at, source, adds, where, std::move(sum));
  return true;
}

bool write_at(const Array& view, const IndexArrays& key, PyObject* value, const char* where) {
  return change_at(view, key, value, where, false);
}

bool add_at(const Array& view, const IndexArrays& key, PyObject* value, const char* where,
            std::shared_ptr<const ops::HostProgram> sum) {
  return change_at(view, key, value, where, true, std::move(sum));
}

bool is_mask_of(PyObject* o, const Array& x) {
  if (!is_array(o)) return false;
  const Array& mask = unwrap(o);
  return mask.dtype == kBool && mask.device == x.device && mask.layout.ndim() > 0 &&
         mask.layout.has_shape(x.layout.ndim(), x.layout.shape());
}

PyRef read_line(PyTypeObject* type, const Array& x, PyObject* key, const char* where) {
  if (x.layout.ndim() != 1 || x.device.is_cuda() || ops::recorder || !is_index(key, x)) return {};
  require_valid_layout(key);
  const Array index = unwrap(key);
  const Layout& l = index.layout;
  if (l.ndim() == 0 || !l.is_c_contiguous()) return {};
  ops::require_set(where, index);
  ops::require_set(where, x);
  PyRef made = PyRef::steal(wrap(type, make_empty(x.device, x.dtype, l.ndim(), l.shape(), where)));
  return ops::take_on_host(x, index, unwrap(made.get())) ? std::move(made) : PyRef();
}

PyRef read_masked(PyTypeObject* type, const Array& x, PyObject* key, const char* where) {
  if (ops::recorder || x.device.is_cuda()) return {};
  require_valid_layout(key);
  const Array mask = unwrap(key);
  ops::require_set(where, mask);
  ops::require_set(where, x);
  const int64_t count = ops::count_selected(mask);
  PyRef made = PyRef::steal(wrap(type, make_empty(x.device, x.dtype, 1, &count, where)));
  ops::read_selected(mask, x, unwrap(made.get()));
  return made;
}

bool write_masked(const Array& x, PyObject* key, PyObject* value, const char* where) {
  if (x.readonly || ops::recorder) return false;
  require_valid_layout(key);
  const Array mask = unwrap(key);
  alignas(16) unsigned char item[16];
  Array source;
  if (is_array(value)) {
    require_valid_layout(value);
    source = unwrap(value);
    const bool is_one = source.layout.size() == 1 && source.layout.ndim() <= 1;
    const bool may_count = source.layout.ndim() == 1 && !x.device.is_cuda();
    if (source.dtype != x.dtype || source.device != x.device || !(is_one || may_count) ||
        ops::may_overlap(x, source, where))
      return false;
    if (!is_one && source.layout.size() != ops::count_selected(mask)) return false;
    if (is_one) source.layout = Layout().broadcast_to(x.layout.ndim(), x.layout.shape(), where);
  } else {
    if (!scalar_bytes(value, x.dtype, item)) return false;
    source.dtype = x.dtype;
    source.data = reinterpret_cast<char*>(item);
  }
  if (ops::may_overlap(x, mask, where)) return false;
  ops::prepare_write(x, where);
  if (source.layout.has_shape(x.layout.ndim(), x.layout.shape()) || source.layout.ndim() == 0) {
    ops::assign_masked(x, mask, source, where);
    return true;
  }
  ops::require_set(where, mask);
  ops::require_set(where, source);
  ops::note_write(x);
  ops::write_selected(mask, x, source);
  return true;
}

}  // namespace gpuinterop
