// The dimensions that strided operands have in common. Only this file drops, turns, orders and merges them.
#pragma once

#include <algorithm>
#include <cstdint>
#include <type_traits>
#include <utility>

#include "arrays/layout.hpp"

namespace gpuinterop {

// Moves the addresses to the next index of all dimensions but `line`, the last one fastest. False, with the addresses
// and the index at their start, after the last index. step_of(dimension, operand) counts bytes.
template <class StepOf>
bool advance(char** at, int operands, int64_t* index, const int64_t* shape, int ndim, int line,
             StepOf&& step_of) {
  for (int d = ndim - 1; d >= 0; --d) {
    if (d == line) continue;
    for (int i = 0; i < operands; ++i) at[i] += step_of(d, i);
    if (++index[d] < shape[d]) return true;
    for (int i = 0; i < operands; ++i) at[i] -= shape[d] * step_of(d, i);
    index[d] = 0;
  }
  return false;
}

// Dimensions of at most `most` operands; the last one is the innermost. Strides count elements or bytes.
template <int most>
struct Dimensions {
  int ndim = 0;
  int64_t shape[kMaxDims];
  int64_t stride[kMaxDims][most];  // [dimension][operand]

  Dimensions() = default;
  // Of one array, merged; strides in elements.
  explicit Dimensions(const Layout& l) {
    for (int d = 0; d < l.ndim(); ++d) add(l.shape()[d], 1, [&](int) { return l.strides()[d]; });
    merge(1);
  }

  // Adds an innermost dimension, unless it has one element: step_of(operand) is a stride.
  template <class StepOf>
  void add(int64_t extent, int operands, StepOf&& step_of) {
    if (extent == 1) return;
    shape[ndim] = extent;
    for (int i = 0; i < operands; ++i) stride[ndim][i] = step_of(i);
    ++ndim;
  }

  // Turns, orders and merges the dimensions. A dimension runs backwards where order.direction(its strides) is negative;
  // shift(operand, distance) tells where the operand begins then. Those with a longer order.pace(its strides) come
  // first; equal ones stay as they are.
  template <class Order, class Shift>
  void arrange(int operands, const Order& order, Shift&& shift) {
    for (int d = 0; d < ndim; ++d) {
      if (order.direction(stride[d]) >= 0 || shape[d] == 0) continue;
      for (int i = 0; i < operands; ++i) {
        shift(i, (shape[d] - 1) * stride[d][i]);
        stride[d][i] = -stride[d][i];
      }
    }
    for (int d = 1; d < ndim; ++d)
      for (int e = d; e > 0 && order.pace(stride[e - 1]) < order.pace(stride[e]); --e) {
        std::swap(shape[e - 1], shape[e]);
        std::swap_ranges(stride[e], stride[e] + operands, stride[e - 1]);
      }
    merge(operands);
  }

  // Merges each dimension with the one before it if all operands step through both as one.
  void merge(int operands) {
    int last = 0;
    for (int d = 1; d < ndim; ++d) {
      bool merges = true;
      for (int i = 0; i < operands && merges; ++i) {
        int64_t step;
        merges = !__builtin_mul_overflow(stride[d][i], shape[d], &step) && stride[last][i] == step;
      }
      if (merges) {
        shape[last] *= shape[d];
      } else {
        shape[++last] = shape[d];
      }
      std::copy_n(stride[d], operands, stride[last]);
    }
    ndim = std::min(ndim, last + 1);
  }

  // The extent of the last dimension, and an operand's stride along it.
  int64_t line() const noexcept { return ndim ? shape[ndim - 1] : 1; }
  int64_t last(int operand) const noexcept { return ndim ? stride[ndim - 1][operand] : 0; }

  // Calls visit(addresses) for the start of each line along the last dimension, until it returns false, if it returns
  // anything. There are none without elements. The addresses are those of the operands from `first` on.
  template <class Visit>
  bool lines(char* const* start, int operands, Visit&& visit, int first = 0) const {
    if (std::find(shape, shape + ndim, 0) != shape + ndim) return true;
    char* at[most];
    std::copy_n(start, operands, at);
    int64_t index[kMaxDims];
    std::fill_n(index, ndim, 0);
    do {
      if constexpr (std::is_void_v<decltype(visit(at))>)
        visit(at);
      else if (!visit(at))
        return false;
    } while (advance(at, operands, index, shape, ndim, ndim - 1,
                     [&](int d, int i) { return stride[d][first + i]; }));
    return true;
  }
};

}  // namespace gpuinterop
