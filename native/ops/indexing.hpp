// Elements at the places that index arrays give: reading, writing, adding. On CUDA, by kernels.
#pragma once

#include <vector>

#include "array/array.hpp"

namespace gpuinterop::ops {

constexpr int kMaxIndexArrays = 8;

// What an index outside of its axis does; gi_place in gpuinterop/jit/kernels/indexing.cuh has the same
// numbers. Raise: Kind::Index error. Skip: the indices are known to be inside, or have been checked, so
// nothing waits; an index outside reads element 0 and is not written.
enum class OutOfRange : uint8_t { Raise, Clip, Wrap, Skip };

// Element i of the iteration space, whose shape all `indices` have, is
// frame[indices[0][i], ..., indices[k-1][i], i...]. The first k axes of the frame are the indexed ones,
// the others have that shape.
struct IndexedElements {
  Array frame;
  std::vector<Array> indices;  // of integer dtypes
  std::vector<int> axes;       // the indexed axes in the user's array, for errors
  OutOfRange mode;
};

// dst[i] = element i. With OutOfRange::Raise the kernel notes an index that is outside, and the host waits
// for it: `dst` has no defined values when this throws, unless `keeps_dst` has the indices checked before.
// In a capture the replays find the index.
void gather(const IndexedElements& at, const Array& dst, bool keeps_dst, const char* where);
// Element i becomes value[i], or grows by it. `value` has the shape of the iteration, or is one element in
// host memory. With OutOfRange::Raise nothing is written when this throws: the indices are checked before.
void scatter(const IndexedElements& at, const Array& value, bool adds, const char* where);
// x[i] = value[i] where mask[i]; one shape, `value` may be one element in host memory.
void assign_masked(const Array& x, const Array& mask, const Array& value, const char* where);

}  // namespace gpuinterop::ops
