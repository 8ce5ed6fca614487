// Products in host memory without Python, by the loop of np.matmul, which gives them to BLAS.
#pragma once

#include "array/array.hpp"

namespace gpuinterop::ops {

// to = a @ b for vectors and matrices; `to` has elements. False, and nothing is done, if the caller must compute it
// otherwise: other dtypes, stacks, gaps, overlapping memory, a capture.
bool multiply_by_numpys_loop(const Array& to, const Array& a, const Array& b, const char* where);

}  // namespace gpuinterop::ops
