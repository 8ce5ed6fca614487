// Matrix products of strided arrays through cuBLAS.
#pragma once

#include "array/array.hpp"
#include "ops/cublas_gemm.hpp"

namespace gpuinterop::ops {

// out = alpha * a @ b + beta * c over the last two axes; the leading axes of a and b broadcast to
// those of out, and c to out's shape. One dtype (a float or complex type), one device, no extent 0;
// out is writable and apart from a and b. `c` may be null (beta is then of no account), out itself, or
// apart from it. Operands with a unit stride are used as they lie, others are copied. Needs the GIL.
void gemm(const Array& out, const Array& a, const Array& b, const Array* c, Scalar alpha,
          Scalar beta, bool tf32, const char* where);

}  // namespace gpuinterop::ops
