// Operands and results of products: reading them, the dtype rule, and what is refused.
#pragma once

#include <nanobind/nanobind.h>

#include <string>

#include "ops/call_cache.hpp"
#include "ops/operands.hpp"
#include "ops/product.hpp"

namespace gpuinterop::ops {

// One operand; a null object was not given, one without an array is a number. Its geometry is the core's
// own, whatever attributes its class shows.
struct Side : Input {
  int ndim() const { return array->layout.ndim(); }
  // Counted from the end when negative.
  int64_t extent(int axis) const { return array->layout.shape()[axis < 0 ? axis + ndim() : axis]; }
  std::string text() const { return shape_text(ndim(), array->layout.shape()); }
  void set(PyRef made) {
    keep = std::move(made);
    Input::set(keep.get());
  }
};

struct ProductShape {
  int ndim = 0;
  int64_t extents[kMaxDims];
  void push(int64_t n) { extents[ndim++] = n; }
  std::string text() const { return shape_text(ndim, extents); }
};

struct ProductRule : Prepared {
  DTypeId dtype;
  PyTypeObject* type;  // borrowed, see Resolution in elementwise.cpp
};

// Imports gpuinterop.ops.blas, which answers the calls of hooks about products.
void require_blas();
// Reads a, b and c. Refuses what is no array; numbers too, unless `numbers`. False: see
// ProductCall::operand_may_answer.
bool read_sides(const ProductCall& call, Side& a, Side& b, Side& c, bool numbers = false);
std::shared_ptr<const ProductRule> rule_for(const ProductCall& call, const Side& a, const Side& b,
                                            const Side& c);

void check_inner(const Side& a, const Side& b, int64_t n, int64_t m, const char* where);
// The given out or a fresh array of the rule's class.
PyRef result_for(const ProductCall& call, const ProductRule& rule, Device device,
                 const ProductShape& shape);
// Whether a product may write `out` while it reads the operands; the addend may lie where `out` does.
bool may_be_written(const Array& out, const Side& a, const Side& b, const Side& c,
                    const char* where);
// The operand in another dtype, or as it is.
void cast_side(Side& side, DTypeId dtype, const char* where);
// The array as the base class shows it: nothing that its own class says reaches Python's rules.
PyRef plain(PyObject* array);
// A view of the side's memory under another layout; of the base class, if no other is named.
Side operand_with_layout(const Side& side, Layout layout, PyTypeObject* type = nullptr);

// alpha and beta that the dtype allows: 1 for integers, real ones unless it is complex.
void require_scalars(const ProductCall& call, DTypeId dtype);

nanobind::object number(Scalar s);
nanobind::object or_none(const Side& s);  // the array as plain() gives it
// Lets NumPy compute it: now, or at each replay of the capture that this thread records.
void on_host(const char* kind, const ProductCall& call, PyObject* result, const Side& a,
             const Side& b, const Side& c);
// A binary operation of the table; `out` may be null.
PyObject* run_elementwise(const char* name, PyObject* x, PyObject* y, PyObject* out);
// result = beta * c: what is left where the product counts for nothing.
void scaled_into(const ProductCall& call, PyObject* result, const Side& c);

}  // namespace gpuinterop::ops
