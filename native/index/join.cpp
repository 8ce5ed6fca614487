// concatenate(), stack() and numpy.roll of arrays of one class, dtype and device, outside captures.
#include <algorithm>
#include <optional>
#include <utility>
#include <vector>

#include "arrays/type.hpp"
#include "captures/recorder.hpp"
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

// Along `axis`, or along a new axis.
PyObject* join(PyObject* sequence, PyObject* axis, PyObject* out, bool stacks, const char* where) {
  const Parts parts = parts_of(sequence, where);
  if (parts.arrays.empty() || given(out)) return nullptr;
  const Array& first = parts.arrays[0];
  const int own_ndim = first.layout.ndim(), ndim = own_ndim + stacks;
  const auto at = known_axis(axis, ndim);
  if (!at) return nullptr;
  int64_t total = 0;
  for (const Array& a : parts.arrays) {
    for (int d = 0; d < own_ndim; ++d)
      if ((stacks || d != *at) && a.layout.shape()[d] != first.layout.shape()[d]) return nullptr;
    if (__builtin_add_overflow(total, stacks ? 1 : a.layout.shape()[*at], &total)) return nullptr;
  }
  int64_t shape[kMaxDims];
  for (int d = 0; d < ndim; ++d)
    shape[d] = d == *at ? total : first.layout.shape()[stacks && d > *at ? d - 1 : d];
  PyRef made = PyRef::steal(wrap(reinterpret_cast<PyTypeObject*>(parts.type.get()),
                                 make_empty(first.device, first.dtype, ndim, shape, where)));
  const Uncounted guard(true);
  Array part = unwrap(made.get());
  const Layout whole = part.layout;
  for (const Array& source : parts.arrays) {
    part.layout = source.layout;
    for (int d = 0, own = 0; d < ndim; ++d)
      if (!stacks || d != *at) part.layout.strides()[own++] = whole.strides()[d];
    part.layout.finish(where);
    copy_elements(part, source, where);
    part.data += (stacks ? 1 : source.layout.shape()[*at]) * whole.strides()[*at] * part.itemsize();
  }
  return made.release();
}

// By an int along one axis, or along the flattened array if that is a view: two copies.
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
  const Uncounted guard(true);
  Array target = unwrap(made.get());
  target.layout = Layout::c_order(source.layout.ndim(), source.layout.shape(), where);
  auto copy_part = [&](int64_t from, int64_t to, int64_t length) {
    Array read = source, written = target;
    for (auto& [part, start] : {std::pair(&read, from), std::pair(&written, to)}) {
      part->data += start * part->layout.strides()[*at] * part->itemsize();
      part->layout.shape()[*at] = length;
      part->layout.finish(where);
    }
    copy_elements(written, read, where);
  };
  copy_part(0, cut, n - cut);
  if (cut) copy_part(n - cut, 0, cut);
  return made.release();
}

}  // namespace

void register_joining() {
  serve({{"concatenate", "arrays axis out", 1},
         [](const Values& v) { return join(v[0], v[1], v[2], false, "concatenate"); }});
  serve({{"stack", "arrays axis out", 1},
         [](const Values& v) { return join(v[0], v[1], v[2], true, "stack"); }});
  serve({{"roll", "a shift axis", 2}, [](const Values& v) { return roll(v[0], v[1], v[2]); }});
}

}  // namespace gpuinterop
