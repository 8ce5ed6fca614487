#include "ops/product.hpp"

#include <algorithm>
#include <cstring>
#include <optional>

#include "array/error.hpp"
#include "array/hooks.hpp"
#include "array/text_arguments.hpp"
#include "ops/gemm.hpp"
#include "ops/graph.hpp"
#include "ops/overlap.hpp"
#include "ops/product_operands.hpp"

namespace nb = nanobind;

namespace gpuinterop::ops {

namespace {

ProductShape matrix_shape(const Side& a, const Side& b, const char* where) {
  ProductShape shape;
  const int64_t *p = a.array->layout.shape(), *q = b.array->layout.shape();
  const int na = a.ndim() - 2, nb = b.ndim() - 2;
  for (int d = 1; d <= std::min(na, nb); ++d) {
    if (p[na - d] == q[nb - d] || p[na - d] == 1 || q[nb - d] == 1) continue;
    fail(Kind::Shape, where, "leading axes that broadcast",
         "shapes " + shape_text(a.ndim(), p) + " and " + shape_text(b.ndim(), q),
         "reshape one of them");
  }
  if (na > 0 || nb > 0) shape.ndim = broadcast_shapes(na, p, nb, q, shape.extents, where);
  if (shape.ndim > kMaxDims - 2)
    fail(Kind::Shape, where, "at most 64 axes", std::to_string(shape.ndim + 2), "reshape them");
  shape.push(a.extent(-2));
  shape.push(b.extent(-1));
  return shape;
}

// Both have two axes or more.
PyObject* of_matrices(const ProductCall& call, Side& a, Side& b, Side& c) {
  const char* where = call.where;
  // As they are now: Python code that allocating may run could give the objects another shape.
  std::optional<Array> now[3];
  Side* sides[] = {&a, &b, &c};
  for (int i = 0; i < 3; ++i)
    if (sides[i]->array) sides[i]->array = &now[i].emplace(*sides[i]->array);
  check_inner(a, b, a.extent(-1), b.extent(-2), where);
  const ProductShape shape = matrix_shape(a, b, where);
  if (c.array) {
    int64_t whole[kMaxDims];
    const int ndim = broadcast_shapes(shape.ndim, shape.extents, c.ndim(), c.array->layout.shape(),
                                      whole, where);
    if (ndim != shape.ndim ||
        std::memcmp(whole, shape.extents, sizeof(int64_t) * size_t(ndim)) != 0)
      fail(Kind::Shape, where, "an addend that broadcasts to " + shape.text(),
           shape_text(c.ndim(), c.array->layout.shape()), "reshape or slice it");
  }
  const auto rule_held = rule_for(call, a, b, c);
  const ProductRule& rule = *rule_held;
  const Device device = a.array->device;
  const bool floats = cublas_takes(rule.dtype);
  if (floats)
    require_real(call, rule.dtype);
  else
    require_whole(call, rule.dtype);
  if (device.is_cuda() && !floats) return of_integers(call, rule, a, b, c, shape);
  PyRef result = result_for(call, rule, device, shape);
  if (!device.is_cuda()) {
    on_host("gemm", call, result.get(), a, b, c);
    return result.release();
  }
  const Array out = unwrap(result.get());
  if (out.layout.size() == 0) return result.release();
  if (a.extent(-1) == 0 || call.alpha == Scalar{0, 0}) {
    cast_side(c, rule.dtype, where);
    scaled_into(call, result.get(), c);
    return result.release();
  }
  for (Side* s : sides) cast_side(*s, rule.dtype, where);
  if (!blas::is_open()) {
    require_blas();
    call_hook(Hook::Prepare, "(s)", "cublas");
  }
  note_use(*a.array);
  note_use(*b.array);
  if (c.array) note_use(*c.array);
  call.out ? note_use(out) : note_fresh(out);
  const bool apart = call.out && !may_be_written(out, a, b, c, where);
  const Array target =
      apart ? make_empty(device, rule.dtype, shape.ndim, shape.extents, where) : out;
  gemm(target, *a.array, *b.array, c.array, call.alpha, call.beta, call.tf32, where);
  if (apart) copy_elements(out, target, where);
  return result.release();
}

PyObject* not_implemented() {
  Py_INCREF(Py_NotImplemented);
  return Py_NotImplemented;
}

PyObject* product_of(const ProductCall& call, Side& a, Side& b) {
  for (const Side* s : {&a, &b})
    if (s->ndim() == 0)
      fail(Kind::Shape, call.where, "operands of one axis or more", "a 0-d array", "use *");
  if (a.ndim() == 1 || b.ndim() == 1) return with_vector(call, a, b);
  Side none;
  return of_matrices(call, a, b, none);
}

PyObject* the_rest(const char* name, const ProductCall& call, const Side& a, const Side& b) {
  require_blas();
  return call_hook(Hook::Call, "(s(OO){sO})", name, a.object, b.object, "out",
                   call.out ? call.out : Py_None)
      .release();
}

}  // namespace

PyObject* matmul(const ProductCall& call) {
  Side a, b, c;
  if (!read_sides(call, a, b, c)) return not_implemented();
  return product_of(call, a, b);
}

PyObject* dot(const ProductCall& call) {
  Side a, b, c;
  read_sides(call, a, b, c, true);
  if (!a.array || !b.array || a.ndim() == 0 || b.ndim() == 0) return the_rest("scale", call, a, b);
  if (b.ndim() > 2 && a.ndim() > 1) {
    check_inner(a, b, a.extent(-1), b.extent(-2), call.where);
    return the_rest("dot", call, a, b);
  }
  return product_of(call, a, b);
}

PyObject* dot22(const ProductCall& call) {
  for (PyObject* o : {call.a, call.b}) {
    if (is_array(o) && unwrap(o).layout.ndim() == 2) continue;
    fail(Kind::Type, call.where, "two matrices",
         is_array(o) ? std::to_string(unwrap(o).layout.ndim()) + " axes" : type_text(o),
         "reshape to two axes, or use matmul");
  }
  return matmul(call);
}

PyObject* inner(const ProductCall& call) {
  Side a, b, c;
  read_sides(call, a, b, c, true);
  if (!a.array || !b.array || a.ndim() == 0 || b.ndim() == 0) return the_rest("scale", call, a, b);
  check_inner(a, b, a.extent(-1), b.extent(-1), call.where);
  if (b.ndim() == 1) return with_vector(call, a, b);
  if (a.ndim() > 2 || b.ndim() > 2) return the_rest("inner", call, a, b);
  const int64_t turned[] = {1, 0};
  Side columns =
      operand_with_layout(b, b.array->layout.permuted(turned, 2, call.where), Py_TYPE(b.object));
  if (a.ndim() == 1) return with_vector(call, a, columns);
  Side none;
  return of_matrices(call, a, columns, none);
}

PyObject* vdot(const ProductCall& call) {
  Side a, b, c;
  read_sides(call, a, b, c);
  if (a.ndim() == 1 && b.ndim() == 1 && !is_complex(a.array->dtype)) return with_vector(call, a, b);
  return the_rest("vdot", call, a, b);
}

PyObject* gemm(const ProductCall& call) {
  Side a, b, c;
  read_sides(call, a, b, c);
  for (const Side* s : {&a, &b})
    if (s->ndim() < 2)
      fail(Kind::Shape, call.where, "matrices (two axes or more)",
           "shape " + shape_text(s->ndim(), s->array->layout.shape()),
           "use dot or matmul for vectors");
  return of_matrices(call, a, b, c);
}

}  // namespace gpuinterop::ops
