// Tables of the core's own inner loops, for the vectors that the processor has.
#pragma once

#include "elementwise/host_loops.hpp"

namespace gpuinterop::ops {

constexpr int kOwnDTypes = kBFloat16 + 1;  // those with casts: NumPy's dtypes and bfloat16

struct OwnLoops {
  InnerLoop casts[kOwnDTypes][kOwnDTypes];
  // Null where there is none.
  InnerLoop sums[kOwnDTypes], powers[kOwnDTypes], squares[kOwnDTypes], limits[kOwnDTypes],
      odds[kOwnDTypes], straightened[kOwnDTypes];
  InnerLoop copies[5], choices[5];  // by the logarithm of the itemsize
};

const OwnLoops& own_loops();

}  // namespace gpuinterop::ops
