// Reading and writing by index arrays, on CUDA.
#include <dlpack/dlpack.h>
#include <nanobind/nanobind.h>
#include <nanobind/stl/vector.h>
#include "array/text_arguments.hpp"

#include <algorithm>

#include "array/error.hpp"
#include "ops/call_cache.hpp"
#include "ops/indexing.hpp"
#include "python/array_type.hpp"
#include "python/register.hpp"

namespace nb = nanobind;
using namespace nb::literals;

namespace gpuinterop {

namespace {

bool same_shape(const Layout& a, const Layout& b) {
  return a.ndim() == b.ndim() && std::equal(a.shape(), a.shape() + a.ndim(), b.shape());
}

// Reads the arguments. Python made the arrays to fit; a finalizer may have changed them since.
ops::IndexedElements read_elements(nb::handle frame, nb::list indices, std::vector<int> axes,
                                   int mode, const Layout* shape, const std::string& where) {
  ops::IndexedElements at{
      read_array(frame, where.c_str()), {}, std::move(axes), static_cast<ops::OutOfRange>(mode)};
  const Layout& l = at.frame.layout;
  for (nb::handle item : indices) at.indices.push_back(read_array(item, where.c_str()));
  const int k = static_cast<int>(at.indices.size()), rest = l.ndim() - k;
  bool same = k > 0 && k <= ops::kMaxIndexArrays && at.axes.size() == at.indices.size() &&
              rest >= 0 && at.frame.device.is_cuda();
  const Layout* expected = shape ? shape : same ? &at.indices[0].layout : nullptr;
  same = same && expected->ndim() == rest &&
         std::equal(expected->shape(), expected->shape() + rest, l.shape() + k);
  for (const Array& a : at.indices)
    same = same && same_shape(a.layout, *expected) && a.device == at.frame.device &&
           (kDTypes[a.dtype].code == kDLInt || kDTypes[a.dtype].code == kDLUInt);
  if (!same) ops::fail_changed(where);
  return at;
}

// An operand of the shape of the iteration, or one element in host memory.
Array read_value(nb::handle value, const Array& target, const Layout& shape,
                 const std::string& where) {
  Array a = read_array(value, where.c_str());
  if (a.dtype != target.dtype ||
      !(a.device == target.device ? same_shape(a.layout, shape) : a.layout.size() == 1 && a.data))
    ops::fail_changed(where);
  return a;
}

}  // namespace

void register_indexing(nb::module_& m) {
  m.def(
      "_gather",
      [](nb::handle frame, nb::list indices, nb::handle dst, std::vector<int> axes, int mode,
         bool keeps_dst, const std::string& where) {
        const Array d = read_array(dst, where.c_str());
        const ops::IndexedElements at =
            read_elements(frame, indices, std::move(axes), mode, &d.layout, where);
        if (d.dtype != at.frame.dtype || d.device != at.frame.device) ops::fail_changed(where);
        ops::gather(at, d, keeps_dst, where.c_str());
      },
      "frame"_a, "indices"_a, "dst"_a, "axes"_a, "mode"_a, "keeps_dst"_a, "where"_a,
      "dst[i] = frame[indices[0][i], ..., i]; mode: 0 raise, 1 clip, 2 wrap, 3 known to be "
      "inside.");
  m.def(
      "_scatter",
      [](nb::handle frame, nb::list indices, nb::handle value, std::vector<int> axes, int mode,
         bool adds, const std::string& where) {
        const ops::IndexedElements at =
            read_elements(frame, indices, std::move(axes), mode, nullptr, where);
        const Array v = read_value(value, at.frame, at.indices[0].layout, where);
        ops::scatter(at, v, adds, where.c_str());
      },
      "frame"_a, "indices"_a, "value"_a, "axes"_a, "mode"_a, "adds"_a, "where"_a,
      "frame[indices[0][i], ..., i] = value[i], or += value[i].");
  m.def(
      "_assign_masked",
      [](nb::handle x, nb::handle mask, nb::handle value, const std::string& where) {
        const Array target = read_array(x, where.c_str()), m = read_array(mask, where.c_str());
        const Array v = read_value(value, target, target.layout, where);
        if (m.dtype != kBool || m.device != target.device || !target.device.is_cuda() ||
            !same_shape(m.layout, target.layout))
          ops::fail_changed(where);
        ops::assign_masked(target, m, v, where.c_str());
      },
      "x"_a, "mask"_a, "value"_a, "where"_a, "x[i] = value[i] where mask[i].");
}

}  // namespace gpuinterop
