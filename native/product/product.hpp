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
  Precision precision = Precision::Exact;
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

// For calls without precision=: that of the innermost block of this thread, or else the process's.
Precision current_precision() noexcept;
void enter_precision(Precision precision);  // of a block, until leave_precision()
void leave_precision() noexcept;
Precision exchange_precision(
    Precision precision) noexcept;  // of the process; returns the one before
constexpr const char* kPrecisions[] = {"exact", "tf32x3", "tf32"};
Precision precision_named(PyObject* name, const char* where);  // throws

}  // namespace gpuinterop::ops
