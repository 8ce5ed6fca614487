// Products of arrays of floats, by cuBLAS unless the precision allows tensor_product.hpp.
#pragma once

#include "arrays/array.hpp"
#include "product/matrices.hpp"

namespace gpuinterop::ops {

// How float32 is multiplied; complex64 too, but without Tf32x3.
enum class Precision : uint8_t {
  Exact,   // as float32
  Tf32x3,  // as the sum of three products of TF32, where that is faster: tensor_product.hpp;
           // on Blackwell as cuBLAS's sum of nine products of bfloat16
  Tf32,    // with operands rounded to TF32
};

// Whether cuBLAS multiplies elements of this dtype.
bool cublas_takes(DTypeId dtype) noexcept;

// out = alpha * a @ b + beta * c over the last two axes; the leading axes of a and b broadcast to those of
// out, and c to out's shape. One dtype (a float or complex type), one device, no axis of length 0; out is
// writable and does not overlap a or b. `c` may be null (beta is then ignored), out itself, or memory that
// does not overlap out. Operands with a unit stride are used in place, others are copied. Needs the GIL.
void gemm(const Array& out, const Array& a, const Array& b, const Array* c, Scalar alpha,
          Scalar beta, Precision precision, const char* where);

}  // namespace gpuinterop::ops
