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

}  // namespace gpuinterop::ops
