// Copies elements by memcpy, a strided loop, a kernel or a staged transfer.
#include <algorithm>
#include <cstdlib>
#include <numeric>

#include "array/array.hpp"
#include "array/error.hpp"
#include "array/gil.hpp"
#include "array/hooks.hpp"
#include "cuda/cuda.hpp"
#include "ops/copy.hpp"
#include "ops/graph.hpp"

namespace gpuinterop {

namespace {

// Below this many bytes releasing the GIL costs more than other threads gain.
constexpr int64_t kGilBytes = 1 << 20;

class DropGil {
 public:
  explicit DropGil(bool drop) : state_(drop ? PyEval_SaveThread() : nullptr) {}
  ~DropGil() {
    if (state_) reacquire_gil(state_);
  }

 private:
  PyThreadState* state_;
};

// The addresses of the elements: [first, last), in bytes.
std::pair<uintptr_t, uintptr_t> reach(const Array& a, const char* where) {
  const auto [lo, hi] = a.layout.span(where);
  const auto start = reinterpret_cast<intptr_t>(a.data);
  return {start + lo * a.itemsize(), start + (hi + 1) * a.itemsize()};
}

bool same_strides(const Array& a, const Array& b) {
  for (int i = 0; i < a.layout.ndim(); ++i)
    if (a.layout.shape()[i] > 1 && a.layout.strides()[i] != b.layout.strides()[i]) return false;
  return true;
}

// The elements fill one block of memory without gaps, in some order of axes; *first is its start.
bool is_dense(const Array& a, char** first) {
  const Layout& l = a.layout;
  int order[kMaxDims];
  int n = 0;
  int64_t lowest = 0;
  for (int i = 0; i < l.ndim(); ++i) {
    if (l.shape()[i] == 1) continue;
    if (l.strides()[i] == 0) return false;
    if (l.strides()[i] < 0) lowest += (l.shape()[i] - 1) * l.strides()[i];
    order[n++] = i;
  }
  std::sort(order, order + n,
            [&](int x, int y) { return std::llabs(l.strides()[x]) < std::llabs(l.strides()[y]); });
  int64_t step = 1;
  for (int k = 0; k < n; ++k) {
    if (std::llabs(l.strides()[order[k]]) != step) return false;
    step *= l.shape()[order[k]];
  }
  *first = a.data + lowest * a.itemsize();
  return true;
}

struct Loop {
  int ndim = 0;
  int64_t n[kMaxDims], d[kMaxDims], s[kMaxDims];  // bytes; the last dimension is the innermost
};

// Innermost where the destination steps least; dimensions that step as one are merged.
Loop plan_loop(const Array& dst, const Array& src, char** dptr, const char** sptr) {
  const Layout &dl = dst.layout, &sl = src.layout;
  int order[kMaxDims];
  int count = 0;
  for (int i = 0; i < dl.ndim(); ++i)
    if (dl.shape()[i] != 1) order[count++] = i;
  std::stable_sort(order, order + count, [&](int x, int y) {
    return std::llabs(dl.strides()[x]) > std::llabs(dl.strides()[y]);
  });
  Loop loop;
  const int64_t item = dst.itemsize();
  for (int k = 0; k < count; ++k) {
    const int i = order[k];
    int64_t n = dl.shape()[i], d = dl.strides()[i] * item, s = sl.strides()[i] * item;
    if (d < 0) {
      *dptr += (n - 1) * d;
      *sptr += (n - 1) * s;
      d = -d;
      s = -s;
    }
    const int last = loop.ndim - 1;
    if (last >= 0 && loop.d[last] == n * d && loop.s[last] == n * s) {
      loop.n[last] *= n;
      loop.d[last] = d;
      loop.s[last] = s;
    } else {
      loop.n[loop.ndim] = n;
      loop.d[loop.ndim] = d;
      loop.s[loop.ndim++] = s;
    }
  }
  return loop;
}

template <int Item>
void copy_line(char* d, const char* s, int64_t n, int64_t dstep, int64_t sstep) {
  if (dstep == Item && sstep == Item) {
    std::memcpy(d, s, n * Item);
    return;
  }
  for (int64_t i = 0; i < n; ++i, d += dstep, s += sstep) std::memcpy(d, s, Item);
}

template <int Item>
void copy_loop(const Loop& loop, char* d, const char* s) {
  if (loop.ndim == 0) {
    std::memcpy(d, s, Item);
    return;
  }
  const int inner = loop.ndim - 1;
  int64_t index[kMaxDims] = {};
  for (;;) {
    copy_line<Item>(d, s, loop.n[inner], loop.d[inner], loop.s[inner]);
    int k = inner - 1;
    for (; k >= 0; --k) {
      d += loop.d[k];
      s += loop.s[k];
      if (++index[k] < loop.n[k]) break;
      d -= loop.n[k] * loop.d[k];
      s -= loop.n[k] * loop.s[k];
      index[k] = 0;
    }
    if (k < 0) return;
  }
}

void copy_host(const Array& dst, const Array& src) {
  char* d = dst.data;
  const char* s = src.data;
  const Loop loop = plan_loop(dst, src, &d, &s);
  DropGil drop(dst.nbytes() >= kGilBytes);
  switch (dst.itemsize()) {
    case 1: return copy_loop<1>(loop, d, s);
    case 2: return copy_loop<2>(loop, d, s);
    case 4: return copy_loop<4>(loop, d, s);
    case 8: return copy_loop<8>(loop, d, s);
    default: return copy_loop<16>(loop, d, s);
  }
}

// An unnecessary detour costs one copy; the exact test, ops::may_overlap, would cost more.
bool reaches_meet(const Array& dst, const Array& src, const char* where) {
  const auto [d0, d1] = reach(dst, where);
  const auto [s0, s1] = reach(src, where);
  return d0 < s1 && s0 < d1;
}

Array compact_like(const Array& a, Device device, const char* where) {
  return make_empty(device, a.dtype, a.layout.ndim(), a.layout.shape(), where);
}

void copy_same_device(const Array& dst, const Array& src, const char* where) {
  if (reaches_meet(dst, src, where)) {
    if (dst.data == src.data && same_strides(dst, src)) return;
    Array detour = compact_like(src, src.device, where);
    copy_same_device(detour, src, where);
    copy_same_device(dst, detour, where);
    return;
  }
  if (!dst.device.is_cuda()) {
    note_copy("host", dst.nbytes(), where);
    copy_host(dst, src);
    return;
  }
  note_copy("copy", dst.nbytes(), where);
  char *d0, *s0;
  if (!same_strides(dst, src) || !is_dense(dst, &d0) || !is_dense(src, &s0)) {
    ops::copy_strided(dst, src, where);
    return;
  }
  cuda::DeviceGuard guard(dst.device.id);
  CUstream stream = cuda::current_stream(dst.device.id);
  Buffer* used[] = {dst.buffer.get(), src.buffer.get()};
  cuda::order_all(used, 2, stream, where);
  cuda::copy_bytes(dst.device.id, d0, s0, dst.nbytes(), cuda::Direction::DeviceToDevice, stream,
                   true, where);
}

// The source with its broadcast dimensions reduced to extent 1, so that each element is copied once.
Array without_broadcast(const Array& src) {
  Array out = src;
  Layout l = Layout::with_ndim(src.layout.ndim());
  for (int i = 0; i < l.ndim(); ++i) {
    const bool repeated = src.layout.strides()[i] == 0 && src.layout.shape()[i] > 1;
    l.shape()[i] = repeated ? 1 : src.layout.shape()[i];
    l.strides()[i] = src.layout.strides()[i];
  }
  l.finish("copy");
  out.layout = std::move(l);
  return out;
}

// Packs or spreads on one side of a transfer. Copies of host memory on this way are not reported, nor
// are those behind an upload.
void copy_beside(const Array& dst, const Array& src, bool from_device, const char* where) {
  if (!dst.device.is_cuda())
    copy_host(dst, src);
  else if (from_device)
    copy_same_device(dst, src, where);
  else
    ops::copy_strided(dst, src, where);
}

// Between two GPUs; both arrays are C-contiguous.
void transfer_to_peer(const Array& dst, const Array& src, const char* where) {
  note_copy("peer", dst.nbytes(), where);
  {
    // copy_peer comes after the source's current stream, and that stream after the copy.
    cuda::DeviceGuard there(src.device.id);
    cuda::order(src.buffer.get(), cuda::current_stream(src.device.id), where);
  }
  cuda::DeviceGuard guard(dst.device.id);
  CUstream stream = cuda::current_stream(dst.device.id);
  cuda::order(dst.buffer.get(), stream, where);
  cuda::copy_peer(dst.device.id, dst.data, src.device.id, src.data, dst.nbytes(), stream, where);
  cuda::order(dst.buffer.get(), stream, where);  // as below, where it went through the host
}

// Between two devices.
void transfer(const Array& dst, const Array& src, const char* where, bool async) {
  const bool up = !src.device.is_cuda();
  // The CPU reads what is packed, so copies that are queued into it must complete first.
  if (up && async && !src.layout.is_c_contiguous())
    cuda::finish_current_stream(dst.device.id, where);
  if (up && src.layout.has_zero_stride()) {
    const Array once = without_broadcast(src);
    Array landed = compact_like(once, dst.device, where);
    transfer(landed, once, where, false);
    landed.layout = landed.layout.broadcast_to(dst.layout.ndim(), dst.layout.shape(), where);
    return copy_beside(dst, landed, false, where);
  }
  if (!src.layout.is_c_contiguous()) {
    Array packed = compact_like(src, src.device, where);
    copy_beside(packed, src, !up, where);
    return transfer(dst, packed, where, false);
  }
  if (!dst.layout.is_c_contiguous()) {
    Array landed = compact_like(dst, dst.device, where);
    transfer(landed, src, where, false);
    return copy_beside(dst, landed, !up, where);
  }
  if (!up && dst.device.is_cuda()) return transfer_to_peer(dst, src, where);
  const Array& there = up ? dst : src;
  note_copy(up ? "host_to_device" : "device_to_host", dst.nbytes(), where);
  cuda::DeviceGuard guard(there.device.id);
  CUstream stream = cuda::current_stream(there.device.id);
  cuda::order(there.buffer.get(), stream, where);
  cuda::copy_bytes(there.device.id, dst.data, src.data, dst.nbytes(),
                   up ? cuda::Direction::HostToDevice : cuda::Direction::DeviceToHost, stream,
                   async, where);
  // The copy lets other threads run, so order the memory again after their uses. What a blocking
  // download has read is free already.
  if (up || async) cuda::order(there.buffer.get(), stream, where);
}

}  // namespace

std::atomic<int> watching{0};

namespace {
thread_local bool uncounted = false;
}

Uncounted::Uncounted(bool on) noexcept : before_(uncounted) { uncounted = on; }
Uncounted::~Uncounted() { uncounted = before_; }

void note_copy_slow(const char* kind, int64_t nbytes, const char* where) {
  call_hook(Hook::Copied, "(sLsO)", kind, static_cast<long long>(nbytes), where,
            uncounted ? Py_True : Py_False);
}

void copy_elements(const Array& dst, const Array& src, const char* where, bool async) {
  if (dst.layout.size() == 0) return;
  if (!dst.device.is_cuda() && !src.device.is_cuda()) {
    if (ops::recording_on_host()) return ops::recorder->add_copy(dst, src);
  } else {
    ops::note_use(dst);  // on the host too: a graph may hold a copy of page-locked memory
    ops::note_use(src);
  }
  ops::require_set(where, src);
  ops::note_write(dst);
  if (dst.device == src.device)
    copy_same_device(dst, src, where);
  else
    transfer(dst, src, where, async);
}

void fill_elements(const Array& dst, const void* item, const char* where) {
  if (dst.layout.size() == 0) return;
  if (!dst.device.is_cuda()) {
    Array one;
    one.dtype = dst.dtype;
    one.data = const_cast<char*>(static_cast<const char*>(item));
    one.layout = Layout().broadcast_to(dst.layout.ndim(), dst.layout.shape(), where);
    if (ops::recording_on_host()) {
      // The replays need the item later, so it is copied to memory of its own.
      Array kept = make_empty(dst.device, dst.dtype, 0, nullptr, where);
      std::memcpy(kept.data, item, static_cast<size_t>(dst.itemsize()));
      kept.layout = one.layout;
      return ops::recorder->add_copy(dst, kept);
    }
    ops::note_write(dst);
    copy_host(dst, one);
    return;
  }
  ops::note_use(dst);
  char* first;
  if (dst.itemsize() > 4 || !is_dense(dst, &first)) {
    ops::fill_strided(dst, item, where);
    return;
  }
  cuda::DeviceGuard guard(dst.device.id);
  CUstream stream = cuda::current_stream(dst.device.id);
  cuda::order(dst.buffer.get(), stream, where);
  cuda::fill_bytes(dst.device.id, first, item, static_cast<int>(dst.itemsize()), dst.layout.size(),
                   stream, where);
}

}  // namespace gpuinterop
