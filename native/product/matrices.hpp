// Matrices and products of them in cuBLAS's terms.
#pragma once

#include <cstdint>

#include "product/cublas.hpp"

namespace gpuinterop::ops {

// alpha or beta.
struct Scalar {
  double real = 1, imag = 0;
  bool operator==(const Scalar& o) const noexcept { return real == o.real && imag == o.imag; }
};

// A matrix: column-major, with leading dimension `ld` in elements.
struct Matrix {
  char* data;
  bool by_rows;  // memory runs along rows, so cuBLAS sees the transpose
  int64_t ld;
  int64_t stride;  // between the matrices of a batch, in elements
};

// Column-major D (m x n) = alpha op(A) op(B) + beta C.
struct Product {
  blas::Operation op_a, op_b;
  int64_t m, n, k;
  Matrix a, b, c, d;
  int64_t batch;
  const void* bias;  // added to every column of D in place of C, by cublasLt and tensor_product.cpp
};

}  // namespace gpuinterop::ops
