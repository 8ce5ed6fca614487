// Do two strided arrays share a byte?
#pragma once

#include <cstdint>
#include <optional>
#include <utility>
#include <vector>

#include "array/array.hpp"

namespace gpuinterop::ops {

// False only when they certainly do not. Exact for ordinary views; a search that grows too long
// counts as an overlap.
bool may_overlap(const Array& a, const Array& b, const char* where);

// Every element of `a` lies where the same element of `b` lies, both of one size: a kernel that
// reads an element and then writes it needs no temporary.
bool is_same_place(const Array& a, const Array& b) noexcept;

// Whether writing `out` element by element would change elements of `in` that are still to be read.
inline bool must_go_apart(const Array& in, const Array& out, const char* where) {
  return !is_same_place(in, out) && may_overlap(in, out, where);
}

// Do two elements of one array share a byte? A result must not: which of two writes stays is chance.
// Exact for ordinary views; a search that grows too long counts as an overlap.
bool overlaps_itself(const Array& a) noexcept;

// Whether sum(step * index) == target for some indices from 0 to the limit of each (step, limit), all of
// them positive; nothing if `budget` visits do not decide it.
std::optional<bool> reaches(const std::vector<std::pair<int64_t, int64_t>>& terms, int64_t target,
                            int64_t budget);

}  // namespace gpuinterop::ops
