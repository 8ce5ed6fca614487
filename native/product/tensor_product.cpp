#include "product/tensor_product.hpp"

#include <algorithm>
#include <climits>
#include <cstring>
#include <utility>

#include "devices/device_state.hpp"
#include "elementwise/call_cache.hpp"
#include "interpreter/hooks.hpp"
#include "jit/kernel.hpp"
#include "product/operands.hpp"

namespace nb = nanobind;

namespace gpuinterop::ops {

namespace {

constexpr int64_t kStep = 32;       // of the inner dimension, which planes pad to its multiples
constexpr int64_t kHeight = 128;    // rows of a tile
constexpr int64_t kSplitTile = 64;  // lines and elements that a block splits
constexpr unsigned kThreads = 384, kBeforeThreads = 256;
// Rows of tiles whose panels stay in the L2 cache. A prime, so that the tiles of one row, which a NaN spoils, go to
// different blocks.
constexpr int kTilesTogether = 13;
constexpr int64_t kMapAlignment = 16;  // of the lines that the copy engine reads, in bytes
constexpr int64_t kMostBytes = int64_t{1} << 40;  // a stride of a tensor map is less

// What Python decided, in the call cache.
struct TensorPlan : Prepared {
  bool usable = false;
  cuda::Kernel multiply, split, copy;
  bool exchange;
  int64_t width;
  unsigned shared_bytes;
  int64_t blocks;
  bool overlaps;
};

// One of the two matrices: `lines` rows of the first or columns of the second, with k elements each.
struct Side {
  const char* data;
  int64_t lines, k;
  bool inner;  // neighbours in memory are neighbours along the inner dimension
  int64_t ld, batch;

  int64_t pieces() const { return inner ? lines : k; }  // contiguous ones
  int64_t length() const { return inner ? k : lines; }  // of each
  bool repeats() const { return batch == 0; }
  bool aligned() const {
    constexpr int64_t unit = kMapAlignment / 4;
    return reinterpret_cast<uintptr_t>(data) % kMapAlignment == 0 && ld % unit == 0 &&
           batch % unit == 0 && batch >= 0 && std::max(ld, batch) * 4 < kMostBytes;
  }
};

// The parameters of the kernels: Params of product/kernels/tensor_product.cuh, Split and Copy of
// tensor_product_split.cuh.
struct Strided {
  const void* data;
  int64_t line, inner, batch;
};
struct Params {
  Strided a, b;
  void* out;
  const void* addend;
  int64_t out_row, out_column, out_batch, addend_row, addend_column, addend_batch;
  int m, n, k, steps, tiles, tall, wide, group, a_repeats, b_repeats;
  float alpha, beta;
};
struct SplitParams {
  const void* from;
  void* to;
  int64_t line, inner, batch;
  int lines, length, padded, down, across;
};
struct CopyParams {
  const void *from, *to;
  int64_t line, batch, total;
  int lines, length, pitch, threads, across;
};

int64_t divide_up(int64_t a, int64_t b) { return (a + b - 1) / b; }
int64_t round_up(int64_t a, int64_t b) { return divide_up(a, b) * b; }

Strided strided(const Side& s) { return {s.data, s.inner ? s.ld : 1, s.inner ? 1 : s.ld, s.batch}; }

std::shared_ptr<const TensorPlan> plan_for(const Side (&sides)[2], int64_t batch, int device,
                                           const char* where) {
  auto write_key = [&](CallKey& key) {
    key.begin(Subject::TensorProduct, static_cast<uint32_t>(device));
    for (const Side& s : sides) {
      for (int64_t n : {s.lines, s.k}) key.put(n);
      for (bool is : {s.inner, s.aligned(), s.repeats()}) key.put(is);
    }
    key.put(batch);
  };
  auto prepare = [&] {
    auto both = [&](auto of) { return std::pair<bool, bool>(of(sides[0]), of(sides[1])); };
    require_blas();
    const nb::object answer = prepare_in_python(
        "tensor product", {{"device", device},
                           {"m", sides[0].lines},
                           {"n", sides[1].lines},
                           {"k", sides[0].k},
                           {"batch", batch},
                           {"inner", nb::cast(both([](const Side& s) { return s.inner; }))},
                           {"aligned", nb::cast(both([](const Side& s) { return s.aligned(); }))},
                           {"repeats", nb::cast(both([](const Side& s) { return s.repeats(); }))}});
    auto made = std::make_shared<TensorPlan>();
    made->usable = !answer.is_none();
    if (!made->usable) return std::shared_ptr<const TensorPlan>(made);
    auto kernel = [&](const char* name) {
      const auto& loaded = field<const LoadedKernel&>(answer, name);
      loaded.module->keep_loaded();  // plans may be dropped while their work still runs
      return loaded.kernel;
    };
    made->multiply = kernel("multiply");
    made->split = kernel("split");
    made->copy = kernel("copy");
    made->exchange = field<bool>(answer, "exchange");
    made->width = field<int64_t>(answer, "width");
    made->shared_bytes = field<unsigned>(answer, "shared_bytes");
    made->blocks = field<int64_t>(answer, "blocks");
    made->overlaps = field<bool>(answer, "overlaps");
    cuda::allow_shared_memory(made->multiply, static_cast<int>(made->shared_bytes), where);
    return std::shared_ptr<const TensorPlan>(made);
  };
  return find_or_prepare<TensorPlan>(write_key, prepare, where);
}

// A map of contiguous lines of floats. The copy engine fills with zeros what is beyond an extent.
template <int kDims>
CUtensorMap map_of(const void* data, const int64_t (&extents)[kDims],
                   const int64_t (&strides)[kDims - 1], const uint32_t (&box)[kDims],
                   const char* where) {
  CUtensorMap map;
  cuuint64_t sizes[kDims], bytes[kDims - 1];
  cuuint32_t ones[kDims];
  std::fill_n(ones, kDims, 1u);
  for (int d = 0; d < kDims; ++d) sizes[d] = static_cast<cuuint64_t>(extents[d]);
  for (int d = 0; d < kDims - 1; ++d) bytes[d] = static_cast<cuuint64_t>(strides[d] * 4);
  cuda::check(cuda::driver().TensorMapEncodeTiled(
                  &map, CU_TENSOR_MAP_DATA_TYPE_FLOAT32, kDims, const_cast<void*>(data), sizes,
                  bytes, box, ones, CU_TENSOR_MAP_INTERLEAVE_NONE, CU_TENSOR_MAP_SWIZZLE_128B,
                  CU_TENSOR_MAP_L2_PROMOTION_L2_256B, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE),
              "cuTensorMapEncodeTiled", where);
  return map;
}

void launch(const cuda::Kernel& kernel, int64_t blocks, unsigned threads, unsigned shared_bytes,
            CUstream stream, void** arguments, const char* where, bool overlaps = false) {
  cuda::Launch how;
  how.overlaps = overlaps;
  how.grid[0] = static_cast<unsigned>(blocks);
  how.block[0] = threads;
  how.shared_bytes = shared_bytes;
  cuda::launch_here(kernel, how, stream, arguments, where);
}

// b as two planes, high and low, of TF32 numbers.
void split(const TensorPlan& plan, const Side& b, int64_t matrices, char* to, CUstream stream,
           const char* where) {
  const int64_t padded = round_up(b.k, kStep);
  const Strided from = strided(b);
  SplitParams params{b.data,
                     to,
                     from.line,
                     from.inner,
                     b.batch,
                     static_cast<int>(b.lines),
                     static_cast<int>(b.k),
                     static_cast<int>(padded),
                     static_cast<int>(divide_up(b.lines, kSplitTile)),
                     static_cast<int>(divide_up(padded, kSplitTile))};
  void* arguments[] = {&params};
  launch(plan.split, matrices * params.down * params.across, kBeforeThreads, 0, stream, arguments,
         where);
}

// The same matrices with lines that begin at multiples of 16 bytes, at `to`.
Side aligned_copy(const Side& a, const char* to) {
  const int64_t pitch = round_up(a.length(), kMapAlignment / 4);
  return {to, a.lines, a.k, a.inner, pitch, a.repeats() ? 0 : pitch * a.pieces()};
}

void copy(const TensorPlan& plan, const Side& a, int64_t matrices, const Side& to, CUstream stream,
          const char* where) {
  const int64_t fours = to.ld / 4;
  int threads = 1;
  while (threads < fours && threads < static_cast<int>(kBeforeThreads)) threads *= 2;
  const int64_t across = divide_up(fours, threads), total = matrices * a.pieces();
  CopyParams params{a.data,
                    to.data,
                    a.ld,
                    a.batch,
                    total,
                    static_cast<int>(a.pieces()),
                    static_cast<int>(a.length()),
                    static_cast<int>(to.ld),
                    threads,
                    static_cast<int>(across)};
  void* arguments[] = {&params};
  launch(plan.copy, across * divide_up(total, kBeforeThreads / threads), kBeforeThreads, 0, stream,
         arguments, where);
}

// The kernels count elements of a line, tiles and blocks in 31 bits.
bool is_within_limits(const Side (&sides)[2], int64_t batch) {
  constexpr int64_t most = INT_MAX - 256;
  for (const Side& s : sides) {
    if (std::max({s.lines, s.k, batch}) > most) return false;
    const int64_t tiles = divide_up(s.lines, kSplitTile) * divide_up(s.k, kSplitTile);
    if (tiles > most / batch || s.pieces() > most / batch / divide_up(s.length(), 1024))
      return false;
  }
  const int64_t tiles = divide_up(sides[0].lines, 64) * divide_up(sides[1].lines, 64);
  return tiles <= most / batch;
}

}  // namespace

bool tensor_product(const Product& p, double alpha, double beta, int device, CUstream stream,
                    const char* where) {
  const int64_t n_batches = std::max<int64_t>(p.batch, 1);
  const Side sides[2] = {
      {p.a.data, p.m, p.k, p.op_a == blas::kTranspose, p.a.ld, p.batch > 1 ? p.a.stride : 0},
      {p.b.data, p.n, p.k, p.op_b == blas::kNone, p.b.ld, p.batch > 1 ? p.b.stride : 0}};
  if (!is_within_limits(sides, n_batches)) return false;
  const auto held = plan_for(sides, n_batches, device, where);
  const TensorPlan& plan = *held;
  if (!plan.usable) return false;

  const Side &a = sides[plan.exchange ? 1 : 0], &b = sides[plan.exchange ? 0 : 1];
  const int64_t a_matrices = a.repeats() ? 1 : n_batches, b_matrices = b.repeats() ? 1 : n_batches;
  const int64_t padded = round_up(b.k, kStep), plane = b.lines * padded;
  const int64_t split_bytes = round_up(8 * plane * b_matrices, 256);
  const int64_t copy_bytes =
      a.aligned() ? 0 : 4 * aligned_copy(a, nullptr).ld * a.pieces() * a_matrices;
  BufferRef workspace = allocate({DeviceType::Cuda, device}, split_bytes + copy_bytes, where);
  cuda::order(workspace.get(), stream, where);

  // Strides of D and C along the lines of the first and the second matrix.
  const int64_t out[2] = {1, p.d.ld}, addend[2] = {1, p.bias ? 0 : p.c.ld};
  const int64_t out_batch = n_batches > 1 ? p.d.stride : 0;
  const int64_t addend_batch = n_batches > 1 && !p.bias ? p.c.stride : 0;
  const int row = plan.exchange ? 1 : 0, column = 1 - row;
  const int64_t tall = divide_up(a.lines, kHeight), wide = divide_up(b.lines, plan.width);
  Params params{strided(a),
                strided(b),
                p.d.data,
                p.bias ? p.bias : p.c.data,
                out[row],
                out[column],
                out_batch,
                addend[row],
                addend[column],
                addend_batch,
                static_cast<int>(a.lines),
                static_cast<int>(b.lines),
                static_cast<int>(a.k),
                static_cast<int>(padded / kStep),
                static_cast<int>(tall * wide * n_batches),
                static_cast<int>(tall),
                static_cast<int>(wide),
                kTilesTogether,
                a.repeats(),
                b.repeats(),
                static_cast<float>(alpha),
                static_cast<float>(beta)};

  const Side read = a.aligned() ? a : aligned_copy(a, workspace->ptr + split_bytes);
  const int64_t next = read.repeats() ? read.ld * read.pieces() : read.batch;
  CUtensorMap a_map =
      map_of<3>(read.data, {read.length(), read.pieces(), a_matrices}, {read.ld, next},
                {uint32_t(kStep), read.inner ? uint32_t(kHeight) : uint32_t(kStep), 1}, where);
  CUtensorMap b_map =
      map_of<4>(workspace->ptr, {padded, b.lines, 2, b_matrices}, {padded, plane, 2 * plane},
                {uint32_t(kStep), static_cast<uint32_t>(plan.width), 2, 1}, where);
  GilRelease released(GilRelease::kHeld);  // a launch waits while the stream's queue is full
  split(plan, b, b_matrices, workspace->ptr, stream, where);
  if (!a.aligned()) copy(plan, a, a_matrices, read, stream, where);
  void* arguments[] = {&a_map, &b_map, &params};
  launch(plan.multiply, std::min(tall * wide * n_batches, plan.blocks), kThreads, plan.shared_bytes,
         stream, arguments, where, plan.overlaps);
  return true;
}

}  // namespace gpuinterop::ops
