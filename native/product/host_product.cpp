// Products in host memory, by the loops of NumPy.

#include <nanobind/nanobind.h>

#include <algorithm>
#include <cmath>
#include <memory>
#include <string>

#include "arrays/dimensions.hpp"
#include "captures/recorder.hpp"
#include "elementwise/host_loops.hpp"
#include "elementwise/overlap.hpp"
#include "interpreter/error.hpp"
#include "interpreter/gil.hpp"
#include "interpreter/text_arguments.hpp"
#include "product/operands.hpp"

namespace nb = nanobind;

namespace gpuinterop::ops {

namespace {

constexpr double kGilProducts = 1 << 16;  // of multiplications: with more, the GIL is released
constexpr int64_t kTileBytes = 12 << 10;  // of each tile: all of them stay in the cache
enum Tile { kLeft, kRight, kPart, kSum, kTiles };  // kPart: what is added to the sum
enum Role { kA, kB, kTo, kC, kMatrices };

// NumPy's loops for operands and a result of one dtype.
struct Loops {
  HostLoop matmul, add, multiply;
};

// Needs the GIL.
const Loops& loops_of(DTypeId dtype) {
  static Loops found[kComplex128 + 1];
  Loops& loops = found[dtype];
  if (loops.matmul) return loops;
  const std::string letter(1, "?bhiqBHIQefdFD"[dtype]), types = letter + letter + "->" + letter;
  auto find = [&](const char* name) {
    const nb::object ufunc = nb::module_::import_("numpy").attr(name);
    const auto index = nb::cast<int>(ufunc.attr("types").attr("index")(types));
    if (const HostLoop loop = ufunc_loop(ufunc.ptr(), index)) return loop;
    fail(Kind::Unsupported, name, "the inner loops that NumPy 2 documents",
         "another layout of numpy.ufunc", "install 'numpy<3'");
  };
  return loops = {find("matmul"), find("add"), find("multiply")};
}

// Part of a matrix: its first element, and the bytes from one row and from one column to the next.
struct Block {
  char* at;
  int64_t step[2];

  Block from(int64_t row, int64_t column) const {
    return {at + row * step[0] + column * step[1], {step[0], step[1]}};
  }
};

// Runs a loop along the rows of blocks of one shape, or along their only column.
template <size_t N>
void run_lines(const HostLoop& loop, const Block (&blocks)[N], int64_t rows, int64_t columns) {
  const int along = columns == 1 ? 0 : 1;
  intptr_t steps[N];
  for (size_t j = 0; j < N; ++j) steps[j] = blocks[j].step[along];
  for (int64_t i = 0; i < (along ? rows : 1); ++i) {
    char* start[N];
    for (size_t j = 0; j < N; ++j) start[j] = blocks[j].from(i, 0).at;
    loop(start, along ? columns : rows, steps);
  }
}

struct Placed {
  const Array& array;
  bool rows, columns;  // whether it has such axes, or is a vector
};

// One product, into an array that does not overlap the operands. NumPy's loop multiplies whole matrices. Small floats,
// and vectors that NumPy would not give to BLAS, are multiplied in tiles of float64 or complex128.
class Multiplication {
 public:
  Multiplication(const HostWork& p, Scalar alpha, Scalar beta, const Array& to, const char* where)
      : scales_(!(alpha == Scalar{1, 0})),
        adds_(p.inputs.size() > 2),
        scales_addend_(adds_ && !(beta == Scalar{1, 0})),
        stored_(to.dtype),
        addend_(p.inputs.back().dtype) {
    const Array &a = p.inputs[0], &b = p.inputs[1];
    const bool rows = a.layout.ndim() > 1, columns = b.layout.ndim() > 1;
    const int ndim = to.layout.ndim(), leading = ndim - rows - columns;
    const int64_t* shape = to.layout.shape();
    k_ = a.layout.shape()[a.layout.ndim() - 1];
    m_ = rows ? shape[leading] : 1;
    n_ = columns ? shape[ndim - 1] : 1;
    Array c = adds_ ? p.inputs[2] : to;
    c.layout = c.layout.broadcast_to(ndim, shape, where);
    const Placed placed[kMatrices] = {
        {a, rows, true}, {b, true, columns}, {to, rows, columns}, {c, rows, columns}};
    auto step = [&](const Placed& x, int axis) {
      return x.array.layout.stride_along(axis, leading + x.rows + x.columns) * x.array.itemsize();
    };
    for (int i = 0; i < kMatrices; ++i) {
      const Placed& x = placed[i];
      first_[i] = {x.array.data,
                   {x.rows ? step(x, leading) : 0, x.columns ? step(x, leading + x.rows) : 0}};
    }
    for (int d = 0; d < leading; ++d)
      stack_.add(shape[d], kMatrices, [&](int i) { return step(placed[i], d); });
    stack_.merge(kMatrices);
    is_tiled_ = needs_tiles(itemsize_of(stored_));
    dtype_ = !is_tiled_ ? stored_ : is_complex(stored_) ? kComplex128 : kFloat64;
    size_ = itemsize_of(dtype_);
    side_ = static_cast<int64_t>(std::sqrt(kTileBytes / size_)) & ~7;
    loops_ = loops_of(dtype_);
    cast_one(&alpha, kComplex128, alpha_, dtype_);
    cast_one(&beta, kComplex128, beta_, dtype_);
    if (is_tiled_ || adds_) tiles_ = allocate({}, kTiles * kTileBytes, where);
  }

  // Does not need the GIL.
  void run() {
    char* start[kMatrices];
    for (int i = 0; i < kMatrices; ++i) start[i] = first_[i].at;
    stack_.lines(start, kMatrices, [&](char** at) {
      auto matrix = [&](Role i, int64_t k) {
        return Block{at[i] + k * stack_.last(i), {first_[i].step[0], first_[i].step[1]}};
      };
      const int64_t count = stack_.line();
      if (!is_tiled_)
        multiply({matrix(kA, 0), matrix(kB, 0), matrix(kTo, 0)}, m_, k_, n_, count,
                 stack_.ndim ? stack_.stride[stack_.ndim - 1] : nullptr);
      for (int64_t k = 0; (is_tiled_ || scales_ || adds_) && k < count; ++k)
        finish({matrix(kA, k), matrix(kB, k), matrix(kTo, k), matrix(kC, k)});
    });
  }

 private:
  // NumPy would sum vectors with gaps, and matrices without lines times vectors, one by one in their own dtype.
  bool needs_tiles(int64_t size) const {
    if (stored_ == kFloat16 || stored_ == kBFloat16) return true;
    if (is_integer(stored_) || stored_ == kBool || k_ == 1 || (m_ > 1 && n_ > 1)) return false;
    const int64_t *a = first_[kA].step, *b = first_[kB].step;
    if (m_ == 1 && n_ == 1) return a[1] != size || b[0] != size;
    auto has_lines = [&](const int64_t* step, int64_t rows, int64_t columns) {
      return (step[1] == size && step[0] >= columns * size) ||
             (step[0] == size && step[1] >= rows * size);
    };
    return m_ == 1 ? a[1] <= 0 || !has_lines(b, k_, n_) : b[0] <= 0 || !has_lines(a, m_, k_);
  }

  // `count` products of matrices; `next` are the bytes from one matrix to the next.
  void multiply(const Block (&blocks)[3], int64_t m, int64_t k, int64_t n, int64_t count = 1,
                const int64_t* next = nullptr) {
    const intptr_t extents[] = {count, m, k, n};
    char* start[3];
    intptr_t steps[9];
    for (int i = 0; i < 3; ++i) {
      start[i] = blocks[i].at;
      steps[i] = next ? next[i] : 0;
      std::copy_n(blocks[i].step, 2, steps + 3 + 2 * i);
    }
    loops_.matmul.run(start, extents, steps);
  }

  // Computes a result tile by tile: the product, unless it is there already, then alpha and the addend.
  void finish(const Block (&x)[kMatrices]) {
    const Block alpha = {alpha_, {}}, beta = {beta_, {}};
    for (int64_t i = 0; i < m_; i += side_)
      for (int64_t j = 0; j < n_; j += side_) {
        const int64_t rows = std::min(side_, m_ - i), columns = std::min(side_, n_ - j);
        const Block to = x[kTo].from(i, j);
        const Block sum =
            is_tiled_ ? sum_of_tiles(x[kA].from(i, 0), x[kB].from(0, j), rows, columns) : to;
        if (scales_) run_lines(loops_.multiply, {sum, alpha, sum}, rows, columns);
        if (adds_) {
          const Block part = tile(kPart, columns);
          run_lines(cast_loop(addend_, dtype_), {x[kC].from(i, j), part}, rows, columns);
          if (scales_addend_) run_lines(loops_.multiply, {part, beta, part}, rows, columns);
          run_lines(loops_.add, {sum, part, sum}, rows, columns);
        }
        if (is_tiled_) run_lines(cast_loop(dtype_, stored_), {sum, to}, rows, columns);
      }
  }

  Block sum_of_tiles(const Block& a, const Block& b, int64_t rows, int64_t columns) {
    const HostLoop cast = cast_loop(stored_, dtype_);
    const Block sum = tile(kSum, columns), part = tile(kPart, columns);
    const int64_t longest = kTileBytes / size_ / std::max(rows, columns);
    for (int64_t start = 0; start < k_; start += longest) {
      const int64_t n = std::min(longest, k_ - start);
      const Block left = tile(kLeft, n), right = tile(kRight, columns);
      run_lines(cast, {a.from(0, start), left}, rows, n);
      run_lines(cast, {b.from(start, 0), right}, n, columns);
      multiply({left, right, start ? part : sum}, rows, n, columns);
      if (start) run_lines(loops_.add, {sum, part, sum}, rows, columns);
    }
    return sum;
  }

  Block tile(Tile which, int64_t columns) const {
    return {tiles_->ptr + which * kTileBytes, {columns * size_, size_}};
  }

  const bool scales_, adds_, scales_addend_;
  bool is_tiled_;
  int64_t m_, k_, n_;
  Dimensions<kMatrices> stack_;  // strides: bytes from one matrix to the next
  Block first_[kMatrices];
  const DTypeId stored_, addend_;
  DTypeId dtype_;        // of the computation
  int64_t size_, side_;  // bytes of an element, elements of a tile's side
  Loops loops_;
  alignas(16) char alpha_[16], beta_[16];
  BufferRef tiles_;
};

// The inputs are two operands and, where it adds one, an addend.
void compute_product(const HostWork& work, Scalar alpha, Scalar beta) {
  const char* where = work.where.c_str();
  const std::vector<Array>& inputs = work.inputs;
  const Array& out = work.outs[0];
  const bool apart = std::any_of(inputs.begin(), inputs.end(),
                                 [&](const Array& x) { return may_overlap(x, out, where); });
  Array fresh;
  if (apart) fresh = empty_like(out, {}, where);
  Multiplication product(work, alpha, beta, apart ? fresh : out, where);
  {
    const double inner = double(inputs[0].layout.shape()[inputs[0].layout.ndim() - 1]);
    GilRelease released(double(out.layout.size()) * inner >= kGilProducts);
    product.run();
  }
  if (apart) copy_unreported(out, fresh, where);
}

}  // namespace

PyObject* on_host(const ProductCall& call, const ProductRule& rule, const Shape& shape, Operand& a,
                  Operand& b, Operand& c) {
  PyRef result = result_for(call, rule, {}, shape);
  if (needs_no_product(call, rule, result.get(), a.extent(-1), c)) return result.release();
  for (Operand* s : {&a, &b}) cast_operand(*s, rule.dtype, call.where);
  const bool adds = c.array && !(call.beta == Scalar{0, 0});
  if (adds && !cast_loop(c.array->dtype, rule.dtype)) cast_operand(c, rule.dtype, call.where);
  // It holds the memory while other threads run.
  HostWork product;
  product.inputs.reserve(3);
  for (const Operand* s : {&a, &b, &c})
    if (s != &c || adds) product.inputs.push_back(*s->array);
  product.outs.push_back(unwrap(result.get()));
  product.where = call.where;
  product.compute = [alpha = call.alpha, beta = call.beta](const HostWork& work) {
    compute_product(work, alpha, beta);
  };
  require_recorded({});
  if (recording_on_host())
    recorder->add(std::move(product));
  else
    product.run();
  return result.release();
}

}  // namespace gpuinterop::ops
