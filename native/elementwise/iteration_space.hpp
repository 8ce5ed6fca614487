// The joint iteration of a kernel's operands: few dimensions, ordered for the results' memory.
#pragma once

#include <bit>
#include <cstdint>

#include "arrays/array.hpp"
#include "arrays/dimensions.hpp"

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

// Operands of one launch, inputs first, then results. Strides in elements; no dimensions for a single element.
struct IterationSpace : Dimensions<kMaxOperands> {
  int operands = 0;
  int inputs = 0;
  int64_t size = 0;
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
    add_operand(reinterpret_cast<char*>(c.low), nullptr, stored, nullptr);
    high[operands - 1] = c.high;
    constant[operands - 1] = true;
  }
  void add_array(const Array& a) noexcept { add_array(a, a.dtype, a.layout); }
  void add_array(const Array& a, StoredType stored, const Layout& seen) noexcept {
    add_operand(a.data, a.buffer.get(), stored, &seen);
  }

 private:
  void add_operand(char* at, Buffer* memory, StoredType stored, const Layout* seen) noexcept {
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

// Fills shape and strides of `w`, whose operands were added, for results of the shape (ndim, shape).
void build_iteration_space(IterationSpace& w, int ndim, const int64_t* shape);

}  // namespace gpuinterop::ops
