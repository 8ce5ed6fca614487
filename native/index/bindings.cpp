// Functions of index arrays and masks in the module.
#include <nanobind/nanobind.h>
#include <nanobind/stl/vector.h>

#include <algorithm>

#include "captures/recorder.hpp"
#include "elementwise/call_cache.hpp"
#include "elementwise/operands.hpp"
#include "index/calls.hpp"
#include "index/elements.hpp"
#include "index/host_elements.hpp"
#include "interpreter/register.hpp"
#include "interpreter/served.hpp"

namespace nb = nanobind;
using namespace nb::literals;

namespace gpuinterop {

namespace {

// Reads the arguments. Python made the arrays to fit; a finalizer may have changed them since.
ops::IndexedElements read_elements(const Array& v, nb::list indices, std::vector<int> axes,
                                   std::vector<int> source_axes, int axis, int mode,
                                   const char* where) {
  std::vector<Array> arrays;
  for (nb::handle item : indices) arrays.push_back(read_array(item, where));
  const size_t k = arrays.size();
  bool fit = k > 0 && k <= ops::kMaxIndexArrays && axes.size() == k && source_axes.size() == k;
  for (size_t i = 0; i < k && fit; ++i)
    fit = arrays[i].device == v.device && is_integer(arrays[i].dtype) && axes[i] >= 0 &&
          axes[i] < v.layout.ndim() && std::count(axes.begin(), axes.end(), axes[i]) == 1;
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
  const bool is_one = a.layout.size() == 1 && !a.device.is_cuda();
  if (a.dtype != target.dtype ||
      !(is_one || (a.device == target.device && a.layout.has_shape(ndim, shape))))
    ops::fail_changed(where);
}

}  // namespace

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
      "Read elements at index arrays: see locate() in native/index/elements.hpp. "
      "mode: RAISE, CLIP, WRAP, or INSIDE for indices that are known to be.");
  m.def(
      "_scatter",
      [](Array view, nb::list indices, Array value, std::vector<int> axes,
         std::vector<int> source_axes, int axis, int mode, nb::object sum, const char* where) {
        const ops::IndexedElements at = read_elements(view, indices, std::move(axes),
                                                      std::move(source_axes), axis, mode, where);
        check_value(value, at.frame, at.ndim(), at.shape(), where);
        const bool adds = !sum.is_none();
        const bool on_host = !view.device.is_cuda();
        ops::scatter(at, value, adds, where,
                     adds && on_host ? ops::read_program(sum.ptr()) : nullptr);
      },
      "view"_a, "indices"_a, "value"_a, "axes"_a, "source_axes"_a, "axis"_a, "mode"_a,
      "sum"_a.none(), "where"_a,
      "Set elements at index arrays to those of `value`, or add these. sum: None to set; otherwise "
      "the "
      "program that adds in host memory.");
  serve({{"take", "x indices axis out mode max_threads", 2},
         [](const Values& v) { return take(v[0], v[1], given(v[2]), given(v[3]), v[4]); }});
  serve({{"take_along_axis", "x indices axis", 2},
         [](const Values& v) { return take_along_axis(v[0], v[1], v[2]); }});
  serve({{"nonzero", "x", 1}, [](const Values& v) { return nonzero(v[0]); }});
  serve({{"flatnonzero", "x", 1}, [](const Values& v) { return flatnonzero(v[0]); }});
  serve({{"argwhere", "x", 1}, [](const Values& v) { return argwhere(v[0]); }});
  register_joining();
  register_views(m);
  m.def(
      "_add_at",
      [](nb::handle x, nb::handle key, nb::handle value, nb::handle sum) {
        return is_array(x.ptr()) && add_at(x.ptr(), key.ptr(), value.ptr(),
                                           sum.is_none() ? nullptr : ops::read_program(sum.ptr()));
      },
      "x"_a, "key"_a.none(), "value"_a.none(), "sum"_a.none(),
      "numpy.add.at for keys of index arrays, by the program `sum` in host memory. False: Python "
      "carries the call out.");
  m.attr("MAX_INDEX_ARRAYS") = ops::kMaxIndexArrays;
  m.attr("RAISE") = int(ops::OutOfRange::Raise);
  m.attr("CLIP") = int(ops::OutOfRange::Clip);
  m.attr("WRAP") = int(ops::OutOfRange::Wrap);
  m.attr("INSIDE") = int(ops::OutOfRange::Skip);
  m.def(
      "_assign_masked",
      [](Array target, Array m, Array value, const char* where) {
        check_value(value, target, target.layout.ndim(), target.layout.shape(), where);
        if (m.dtype != kBool || m.device != target.device ||
            !m.layout.has_shape(target.layout.ndim(), target.layout.shape()))
          ops::fail_changed(where);
        ops::assign_masked(target, m, value, where);
      },
      "x"_a, "mask"_a, "value"_a, "where"_a, "x[i] = value[i] where mask[i].");
  m.def(
      "_count_selected", [](Array m) { return ops::count_selected(m); }, "mask"_a,
      "The number of true elements of a mask in host memory.");
  m.def(
      "_select",
      [](Array m, nb::handle read, nb::handle written, const char* where) {
        // One of the two arrays has the shape of the mask, the other one dimension.
        const Array dst = read_array(written, where);
        ops::note_write(dst);
        if (read.is_none()) {
          const int rows = m.layout.ndim();
          if (dst.dtype != kInt64 || dst.layout.ndim() != 2 || dst.layout.shape()[0] != rows ||
              !dst.layout.is_c_contiguous())
            ops::fail_changed(where);
          return ops::find_selected(m, dst);
        }
        const Array src = read_array(read, where);
        auto fits = [&](const Array& x, const Array& values) {
          return x.dtype == values.dtype && values.layout.ndim() == 1 &&
                 m.layout.has_shape(x.layout.ndim(), x.layout.shape());
        };
        if (fits(src, dst) && dst.layout.is_c_contiguous()) return ops::read_selected(m, src, dst);
        if (!fits(dst, src)) ops::fail_changed(where);
        ops::write_selected(m, dst, src);
      },
      "mask"_a, "read"_a.none(), "written"_a, "where"_a,
      "In host memory: written[...] = read[mask], or written[mask] = read, or where the mask is "
      "true.");
}

}  // namespace gpuinterop
