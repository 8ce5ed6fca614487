// Products of arrays as Python objects: operands of any kind in, a result out. Python is asked for the
// rules on the first use of a kind of operands and for the plan of a product with a vector; later calls
// find the answers here.
#pragma once

#include "array/array.hpp"
#include "ops/cublas_gemm.hpp"

namespace gpuinterop::ops {

// What a call was given. Null objects: not given, or None.
struct ProductCall {
  const char* where;
  PyObject* a = nullptr;
  PyObject* b = nullptr;
  PyObject* c = nullptr;
  PyObject* out = nullptr;
  Scalar alpha, beta;
  bool tf32 = false;
  bool operand_may_answer = false;  // an operator: the other operand's class may know what to do
};

// Each gives a new reference and throws.
PyObject* matmul(const ProductCall& call);
PyObject* dot(const ProductCall& call);
PyObject* dot22(const ProductCall& call);
PyObject* inner(const ProductCall& call);
PyObject* vdot(const ProductCall& call);
PyObject* gemm(const ProductCall& call);
PyObject* gemv(const ProductCall& call);
PyObject* ger(const ProductCall& call);

extern thread_local bool tf32_allowed;  // what a call that does not say uses

// The Python side, see gpuinterop/ops/blas.py. Arrays come as _core.Array, whatever class they are.
struct ProductHooks {
  PyRef open;      // () -> None: open cuBLAS
  PyRef rule;      // (where, classes, dtype rows) -> (dtype row, class) of the result
  PyRef host;      // (kind, result, a, b, c or None, alpha, beta) -> None
  PyRef plan;      // (kind, a, b, c or None, alpha, beta, out or None) -> LaunchPlan
  PyRef rest;      // (name, a, b, out or None) -> result: products of other numbers of axes
  PyRef rank_one;  // () -> id of the elementwise operation x * y + a
};
ProductHooks& product_hooks();
void forget_products() noexcept;

}  // namespace gpuinterop::ops
