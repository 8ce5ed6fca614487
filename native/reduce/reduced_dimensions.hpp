// The dimensions of a reduction, on either device.
#pragma once

#include <algorithm>
#include <cstdint>
#include <limits>

#include "arrays/dimensions.hpp"

namespace gpuinterop::ops {

// Operands are the inputs, then the results, which have no reduced dimensions.
template <int most>
struct ReducedDimensions {
  Dimensions<most> kept, reduced;
  bool lines_are_closer;  // the reduced elements are closer together than the results

  // As Dimensions::arrange. `in_order` keeps the reduced elements in C order, for reductions that return positions.
  template <class Order, class Shift>
  void arrange(int inputs, int operands, const Order& order, bool in_order, Shift&& shift) {
    kept.arrange(operands, order, shift);
    if (in_order)
      reduced.merge(inputs);
    else
      reduced.arrange(inputs, order, shift);
    auto closest = [&](const Dimensions<most>& dims) {
      int64_t pace = std::numeric_limits<int64_t>::max();
      for (int d = 0; d < dims.ndim; ++d) pace = std::min(pace, order.pace(dims.stride[d]));
      return pace;
    };
    lines_are_closer = !kept.ndim || (reduced.ndim && closest(reduced) <= closest(kept));
  }
};

}  // namespace gpuinterop::ops
