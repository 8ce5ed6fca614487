// Operands and results of products: reading them, the dtype rule, and the checks.
#pragma once

#include <nanobind/nanobind.h>

#include "elementwise/call_cache.hpp"
#include "elementwise/operands.hpp"
#include "product/product.hpp"

namespace gpuinterop::ops {

// One operand. A null object was not given; an operand without an array is a number. Shape and strides are
// the core's, whatever a subclass overrides.
struct Operand : Input {
  int ndim() const { return array->layout.ndim(); }
  // Counted from the end when negative.
  int64_t extent(int axis) const { return array->layout.shape()[axis < 0 ? axis + ndim() : axis]; }
  std::string text() const { return shape_text(ndim(), array->layout.shape()); }
  void set(PyRef made) {
    keep = std::move(made);
    Input::set(keep.get());
  }
};

struct ProductRule : Prepared {
  DTypeId dtype;
  PyTypeObject* type;  // borrowed, see Resolution in elementwise/calls.cpp
};

// Imports gpuinterop.product.functions, which registers the hooks for products.
void require_blas();
// Reads a, b and c. Raises unless they are arrays, or numbers if `numbers` is set. False: see
// ProductCall::operand_may_answer.
bool read_operands(const ProductCall& call, Operand& a, Operand& b, Operand& c,
                   bool numbers = false);
std::shared_ptr<const ProductRule> rule_for(const ProductCall& call, const Operand& a,
                                            const Operand& b, const Operand& c);

void check_inner(const Operand& a, const Operand& b, int64_t n, int64_t m, const char* where);
// The given `out` array or a new array of the rule's class.
PyRef result_for(const ProductCall& call, const ProductRule& rule, Device device,
                 const Shape& shape);
// Whether a product may write `out` while it reads the operands; the addend may have the memory of `out`.
bool may_be_written(const Array& out, const Operand& a, const Operand& b, const Operand& c,
                    const char* where);
// Converts the operand to another dtype if necessary.
void cast_operand(Operand& operand, DTypeId dtype, const char* where);
// The array as an instance of the base class, so that Python code does not see a subclass's overrides.
PyRef plain(PyObject* array);
// A view of the operand's memory with another layout; of the base class unless `type` is given.
Operand operand_with_layout(const Operand& operand, Layout layout, PyTypeObject* type = nullptr);

// Checks that the dtype allows alpha and beta: 1 for integers, real unless it is complex.
void require_scalars(const ProductCall& call, DTypeId dtype);

nanobind::object number(Scalar s);
nanobind::object or_none(const Operand& s);  // the array as plain() gives it
// host_product.cpp: the product in host memory, now or at each replay of the capture that this thread records.
PyObject* on_host(const ProductCall& call, const ProductRule& rule, const Shape& shape, Operand& a,
                  Operand& b, Operand& c);
// A binary operation of the table; `out` may be null.
PyObject* run_elementwise(const char* name, PyObject* x, PyObject* y, PyObject* out);
// Whether the result has no elements, or is beta * c, which this computes: the sums have no terms (k is 0), or alpha
// is 0.
bool needs_no_product(const ProductCall& call, const ProductRule& rule, PyObject* result, int64_t k,
                      Operand& c);

}  // namespace gpuinterop::ops
