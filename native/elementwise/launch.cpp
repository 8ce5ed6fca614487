// Computes the launch of an iteration space, and queues it.
#include "elementwise/launch.hpp"

#include <nanobind/nanobind.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cstdlib>
#include <string>

#include "elementwise/call_cache.hpp"
#include "elementwise/calls.hpp"
#include "interpreter/error.hpp"
#include "interpreter/hooks.hpp"
#include "interpreter/text_arguments.hpp"
#include "jit/cuda_module.hpp"

namespace nb = nanobind;

namespace gpuinterop::ops {

namespace {

// ---- which class of kernel, which accesses, which grid, which parameters -------------------------
// The classes and the parameter structs are those of gpuinterop/elementwise/kernels/*.cuh.

enum class LayoutClass : uint8_t { Flat, Rows, General, Tile };

constexpr int kThreads = 256;                 // of a block
constexpr int kMaxParameterWords = 4096 / 8;  // the driver's bound

// The compile-time parameters of a kernel, besides the operation and the element types.
struct KernelVariant {
  LayoutClass layout = LayoutClass::Flat;
  uint8_t ndim = 0;    // GI_ND
  uint8_t vector = 1;  // GI_V
  uint8_t unroll = 1;  // GI_U
  uint8_t tile = 0;    // GI_TILE
  uint8_t across = 1;  // GI_ACROSS
  uint8_t skew = 1;    // GI_SKEW
  char modes
      [kMaxOperands];  // how each operand is accessed: gpuinterop/elementwise/kernels/access.cuh
};

struct ElementwiseLaunch {
  KernelVariant variant;
  cuda::Launch how;
  int words = 0;
  uint64_t parameters[kMaxParameterWords];
};

constexpr int64_t kMostTileBytes = 40'000;  // of the shared memory that every block may have
constexpr int kSector = 32;                 // the fewest bytes that memory reads or writes at once
// Elements: more would cost more than a sector that is written in two parts.
constexpr int kMostSkew = 16;
constexpr int kFlatBytes = 16;  // bytes of the widest operand that a thread has in flight
constexpr int kGeneralUnroll = 4;
constexpr int kTileEdge = 64;
// Up to this size, more threads are faster than more work per thread.
constexpr int64_t kSmall = 1 << 19;
constexpr int64_t kInt32Room = (int64_t{1} << 31) - (1 << 17);  // minus the last block's overshoot

class Words {
 public:
  Words(ElementwiseLaunch* p, const char* where) : p_(p), where_(where) {}
  void put(uint64_t word) {
    if (p_->words == kMaxParameterWords)
      fail(Kind::Shape, where_, "a layout that fits a kernel's parameters (4096 bytes)",
           "more operands and dimensions than that", "make the operands contiguous: x.copy()");
    p_->parameters[p_->words++] = word;
  }
  void put(int64_t word) { put(static_cast<uint64_t>(word)); }
  // GiDim: n / extent for n < 2^31 is (umulhi(n, factor) + n) >> shift.
  void put_dimension(int64_t extent) {
    put(extent);
    const uint64_t d = static_cast<uint64_t>(extent);
    const auto shift = static_cast<uint64_t>(std::bit_width(d - 1));
    put(((((uint64_t{1} << shift) - d) << 32) / d + 1) | shift << 32);
  }

 private:
  ElementwiseLaunch* p_;
  const char* where_;
};

char mode_of(const IterationSpace& w, int operand, int64_t stride) {
  if (w.constant[operand]) return 'K';
  if (w.address[operand]) return 'A';
  switch (stride) {
    case 0: return operand < w.inputs ? 'S' : 'X';  // a result is written through its address
    case 1: return 'C';
    case -1: return 'R';
    default: return 'X';
  }
}

int widest(const IterationSpace& w, const char* modes) {
  int bytes = 1;
  for (int i = 0; i < w.operands; ++i)
    if (modes[i] == 'C' || modes[i] == 'U' || modes[i] == 'R' || modes[i] == 'T')
      bytes = std::max<int>(bytes, w.itemsize[i]);
  return bytes;
}

bool is_unit(char mode) { return mode == 'C' || mode == 'R'; }

// The place of an operand's first element in a pack of v elements of the memory, from 0 to v - 1; -1 if no
// pack begins at an element. A reversed operand is read from the pack's last element. Sizes and
// packs are powers of two, so that no division delays the launch.
int64_t place_in_pack(const IterationSpace& w, int i, char mode, int64_t v) {
  const uintptr_t size = w.itemsize[i], address = reinterpret_cast<uintptr_t>(w.data[i]);
  if (address & (size - 1)) return -1;
  const auto place = static_cast<int64_t>(address >> std::countr_zero(size));
  return (mode == 'R' ? place + 1 : place) & (v - 1);
}

// The access of flat kernels: 16 bytes of the widest operand if all operands are aligned, or less. Small inputs
// that are not aligned do not lead to single elements: they are read in words (mode U).
int flat_vector(const IterationSpace& w, char* modes, int most) {
  auto aligned_by = [&](int i) {
    int v = most;
    while (v > 1 && place_in_pack(w, i, modes[i], v) != 0) v /= 2;
    return v;
  };
  int all = most, others = std::min(most, 4);
  bool any = false;
  for (int i = 0; i < w.operands; ++i) {
    if (modes[i] == 'X') return 1;  // neighbouring threads access neighbouring elements
    if (!is_unit(modes[i])) continue;
    any = true;
    const int v = aligned_by(i);
    all = std::min(all, v);
    if (i >= w.inputs || modes[i] != 'C' || w.itemsize[i] >= 4) others = std::min(others, v);
  }
  if (all >= others) return any ? all : 1;
  for (int i = 0; i < w.inputs; ++i)
    if (modes[i] == 'C' && aligned_by(i) < others) modes[i] = 'U';
  return others;
}

struct Access {
  int vector = 1, skew = 1;
};

// The access of rows along `inner`: 16 bytes of the widest operand. If rows of the first result are not
// aligned, each starts at an aligned element to its left. Operands that are not aligned at the same places
// are accessed element by element (mode U, or X if reversed).
Access row_access(const IterationSpace& w, char* modes, int inner) {
  const int lead = w.inputs < w.operands ? w.inputs : 0, v = 16 / widest(w, modes);
  bool addresses = false;
  for (int i = 0; i < w.operands; ++i) {
    if (modes[i] == 'X') return {};
    addresses = addresses || modes[i] == 'A';
  }
  if (v == 1 || lead == w.operands || modes[lead] != 'C')
    return {};  // without results: indices only
  // Whether the rows of operand i begin at the same place of a pack as those of the lead, or at its first.
  auto fits = [&](int i, int64_t pack, bool beside_lead) {
    const int64_t way = !beside_lead ? 0 : modes[i] == 'R' ? -1 : 1;
    const int64_t first = place_in_pack(w, i, modes[i], pack);
    if (first < 0 || (first - way * place_in_pack(w, lead, 'C', pack)) % pack) return false;
    for (int d = 0; d < w.ndim; ++d)
      if (d != inner && (w.stride[d][i] - way * w.stride[d][lead]) % pack) return false;
    return true;
  };
  Access access{v, 1};
  if (!fits(lead, v, false)) {
    if (addresses || place_in_pack(w, lead, 'C', v) < 0) return {};
    access.skew = std::max(v, std::min(kSector / w.itemsize[lead], kMostSkew));
  }
  for (int i = 0; i < w.operands; ++i)
    if (i != lead && is_unit(modes[i]) && !fits(i, v, true)) modes[i] = modes[i] == 'C' ? 'U' : 'X';
  return access;
}

// Elements per access of the operands that a tile reads along y. Those of small elements that are not aligned get
// mode t. With a skew, a tile has further columns, fewer if each thread reads few elements.
int access_across(const IterationSpace& w, char* modes, int y, int skew) {
  int v = 16 / widest(w, modes);
  if (skew > 1) v = std::min(v, 4);
  for (int i = 0; i < w.operands; ++i) {
    if (modes[i] != 'T') continue;
    if (w.stride[y][i] != 1) return 1;
    bool aligned = place_in_pack(w, i, 'C', v) == 0;
    for (int d = 0; d < w.ndim; ++d) aligned = aligned && (d == y || w.stride[d][i] % v == 0);
    if (aligned) continue;
    if (w.itemsize[i] >= 4) return 1;
    modes[i] = 't';
    v = std::min(v, 4);
  }
  return v;
}

// If an operand is an address, the numbers are those of index arrays, which need few registers.
int operands_in_memory(const IterationSpace& w) {
  int arrays = 0;
  bool addresses = false;
  for (int i = 0; i < w.operands; ++i) {
    arrays += !w.constant[i];
    addresses = addresses || w.address[i];
  }
  return addresses ? arrays : w.operands;
}

int64_t blocks_for(int64_t work, int64_t per_block) { return (work + per_block - 1) / per_block; }

void set_grid(ElementwiseLaunch* p, int64_t blocks, const char* where) {
  if (blocks > 0x7fffffff)
    fail(Kind::Shape, where, "at most 2^31 blocks in one launch", std::to_string(blocks),
         "split the array");
  p->how.grid[0] = static_cast<unsigned>(blocks);
}

// Fills p[] and s[] of every parameter struct. The bytes of a constant occupy both.
void put_operands(Words& words, const IterationSpace& w, int inner) {
  for (int i = 0; i < w.operands; ++i) words.put(reinterpret_cast<uint64_t>(w.data[i]));
  for (int i = 0; i < w.operands; ++i)
    words.put(w.constant[i] ? w.high[i]
                            : static_cast<uint64_t>(inner < 0 ? 0 : w.stride[inner][i]));
}

void put_outer(Words& words, const IterationSpace& w, const int* dims, int n) {
  for (int k = 0; k < n; ++k) words.put_dimension(w.shape[dims[k]]);
  for (int k = 0; k < n; ++k)
    for (int i = 0; i < w.operands; ++i) words.put(w.stride[dims[k]][i]);
}

void describe_flat(const IterationSpace& w, ElementwiseLaunch* p, const char* where) {
  KernelVariant& variant = p->variant;
  const int inner = w.ndim == 1 ? 0 : -1;
  for (int i = 0; i < w.operands; ++i)
    variant.modes[i] = mode_of(w, i, inner < 0 ? 0 : w.stride[0][i]);
  variant.layout = LayoutClass::Flat;
  const int bytes = widest(w, variant.modes);
  variant.vector = static_cast<uint8_t>(inner < 0 ? 1 : flat_vector(w, variant.modes, 16 / bytes));
  int unroll = kFlatBytes / (variant.vector * bytes);
  if (operands_in_memory(w) > 4) unroll /= 2;
  if (w.size <= kSmall) unroll = 1;
  variant.unroll = static_cast<uint8_t>(std::clamp(unroll, 1, 8));
  Words words(p, where);
  put_operands(words, w, inner);
  words.put(w.size);
  p->how.block[0] = kThreads;
  set_grid(p, blocks_for(w.size, int64_t{kThreads} * variant.vector * variant.unroll), where);
}

void describe_rows(const IterationSpace& w, ElementwiseLaunch* p, const char* where) {
  KernelVariant& variant = p->variant;
  const int inner = w.ndim - 1;
  variant.layout = LayoutClass::Rows;
  variant.ndim = static_cast<uint8_t>(inner);
  const Access access = row_access(w, variant.modes, inner);
  variant.vector = static_cast<uint8_t>(access.vector);
  variant.skew = static_cast<uint8_t>(access.skew);
  const int64_t n = w.shape[inner], rows = w.size / n, reach = n + access.skew - 1;
  const int64_t lanes = blocks_for(reach, variant.vector);
  unsigned &block_x = p->how.block[0], &block_y = p->how.block[1];
  block_x = static_cast<unsigned>(
      std::min<int64_t>(kThreads, std::bit_ceil(static_cast<uint64_t>(lanes))));
  // At most an eighth of the threads lies behind the row's end, unless a warp is too wide for that.
  while (block_x > 32 && blocks_for(lanes, block_x) * block_x > lanes + lanes / 8) block_x /= 2;
  block_y = kThreads / block_x;
  int unroll = variant.vector * widest(w, variant.modes) < 16 ? 8 : 2;
  if (operands_in_memory(w) > 4) unroll /= 2;
  if (w.size <= kSmall) unroll = 1;
  while (unroll > 1 && int64_t{block_y} * unroll / 2 >= rows) unroll /= 2;
  variant.unroll = static_cast<uint8_t>(std::clamp(unroll, 1, 8));
  const int64_t chunks = blocks_for(reach, int64_t{block_x} * variant.vector);
  int dims[kMaxDims];
  for (int k = 0; k < inner; ++k) dims[k] = inner - 1 - k;
  Words words(p, where);
  put_operands(words, w, inner);
  words.put(n);
  words.put(rows);
  words.put(chunks);
  put_outer(words, w, dims, inner);
  set_grid(p, chunks * blocks_for(rows, int64_t{block_y} * variant.unroll), where);
}

void describe_general(const IterationSpace& w, ElementwiseLaunch* p, const char* where) {
  KernelVariant& variant = p->variant;
  variant.layout = LayoutClass::General;
  variant.ndim = static_cast<uint8_t>(w.ndim);
  variant.vector = 1;
  for (int i = 0; i < w.operands; ++i)
    variant.modes[i] = w.constant[i] ? 'K' : w.address[i] ? 'A' : 'X';
  variant.unroll = static_cast<uint8_t>(w.size <= kSmall ? 1 : kGeneralUnroll);
  int dims[kMaxDims];
  for (int k = 0; k < w.ndim; ++k) dims[k] = w.ndim - 1 - k;
  Words words(p, where);
  put_operands(words, w, -1);
  words.put(w.size);
  put_outer(words, w, dims, w.ndim);
  p->how.block[0] = kThreads;
  set_grid(p, blocks_for(w.size, int64_t{kThreads} * variant.unroll), where);
}

// The dimension along which some input is densest but the results are not; -1 if there is none.
int transposed_dimension(const IterationSpace& w) {
  const int inner = w.ndim - 1;
  if (w.shape[inner] < 16) return -1;
  for (int i = 0; i < w.inputs; ++i) {
    if (w.constant[i] || w.address[i]) continue;
    const int64_t along = std::abs(w.stride[inner][i]);
    if (along <= 1) continue;
    int best = -1;
    for (int d = 0; d < inner; ++d) {
      const int64_t s = std::abs(w.stride[d][i]);
      if (s != 0 && s < along && w.shape[d] >= 16 && (best < 0 || s < std::abs(w.stride[best][i])))
        best = d;
    }
    // Strides below one sector, or no other dimension is much denser: a row kernel is as fast.
    if (best >= 0 && along * w.itemsize[i] > 32 && std::abs(w.stride[best][i]) * 4 <= along)
      return best;
  }
  return -1;
}

bool describe_tile(const IterationSpace& w, ElementwiseLaunch* p, const char* where) {
  const int x = w.ndim - 1, y = transposed_dimension(w);
  if (y < 0) return false;
  KernelVariant& variant = p->variant;
  int64_t bytes = 0;
  for (int i = 0; i < w.inputs; ++i) {
    if (w.constant[i] || w.address[i] || std::abs(w.stride[x][i]) <= 1) continue;
    if (w.stride[y][i] == 0 || std::abs(w.stride[y][i]) >= std::abs(w.stride[x][i])) continue;
    if ((bytes + w.itemsize[i]) * 32 * 33 > kMostTileBytes) continue;
    bytes += w.itemsize[i];
    variant.modes[i] = 'T';
  }
  Access access = row_access(w, variant.modes, x);
  const int64_t nx = w.shape[x], ny = w.shape[y];
  // In short rows a further tile costs more than accesses of one element.
  if (nx < 4 * kTileEdge && blocks_for(nx + access.skew - 1, kTileEdge) > blocks_for(nx, kTileEdge))
    access = {};
  const int64_t reach = nx + access.skew - 1;
  auto covered = [&](int64_t by) { return blocks_for(reach, by) * blocks_for(ny, by) * by * by; };
  // A tile with a skew has more columns; smaller tiles where larger ones would be empty in part.
  const bool fits = bytes * 64 * 65 * (access.skew > 1 ? 2 : 1) <= kMostTileBytes;
  const int edge = fits && covered(32) * 4 > covered(kTileEdge) * 3 ? kTileEdge : 32;
  variant.layout = LayoutClass::Tile;
  variant.ndim = static_cast<uint8_t>(w.ndim - 2);
  variant.tile = static_cast<uint8_t>(edge);
  variant.vector = static_cast<uint8_t>(access.vector);
  variant.skew = static_cast<uint8_t>(access.skew);
  variant.across = static_cast<uint8_t>(access_across(w, variant.modes, y, access.skew));
  // At least one whole row and column of the tile for all threads.
  while (kThreads / (edge / variant.vector) > edge) variant.vector /= 2;
  while (kThreads / (edge / variant.across) > edge) variant.across /= 2;
  variant.unroll = 1;
  int dims[kMaxDims], n = 0;
  for (int d = x - 1; d >= 0; --d)
    if (d != y) dims[n++] = d;
  Words words(p, where);
  put_operands(words, w, x);
  for (int i = 0; i < w.operands; ++i) words.put(w.stride[y][i]);
  const int64_t tiles_x = blocks_for(reach, edge), tiles_y = blocks_for(ny, edge);
  words.put(nx);
  words.put(ny);
  words.put(tiles_x);
  words.put(tiles_y);
  for (int k = 0; k < n; ++k) words.put_dimension(w.shape[dims[k]]);
  words.put_dimension(1);
  for (int k = 0; k < n; ++k)
    for (int i = 0; i < w.operands; ++i) words.put(w.stride[dims[k]][i]);
  for (int i = 0; i < w.operands; ++i) words.put(int64_t{0});
  int64_t batch = 1;
  for (int k = 0; k < n; ++k) batch *= w.shape[dims[k]];
  p->how.block[0] = kThreads;
  set_grid(p, tiles_x * tiles_y * batch, where);
  return true;
}

// Kernels compute positions in more than one dimension with 32 bits. Returns the dimension along which launch()
// halves an iteration with more elements, or with an operand that spans more elements; else -1. A half may be halved
// again. There are few parts, because each has or spans about 2^30 elements or more, and memory is finite.
int dimension_to_halve(const IterationSpace& w) {
  if (w.ndim <= 1) return -1;
  int longest = 0;
  int64_t most = 0;
  bool fits = w.size <= kInt32Room;
  for (int i = 0; i < w.operands; ++i) {
    if (w.constant[i]) continue;
    int64_t span = 0;
    for (int d = 0; d < w.ndim; ++d) {
      const int64_t steps = w.shape[d] - 1, stride = std::abs(w.stride[d][i]);
      span += steps * stride;
      const int64_t reach = steps * std::max<int64_t>(stride, 1);  // stride 0 counts positions
      if (reach > most) most = reach, longest = d;
    }
    fits = fits && span <= kInt32Room;
  }
  return fits ? -1 : longest;
}

// Fills *p, a fresh one, at each launch. A launch plan (reduce/launch_plan.hpp) is stored for one layout instead.
void describe_launch(const IterationSpace& w, ElementwiseLaunch* p, const char* where) {
  if (w.ndim <= 1) {
    describe_flat(w, p, where);
    return;
  }
  const int inner = w.ndim - 1;
  for (int i = 0; i < w.operands; ++i) p->variant.modes[i] = mode_of(w, i, w.stride[inner][i]);
  if (describe_tile(w, p, where)) return;
  if (w.shape[inner] >= 32)
    describe_rows(w, p, where);
  else
    describe_general(w, p, where);
}

// ---- the kernel -----------------------------------------------------------------------------------

struct Compiled : Prepared {
  cuda::Kernel kernel;
};

constexpr const char* kClassNames[] = {"flat", "rows", "general", "tile"};  // of LayoutClass

std::shared_ptr<const Compiled> build(OpId op, const IterationSpace& w,
                                      const KernelVariant& variant, int device, const char* where) {
  nb::list stored;
  for (int i = 0; i < w.operands; ++i) {
    const StoredType type = w.type[i];
    const std::string bits = "u" + std::to_string(8 * w.itemsize[i]);  // CUDA's type of that size
    stored.append(type < kRaw ? kDTypes[type].name : bits.c_str());
  }
  const std::string modes(variant.modes, static_cast<size_t>(w.operands));
  const nb::object answer =
      prepare_in_python("kernel", {
                                      {"op", op},
                                      {"name", op_info(op).name.c_str()},
                                      {"stored", nb::tuple(stored)},
                                      {"modes", modes.c_str()},
                                      {"layout", kClassNames[static_cast<int>(variant.layout)]},
                                      {"ndim", variant.ndim},
                                      {"vector", variant.vector},
                                      {"unroll", variant.unroll},
                                      {"tile", variant.tile},
                                      {"across", variant.across},
                                      {"skew", variant.skew},
                                      {"threads", kThreads},
                                      {"capability", cuda::compute_capability(device, where)},
                                  });
  const nb::bytes image = nb::cast<nb::bytes>(answer[0]);
  const auto module = cuda::Module::load(device, image.c_str(), where);
  // A CUDA graph of any library may hold the kernel after the call cache has dropped it.
  module->keep_loaded();
  auto made = std::make_shared<Compiled>();
  made->kernel = module->kernel(nb::cast<const char*>(answer[1]), where);
  return made;
}

}  // namespace

void launch(OpId op, const IterationSpace& w, int device, const char* where) {
  if (const int d = dimension_to_halve(w); d >= 0) {
    IterationSpace part = w;  // the first half, then the second
    const int64_t all = w.shape[d];
    // A multiple of any vector, if the dimension is long.
    const int64_t half = all > 1024 ? all / 2 & ~int64_t{255} : all / 2;
    for (const int64_t extent : {half, all - half}) {
      part.shape[d] = extent;
      part.size = w.size / all * extent;
      launch(op, part, device, where);
      for (int i = 0; i < w.operands; ++i)
        if (!w.constant[i]) part.data[i] += half * w.stride[d][i] * w.itemsize[i];
    }
    return;
  }
  cuda::DeviceGuard guard(device);
  CUstream stream = cuda::current_stream(device);
  ElementwiseLaunch prepared;
  describe_launch(w, &prepared, where);
  const KernelVariant& variant = prepared.variant;
  auto write_key = [&](CallKey& key) {
    key.begin(Subject::Kernel, op);
    key.put(std::array<uint8_t, 8>{uint8_t(device), uint8_t(variant.layout), variant.ndim,
                                   variant.vector, variant.unroll, variant.tile, variant.across,
                                   variant.skew});
    key.append(w.type, static_cast<size_t>(w.operands));
    key.append(variant.modes, static_cast<size_t>(w.operands));
  };
  // A reference, because a launch may let other threads run, which may empty the call cache.
  const auto compiled = find_or_prepare<Compiled>(
      write_key, [&] { return build(op, w, variant, device, where); }, where);
  void* arguments[] = {prepared.parameters};
  cuda::queue(w.buffer, w.operands, stream, where,
              [&] { cuda::launch_here(compiled->kernel, prepared.how, stream, arguments, where); });
}

}  // namespace gpuinterop::ops
