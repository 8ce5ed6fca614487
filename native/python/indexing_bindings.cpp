// Reading and writing by index arrays, on CUDA.
#include <nanobind/nanobind.h>
#include <nanobind/stl/vector.h>
#include "array/text_arguments.hpp"

#include <algorithm>
#include <optional>

#include "array/error.hpp"
#include "ops/call_cache.hpp"
#include "ops/graph.hpp"
#include "ops/indexing.hpp"
#include "ops/operands.hpp"
#include "ops/overlap.hpp"
#include "python/array_type.hpp"
#include "python/register.hpp"

namespace nb = nanobind;
using namespace nb::literals;

namespace gpuinterop {

namespace {

// An array of integers at which kernels can index `view`.
bool is_index_for(const Array& a, const Array& view) {
  return a.device == view.device && is_integer(a.dtype);
}

// Reads the arguments. Python made the arrays to fit; a finalizer may have changed them since.
ops::IndexedElements read_elements(const Array& v, nb::list indices, std::vector<int> axes,
                                   std::vector<int> source_axes, int axis, int mode,
                                   const char* where) {
  std::vector<Array> arrays;
  for (nb::handle item : indices) arrays.push_back(read_array(item, where));
  const size_t k = arrays.size();
  bool fit = k > 0 && k <= ops::kMaxIndexArrays && axes.size() == k && source_axes.size() == k &&
             v.device.is_cuda();
  for (size_t i = 0; i < k && fit; ++i)
    fit = is_index_for(arrays[i], v) && axes[i] >= 0 && axes[i] < v.layout.ndim() &&
          std::count(axes.begin(), axes.end(), axes[i]) == 1;
  const int most = v.layout.ndim() - static_cast<int>(k);
  fit =
      fit && axis <= most &&
      (axis >= 0 || (axis == ops::kAlong && k == 1 && arrays[0].layout.ndim() == v.layout.ndim()));
  if (!fit) ops::fail_changed(where);
  auto at = ops::locate(v, std::move(arrays), std::move(axes), axis,
                        static_cast<ops::OutOfRange>(mode), where);
  at.axes = std::move(source_axes);
  return at;
}

// Checks for an operand of the shape of the iteration, or one element in host memory.
void check_value(const Array& a, const Array& target, int ndim, const int64_t* shape,
                 const char* where) {
  if (a.dtype != target.dtype || !(a.device == target.device ? a.layout.has_shape(ndim, shape)
                                                             : a.layout.size() == 1 && a.data))
    ops::fail_changed(where);
}

// Null if the call is Python's: nothing to read, or shapes that do not broadcast.
std::optional<ops::IndexedElements> elements_at(const Array& view, const IndexArrays& key,
                                                ops::OutOfRange mode, const char* where) {
  if (key.arrays.size() > ops::kMaxIndexArrays) return std::nullopt;
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

// numpy.take of arrays on one GPU, without Python code; None for calls that Python carries out.
nb::object take(nb::handle x, nb::handle indices, nb::handle axis, nb::handle out, int mode) {
  const char* where = "take";
  if (!is_array(x.ptr()) || !is_array(indices.ptr()) || (!out.is_none() && !is_array(out.ptr())))
    return nb::none();
  Array view = read_array(x, where);
  const bool flat = axis.is_none();
  if (flat && view.layout.is_c_contiguous()) {
    const int64_t size = view.layout.size();
    view.layout = Layout::c_order(1, &size, where);
  }
  const int ndim = view.layout.ndim();
  const int64_t along = flat ? 0 : PyLong_CheckExact(axis.ptr()) ? as_int64(axis.ptr(), where) : -1;
  if (!is_index(indices.ptr(), view) || along < 0 || along >= ndim || (flat && ndim != 1))
    return nb::none();
  const int at = static_cast<int>(along);
  const IndexArrays key{{indices.ptr()}, {at}, {at}, at};
  PyRef made = read(Py_TYPE(x.ptr()), view, key, static_cast<ops::OutOfRange>(mode),
                    out.is_none() ? nullptr : out.ptr(), where);
  return made ? nb::steal(made.release()) : nb::none();
}

}  // namespace

bool is_index(PyObject* o, const Array& view) {
  return view.device.is_cuda() && is_array(o) && is_index_for(unwrap(o), view);
}

PyRef read_at(PyTypeObject* type, const Array& view, const IndexArrays& key, const char* where) {
  return read(type, view, key, ops::OutOfRange::Raise, nullptr, where);
}

bool write_at(const Array& view, const IndexArrays& key, PyObject* value, const char* where) {
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
  ops::scatter(*at, source, false, where);
  return true;
}

void register_indexing(nb::module_& m) {
  m.def(
      "_gather",
      [](Array view, nb::list indices, Array d, std::vector<int> axes, std::vector<int> source_axes,
         int axis, int mode, bool keeps_dst, const char* where) {
        const ops::IndexedElements at = read_elements(view, indices, std::move(axes),
                                                      std::move(source_axes), axis, mode, where);
        if (d.dtype != at.frame.dtype || d.device != at.frame.device ||
            !d.layout.has_shape(at.ndim(), at.shape()))
          ops::fail_changed(where);
        ops::gather(at, d, keeps_dst, where);
      },
      "view"_a, "indices"_a, "dst"_a, "axes"_a, "source_axes"_a, "axis"_a, "mode"_a, "keeps_dst"_a,
      "where"_a,
      "Read elements at index arrays: see locate() in native/ops/indexing.hpp. "
      "mode: 0 raise, 1 clip, 2 wrap, 3 known to be inside.");
  m.def(
      "_scatter",
      [](Array view, nb::list indices, Array value, std::vector<int> axes,
         std::vector<int> source_axes, int axis, int mode, bool adds, const char* where) {
        const ops::IndexedElements at = read_elements(view, indices, std::move(axes),
                                                      std::move(source_axes), axis, mode, where);
        check_value(value, at.frame, at.ndim(), at.shape(), where);
        ops::scatter(at, value, adds, where);
      },
      "view"_a, "indices"_a, "value"_a, "axes"_a, "source_axes"_a, "axis"_a, "mode"_a, "adds"_a,
      "where"_a, "Set elements at index arrays to those of `value`, or add these.");
  m.def("_take", &take, "x"_a.none(), "indices"_a.none(), "axis"_a.none(), "out"_a.none(), "mode"_a,
        "numpy.take of arrays on one GPU; None for calls that Python carries out.");
  m.attr("MAX_INDEX_ARRAYS") = ops::kMaxIndexArrays;
  m.def(
      "_assign_masked",
      [](Array target, Array m, Array value, const char* where) {
        check_value(value, target, target.layout.ndim(), target.layout.shape(), where);
        if (m.dtype != kBool || m.device != target.device || !target.device.is_cuda() ||
            !m.layout.has_shape(target.layout.ndim(), target.layout.shape()))
          ops::fail_changed(where);
        ops::assign_masked(target, m, value, where);
      },
      "x"_a, "mask"_a, "value"_a, "where"_a, "x[i] = value[i] where mask[i].");
}

}  // namespace gpuinterop
