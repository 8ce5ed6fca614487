// The dimensions of a reduction's kernel, for Python, which generates it.
#include "reduce/reduced_dimensions.hpp"

#include <nanobind/nanobind.h>
#include <nanobind/stl/vector.h>

#include <algorithm>
#include <cstdlib>
#include <vector>

#include "arrays/type.hpp"
#include "interpreter/error_translation.hpp"
#include "interpreter/register.hpp"

namespace nb = nanobind;

namespace gpuinterop {

namespace {

// By the bytes between neighbours in the densest input. In a broadcast dimension neighbours count as far apart.
struct ByDensestInput {
  std::vector<int64_t> itemsizes;  // of the inputs; 0 for one that does not count

  int64_t direction(const int64_t* stride) const {
    for (size_t i = 0; i < itemsizes.size(); ++i)
      if (stride[i]) return stride[i];
    return 0;
  }
  int64_t pace(const int64_t* stride) const {
    int64_t least = int64_t{1} << 62;
    for (size_t i = 0; i < itemsizes.size(); ++i)
      if (stride[i] && itemsizes[i]) least = std::min(least, std::abs(stride[i]) * itemsizes[i]);
    return least;
  }
};

constexpr int kMostReduced = 64;  // operands
using KernelDimensions = Dimensions<kMostReduced>;

nb::object strides_of(const KernelDimensions& dims, int first, int last) {
  nb::list operands;
  for (int i = first; i < last; ++i) {
    int64_t steps[kMaxDims];
    for (int d = 0; d < dims.ndim; ++d) steps[d] = dims.stride[d][i];
    operands.append(nb::steal(int_tuple(dims.ndim, steps, 1)));
  }
  return nb::tuple(operands);
}

// `axes`: the reduced ones, as bits. strides[operand] are over the whole shape, of the inputs, then of the results.
nb::dict reduced_dimensions(nb::handle shape, uint64_t axes, nb::list strides,
                            std::vector<int64_t> itemsizes, bool in_order) {
  int64_t extents[kMaxDims], steps[kMostReduced][kMaxDims], shifts[kMostReduced] = {};
  const int ndim = read_ints(shape.ptr(), extents, "plan", "a shape");
  const int operands = static_cast<int>(strides.size()),
            inputs = static_cast<int>(itemsizes.size());
  bool valid = inputs > 0 && inputs <= operands && operands <= kMostReduced;
  for (int i = 0; i < operands && valid; ++i)
    valid = read_ints(strides[i].ptr(), steps[i], "plan", "strides") == ndim;
  if (!valid) throw nb::value_error("strides of 1 to 64 operands expected");
  // Inputs that have few of the bytes do not count: in a matrix times a vector the matrix alone determines the order of
  // reads, because the vector stays in the cache.
  std::vector<double> bytes(itemsizes.begin(), itemsizes.end());
  ops::ReducedDimensions<kMostReduced> found;
  for (int d = 0; d < ndim; ++d) {
    KernelDimensions& dims = axes >> d & 1 ? found.reduced : found.kept;
    dims.add(extents[d], operands, [&](int i) { return steps[i][d]; });
    for (int i = 0; i < inputs; ++i) bytes[i] *= steps[i][d] ? double(extents[d]) : 1;
  }
  const double most = *std::max_element(bytes.begin(), bytes.end());
  for (int i = 0; i < inputs; ++i)
    if (bytes[i] * 4 < most) itemsizes[i] = 0;
  found.arrange(inputs, operands, ByDensestInput{itemsizes}, in_order,
                [&](int i, int64_t elements) { shifts[i] += elements; });
  nb::dict g;
  auto put = [&](const char* name, const char* strides_name, KernelDimensions& dims) {
    if (dims.ndim == 0) {  // kernels have one dimension of each kind at least
      dims.shape[dims.ndim++] = 1;
      std::fill_n(dims.stride[0], operands, 0);
    }
    g[name] = nb::steal(int_tuple(dims.ndim, dims.shape, 1));
    g[strides_name] = strides_of(dims, 0, inputs);
  };
  put("kept", "kept_strides", found.kept);
  put("red", "red_strides", found.reduced);
  g["out_strides"] = strides_of(found.kept, inputs, operands);
  g["in_shifts"] = nb::steal(int_tuple(inputs, shifts, 1));
  g["out_shifts"] = nb::steal(int_tuple(operands - inputs, shifts + inputs, 1));
  g["prefers_rows"] = found.lines_are_closer;
  return g;
}

}  // namespace

void register_reduced_dimensions(nb::module_& m) {
  m.def("_reduced_dimensions", &reduced_dimensions, nb::arg("shape"), nb::arg("axes"),
        nb::arg("strides"), nb::arg("itemsizes"), nb::arg("in_order"),
        "Return the fields of gpuinterop.reduce.launch.Geometry.");
}

}  // namespace gpuinterop
