// One call of cuBLAS or cublasLt: types, scalars, workspace, and the cached results of the heuristic.
#pragma once

#include <optional>

#include "arrays/array.hpp"
#include "product/cublas.hpp"

namespace gpuinterop::ops {

// A matrix in cuBLAS's terms: column-major, with leading dimension `ld` in elements.
struct Matrix {
  char* data;
  bool by_rows;  // memory runs along rows, so cuBLAS sees the transpose
  int64_t ld;
  int64_t stride;  // between the matrices of a batch, in elements
};

struct GemmTypes {
  blas::DataType data;
  blas::Compute compute;
  blas::DataType scale;
};

// Nothing for dtypes that cuBLAS does not multiply.
std::optional<GemmTypes> gemm_types(DTypeId dtype, bool tf32) noexcept;
inline bool cublas_takes(DTypeId dtype) noexcept { return gemm_types(dtype, false).has_value(); }

// alpha or beta.
struct Scalar {
  double real = 1, imag = 0;
  bool operator==(const Scalar& o) const noexcept { return real == o.real && imag == o.imag; }
};

// A product in cuBLAS's orientation: column-major D (m x n) = alpha op(A) op(B) + beta C.
struct Product {
  blas::Operation op_a, op_b;
  int64_t m, n, k;
  Matrix a, b, c, d;
  int64_t batch;
  const void* bias;  // added to every column of D, by cublasLt only
};

// C is D.
void run_gemm(const Product& p, const GemmTypes& t, Scalar alpha, Scalar beta, int device,
              CUstream stream, const char* where);
// C may differ from D, and a bias is possible. False if cublasLt has no kernel for the product.
bool run_lt(const Product& p, const GemmTypes& t, Scalar alpha, Scalar beta, int device,
            CUstream stream, const char* where);

// ---- gemm.cpp ------------------------------------------------------------------------------------

// out = alpha * a @ b + beta * c over the last two axes; the leading axes of a and b broadcast to those of
// out, and c to out's shape. One dtype (a float or complex type), one device, no axis of length 0; out is
// writable and does not overlap a or b. `c` may be null (beta is then ignored), out itself, or memory that
// does not overlap out. Operands with a unit stride are used in place, others are copied. Needs the GIL.
void gemm(const Array& out, const Array& a, const Array& b, const Array* c, Scalar alpha,
          Scalar beta, bool tf32, const char* where);

}  // namespace gpuinterop::ops
