// Reads, writes and adds elements at the positions given by index arrays: by kernels, or by loops in host memory.
#pragma once

#include <memory>
#include <vector>

#include "arrays/array.hpp"

namespace gpuinterop::ops {

constexpr int kMaxIndexArrays = 8;

// The treatment of an index outside its axis; gi_place in gpuinterop/elementwise/kernels/indexing.cuh has the same
// numbers. Raise: Kind::Index error. Skip: the indices are known to be inside, or have been checked, so
// nothing waits; an index outside reads element 0 and is not written.
enum class OutOfRange : uint8_t { Raise, Clip, Wrap, Skip };

// Element i of the iteration space, whose shape all `indices` have, is
// frame[indices[0][i], ..., indices[k-1][i], i...]. The first k axes of the frame are the indexed ones,
// the others have that shape.
struct IndexedElements {
  Array frame;
  std::vector<Array> indices;  // of integer dtypes
  std::vector<int> axes;       // of the array that the user indexed, which errors name
  OutOfRange mode;

  // Of the iteration space, and so of the result.
  int ndim() const noexcept { return frame.layout.ndim() - static_cast<int>(indices.size()); }
  const int64_t* shape() const noexcept { return frame.layout.shape() + indices.size(); }
};

// The elements of `view` at index arrays of some of its axes. kAlong: there is one array, which is matched with
// the other axes, as in numpy.take_along_axis. Otherwise the arrays broadcast to each other, and their axes lie
// from `axis` on amid the other axes, as in view[key]. Kind::Shape error for shapes that do not broadcast.
constexpr int kAlong = -1;
IndexedElements locate(const Array& view, std::vector<Array> indices, std::vector<int> axes,
                       int axis, OutOfRange mode, const char* where);

// dst[i] = element i. With OutOfRange::Raise the kernel notes an index that is outside, and the host waits
// for it: `dst` has no defined values when this throws, unless `keeps_dst` has the indices checked before.
// In a capture the replays find the index.
void gather(const IndexedElements& at, const Array& dst, bool keeps_dst, const char* where);
// Element i becomes value[i], or grows by it. `value` has the shape of the iteration, or is one element in
// host memory. With OutOfRange::Raise nothing is written when this throws: the indices are checked before.
// In host memory `sum` is the program that adds.
struct HostProgram;
void scatter(const IndexedElements& at, const Array& value, bool adds, const char* where,
             std::shared_ptr<const HostProgram> sum = {});
// x[i] = value[i] where mask[i]; one shape, `value` may be one element in host memory.
void assign_masked(const Array& x, const Array& mask, const Array& value, const char* where);

}  // namespace gpuinterop::ops
