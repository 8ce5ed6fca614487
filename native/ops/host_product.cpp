#include "ops/host_product.hpp"

#include <nanobind/nanobind.h>

#include <string>

#include "array/gil.hpp"
#include "array/text_arguments.hpp"
#include "ops/graph.hpp"
#include "ops/host_loops.hpp"
#include "ops/overlap.hpp"

namespace nb = nanobind;

namespace gpuinterop::ops {

namespace {

constexpr double kGilProducts = 1 << 16;  // of numbers: from here on other threads run meanwhile

// The loop of np.matmul for three arrays of a dtype: one that NumPy gives to BLAS.
HostLoop matmul_loop(DTypeId dtype) {
  const std::string letter = dtype == kFloat32     ? "f"
                             : dtype == kFloat64   ? "d"
                             : dtype == kComplex64 ? "F"
                                                   : "D";
  const nb::object matmul = nb::module_::import_("numpy").attr("matmul");
  int index = 0;
  for (nb::handle types : matmul.attr("types")) {
    if (nb::cast<std::string>(types) == letter + letter + "->" + letter)
      return ufunc_loop(matmul.ptr(), index);
    ++index;
  }
  return {};
}

// Whether a loop may have the elements now: aligned, and in memory that no device writes.
bool is_at_hand(const Array& x) {
  const size_t alignment = x.itemsize() / (is_complex(x.dtype) ? 2 : 1);
  return (!x.buffer || x.buffer->memory == Memory::Host) &&
         reinterpret_cast<uintptr_t>(x.data) % alignment == 0;
}

bool has_no_gaps(const Array& x) {
  return x.layout.is_c_contiguous() || x.layout.is_f_contiguous();
}

}  // namespace

bool multiply_by_numpys_loop(const Array to, const Array& a, const Array& b, const char* where) {
  const DTypeId dtype = to.dtype;
  if (recorder || a.dtype != dtype || b.dtype != dtype) return false;
  if (dtype != kFloat32 && dtype != kFloat64 && !is_complex(dtype)) return false;
  const int na = a.layout.ndim(), nb = b.layout.ndim();
  // With a gap NumPy would sum a product with a vector one by one, in float32.
  if (na > 2 || nb > 2 || (na + nb < 4 && !(has_no_gaps(a) && has_no_gaps(b)))) return false;
  if (!is_at_hand(to) || !is_at_hand(a) || !is_at_hand(b) || may_overlap(a, to, where) ||
      may_overlap(b, to, where))
    return false;
  static HostLoop loops[kBFloat16 + 1];  // with the GIL
  HostLoop& loop = loops[dtype];
  if (!loop && !(loop = matmul_loop(dtype))) return false;
  const intptr_t size = static_cast<intptr_t>(a.itemsize());
  auto extent = [](const Array& x, int d) -> intptr_t { return d < 0 ? 1 : x.layout.shape()[d]; };
  auto step = [&](const Array& x, int d) -> intptr_t {
    return d < 0 ? 0 : x.layout.strides()[d] * size;
  };
  const int row = na - 2, column = nb == 1 ? -1 : 1;  // -1: a vector has no such axis
  const intptr_t m = extent(a, row), k = extent(a, na - 1), n = extent(b, column);
  if (k == 0) return false;
  const int to_row = row < 0 ? -1 : 0, to_column = column < 0 ? -1 : to.layout.ndim() - 1;
  const intptr_t extents[] = {1, m, k, n};
  const intptr_t steps[] = {0,
                            0,
                            0,
                            step(a, row),
                            step(a, na - 1),
                            step(b, 0),
                            step(b, column),
                            step(to, to_row),
                            step(to, to_column)};
  require_set(kCapture, a);
  require_set(kCapture, b);
  note_write(to);
  char* args[] = {a.data, b.data, to.data};
  GilRelease released(double(m) * double(k) * double(n) >= kGilProducts);
  (*loop.function)(args, extents, steps, loop.data ? *loop.data : nullptr);
  return true;
}

}  // namespace gpuinterop::ops
