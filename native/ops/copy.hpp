// Same-device copies and fills of strided CUDA arrays, by kernels.
#pragma once

#include "array/array.hpp"

namespace gpuinterop::ops {

// dst[...] = src: equal shapes, equal itemsizes 1 to 16, any strides (src may broadcast), one device,
// no overlap, size > 0. Queued on the current stream, which it orders against both buffers.
void copy_strided(const Array& dst, const Array& src, const char* where);
// Every element becomes the itemsize bytes at `item`.
void fill_strided(const Array& dst, const void* item, const char* where);

}  // namespace gpuinterop::ops
