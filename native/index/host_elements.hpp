// Reads, writes and adds elements at index arrays and masks, in host memory.
#pragma once

#include "elementwise/host_program.hpp"
#include "index/elements.hpp"

namespace gpuinterop::ops {

// As gather() and scatter() of indexing.hpp, now: a capture is the caller's. `sum` adds an element: x, y -> x + y in
// the place of x; null to assign.
void gather_on_host(const IndexedElements& at, const Array& dst, bool keeps_dst, const char* where);
// dst = x[index] for x of one dimension and arrays without gaps; false if an index is outside. The most frequent case,
// without the geometry of the others.
bool take_on_host(const Array& x, const Array& index, const Array& dst);
void scatter_on_host(const IndexedElements& at, const Array& value, const HostProgram* sum,
                     const char* where);

// The elements that a mask selects, in C order. The arrays named x have the shape of the mask.
int64_t count_selected(const Array& mask);
// dst: 1-d, without gaps, of count_selected(mask) elements.
void read_selected(const Array& mask, const Array& x, const Array& dst);
// values: 1-d, of count_selected(mask) elements.
void write_selected(const Array& mask, const Array& x, const Array& values);
// x[i] = value[i] where mask[i]; `value` has the shape of the mask, or is one element.
void assign_selected(const Array& mask, const Array& x, const Array& value);
// dst: int64, a row for each axis, without gaps.
void find_selected(const Array& mask, const Array& dst);

}  // namespace gpuinterop::ops
