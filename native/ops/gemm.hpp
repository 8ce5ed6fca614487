// Matrix products of strided arrays through cuBLAS.
#pragma once

#include "array/array.hpp"

namespace gpuinterop::ops {

// out = alpha * a @ b + beta * c over the last two axes; leading axes are batches, equal in all.
// One dtype (a float or complex type), one device, out writable and apart from a and b. `c` may be
// null (beta is then of no account), `out` itself, or another array of out's shape; `bias`, if not
// null, is a vector added to every row. Operands with a unit stride are used in place.
void gemm(const Array& out, const Array& a, const Array& b, const Array* c, const Array* bias,
          double alpha, double beta, bool tf32, const char* where);

}  // namespace gpuinterop::ops
