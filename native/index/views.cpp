// NumPy's functions that make views, triangles and borders. Python carries out the calls with other arguments, and words the errors.
#include <nanobind/nanobind.h>
#include <nanobind/stl/vector.h>

#include <algorithm>
#include <numeric>
#include <utility>
#include <vector>

#include "arrays/type.hpp"
#include "captures/recorder.hpp"
#include "elementwise/launch.hpp"
#include "interpreter/attempt.hpp"
#include "interpreter/register.hpp"
#include "interpreter/served.hpp"

namespace nb = nanobind;

namespace gpuinterop {

namespace {

PyRef view_with(PyObject* x, Layout layout, char* data) {
  return PyRef::steal(retyped_view(x, Py_TYPE(x), std::move(layout), data));
}

// A method of the array, which reads the argument as the function does.
PyObject* by_method(PyObject* x, const char* method, PyObject* argument) {
  if (!is_array(x)) return nullptr;
  const PyRef name = PyRef::checked(PyUnicode_InternFromString(method));
  return PyObject_CallMethodObjArgs(x, name.get(), argument, nullptr);
}

// The axes, each of them once; throws, or returns a negative number, for others.
int read_axes(PyObject* value, int ndim, int64_t* axes, const char* where) {
  const int n = read_ints(value, axes, where, "axes");
  bool seen[kMaxDims] = {};
  for (int i = 0; i < n; ++i) {
    axes[i] = count_axis(axes[i], ndim, where);
    if (std::exchange(seen[axes[i]], true)) return -1;
  }
  return n;
}

// Axis from[i] becomes axis to[i]; the others keep their order.
PyObject* with_moved(PyObject* x, const Array& a, int n, const int64_t* from, const int64_t* to,
                     const char* where) {
  int64_t order[kMaxDims];
  std::fill_n(order, kMaxDims, -1);
  for (int i = 0; i < n; ++i) order[to[i]] = from[i];
  for (int d = 0, at = 0; d < a.layout.ndim(); ++d) {
    if (std::find(from, from + n, d) != from + n) continue;
    while (order[at] >= 0) ++at;
    order[at] = d;
  }
  return view_with(x, a.layout.permuted(order, a.layout.ndim(), where), a.data).release();
}

PyObject* moveaxis(const Values& v) {
  const char* where = "moveaxis";
  if (!is_array(v[0])) return nullptr;
  int64_t from[kMaxDims], to[kMaxDims];
  const int ndim = unwrap(v[0]).layout.ndim();
  const int n = read_axes(v[1], ndim, from, where);
  if (n < 0 || read_axes(v[2], ndim, to, where) != n) return nullptr;
  return with_moved(v[0], read_array(v[0], where), n, from, to, where);
}

PyObject* rollaxis(const Values& v) {
  const char* where = "rollaxis";
  if (!is_array(v[0]) || !PyLong_CheckExact(v[1]) || (v[2] && !PyLong_CheckExact(v[2])))
    return nullptr;
  const Array& a = read_array(v[0], where);
  const int ndim = a.layout.ndim();
  const int64_t from = count_axis(as_int64(v[1], where), ndim, where);
  int64_t to = v[2] ? as_int64(v[2], where) : 0;
  to += to < 0 ? ndim : 0;
  if (to < 0 || to > ndim) return nullptr;
  to -= from < to;
  return with_moved(v[0], a, 1, &from, &to, where);
}

PyObject* expand_dims(const Values& v) {
  const char* where = "expand_dims";
  const bool known = PyLong_CheckExact(v[1]) || PyTuple_CheckExact(v[1]) || PyList_CheckExact(v[1]);
  if (!is_array(v[0]) || !known) return nullptr;
  int64_t given[kMaxDims], axes[kMaxDims];
  const int more = read_ints(v[1], given, where, "axes");
  const Array& a = read_array(v[0], where);
  const int ndim = a.layout.ndim() + more;
  if (ndim > kMaxDims || read_axes(v[1], ndim, axes, where) != more) return nullptr;
  Layout layout = Layout::with_ndim(ndim);
  for (int d = 0, own = 0; d < ndim; ++d) {
    const bool is_new = std::find(axes, axes + more, d) != axes + more;
    layout.shape()[d] = is_new ? 1 : a.layout.shape()[own];
    layout.strides()[d] = is_new ? 1 : a.layout.strides()[own];
    own += !is_new;
  }
  layout.finish(where);
  return view_with(v[0], std::move(layout), a.data).release();
}

// The array with some axes reversed.
PyRef with_reversed(PyObject* x, int n, const int64_t* axes, const char* where) {
  const Array& a = read_array(x, where);
  Layout layout = a.layout;
  int64_t first = 0;
  for (int i = 0; i < n; ++i) {
    int64_t& stride = layout.strides()[axes[i]];
    first += (layout.shape()[axes[i]] - 1) * stride;
    stride = -stride;
  }
  layout.finish(where);
  return view_with(x, std::move(layout),
                   a.data && layout.size() ? a.data + first * a.itemsize() : a.data);
}

PyObject* flip(const Values& v) {
  const char* where = "flip";
  const bool known = !given(v[1]) || PyLong_CheckExact(v[1]) || PyTuple_CheckExact(v[1]);
  if (!is_array(v[0]) || !known) return nullptr;
  const int ndim = read_array(v[0], where).layout.ndim();
  int64_t axes[kMaxDims];
  std::iota(axes, axes + kMaxDims, 0);
  const int n = given(v[1]) ? read_axes(v[1], ndim, axes, where) : ndim;
  return n < 0 ? nullptr : with_reversed(v[0], n, axes, where).release();
}

PyRef with_swapped(PyObject* x, int first, int second, const char* where) {
  const Array& a = read_array(x, where);
  int64_t order[kMaxDims];
  std::iota(order, order + kMaxDims, 0);
  std::swap(order[first], order[second]);
  return view_with(x, a.layout.permuted(order, a.layout.ndim(), where), a.data);
}

PyObject* matrix_transpose(const Values& v) {
  const char* where = "matrix_transpose";
  if (!is_array(v[0])) return nullptr;
  const int ndim = read_array(v[0], where).layout.ndim();
  return ndim < 2 ? nullptr : with_swapped(v[0], ndim - 2, ndim - 1, where).release();
}

PyObject* swapaxes(const Values& v) {
  const char* where = "swapaxes";
  if (!is_array(v[0]) || !PyLong_CheckExact(v[1]) || !PyLong_CheckExact(v[2])) return nullptr;
  const int ndim = read_array(v[0], where).layout.ndim();
  const int first = count_axis(as_int64(v[1], where), ndim, where);
  return with_swapped(v[0], first, count_axis(as_int64(v[2], where), ndim, where), where).release();
}

// By quarter turns, from the first axis towards the second.
PyObject* rot90(const Values& v) {
  const char* where = "rot90";
  if (!is_array(v[0]) || (v[1] && !PyLong_CheckExact(v[1])) || (v[2] && !PyTuple_CheckExact(v[2])))
    return nullptr;
  const int ndim = read_array(v[0], where).layout.ndim();
  int64_t axes[kMaxDims] = {0, 1};
  if (ndim < 2 || (v[2] && read_axes(v[2], ndim, axes, where) != 2)) return nullptr;
  const int64_t turns = (v[1] ? as_int64(v[1], where) : 1) & 3;
  if (turns % 2 == 0) return with_reversed(v[0], static_cast<int>(turns), axes, where).release();
  const PyRef swapped =
      with_swapped(v[0], static_cast<int>(axes[0]), static_cast<int>(axes[1]), where);
  return with_reversed(swapped.get(), 1, axes + (turns == 3), where).release();
}

PyObject* diagonal(const Values& v) {
  const char* where = "diagonal";
  int64_t numbers[] = {0, 0, 1};  // offset and axes
  for (size_t i = 0; i < 3; ++i) {
    if (v[i + 1] && !PyLong_CheckExact(v[i + 1])) return nullptr;
    if (v[i + 1]) numbers[i] = as_int64(v[i + 1], where);
  }
  if (!is_array(v[0])) return nullptr;
  const Array& a = read_array(v[0], where);
  const int ndim = a.layout.ndim();
  const int row = count_axis(numbers[1], ndim, where), column = count_axis(numbers[2], ndim, where);
  const int64_t rows = a.layout.shape()[row], columns = a.layout.shape()[column];
  const int64_t offset = std::clamp(numbers[0], -rows, columns);
  if (row == column) return nullptr;
  Layout layout = Layout::with_ndim(ndim - 1);
  for (int d = 0, at = 0; d < ndim; ++d) {
    if (d == row || d == column) continue;
    layout.shape()[at] = a.layout.shape()[d];
    layout.strides()[at++] = a.layout.strides()[d];
  }
  const int64_t down = a.layout.strides()[row], along = a.layout.strides()[column];
  layout.shape()[ndim - 2] =
      std::min(rows + std::min<int64_t>(offset, 0), columns - std::max<int64_t>(offset, 0));
  layout.strides()[ndim - 2] = down + along;
  layout.finish(where);
  const int64_t first = offset < 0 ? -offset * down : offset * along;
  char* const data = layout.size() ? a.data + first * a.itemsize() : nullptr;
  return view_with(v[0], std::move(layout), data).release();
}

// ---- parts ----------------------------------------------------------------------------------------

// The elements from `begin` to `end` along an axis.
PyRef part_of(PyObject* x, int axis, int64_t begin, int64_t end, const char* where) {
  const Array& a = read_array(x, where);
  Layout layout = a.layout;
  const int64_t step = a.layout.strides()[axis] * a.itemsize();
  layout.shape()[axis] = end - begin;
  layout.finish(where);
  char* const data = layout.size() ? a.data + begin * step : nullptr;
  return view_with(x, std::move(layout), data);
}

// Where n elements are cut: into a number of parts, whose lengths may differ by one unless `equal`, or at indices, as
// slices read them. None: Python carries the call out.
std::vector<std::pair<int64_t, int64_t>> read_cuts(PyObject* sections, int64_t n, bool equal,
                                                   const char* where) {
  std::vector<std::pair<int64_t, int64_t>> parts;
  if (PyLong_CheckExact(sections)) {
    const int64_t count = as_int64(sections, where);
    if (count < 1 || count > 4096 || (equal && n % count)) return {};
    for (int64_t i = 0, begin = 0; i < count; ++i) {
      const int64_t end = begin + n / count + (i < n % count);
      parts.emplace_back(begin, end);
      begin = end;
    }
    return parts;
  }
  if (!PyList_CheckExact(sections) && !PyTuple_CheckExact(sections)) return {};
  int64_t cuts[kMaxDims];
  const int count = read_ints(sections, cuts, where, "indices");
  for (int i = 0; i <= count; ++i) {
    Py_ssize_t begin = i ? cuts[i - 1] : 0, end = i < count ? cuts[i] : n;
    PySlice_AdjustIndices(n, &begin, &end, 1);
    parts.emplace_back(begin, std::max(begin, end));
  }
  return parts;
}

PyObject* split_along(PyObject* x, PyObject* sections, int axis, bool equal, const char* where) {
  const int64_t n = read_array(x, where).layout.shape()[axis];
  const auto cuts = read_cuts(sections, n, equal, where);
  if (cuts.empty()) return nullptr;
  PyRef made = PyRef::checked(PyList_New(static_cast<Py_ssize_t>(cuts.size())));
  Py_ssize_t at = 0;
  for (const auto& [begin, end] : cuts)
    PyList_SetItem(made.get(), at++, part_of(x, axis, begin, end, where).release());
  return made.release();
}

PyObject* split(const Values& v, bool equal) {
  const char* where = equal ? "split" : "array_split";
  if (!is_array(v[0]) || (v[2] && !PyLong_CheckExact(v[2]))) return nullptr;
  const int ndim = read_array(v[0], where).layout.ndim();
  const int axis = count_axis(v[2] ? as_int64(v[2], where) : 0, ndim, where);
  return split_along(v[0], v[1], axis, equal, where);
}

// numpy.hsplit, vsplit and dsplit.
PyObject* split_at(const Values& v, int axis, const char* where) {
  if (!is_array(v[0])) return nullptr;
  const int ndim = read_array(v[0], where).layout.ndim();
  if (axis == 1 && ndim == 1) return split_along(v[0], v[1], 0, true, where);
  return ndim > std::max(axis, 1) ? split_along(v[0], v[1], axis, true, where) : nullptr;
}

PyObject* unstack(const Values& v) {
  const char* where = "unstack";
  if (!is_array(v[0]) || (v[1] && !PyLong_CheckExact(v[1]))) return nullptr;
  const Array& a = read_array(v[0], where);
  const int axis = count_axis(v[1] ? as_int64(v[1], where) : 0, a.layout.ndim(), where);
  const int64_t n = a.layout.shape()[axis], step = a.layout.strides()[axis] * a.itemsize();
  Layout rest = Layout::with_ndim(a.layout.ndim() - 1);
  for (int d = 0; d < rest.ndim(); ++d) {
    rest.shape()[d] = a.layout.shape()[d + (d >= axis)];
    rest.strides()[d] = a.layout.strides()[d + (d >= axis)];
  }
  rest.finish(where);
  char* const data = a.data;
  PyRef made = PyRef::checked(PyTuple_New(n));
  for (int64_t i = 0; i < n; ++i)
    PyTuple_SetItem(made.get(), i, view_with(v[0], rest, data ? data + i * step : data).release());
  return made.release();
}

// ---- broadcasting -----------------------------------------------------------------------------------

PyObject* broadcast_arrays(PyObject* const* args, Py_ssize_t nargs) {
  const char* where = "broadcast_arrays";
  int64_t shape[kMaxDims];
  int ndim = 0;
  for (Py_ssize_t i = 0; i < nargs; ++i) {
    if (!is_array(args[i])) return nullptr;
    const Layout& l = read_array(args[i], where).layout;
    ndim = broadcast_shapes(ndim, shape, l.ndim(), l.shape(), shape, where);
  }
  PyRef made = PyRef::checked(PyTuple_New(nargs));
  for (Py_ssize_t i = 0; i < nargs; ++i) {
    const Array& a = unwrap(args[i]);
    Array view = view_of(args[i]);
    view.data = a.data;
    const bool same = a.layout.has_shape(ndim, shape);
    view.layout = same ? a.layout : a.layout.broadcast_to(ndim, shape, where);
    // Several indices may reach one element, so the result of a write would be undefined.
    view.readonly = view.readonly || !same;
    require_bytes(view.layout, a.itemsize(), where);
    PyTuple_SetItem(made.get(), i, wrap(Py_TYPE(args[i]), std::move(view)));
  }
  return made.release();
}

// Copies, of which the first array steps along axis 1 and the second along axis 0, as on paper.
PyObject* meshgrid(PyObject* const* args, Py_ssize_t nargs) {
  const char* where = "meshgrid";
  const int ndim = static_cast<int>(nargs);
  if (nargs > kMaxDims || ops::recorder) return nullptr;
  int64_t shape[kMaxDims];
  std::vector<Array> vectors;  // copies, because a finalizer may change the objects
  auto axis_of = [&](int i) { return ndim > 1 && i < 2 ? 1 - i : i; };
  for (int i = 0; i < ndim; ++i) {
    if (!is_array(args[i])) return nullptr;
    const Array& a = read_array(args[i], where);
    if (a.layout.ndim() != 1 || a.device != unwrap(args[0]).device) return nullptr;
    shape[axis_of(i)] = a.layout.shape()[0];
    vectors.push_back(a);
  }
  PyRef made = PyRef::checked(PyTuple_New(nargs));
  for (int i = 0; i < ndim; ++i) {
    Array& source = vectors[static_cast<size_t>(i)];
    PyRef grid = PyRef::steal(
        wrap(Py_TYPE(args[i]), make_empty(source.device, source.dtype, ndim, shape, where)));
    int64_t strides[kMaxDims] = {};
    strides[axis_of(i)] = source.layout.strides()[0];
    source.layout = Layout(ndim, shape, strides);
    copy_elements(unwrap(grid.get()), source, where);
    PyTuple_SetItem(made.get(), i, grid.release());
  }
  return made.release();
}

// A function of any number of arrays, without options.
template <PyObject* (*kRun)(PyObject* const* args, Py_ssize_t nargs)>
PyObject* attempt_on_arrays(const PublicFunction&, PyObject* const* args, Py_ssize_t nargs,
                            PyObject* names) {
  if (names || !nargs) return nullptr;
  return guard((PyObject*)nullptr,
               [&] { return attempt_in_core([&] { return kRun(args, nargs); }); });
}

// ---- triangles --------------------------------------------------------------------------------------

// ---- borders ----------------------------------------------------------------------------------------

// The part of `length` indices of an axis, from one that may lie before its beginning, with other strides: an array forgets
// those of axes of length 1.
Array part_along(const Array& a, int axis, int64_t from, int64_t length, const int64_t* strides,
                 const char* where) {
  Array part = a;
  part.data += from * strides[axis] * a.itemsize();
  part.layout.shape()[axis] = length;
  std::copy_n(strides, a.layout.ndim(), part.layout.strides());
  part.layout.finish(where);
  return part;
}

// numpy.pad with zeros, or with the elements at the edges, of elements in host memory. `widths`: before and behind each axis.
PyObject* padded(PyObject* x, const std::vector<int64_t>& widths, bool edge) {
  const char* where = "pad";
  const Array from = read_array(x, where);
  const int ndim = from.layout.ndim();
  if (from.device.is_cuda() || widths.size() != 2 * size_t(ndim) || !from.layout.size() ||
      std::ranges::any_of(widths, [](int64_t n) { return n < 0; }))
    throw nb::value_error("an array in host memory and widths of its axes expected");
  int64_t shape[kMaxDims];
  ops::require_set(where, from);
  auto width = [&](int d, int side) { return widths[2 * size_t(d) + size_t(side)]; };
  for (int d = 0; d < ndim; ++d) shape[d] = from.layout.shape()[d] + width(d, 0) + width(d, 1);
  const Array whole = make_empty({}, from.dtype, ndim, shape, where);
  int64_t strides[kMaxDims], still[kMaxDims] = {};
  std::copy_n(whole.layout.strides(), ndim, strides);
  Array inside = whole;
  for (int d = 0; d < ndim; ++d)
    inside = part_along(inside, d, width(d, 0), from.layout.shape()[d], strides, where);
  copy_unreported(inside, from, where);
  alignas(16) char zero[16] = {};
  for (int d = 0; d < ndim; ++d) {
    const int64_t n = from.layout.shape()[d];
    // Of all elements along the axes before, of those inside along the axes behind.
    const int64_t begins[] = {-width(d, 0), n}, edges[] = {0, n - 1};
    for (int side = 0; side < 2; ++side) {
      if (!width(d, side)) continue;
      const Array border = part_along(inside, d, begins[side], width(d, side), strides, where);
      Array source = inside;
      if (edge) {
        source = part_along(inside, d, edges[side], 1, strides, where);
        std::copy_n(strides, ndim, source.layout.strides());
        source.layout.strides()[d] = 0;
      } else {
        source.data = zero;
        std::copy_n(still, ndim, source.layout.strides());
      }
      source.layout.shape()[d] = width(d, side);
      source.layout.finish(where);
      copy_unreported(border, source, where);
    }
    inside = part_along(inside, d, -width(d, 0), shape[d], strides, where);
  }
  return wrap(Py_TYPE(x), Array(whole));
}

// numpy.tril and triu of a matrix, or of a stack in C order, on a GPU.
PyObject* triangle(const Values& v, bool upper) {
  const char* where = upper ? "triu" : "tril";
  if (!is_array(v[0]) || (v[1] && !PyLong_CheckExact(v[1])) || ops::recorder) return nullptr;
  const Array x = read_array(v[0], where);
  const Layout& own = x.layout;
  const int ndim = own.ndim();
  const int64_t k = v[1] ? as_int64(v[1], where) : 0, most = int64_t{1} << 40;
  if (!x.device.is_cuda() || ndim < 2 || !own.size() || (ndim > 2 && !own.is_c_contiguous()) ||
      k < -most || k > most)
    return nullptr;
  PyRef made =
      PyRef::steal(wrap(Py_TYPE(v[0]), make_empty(x.device, x.dtype, ndim, own.shape(), where)));
  // No element is at these addresses. They tell the kernel how far an element is from the diagonal.
  int64_t steps[kMaxDims] = {};
  steps[ndim - 2] = -1;
  steps[ndim - 1] = 1;
  const Layout distance(ndim, own.shape(), steps);
  const auto edge =
      reinterpret_cast<uint64_t>(x.data) + static_cast<uint64_t>((k + !upper) * x.itemsize());
  const ops::StoredType raw = ops::raw_type(x.itemsize());
  const Array target = unwrap(made.get());
  ops::IterationSpace w;
  w.add_array(x, raw, distance);
  w.address[0] = true;
  w.add_constant({edge, upper}, ops::raw_type(16));
  w.add_array(x, raw, own);
  w.inputs = w.operands;
  w.add_array(target, raw, target.layout);
  ops::build_iteration_space(w, ndim, own.shape());
  ops::launch(ops::kTriangle, w, x.device.id, where);
  return made.release();
}

}  // namespace

void register_views(nb::module_& m) {
  m.def(
      "_padded",
      [](nb::handle x, std::vector<int64_t> widths, bool edge) {
        return nb::steal(padded(x.ptr(), widths, edge));
      },
      nb::arg("x"), nb::arg("widths"), nb::arg("edge"),
      "Return the elements of an array in host memory with zeros around them, or with those at the "
      "edges. `widths`: before and behind each axis.");
  serve({{"reshape", "a shape order * copy", 2}, [](const Values& v) {
           const bool usual = (!v[2] || is_text(v[2], "C")) && !given(v[3]);
           return usual ? by_method(v[0], "reshape", v[1]) : nullptr;
         }});
  serve({{"ravel", "a order", 1}, [](const Values& v) { return by_method(v[0], "ravel", v[1]); }});
  serve({{"moveaxis", "a source destination", 3}, moveaxis});
  serve({{"rollaxis", "a axis start", 2}, rollaxis});
  serve({{"expand_dims", "a axis", 2}, expand_dims});
  serve({{"flip", "m axis", 1}, flip});
  serve({{"matrix_transpose", "x /", 1}, matrix_transpose});
  serve({{"swapaxes", "a axis1 axis2", 3}, swapaxes});
  serve({{"transpose", "a axes", 1},
         [](const Values& v) { return by_method(v[0], "transpose", given(v[1])); }});
  serve({{"permute_dims", "a axes", 1},
         [](const Values& v) { return by_method(v[0], "transpose", given(v[1])); }});
  serve({{"rot90", "m k axes", 1}, rot90});
  serve({{"diagonal", "a offset axis1 axis2", 1}, diagonal});
  serve({{"split", "x sections axis", 2}, [](const Values& v) { return split(v, true); }});
  serve({{"array_split", "ary indices_or_sections axis", 2},
         [](const Values& v) { return split(v, false); }});
  const char* const parameters = "ary indices_or_sections";
  serve({{"vsplit", parameters, 2}, [](const Values& v) { return split_at(v, 0, "vsplit"); }});
  serve({{"hsplit", parameters, 2}, [](const Values& v) { return split_at(v, 1, "hsplit"); }});
  serve({{"dsplit", parameters, 2}, [](const Values& v) { return split_at(v, 2, "dsplit"); }});
  serve({{"unstack", "x / * axis", 1}, unstack});
  serve({{"tril", "m k", 1}, [](const Values& v) { return triangle(v, false); }});
  serve({{"triu", "m k", 1}, [](const Values& v) { return triangle(v, true); }});
  m.def(
      "_broadcasting",
      [](nb::callable python) {
        return make_function(attempt_on_arrays<broadcast_arrays>, 0, nullptr, python);
      },
      nb::arg("function"), "Decorator of numpy.broadcast_arrays for arrays of the package.");
  m.def(
      "_meshing",
      [](nb::callable python) {
        return make_function(attempt_on_arrays<meshgrid>, 0, nullptr, python);
      },
      nb::arg("function"), "Decorator of numpy.meshgrid for arrays of the package.");
}

}  // namespace gpuinterop
