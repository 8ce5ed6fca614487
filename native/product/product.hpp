// Products of arrays as Python objects. The first call with given classes and dtypes calls Python for the
// rules, and for the plan of a product with a vector; later calls find both in the call cache.
#pragma once

#include "arrays/array.hpp"
#include "product/gemm.hpp"

namespace gpuinterop::ops {

// The arguments of a call. Null objects: not given, or None.
struct ProductCall {
  const char* where;
  PyObject* a = nullptr;
  PyObject* b = nullptr;
  PyObject* c = nullptr;
  PyObject* out = nullptr;
  Scalar alpha, beta;
  bool tf32 = false;
  bool operand_may_answer = false;  // an operator: the other operand's class may implement it
};

// Each returns a new reference and throws.
PyObject* matmul(const ProductCall& call);
PyObject* dot(const ProductCall& call);
PyObject* inner(const ProductCall& call);
PyObject* vdot(const ProductCall& call);
PyObject* gemm(const ProductCall& call);
PyObject* gemv(const ProductCall& call);
PyObject* ger(const ProductCall& call);

extern thread_local bool tf32_allowed;  // default for calls without tf32=

}  // namespace gpuinterop::ops
