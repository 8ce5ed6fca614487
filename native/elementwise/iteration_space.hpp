// The joint iteration of a kernel's operands: few dimensions, ordered for the results' memory.
#pragma once

#include <bit>
#include <cstdint>

#include "arrays/array.hpp"

namespace gpuinterop::ops {

constexpr int kMaxOperands = 24;

// A dtype id, or raw bits: kRaw + log2(itemsize).
using StoredType = uint8_t;
constexpr StoredType kRaw = 64;
inline StoredType raw_type(int64_t itemsize) noexcept {
  return static_cast<StoredType>(kRaw + std::countr_zero(static_cast<uint64_t>(itemsize)));
}

// A number passed by value; its bytes are stored in the kernel's parameters.
struct Constant {
  uint64_t low = 0, high = 0;
};

// Operands of one launch, inputs first, then results. All strides in elements.
struct IterationSpace {
  int operands = 0;
  int inputs = 0;
  int ndim = 0;  // after merging; 0 for a single element
  int64_t size = 0;
  int64_t shape[kMaxDims];
  int64_t stride[kMaxDims][kMaxOperands];
  char* data[kMaxOperands];
  Buffer* buffer[kMaxOperands];  // borrowed; null for a constant
  uint64_t high[kMaxOperands];   // upper half of a constant
  uint8_t itemsize[kMaxOperands];
  StoredType type[kMaxOperands];
  bool constant[kMaxOperands];
  bool address[kMaxOperands];  // the kernel gets the element's address, see mode A
  // Borrowed by build_iteration_space(). Null for constants; every other broadcasts to the shape of the results.
  const Layout* layout[kMaxOperands];

  void add_constant(const Constant& c, StoredType stored) noexcept {
    add(reinterpret_cast<char*>(c.low), nullptr, stored, nullptr);
    high[operands - 1] = c.high;
    constant[operands - 1] = true;
  }
  void add_array(const Array& a) noexcept { add_array(a, a.dtype, a.layout); }
  void add_array(const Array& a, StoredType stored, const Layout& seen) noexcept {
    add(a.data, a.buffer.get(), stored, &seen);
  }

 private:
  void add(char* at, Buffer* memory, StoredType stored, const Layout* seen) noexcept {
    const int i = operands++;
    data[i] = at;
    buffer[i] = memory;
    high[i] = 0;
    itemsize[i] = static_cast<uint8_t>(stored < kRaw ? itemsize_of(stored) : 1 << (stored - kRaw));
    type[i] = stored;
    constant[i] = address[i] = false;
    layout[i] = seen;
  }
};

// Merges each dimension with the one before it if all operands step through both as one, and returns the
// number of dimensions left. strides[dimension][operand] count elements.
template <class Strides>
int merge_dimensions(int64_t* shape, Strides* strides, int ndim, int operands) {
  int last = 0;
  for (int d = 1; d < ndim; ++d) {
    bool merges = true;
    for (int i = 0; i < operands && merges; ++i)
      merges = strides[last][i] == strides[d][i] * shape[d];
    if (merges) {
      shape[last] *= shape[d];
    } else {
      shape[++last] = shape[d];
    }
    for (int i = 0; i < operands; ++i) strides[last][i] = strides[d][i];
  }
  return ndim ? last + 1 : 0;
}

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

// Fills shape and strides of `w`, whose operands were added, for results of the shape (ndim, shape).
void build_iteration_space(IterationSpace& w, int ndim, const int64_t* shape);

}  // namespace gpuinterop::ops
