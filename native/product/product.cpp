// Products with a vector, of integers and with a long inner dimension run as planned launches, other matrix
// products in cuBLAS, and outer products elementwise.
#include "product/product.hpp"

#include <nanobind/stl/shared_ptr.h>

#include <algorithm>
#include <cstring>

#include "captures/recorder.hpp"
#include "interpreter/error.hpp"
#include "interpreter/error_translation.hpp"
#include "interpreter/gil.hpp"
#include "interpreter/hooks.hpp"
#include "interpreter/text_arguments.hpp"
#include "product/cublas.hpp"
#include "product/operands.hpp"
#include "reduce/launch_plan.hpp"

namespace nb = nanobind;

namespace gpuinterop::ops {

namespace {

// float16 and bfloat16, whose products are sums of float32.
bool is_small(DTypeId dtype) { return cublas_takes(dtype) && itemsize_of(dtype) == 2; }

Shape matrix_shape(const Operand& a, const Operand& b, const char* where) {
  Shape shape;
  const int64_t *p = a.array->layout.shape(), *q = b.array->layout.shape();
  const int na = a.ndim() - 2, nb = b.ndim() - 2;
  for (int d = 1; d <= std::min(na, nb); ++d) {
    if (p[na - d] == q[nb - d] || p[na - d] == 1 || q[nb - d] == 1) continue;
    fail(Kind::Shape, where, "leading axes that broadcast",
         "shapes " + a.text() + " and " + b.text(), "reshape one operand");
  }
  if (na > 0 || nb > 0) shape.ndim = broadcast_shapes(na, p, nb, q, shape.extents, where);
  if (shape.ndim > kMaxDims - 2)
    fail_with("too_many_dimensions", where, {int64_t{kMaxDims}, int64_t{shape.ndim} + 2});
  shape.push(a.extent(-2));
  shape.push(b.extent(-1));
  return shape;
}

// The kernel of a product that cuBLAS does not compute: a reduction. Wide: the result for vectors of small
// floats stays float32, because alpha may bring it back into range. Split: gpuinterop/product/split_product.py.
enum class PlanKind : uint8_t { Vector, Wide, Matrices, Split };
constexpr const char* kPlanNames[] = {"vector", "wide", "matrices", "split"};
constexpr int64_t kLeastSplit = 1024;  // of the inner dimension
// The most results: of float32, of other dtypes and TF32, which cuBLAS multiplies with tensor cores.
constexpr int64_t kMostSplit = 1 << 14, kMostTensorSplit = 256;

// A planned product, into a new array or into `out`, which does not overlap a and b.
PyRef run_planned(PlanKind kind, const ProductCall& call, const ProductRule& rule, const Operand& a,
                  const Operand& b, PyObject* out) {
  PyObject* ins[] = {a.object, b.object};
  auto write_key = [&](CallKey& key) {
    key.begin(Subject::Product, static_cast<uint32_t>(kind));
    key.put_class(rule.type);  // which an addend may decide
    for (PyObject* in : ins) key.put_array(in);
    if (out) key.put_array(out);
  };
  auto prepare = [&] {
    auto plan = nb::cast<std::shared_ptr<Plan>>(prepare_in_python(
        "product", {{"kind", kPlanNames[static_cast<int>(kind)]},
                    {"a", or_none(a)},
                    {"b", or_none(b)},
                    {"out", out ? nb::steal(plain(out).release()) : nb::none()}}));
    plan->outputs[0].type = rule.type;
    return std::shared_ptr<const Plan>(plan);
  };
  const auto plan = find_or_prepare<Plan>(write_key, prepare, call.where);
  return PyRef::steal(plan->run(ins, 2, out ? &out : nullptr, call.where));
}

// As run_planned, for any `out` array.
PyObject* run_planned_into(PlanKind kind, const ProductCall& call, const ProductRule& rule,
                           const Operand& a, const Operand& b, const Shape& shape) {
  if (!call.out) return run_planned(kind, call, rule, a, b, nullptr).release();
  check_out(call.out, rule.dtype, a.array->device, shape.ndim, shape.extents, call.where);
  const Array to = unwrap(call.out);
  if (may_be_written(to, a, b, {}, call.where))
    return run_planned(kind, call, rule, a, b, call.out).release();
  PyRef result = run_planned(kind, call, rule, a, b, nullptr);
  note_use(to);
  copy_elements(to, unwrap(result.get()), call.where);
  return Py_NewRef(call.out);
}

// The kernels of reductions read no floats below 16 bits.
void widen_small(Operand& x, DTypeId dtype, const char* where) {
  if (x.array && x.array->dtype > kBFloat16) cast_operand(x, dtype, where);
}

// a (..., k) times a vector, or a vector times b (..., k, n).
PyObject* with_vector(const ProductCall& call, Operand a, Operand b) {
  check_inner(a, b, a.extent(-1), b.ndim() == 1 ? b.extent(0) : b.extent(-2), call.where);
  Shape shape;
  for (int d = 0; d < a.ndim() - 1; ++d) shape.push(a.extent(d));
  for (int d = 0; d < b.ndim() - 2; ++d) shape.push(b.extent(d));
  if (b.ndim() > 1) shape.push(b.extent(-1));
  const auto rule = rule_for(call, a, b, {});
  Operand none;
  if (!a.array->device.is_cuda()) return on_host(call, *rule, shape, a, b, none);
  for (Operand* s : {&a, &b}) widen_small(*s, rule->dtype, call.where);
  return run_planned_into(PlanKind::Vector, call, *rule, a, b, shape);
}

// cuBLAS has no answer after 40 seconds if the inner dimension exceeds 31 bits, and multiplies small floats three
// times as slowly as a reduction if another dimension does.
bool is_beyond_cublas(const ProductRule& rule, const Operand& a, const Operand& b) {
  const int64_t k = a.extent(-1);
  return (itemsize_of(rule.dtype) == 2 ? std::max({a.extent(-2), k, b.extent(-1)}) : k) > INT32_MAX;
}

// Whether a product is faster if the blocks share the inner dimension: few results, of many elements each. The
// limits are where the times of both cross on an H200. cuBLAS is as fast for small floats of any shape.
bool is_split(const ProductCall& call, const ProductRule& rule, const Operand& a, const Operand& b,
              const Operand& c) {
  if (a.ndim() != 2 || b.ndim() != 2 || is_complex(rule.dtype)) return false;
  const int64_t m = a.extent(0), k = a.extent(1), n = b.extent(1);
  if (k < kLeastSplit || k / 4 < std::max(m, n) || std::min(m, n) < 2 || std::min(m, n) > 32 ||
      std::max(m, n) > 1024)
    return false;
  if (!(call.alpha == Scalar{1, 0}) || !(call.beta == Scalar{1, 0})) return false;
  const bool small = itemsize_of(rule.dtype) == 2;
  if (small && c.array) return false;  // cuBLAS rounds the sum with the addend once
  if (small && !is_beyond_cublas(rule, a, b)) return false;
  return m * n <= (rule.dtype == kFloat32 && call.precision != Precision::Tf32 ? kMostSplit
                                                                               : kMostTensorSplit);
}

// Matrices on CUDA without a cuBLAS product: a planned launch, to which the addend is added. Of integers: one
// reduction over all triples, exact but slow; also of floats, if neither of the others computes it.
PyObject* of_plan(PlanKind kind, const ProductCall& call, const ProductRule& rule, Operand& a,
                  Operand& b, const Operand& c, const Shape& shape) {
  // A wider addend determines the dtype of the computation.
  if (c.array || cublas_takes(rule.dtype))
    for (Operand* s : {&a, &b}) cast_operand(*s, rule.dtype, call.where);
  if (!c.array) return run_planned_into(kind, call, rule, a, b, shape);
  if (call.out)
    check_out(call.out, rule.dtype, a.array->device, shape.ndim, shape.extents, call.where);
  PyRef product = run_planned(kind, call, rule, a, b, nullptr);
  return run_elementwise("add", product.get(), c.object, call.out ? call.out : product.get());
}

// Both have two axes or more.
PyObject* of_matrices(const ProductCall& call, Operand& a, Operand& b, Operand& c) {
  const char* where = call.where;
  check_inner(a, b, a.extent(-1), b.extent(-2), where);
  const Shape shape = matrix_shape(a, b, where);
  if (c.array) c.array->layout.broadcast_to(shape.ndim, shape.extents, where);  // or an error
  const auto rule_held = rule_for(call, a, b, c);
  const ProductRule& rule = *rule_held;
  const Device device = a.array->device;
  const bool floats = cublas_takes(rule.dtype);
  require_scalars(call, rule.dtype);
  if (!device.is_cuda()) return on_host(call, rule, shape, a, b, c);
  if (floats && is_split(call, rule, a, b, c))
    return of_plan(PlanKind::Split, call, rule, a, b, c, shape);
  const bool unscaled = call.alpha == Scalar{1, 0} && call.beta == Scalar{1, 0};
  if (!floats || (unscaled && is_beyond_cublas(rule, a, b)))
    return of_plan(PlanKind::Matrices, call, rule, a, b, c, shape);
  PyRef result = result_for(call, rule, device, shape);
  if (needs_no_product(call, rule, result.get(), a.extent(-1), c)) return result.release();
  const Array out = unwrap(result.get());
  for (Operand* s : {&a, &b, &c}) cast_operand(*s, rule.dtype, where);
  if (!blas::is_open()) {
    require_blas();
    prepare_in_python("cublas");
  }
  note_use(*a.array);
  note_use(*b.array);
  if (c.array) note_use(*c.array);
  call.out ? note_use(out) : note_fresh(out);
  const bool apart = call.out && !may_be_written(out, a, b, c, where);
  const Array target = apart ? empty_like(out, device, where) : out;
  gemm(target, *a.array, *b.array, c.array ? &*c.array : nullptr, call.alpha, call.beta,
       call.precision, where);
  if (apart) copy_elements(out, target, where);
  return result.release();
}

PyObject* product_of(const ProductCall& call, Operand& a, Operand& b) {
  for (const Operand* s : {&a, &b})
    if (s->ndim() == 0)
      fail(Kind::Shape, call.where, "operands of one axis or more", "a 0-d array", "use *");
  if (a.ndim() == 1 || b.ndim() == 1) return with_vector(call, a, b);
  Operand none;
  return of_matrices(call, a, b, none);
}

PyObject* the_rest(const char* name, const ProductCall& call, const Operand& a, const Operand& b) {
  require_blas();
  return call_hook(Hook::Call, "(s(OO){sO})", name, a.object, b.object, "out",
                   call.out ? call.out : Py_None)
      .release();
}

// The product as a value of the function that is being fused, if an operand is a placeholder of one.
PyRef traced_product(const ProductCall& call) {
  if (is_array(call.a) && is_array(call.b)) return {};
  for (PyObject* o : {call.a, call.b})
    if (has_attribute(reinterpret_cast<PyObject*>(Py_TYPE(o)), "__gpuinterop_trace__"))
      return call_hook(Hook::Call, "(s(sOO){sO})", "traced product", call.where, call.a, call.b,
                       "out", call.out ? call.out : Py_None);
  return {};
}

}  // namespace

PyObject* matmul(const ProductCall& call) {
  if (PyRef value = traced_product(call)) return value.release();
  Operand a, b, c;
  if (!read_operands(call, a, b, c)) Py_RETURN_NOTIMPLEMENTED;
  return product_of(call, a, b);
}

PyObject* dot(const ProductCall& call) {
  if (PyRef value = traced_product(call)) return value.release();
  Operand a, b, c;
  read_operands(call, a, b, c, true);
  if (!a.array || !b.array || a.ndim() == 0 || b.ndim() == 0) return the_rest("scale", call, a, b);
  if (b.ndim() > 2 && a.ndim() > 1) {
    check_inner(a, b, a.extent(-1), b.extent(-2), call.where);
    return the_rest("dot", call, a, b);
  }
  return product_of(call, a, b);
}

PyObject* inner(const ProductCall& call) {
  Operand a, b, c;
  read_operands(call, a, b, c, true);
  if (!a.array || !b.array || a.ndim() == 0 || b.ndim() == 0) return the_rest("scale", call, a, b);
  check_inner(a, b, a.extent(-1), b.extent(-1), call.where);
  if (b.ndim() == 1) return with_vector(call, a, b);
  if (a.ndim() > 2 || b.ndim() > 2) return the_rest("inner", call, a, b);
  const int64_t transposed[] = {1, 0};
  Operand columns = operand_with_layout(b, b.array->layout.permuted(transposed, 2, call.where),
                                        Py_TYPE(b.object));
  if (a.ndim() == 1) return with_vector(call, a, columns);
  Operand none;
  return of_matrices(call, a, columns, none);
}

PyObject* vdot(const ProductCall& call) {
  Operand a, b, c;
  read_operands(call, a, b, c);
  if (a.ndim() == 1 && b.ndim() == 1 && !is_complex(a.array->dtype)) return with_vector(call, a, b);
  return the_rest("vdot", call, a, b);
}

PyObject* gemm(const ProductCall& call) {
  Operand a, b, c;
  read_operands(call, a, b, c);
  for (const Operand* s : {&a, &b})
    if (s->ndim() < 2)
      fail(Kind::Shape, call.where, "matrices (two axes or more)", "shape " + s->text(),
           "use dot or matmul for vectors");
  return of_matrices(call, a, b, c);
}

PyObject* gemv(const ProductCall& call) {
  Operand a, x, y;
  const char* where = call.where;
  read_operands(call, a, x, y);
  if (a.ndim() != 2 || x.ndim() != 1)
    fail(Kind::Shape, where, "a matrix and a vector", "shapes " + a.text() + " and " + x.text(),
         "use matmul for other shapes");
  check_inner(a, x, a.extent(1), x.extent(0), where);
  Shape shape;
  shape.push(a.extent(0));
  if (y.array && (y.ndim() != 1 || y.extent(0) != a.extent(0)))
    fail(Kind::Shape, where, "y of shape " + shape.text(), "y of shape " + y.text(),
         "broadcast y first");
  const auto held = rule_for(call, a, x, y);
  const ProductRule& rule = *held;
  require_scalars(call, rule.dtype);
  const bool scales = !(call.alpha == Scalar{1, 0});
  const bool adds = y.array && !(call.beta == Scalar{0, 0});
  if (!a.array->device.is_cuda()) return on_host(call, rule, shape, a, x, y);
  // An addend determines the dtype of the computation, whatever beta is.
  for (Operand* s : {&a, &x})
    y.array ? cast_operand(*s, rule.dtype, where) : widen_small(*s, rule.dtype, where);
  if (!scales && !adds) return run_planned_into(PlanKind::Vector, call, rule, a, x, shape);
  PyRef result = result_for(call, rule, a.array->device, shape);
  if (needs_no_product(call, rule, result.get(), a.extent(1), y)) return result.release();
  const bool small = is_small(rule.dtype);
  PyRef product = run_planned(small ? PlanKind::Wide : PlanKind::Vector, call, rule, a, x, nullptr);
  if (scales)
    product = PyRef::steal(run_elementwise("multiply", product.get(), number(call.alpha).ptr(),
                                           adds ? product.get() : result.get()));
  if (!adds) return product.release();
  cast_operand(y, small ? kFloat32 : rule.dtype, where);
  if (!(call.beta == Scalar{1, 0}))
    y.set(PyRef::steal(run_elementwise("multiply", y.object, number(call.beta).ptr(), nullptr)));
  return run_elementwise("add", product.get(), y.object, result.get());
}

PyObject* ger(const ProductCall& call) {
  Operand x, y, a;
  const char* where = call.where;
  read_operands(call, x, y, a);
  if (x.ndim() != 1 || y.ndim() != 1)
    fail(Kind::Shape, where, "two vectors", "shapes " + x.text() + " and " + y.text(),
         "ravel them");
  Shape shape;
  shape.push(x.extent(0));
  shape.push(y.extent(0));
  const auto rule = rule_for(call, x, y, a);
  require_scalars(call, rule->dtype);
  if (a.array) a.array->layout.broadcast_to(shape.ndim, shape.extents, where);  // or an error
  // x, y and a determine the class, not the view of x below.
  PyRef result = result_for(call, *rule, x.array->device, shape);
  PyObject* out = result.get();
  // As in BLAS, x and y are not read if alpha is 0; beta is 1.
  if (needs_no_product(call, *rule, out, 1, a)) return result.release();
  // A wider addend determines the dtype of the computation; alpha is not rounded to a narrower one. With an x
  // in float32, small floats are computed in it and rounded once.
  const bool scales = !(call.alpha == Scalar{1, 0});
  if (a.array || scales) cast_operand(x, is_small(rule->dtype) ? kFloat32 : rule->dtype, where);
  if (a.array) cast_operand(y, rule->dtype, where);
  const int64_t column_shape[] = {shape.extents[0], 1};
  const int64_t column_strides[] = {x.array->layout.strides()[0], 1};
  Operand column = operand_with_layout(x, Layout(2, column_shape, column_strides));
  if (scales)
    column.set(PyRef::steal(
        run_elementwise("multiply", column.object, number(call.alpha).ptr(), nullptr)));
  if (!a.array) return run_elementwise("multiply", column.object, y.object, out);
  static PyObject* rank_one = nullptr;  // owned until the process ends
  if (!rank_one) {
    require_blas();
    rank_one = prepare_in_python("rank one").release().ptr();
  }
  PyObject* args[] = {column.object, y.object, a.object, out};
  return PyRef::checked(PyObject_Vectorcall(rank_one, args, 4, nullptr)).release();
}

}  // namespace gpuinterop::ops
