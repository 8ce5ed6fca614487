// Products in host memory without Python, by the loop of np.matmul, which gives them to BLAS.
#pragma once

#include "array/array.hpp"

namespace gpuinterop::ops {

// to = a @ b for vectors and matrices; `to` has elements. False, and nothing is done, if the caller must compute it
// otherwise: other dtypes, stacks, gaps, overlapping memory, a capture. The GIL is released in long products, and another
// thread may give an object other memory then: `to` is a copy, which holds the memory, as the operands of a call are.
bool multiply_by_numpys_loop(Array to, const Array& a, const Array& b, const char* where);

}  // namespace gpuinterop::ops
