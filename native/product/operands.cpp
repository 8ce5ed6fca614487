#include "product/operands.hpp"

#include <atomic>
#include <cstring>
#include <iterator>
#include <vector>

#include "captures/recorder.hpp"
#include "elementwise/calls.hpp"
#include "elementwise/operands.hpp"
#include "elementwise/overlap.hpp"
#include "interpreter/error.hpp"
#include "interpreter/error_translation.hpp"
#include "interpreter/gil.hpp"
#include "interpreter/hooks.hpp"
#include "interpreter/text_arguments.hpp"

namespace nb = nanobind;

namespace gpuinterop::ops {

namespace {

std::atomic<Precision> process_precision{Precision::Exact};
thread_local std::vector<Precision> block_precisions;  // of the blocks that this thread has entered

}  // namespace

Precision current_precision() noexcept {
  return block_precisions.empty() ? process_precision.load(std::memory_order_relaxed)
                                  : block_precisions.back();
}
void enter_precision(Precision precision) { block_precisions.push_back(precision); }
void leave_precision() noexcept {
  if (!block_precisions.empty()) block_precisions.pop_back();
}
Precision exchange_precision(Precision precision) noexcept {
  return process_precision.exchange(precision);
}

Precision precision_named(PyObject* name, const char* where) {
  for (size_t i = 0; i < std::size(kPrecisions); ++i)
    if (PyUnicode_Check(name) && PyUnicode_CompareWithASCIIString(name, kPrecisions[i]) == 0)
      return static_cast<Precision>(i);
  fail(PyUnicode_Check(name) ? Kind::Range : Kind::Type, where,
       "a precision: 'exact', 'tf32x3' or 'tf32'", repr_text(name),
       "pass 'exact' for products computed in float32");
}

void require_blas() {
  static bool imported = false;
  if (!imported) import_module("gpuinterop.product.functions");
  imported = true;
}

bool read_operands(const ProductCall& call, Operand& a, Operand& b, Operand& c, bool numbers) {
  struct Argument {
    Operand* operand;
    PyObject* object;
  };
  const Argument arguments[] = {{&a, call.a}, {&b, call.b}, {&c, call.c}};
  PyObject* like = nullptr;
  for (const Argument& g : arguments)
    if (!like && g.object && is_array(g.object)) like = g.object;
  if (!like && call.out && is_array(call.out)) like = call.out;
  for (const Argument& g : arguments) {
    if (!g.object) continue;
    if (!read_input(*g.operand, g.object, like, call.where)) {
      if (call.operand_may_answer && g.object == call.b &&
          has_attribute(reinterpret_cast<PyObject*>(Py_TYPE(g.object)), "__rmatmul__"))
        return false;
      require_blas();
      call_hook(Hook::Call, "(s(sO){})", "require arrays", call.where, g.object);  // raises
    }
    if (!g.operand->array && !numbers && g.operand == &c)
      fail(Kind::Type, call.where, "an array as the addend",
           "a number of type " + type_text(g.object), "omit it and add it to the product with +");
    if (!g.operand->array && !numbers)
      fail(Kind::Shape, call.where, "operands of one axis or more",
           "a number of type " + type_text(g.object), "use *");
    if (!like && g.operand->array) like = g.operand->object;
  }
  for (const Argument& g : arguments)
    if (like && is_array(like) && g.operand->array)
      require_device(unwrap(like).device, *g.operand->array, call.where);
  return true;
}

std::shared_ptr<const ProductRule> rule_for(const ProductCall& call, const Operand& a,
                                            const Operand& b, const Operand& c) {
  const Operand* operands[] = {&a, &b, &c};
  auto write_key = [&](CallKey& key) {
    key.begin(Subject::ProductTypes, 0);
    for (const Operand* s : operands) {
      if (!s->array) continue;
      key.put_class(Py_TYPE(s->object));
      key.put(s->array->dtype);
    }
  };
  auto prepare = [&] {
    nb::list classes, type_ids;
    for (const Operand* s : operands) {
      if (!s->array) continue;
      classes.append(nb::handle(reinterpret_cast<PyObject*>(Py_TYPE(s->object))));
      type_ids.append(static_cast<int>(s->array->dtype));
    }
    require_blas();
    const nb::object answer =
        prepare_in_python("product types", {{"where", call.where},
                                            {"classes", nb::tuple(classes)},
                                            {"type_ids", nb::tuple(type_ids)}});
    auto rule = std::make_shared<ProductRule>();
    rule->dtype = nb::cast<DTypeId>(nb::object(answer[0]));
    rule->type = reinterpret_cast<PyTypeObject*>(nb::object(answer[1]).ptr());
    return std::shared_ptr<const ProductRule>(rule);
  };
  return find_or_prepare<ProductRule>(write_key, prepare, call.where);
}

void check_inner(const Operand& a, const Operand& b, int64_t n, int64_t m, const char* where) {
  if (n == m) return;
  fail_with("inner_dimensions_differ", where,
            {a.text(), b.text(), std::to_string(n), std::to_string(m)});
}

bool may_be_written(const Array& out, const Operand& a, const Operand& b, const Operand& c,
                    const char* where) {
  return !may_overlap(*a.array, out, where) && !may_overlap(*b.array, out, where) &&
         (!c.array || !must_go_apart(*c.array, out, where));
}

PyRef result_for(const ProductCall& call, const ProductRule& rule, Device device,
                 const Shape& shape) {
  if (call.out) {
    check_out(call.out, rule.dtype, device, shape.ndim, shape.extents, call.where);
    return PyRef::borrow(call.out);
  }
  return PyRef::steal(
      wrap(rule.type, make_empty(device, rule.dtype, shape.ndim, shape.extents, call.where)));
}

void cast_operand(Operand& operand, DTypeId dtype, const char* where) {
  if (!operand.array || operand.array->dtype == dtype) return;
  const Layout& l = operand.array->layout;
  PyRef result = PyRef::steal(
      wrap(array_type, make_empty(operand.array->device, dtype, l.ndim(), l.shape(), where)));
  PyObject* target = result.get();
  Py_XDECREF(call(op_by_name("cast"), &operand.object, &target, false));
  operand.set(std::move(result));
}

Operand operand_with_layout(const Operand& x, Layout layout, PyTypeObject* type) {
  Array view = view_of(x.object);
  view.layout = std::move(layout);
  view.data = x.array->data;
  Operand made;
  made.set(PyRef::steal(wrap(type ? type : array_type, std::move(view))));
  return made;
}

PyRef plain(PyObject* array) {
  if (Py_TYPE(array) == array_type) return PyRef::borrow(array);
  Operand operand;
  operand.set(PyRef::borrow(array));
  return operand_with_layout(operand, operand.array->layout).keep;
}

nb::object number(Scalar s) {
  return s.imag == 0 ? nb::object(nb::float_(s.real))
                     : nb::steal(PyComplex_FromDoubles(s.real, s.imag));
}

void require_scalars(const ProductCall& call, DTypeId dtype) {
  const Scalar one = {1, 0};
  if (!cublas_takes(dtype) && !(call.alpha == one && call.beta == one))
    fail(Kind::DType, call.where, "alpha and beta of 1 for integers",
         "alpha=" + repr_text(number(call.alpha).ptr()) +
             " and beta=" + repr_text(number(call.beta).ptr()) + " for " + kDTypes[dtype].name,
         "multiply separately: alpha * (a @ b) + beta * c");
  if ((call.alpha.imag != 0 || call.beta.imag != 0) && !is_complex(dtype))
    fail(Kind::DType, call.where, std::string("real alpha and beta for ") + kDTypes[dtype].name,
         "a complex alpha or beta", "cast the operands to complex64");
}

nb::object or_none(const Operand& s) {
  return s.array ? nb::steal(plain(s.object).release()) : nb::none();
}

PyObject* run_elementwise(const char* name, PyObject* x, PyObject* y, PyObject* out) {
  PyObject* args[] = {x, y};
  return ops::call(op_by_name(name), args, out ? &out : nullptr, false);
}

bool needs_no_product(const ProductCall& call, const ProductRule& rule, PyObject* result, int64_t k,
                      Operand& c) {
  const Array to = unwrap(result);
  const Scalar beta = call.beta;
  if (to.layout.size() == 0) return true;
  if (k != 0 && !(call.alpha == Scalar{0, 0})) return false;
  note_use(to);
  if (!c.array || beta == Scalar{0, 0}) {
    const char zero[16] = {};
    fill_elements(to, zero, call.where);
    return true;
  }
  cast_operand(c, rule.dtype, call.where);
  note_use(*c.array);
  Array source = *c.array;
  source.layout = c.array->layout.broadcast_to(to.layout.ndim(), to.layout.shape(), call.where);
  if (!is_same_place(source, to)) copy_elements(to, source, call.where);
  if (!(beta == Scalar{1, 0}))
    Py_XDECREF(run_elementwise("multiply", result, number(beta).ptr(), result));
  return true;
}

}  // namespace gpuinterop::ops
