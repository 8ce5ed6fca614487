// Products of arrays of floats by cuBLAS.
#pragma once

#include "arrays/array.hpp"

namespace gpuinterop::ops {

// alpha or beta.
struct Scalar {
  double real = 1, imag = 0;
  bool operator==(const Scalar& o) const noexcept { return real == o.real && imag == o.imag; }
};

// Whether cuBLAS multiplies elements of this dtype.
bool cublas_takes(DTypeId dtype) noexcept;

// out = alpha * a @ b + beta * c over the last two axes; the leading axes of a and b broadcast to those of
// out, and c to out's shape. One dtype (a float or complex type), one device, no axis of length 0; out is
// writable and does not overlap a or b. `c` may be null (beta is then ignored), out itself, or memory that
// does not overlap out. Operands with a unit stride are used in place, others are copied. Needs the GIL.
void gemm(const Array& out, const Array& a, const Array& b, const Array* c, Scalar alpha,
          Scalar beta, bool tf32, const char* where);

}  // namespace gpuinterop::ops
