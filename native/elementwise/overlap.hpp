// Do two strided arrays share a byte?
#pragma once

#include "arrays/array.hpp"

namespace gpuinterop::ops {

// False only if they certainly do not. Exact for ordinary views; a search that exceeds its budget counts as
// an overlap.
bool may_overlap(const Array& a, const Array& b, const char* where);

// Whether element i of `a` and of `b` have the same address, for all i and one itemsize: a kernel that reads
// an element and then writes it then needs no temporary.
bool is_same_place(const Array& a, const Array& b) noexcept;

// Whether writing `out` element by element would change elements of `in` that are not read yet.
inline bool must_go_apart(const Array& in, const Array& out, const char* where) {
  return !is_same_place(in, out) && may_overlap(in, out, where);
}

// Do two elements of one array share a byte? A result must not: the order of the two writes is undefined.
// Exact for ordinary views; a search that exceeds its budget counts as an overlap.
bool overlaps_itself(const Array& a) noexcept;

}  // namespace gpuinterop::ops
