// Products with a vector and products of integers: planned reductions. And the outer product.
#include <nanobind/stl/shared_ptr.h>

#include <cmath>
#include <unordered_set>

#include "array/error.hpp"
#include "array/hooks.hpp"
#include "array/text_arguments.hpp"
#include "ops/elementwise.hpp"
#include "ops/graph.hpp"
#include "ops/launch_plan.hpp"
#include "ops/overlap.hpp"
#include "ops/product_operands.hpp"

namespace nb = nanobind;

namespace gpuinterop::ops {

namespace {

// alpha and beta are constants in gemv's kernels. Numbers that never come again, such as a falling
// learning rate, must not compile one each.
std::unordered_set<std::string> scaled;
constexpr size_t kMaxScaled = 64;

// Wide: a vector of small floats left in float32, for what alpha brings back into their range.
enum class PlanKind : char { Vector = 'v', Wide = 'w', Gemv = 'y', Integer = 'i' };
const char* name_of(PlanKind kind) {
  switch (kind) {
    case PlanKind::Vector: return "vector";
    case PlanKind::Wide: return "wide";
    case PlanKind::Gemv: return "gemv";
    default: return "integer";
  }
}

// A planned product, fresh or into `out`, which is apart from a and b.
PyRef run_plan(PlanKind kind, const ProductCall& call, const ProductRule& rule, const Side& a,
               const Side& b, const Side& c, PyObject* out) {
  PyObject* ins[3] = {a.object, b.object, c.object};
  const int n = c.array ? 3 : 2;
  auto write_key = [&](CallKey& key) {
    key.begin(Subject::Product, static_cast<uint32_t>(kind));
    key.put_class(rule.type);  // which an addend may decide
    key.put(static_cast<uint8_t>(n | (out ? 4 : 0)));
    if (kind == PlanKind::Gemv) {
      key.put(call.alpha.real);
      key.put(c.array ? call.beta.real : 0.0);
    }
    for (int i = 0; i < n; ++i) key.put_array(ins[i]);
    if (out) key.put_array(out);
  };
  auto prepare = [&] {
    const nb::object made = nb::steal(
        call_hook(Hook::Prepare, "(ssOOOOON)", "product", name_of(kind), or_none(a).ptr(),
                  or_none(b).ptr(), or_none(c).ptr(), number(call.alpha).ptr(),
                  number(call.beta).ptr(), out ? plain(out).release() : Py_NewRef(Py_None))
            .release());
    auto plan = nb::cast<std::shared_ptr<LaunchPlan>>(made);
    plan->outputs[0].type = rule.type;
    return std::shared_ptr<const LaunchPlan>(plan);
  };
  const auto plan = find_or_prepare<LaunchPlan>(write_key, prepare, call.where);
  PyObject* outs[] = {out};
  return PyRef::steal(plan->run(ins, n, out ? outs : nullptr, call.where));
}

// As run_plan, for any out.
PyRef run_plan_into(PlanKind kind, const ProductCall& call, const ProductRule& rule, const Side& a,
                    const Side& b, const Side& c, Device device, const ProductShape& shape) {
  PyObject* out = call.out;
  if (!out) return run_plan(kind, call, rule, a, b, c, nullptr);
  check_result(out, rule.dtype, device, shape, call.where);
  const Array& to = unwrap(out);
  if (may_be_written(to, a, b, c, call.where)) return run_plan(kind, call, rule, a, b, c, out);
  PyRef made = run_plan(kind, call, rule, a, b, c, nullptr);
  note_use(to);
  copy_elements(to, unwrap(made.get()), call.where);
  return PyRef::borrow(out);
}

// The kernels of reductions read no floats below 16 bits.
void widen_small(Side& side, DTypeId dtype, const char* where) {
  if (side.array && side.array->dtype > kBFloat16) cast_side(side, dtype, where);
}

}  // namespace

PyObject* with_vector(const ProductCall& call, const Side& a, const Side& b) {
  check_inner(a, b, a.extent(-1), b.ndim() == 1 ? b.extent(0) : b.extent(-2), call.where);
  ProductShape shape;
  for (int d = 0; d < a.ndim() - 1; ++d) shape.push(a.extent(d));
  for (int d = 0; d < b.ndim() - 2; ++d) shape.push(b.extent(d));
  if (b.ndim() > 1) shape.push(b.extent(-1));
  const auto rule_held = rule_for(call, a, b, {});
  const ProductRule& rule = *rule_held;
  const Device device = a.array->device;
  if (device.is_cuda()) {
    Side left = a, right = b;
    for (Side* s : {&left, &right}) widen_small(*s, rule.dtype, call.where);
    return run_plan_into(PlanKind::Vector, call, rule, left, right, {}, device, shape).release();
  }
  PyRef result = result_for(call, rule, device, shape);
  on_host("vector", call, result.get(), a, b, {});
  return result.release();
}

PyObject* of_integers(const ProductCall& call, const ProductRule& rule, const Side& a,
                      const Side& b, const Side& c, const ProductShape& shape) {
  const Device device = a.array->device;
  if (c.array && (a.array->dtype != rule.dtype || b.array->dtype != rule.dtype)) {
    // A wider addend decides what the product is computed in.
    Side wide_a = a, wide_b = b;
    cast_side(wide_a, rule.dtype, call.where);
    cast_side(wide_b, rule.dtype, call.where);
    return of_integers(call, rule, wide_a, wide_b, c, shape);
  }
  if (!c.array)
    return run_plan_into(PlanKind::Integer, call, rule, a, b, {}, device, shape).release();
  if (call.out) check_result(call.out, rule.dtype, device, shape, call.where);
  PyRef product = run_plan(PlanKind::Integer, call, rule, a, b, {}, nullptr);
  return run_elementwise("add", product.get(), c.object, call.out ? call.out : product.get());
}

PyObject* gemv(const ProductCall& call) {
  Side a, x, y;
  const char* where = call.where;
  read_sides(call, a, x, y);
  auto text = [](const Side& s) { return shape_text(s.ndim(), s.array->layout.shape()); };
  if (a.ndim() != 2 || x.ndim() != 1)
    fail(Kind::Shape, where, "a matrix and a vector", "shapes " + text(a) + " and " + text(x),
         "use matmul for other shapes");
  check_inner(a, x, a.extent(1), x.extent(0), where);
  ProductShape shape;
  shape.push(a.extent(0));
  if (y.array && (y.ndim() != 1 || y.extent(0) != a.extent(0)))
    fail(Kind::Shape, where, "y of shape " + shape.text(), text(y), "broadcast it first");
  const auto rule_held = rule_for(call, a, x, y);
  const ProductRule& rule = *rule_held;
  const Device device = a.array->device;
  const bool floats = cublas_takes(rule.dtype);
  if (!floats) require_whole(call, rule.dtype);
  if (call.alpha.imag != 0 || (y.array && call.beta.imag != 0))
    fail(Kind::DType, where, "real alpha and beta", "complex ones",
         "use gemm, with x.expand_dims(1)");
  if (!device.is_cuda() || (call.alpha == Scalar{0, 0} && shape.extents[0])) {
    PyRef result = result_for(call, rule, device, shape);
    if (!device.is_cuda()) {
      on_host("gemv", call, result.get(), a, x, y);
    } else {
      cast_side(y, rule.dtype, where);
      scaled_into(call, result.get(), y);
    }
    return result.release();
  }
  const bool adds = y.array && !(call.beta == Scalar{0, 0});
  std::string numbers(1, static_cast<char>(rule.dtype));
  const double scalars[2] = {call.alpha.real, adds ? call.beta.real : 0};
  numbers.append(reinterpret_cast<const char*>(scalars), sizeof scalars);
  if (!scaled.count(numbers)) {
    // Of integers alpha and beta are 1, so there are few kernels.
    const bool keep = !floats || (scaled.size() < kMaxScaled && std::isfinite(scalars[0]) &&
                                  std::isfinite(scalars[1]));
    if (!keep) {
      // By operations that are compiled once, in three passes over vectors.
      PyRef result = result_for(call, rule, device, shape);
      for (Side* s : {&a, &x}) cast_side(*s, rule.dtype, where);
      const bool small = itemsize_of(rule.dtype) == 2;
      const PlanKind kind = small ? PlanKind::Wide : PlanKind::Vector;
      PyRef product = run_plan(kind, call, rule, a, x, {}, nullptr);
      PyObject* first = adds ? product.get() : result.get();
      PyRef times =
          PyRef::steal(run_elementwise("multiply", product.get(), number(call.alpha).ptr(), first));
      if (!adds) return times.release();
      cast_side(y, small ? kFloat32 : rule.dtype, where);
      PyRef added =
          PyRef::steal(run_elementwise("multiply", y.object, number(call.beta).ptr(), nullptr));
      return run_elementwise("add", product.get(), added.get(), result.get());
    }
    scaled.insert(numbers);
  }
  for (Side* s : {&a, &x, &y}) widen_small(*s, rule.dtype, where);
  return run_plan_into(PlanKind::Gemv, call, rule, a, x, y, device, shape).release();
}

PyObject* ger(const ProductCall& call) {
  Side x, y, a;
  const char* where = call.where;
  read_sides(call, x, y, a);
  if (x.ndim() != 1 || y.ndim() != 1)
    fail(Kind::Shape, where, "two vectors",
         "shapes " + shape_text(x.ndim(), x.array->layout.shape()) + " and " +
             shape_text(y.ndim(), y.array->layout.shape()),
         "ravel them");
  ProductShape shape;
  shape.push(x.extent(0));
  shape.push(y.extent(0));
  const auto rule_held = rule_for(call, x, y, a);
  const ProductRule& rule = *rule_held;
  require_real(call, rule.dtype);
  if (!cublas_takes(rule.dtype)) require_whole(call, rule.dtype);
  if (a.array) a.array->layout.broadcast_to(shape.ndim, shape.extents, where);  // or an error
  if (call.out) check_result(call.out, rule.dtype, x.array->device, shape, where);
  if (call.alpha == Scalar{0, 0}) {  // as in BLAS, x and y are not read
    ProductCall rest = call;
    rest.beta = Scalar{a.array ? 1.0 : 0.0, 0};
    PyRef result = result_for(call, rule, x.array->device, shape);
    if (!x.array->device.is_cuda()) {
      on_host("ger", rest, result.get(), x, y, a);
    } else {
      cast_side(a, rule.dtype, where);
      scaled_into(rest, result.get(), a);
    }
    return result.release();
  }
  // A wider addend decides what the product is computed in, and alpha rounds nothing to less.
  const bool scales = !(call.alpha == Scalar{1, 0});
  if (a.array || scales) cast_side(x, rule.dtype, where);
  if (a.array) cast_side(y, rule.dtype, where);
  const int64_t column_shape[] = {shape.extents[0], 1};
  const int64_t column_strides[] = {x.array->layout.strides()[0], 1};
  Side column = operand_with_layout(x, Layout(2, column_shape, column_strides));
  if (scales)
    column.set(PyRef::steal(
        run_elementwise("multiply", column.object, number(call.alpha).ptr(), nullptr)));
  // The class comes from x, y and a, and not from the view.
  PyRef result = result_for(call, rule, x.array->device, shape);
  PyObject* out = result.get();
  if (!a.array) return run_elementwise("multiply", column.object, y.object, out);
  static int op = -1;
  if (op < 0) {
    require_blas();
    op = static_cast<int>(PyLong_AsLong(call_hook(Hook::Prepare, "(s)", "rank one").get()));
  }
  PyObject* args[] = {column.object, y.object, a.object};
  return ops::call(static_cast<OpId>(op), args, &out, false);
}

}  // namespace gpuinterop::ops
