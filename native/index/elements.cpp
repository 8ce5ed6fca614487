#include "index/elements.hpp"

#include <algorithm>
#include <cstring>
#include <string>

#include "captures/recorder.hpp"
#include "devices/cuda.hpp"
#include "devices/pinned.hpp"
#include "elementwise/launch.hpp"
#include "index/host_elements.hpp"
#include "interpreter/error.hpp"

namespace gpuinterop::ops {

namespace {

constexpr int64_t kFlagBytes = kIndexFlagBytes;
static_assert(kFlagBytes == kMaxIndexArrays * 8);

[[noreturn]] void fail_outside(const IndexedElements& at, size_t number, int64_t index,
                               const char* where) {
  fail_with("index_out_of_range", where,
            {at.frame.layout.shape()[number], "index " + std::to_string(index),
             int64_t{at.axes[number]}});
}

// Words in pinned memory, one for each index array, into which a kernel writes an index outside of its
// axis. 0 stands for none: of an axis that has elements, index 0 is inside. Used with the GIL.
class IndexFlags {
 public:
  IndexFlags(int device, const char* where) : device_(device), where_(where) {
    if (recorder && !recorder->on_host() && recorder->device().id == device) {
      words_ = recorder->index_flags(where);
      return;
    }
    // gpuinterop cannot detect when another library replays its graph, so that kernel only stays in bounds.
    if (cuda::is_capturing(cuda::current_stream(device))) return;
    held_ = cuda::allocate_pinned(device, kFlagBytes, where);
    words_ = held_->ptr;
    std::memset(words_, 0, kFlagBytes);
  }
  ~IndexFlags() {  // after an error the kernel may still run
    if (held_) try {
        cuda::note_pinned_use(device_, words_, cuda::current_stream(device_), where_);
      } catch (...) {
      }
  }

  uint64_t address() const noexcept { return reinterpret_cast<uint64_t>(words_); }

  // Waits for the kernel and throws if it has written an index. During a capture the replay does both.
  void require_none(const IndexedElements& at) {
    if (!held_) return;
    cuda::finish_current_stream(device_, where_);
    int64_t noted[kMaxIndexArrays];
    std::memcpy(noted, words_, kFlagBytes);
    held_.reset();
    for (size_t i = 0; i < at.indices.size(); ++i)
      if (noted[i]) fail_outside(at, i, noted[i], where_);
  }

 private:
  int device_;
  const char* where_;
  BufferRef held_;
  char* words_ = nullptr;
};

// The operands from which a kernel computes the address of an element.
class IndexedOperands {
 public:
  IterationSpace space;

  void add(const Array& a, StoredType type, const Layout& layout) {
    space.add_array(a, type, layout);
    note_use(a);
  }
  // An array, or the one element that `a` has in host memory.
  void add_value(const Array& a, StoredType type) {
    if (a.device.is_cuda()) return add(a, type, a.layout);
    uint64_t words[2] = {0, 0};
    std::memcpy(words, a.data, static_cast<size_t>(a.itemsize()));
    space.add_constant({words[0], words[1]}, type);
  }
  void add_words(uint64_t low, uint64_t high) { space.add_constant({low, high}, raw_type(16)); }
  void add_places(const IndexedElements& at, OutOfRange mode, uint64_t flags) {
    const Layout& frame = at.frame.layout;
    for (const Array& a : at.indices) add(a, a.dtype, a.layout);
    for (size_t i = 0; i < at.indices.size(); ++i)
      add_words(static_cast<uint64_t>(frame.shape()[i]), static_cast<uint64_t>(frame.strides()[i]));
    add_words(flags, static_cast<uint64_t>(mode));
  }
  void launch(OpId op, const Layout& shape, int results, Device device, const char* where) {
    space.inputs = space.operands - results;
    build_iteration_space(space, shape.ndim(), shape.shape());
    if (raw_places_ > 0) widen();
    ops::launch(op, space, device.id, where);
  }
  // The frame, and the array from or to which the bits are moved, are the last two operands added.
  void may_widen(size_t indices) { raw_places_ = static_cast<int>(indices); }

 private:
  // Bits are moved in pieces of up to 16 bytes: if no index changes along the innermost dimension, and both
  // arrays are contiguous and aligned there, several elements become one.
  void widen() {
    const int frame = space.operands - 2, other = space.operands - 1, inner = space.ndim - 1;
    if (inner < 0 || space.constant[other]) return;
    const int64_t item = space.itemsize[frame];
    if (space.stride[inner][frame] != 1 || space.stride[inner][other] != 1) return;
    for (int i = 0; i < raw_places_; ++i)
      if (space.stride[inner][i] != 0) return;
    int64_t width = 16;
    while (width > item && !splits_into(width / item, width)) width /= 2;
    const int64_t factor = width / item;
    if (factor <= 1) return;
    for (int operand : {frame, other}) {
      for (int d = 0; d < inner; ++d) space.stride[d][operand] /= factor;
      space.itemsize[operand] = static_cast<uint8_t>(width);
      space.type[operand] = raw_type(width);
    }
    for (int i = 0; i < raw_places_; ++i) {
      uint64_t& step = space.high[raw_places_ + i];
      step = static_cast<uint64_t>(static_cast<int64_t>(step) / factor);
    }
    space.size /= factor;
    space.shape[inner] /= factor;
    if (space.shape[inner] == 1) --space.ndim;
  }

  bool splits_into(int64_t factor, int64_t width) const {
    const int inner = space.ndim - 1;
    if (space.shape[inner] % factor != 0) return false;
    for (int operand : {space.operands - 2, space.operands - 1}) {
      if (reinterpret_cast<uintptr_t>(space.data[operand]) % static_cast<uintptr_t>(width) != 0)
        return false;
      for (int d = 0; d < inner; ++d)
        if (space.stride[d][operand] % factor != 0) return false;
    }
    for (int i = 0; i < raw_places_; ++i)
      if (static_cast<int64_t>(space.high[raw_places_ + i]) % factor != 0) return false;
    return true;
  }

  int raw_places_ = 0;
};

// The frame without its indexed axes.
Layout rest_of(const IndexedElements& at) {
  return {at.ndim(), at.shape(), at.frame.layout.strides() + at.indices.size()};
}

void add_frame(IndexedOperands& o, const IndexedElements& at, StoredType type, const Layout& rest) {
  o.add(at.frame, type, rest);
  o.space.address[o.space.operands - 1] = true;
}

// Throws if an index is outside. One launch for each array, over its own elements only.
void check_indices(const IndexedElements& at, const char* where) {
  IndexFlags flags(at.frame.device.id, where);
  if (!flags.address()) return;
  for (size_t i = 0; i < at.indices.size(); ++i) {
    const Array& a = at.indices[i];
    // Without the dimensions along which the array is broadcast.
    Layout own = Layout::with_ndim(a.layout.ndim());
    for (int d = 0; d < own.ndim(); ++d) {
      own.shape()[d] = a.layout.strides()[d] ? a.layout.shape()[d] : 1;
      own.strides()[d] = a.layout.strides()[d];
    }
    own.finish(where);
    IndexedOperands o;
    o.add(a, a.dtype, own);
    o.add_words(static_cast<uint64_t>(at.frame.layout.shape()[i]), 0);
    o.add_words(flags.address() + 8 * i, 0);
    o.launch(kCheckIndices, own, 0, a.device, where);
  }
  flags.require_none(at);
}

// Runs compute(elements, array), which reads and writes in host memory, now or at each replay.
template <class Compute>
void run_on_host(const IndexedElements& at, const Array& read, const Array& written,
                 const Array& array, Compute&& compute, const char* where) {
  require_recorded({});
  if (!recording_on_host()) {
    for (const Array& a : at.indices) require_set(where, a);
    require_set(where, read);
    note_write(written);
    return compute(at, array, where);
  }
  // The arrays are those of the work, which the garbage collector sees.
  HostWork work{at.indices, {written}};
  work.inputs.push_back(at.frame);
  work.inputs.push_back(array);
  work.where = where;
  work.compute = [axes = at.axes, mode = at.mode, compute](const HostWork& w) {
    const auto end = w.inputs.end();
    compute({end[-2], {w.inputs.begin(), end - 2}, axes, mode}, end[-1], w.where.c_str());
  };
  recorder->add(std::move(work));
}

}  // namespace

IndexedElements locate(const Array& view, std::vector<Array> indices, std::vector<int> axes,
                       int axis, OutOfRange mode, const char* where) {
  const Layout& from = view.layout;
  const int k = static_cast<int>(axes.size());
  Layout block;  // the shape of the indices
  auto widen = [&](int ndim, const int64_t* shape) {
    int64_t out[kMaxDims];
    const int n = broadcast_shapes(block.ndim(), block.shape(), ndim, shape, out, where);
    block = Layout::c_order(n, out, where);
  };
  for (const Array& a : indices) widen(a.layout.ndim(), a.layout.shape());
  if (axis == kAlong) {
    Layout others = from;
    others.shape()[axes[0]] = block.shape()[axes[0]];
    widen(others.ndim(), others.shape());
  }
  const int rest = axis == kAlong ? block.ndim() : from.ndim() - k + block.ndim();
  if (rest > kMaxDims)
    fail(Kind::Index, where, "a result of at most " + std::to_string(kMaxDims) + " dimensions",
         std::to_string(rest), "index with arrays of fewer dimensions");
  const int first = std::max(axis, 0), last = first + block.ndim();
  IndexedElements at{view, std::move(indices), std::move(axes), mode};
  Layout& frame = at.frame.layout = Layout::with_ndim(k + rest);
  for (int i = 0; i < k; ++i) {
    frame.shape()[i] = from.shape()[at.axes[i]];
    frame.strides()[i] = from.strides()[at.axes[i]];
  }
  auto is_indexed = [&](int d) { return std::count(at.axes.begin(), at.axes.end(), d) > 0; };
  for (int r = 0, d = 0; r < rest; ++r) {
    const bool of_block = first <= r && r < last;
    int64_t& step = frame.strides()[k + r] = 0;
    frame.shape()[k + r] = of_block ? block.shape()[r - first] : 1;
    if (axis == kAlong) {
      if (!is_indexed(r) && from.shape()[r] > 1) step = from.strides()[r];
    } else if (!of_block) {
      while (is_indexed(d)) ++d;
      frame.shape()[k + r] = from.shape()[d];
      step = from.strides()[d++];
    }
  }
  frame.finish(where);
  for (Array& a : at.indices) {
    const Layout own = a.layout.broadcast_to(block.ndim(), block.shape(), where);
    a.layout = Layout::with_ndim(rest);
    for (int r = 0; r < rest; ++r) {
      a.layout.shape()[r] = frame.shape()[k + r];
      a.layout.strides()[r] = first <= r && r < last ? own.strides()[r - first] : 0;
    }
    a.layout.finish(where);
  }
  return at;
}

void gather(const IndexedElements& at, const Array& dst, bool keeps_dst, const char* where) {
  if (dst.layout.size() == 0) return;
  prepare_write(dst, where);
  if (!dst.device.is_cuda()) {
    auto compute = [keeps_dst](const IndexedElements& e, const Array& to, const char* name) {
      gather_on_host(e, to, keeps_dst, name);
    };
    return run_on_host(at, at.frame, dst, dst, compute, where);
  }
  const StoredType raw = raw_type(dst.itemsize());
  const Layout rest = rest_of(at);
  auto run = [&](uint64_t flags) {
    IndexedOperands o;
    o.add_places(at, at.mode, flags);
    add_frame(o, at, raw, rest);
    o.add(dst, raw, dst.layout);
    o.may_widen(at.indices.size());
    o.launch(kGather, dst.layout, 1, dst.device, where);
  };
  if (at.mode != OutOfRange::Raise) return run(0);
  if (keeps_dst && !recorder) {
    check_indices(at, where);
    return run(0);
  }
  IndexFlags flags(dst.device.id, where);
  run(flags.address());
  flags.require_none(at);
}

void scatter(const IndexedElements& at, const Array& value, bool adds, const char* where,
             std::shared_ptr<const HostProgram> sum) {
  const Layout rest = rest_of(at);
  if (rest.size() == 0) return;
  if (!at.frame.device.is_cuda()) {
    auto compute = [sum](const IndexedElements& e, const Array& from, const char* name) {
      scatter_on_host(e, from, sum.get(), name);
    };
    return run_on_host(at, value, at.frame, value, compute, where);
  }
  uint64_t flags = 0;
  if (at.mode == OutOfRange::Raise) {
    if (recorder) {
      flags = IndexFlags(at.frame.device.id, where).address();
    } else {
      check_indices(at, where);
    }
  }
  // Bits are moved by the same kernel for all dtypes of one size.
  const StoredType type = adds ? value.dtype : raw_type(value.itemsize());
  IndexedOperands o;
  o.add_places(at, at.mode, flags);
  add_frame(o, at, type, rest);
  o.add_value(value, type);
  if (!adds) o.may_widen(at.indices.size());
  o.launch(adds ? kScatterAdd : kScatter, rest, 0, at.frame.device, where);
}

void assign_masked(const Array& x, const Array& mask, const Array& value, const char* where) {
  if (x.layout.size() == 0) return;
  if (!x.device.is_cuda()) {
    require_recorded(x.device);
    if (recording_on_host())
      return recorder->add(
          {{mask, value},
           {x},
           [](const HostWork& w) { assign_selected(w.inputs[0], w.outs[0], w.inputs[1]); },
           {},
           where});
    require_set(where, mask);
    require_set(where, value);
    note_write(x);
    return assign_selected(mask, x, value);
  }
  const StoredType raw = raw_type(x.itemsize());
  IndexedOperands o;
  o.add(mask, kBool, mask.layout);
  o.add_value(value, raw);
  o.add(x, raw, x.layout);
  o.add(x, raw, x.layout);
  o.launch(kSelect, x.layout, 1, x.device, where);
}

}  // namespace gpuinterop::ops
