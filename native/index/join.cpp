// concatenate(), stack() and numpy.roll of arrays of one class, dtype and device, outside captures.
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

// The arrays of a list or tuple, of one number of dimensions; none for others.
Parts parts_of(PyObject* sequence, const char* where) {
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
        a.device != first.device || a.layout.ndim() != first.layout.ndim())
      return {};
    parts.arrays.push_back(a);
  }
  return parts;
}

// Below this many bytes one launch is faster than a copy of each part.
constexpr int64_t kOneLaunch = 1 << 20;
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

// Along `axis`, or along a new axis.
PyObject* join(const Values& v, bool stacks, const char* where) {
  for (size_t option : {2, 3, 4})  // out, dtype, casting
    if (given(v[option])) return nullptr;
  PyObject* const axis = v[1];
  Parts parts = parts_of(v[0], where);
  if (parts.arrays.empty()) return nullptr;
  const auto at = known_axis(axis, parts.arrays[0].layout.ndim() + stacks);
  if (!at) return nullptr;
  for (Array& a : parts.arrays) {
    if (!stacks) continue;
    const Layout own = a.layout;
    a.layout = Layout::with_ndim(own.ndim() + 1);
    for (int d = 0; d < a.layout.ndim(); ++d) {
      a.layout.shape()[d] = d == *at ? 1 : own.shape()[d > *at ? d - 1 : d];
      a.layout.strides()[d] = d == *at ? 1 : own.strides()[d > *at ? d - 1 : d];
    }
    a.layout.finish(where);
  }
  const Array& first = parts.arrays[0];
  const int ndim = first.layout.ndim();
  int64_t shape[kMaxDims], total = 0;
  std::copy_n(first.layout.shape(), ndim, shape);
  for (const Array& a : parts.arrays) {
    for (int d = 0; d < ndim; ++d)
      if (d != *at && a.layout.shape()[d] != shape[d]) return nullptr;
    if (__builtin_add_overflow(total, a.layout.shape()[*at], &total)) return nullptr;
  }
  shape[*at] = total;
  PyRef made = PyRef::steal(wrap(reinterpret_cast<PyTypeObject*>(parts.type.get()),
                                 make_empty(first.device, first.dtype, ndim, shape, where)));
  copy_in_order(unwrap(made.get()), *at, std::move(parts.arrays), where);
  return made.release();
}

// By an int along one axis, or along the flattened array if that is a view.
PyObject* roll(PyObject* x, PyObject* shift, PyObject* axis) {
  const char* where = "roll";
  if (!is_array(x) || !PyLong_CheckExact(shift) || ops::recorder) return nullptr;
  Array source = read_array(x, where);
  const Layout own = source.layout;
  if (!given(axis)) {
    const int64_t size = own.size();
    if (!own.is_c_contiguous()) return nullptr;
    source.layout = Layout::c_order(1, &size, where);
  }
  const auto at = known_axis(given(axis), source.layout.ndim());
  if (!at) return nullptr;
  const int64_t n = source.layout.shape()[*at], by = as_int64(shift, where);
  const int64_t cut = n ? (by % n + n) % n : 0;
  PyRef made = PyRef::steal(
      wrap(Py_TYPE(x), make_empty(source.device, source.dtype, own.ndim(), own.shape(), where)));
  Array target = unwrap(made.get());
  target.layout = Layout::c_order(source.layout.ndim(), source.layout.shape(), where);
  auto part = [&](int64_t from, int64_t length) {
    Array one = source;
    one.data += from * source.layout.strides()[*at] * source.itemsize();
    one.layout.shape()[*at] = length;
    one.layout.finish(where);
    return one;
  };
  copy_in_order(std::move(target), *at, {part(n - cut, cut), part(0, n - cut)}, where);
  return made.release();
}

}  // namespace

void register_joining() {
  const char* const parameters = "arrays axis out * dtype casting";
  serve({{"concatenate", parameters, 1},
         [](const Values& v) { return join(v, false, "concatenate"); }});
  serve({{"stack", parameters, 1}, [](const Values& v) { return join(v, true, "stack"); }});
  serve({{"roll", "a shift axis", 2}, [](const Values& v) { return roll(v[0], v[1], v[2]); }});
}

}  // namespace gpuinterop
