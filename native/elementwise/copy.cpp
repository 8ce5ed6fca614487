// Copies elements by memcpy, a strided loop, a kernel or a staged transfer.
#include <cstring>

#include "arrays/array.hpp"
#include "captures/recorder.hpp"
#include "devices/cuda.hpp"
#include "elementwise/calls.hpp"
#include "elementwise/host_program.hpp"
#include "elementwise/overlap.hpp"
#include "interpreter/error.hpp"
#include "interpreter/gil.hpp"
#include "interpreter/hooks.hpp"

namespace gpuinterop {

namespace {

void record_copy(const Array& dst, const Array& src) {
  ops::recorder->add({{src}, {dst}, [](const ops::HostWork& copy) {
                        copy_elements(copy.outs[0], copy.inputs[0], "replay");
                      }});
}

// The iteration space of a copy: source first, then target. Without a cast, kernels move bits.
void describe_copy(ops::IterationSpace& w, const Array& dst, const Array& src) {
  w.inputs = 1;
  for (const Array* a : {&src, &dst})
    w.add_array(*a, dst.dtype == src.dtype ? ops::raw_type(a->itemsize()) : a->dtype, a->layout);
  ops::build_iteration_space(w, dst.layout.ndim(), dst.layout.shape());
}

// All arrays are one block of memory without gaps, in the same order of axes; it starts at w.data.
bool is_one_block(const ops::IterationSpace& w) {
  for (int i = 0; i < w.operands && w.ndim; ++i)
    if (w.ndim > 1 || (w.stride[0][i] != 1 && !w.constant[i])) return false;
  return true;
}

// An unnecessary detour costs one copy; the exact test, ops::may_overlap, would cost more.
bool ranges_overlap(const Array& dst, const Array& src, const char* where) {
  const auto [d0, d1] = dst.bytes(where);
  const auto [s0, s1] = src.bytes(where);
  return d0 < s1 && s0 < d1;
}

void copy_same_device(const Array& dst, const Array& src, const char* where) {
  if (ranges_overlap(dst, src, where)) {
    if (dst.dtype == src.dtype && ops::is_same_place(dst, src)) return;
    Array detour = empty_like(src, src.device, where);
    copy_same_device(detour, src, where);
    copy_same_device(dst, detour, where);
    return;
  }
  if (!dst.device.is_cuda()) {
    note_copy("host", dst.nbytes(), where);
    return copy_unreported(dst, src, where);
  }
  note_copy("copy", dst.nbytes(), where);
  ops::IterationSpace w;
  describe_copy(w, dst, src);
  const bool casts = dst.dtype != src.dtype;
  if (casts || !is_one_block(w))
    return ops::launch(casts ? ops::op_by_name("cast") : ops::kCopy, w, dst.device.id, where);
  cuda::DeviceGuard guard(dst.device.id);
  CUstream stream = cuda::current_stream(dst.device.id);
  Buffer* used[] = {dst.buffer.get(), src.buffer.get()};
  cuda::queue(used, 2, stream, where, [&] {
    cuda::copy_bytes(dst.device.id, w.data[1], w.data[0], dst.nbytes(),
                     cuda::Direction::DeviceToDevice, stream, true, where);
  });
}

// Packs or spreads elements on one side of a transfer. These copies of host memory, and those after an
// upload, are not reported.
void copy_beside(const Array& dst, const Array& src, bool from_device, const char* where) {
  if (dst.device.is_cuda() && from_device)
    copy_same_device(dst, src, where);
  else
    copy_unreported(dst, src, where);
}

// Between two GPUs; both arrays are C-contiguous.
void transfer_to_peer(const Array& dst, const Array& src, const char* where) {
  note_copy("peer", dst.nbytes(), where);
  {
    // copy_peer runs after the work queued on the source's current stream, and that stream waits for the
    // copy.
    cuda::DeviceGuard there(src.device.id);
    cuda::order(src.buffer.get(), cuda::current_stream(src.device.id), where);
  }
  cuda::DeviceGuard guard(dst.device.id);
  CUstream stream = cuda::current_stream(dst.device.id);
  cuda::order(dst.buffer.get(), stream, where);
  cuda::copy_peer(dst.device.id, dst.data, src.device.id, src.data, dst.nbytes(), stream, where);
  cuda::order(dst.buffer.get(), stream,
              where);  // again, as in transfer(): other threads may have run
}

// Between two devices.
void transfer(const Array& dst, const Array& src, const char* where, bool async) {
  const bool up = !src.device.is_cuda();
  // The CPU packs the source, so copies that are queued into it must complete first.
  if (up && async && !src.layout.is_c_contiguous())
    cuda::finish_current_stream(dst.device.id, where);
  if (!src.layout.is_c_contiguous()) {
    Array packed = empty_like(src, src.device, where);
    copy_beside(packed, src, !up, where);
    return transfer(dst, packed, where, false);
  }
  if (!dst.layout.is_c_contiguous()) {
    Array landed = empty_like(dst, dst.device, where);
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
  // The copy lets other threads run, so order the memory again after their uses. A blocking download has
  // already finished reading.
  if (up || async) cuda::order(there.buffer.get(), stream, where);
}

}  // namespace

void copy_unreported(const Array& dst, const Array& src, const char* where) {
  if (dst.layout.size() == 0) return;  // loops and kernels take at least one element
  ops::IterationSpace w;
  describe_copy(w, dst, src);
  if (dst.device.is_cuda()) return ops::launch(ops::kCopy, w, dst.device.id, where);
  GilRelease released(dst.nbytes() >= kGilBytes);
  ops::run_loop(ops::cast_loop(src.dtype, dst.dtype), w);
}

std::atomic<int> watching{0};

namespace {
thread_local bool uncounted = false;
}

Uncounted::Uncounted(bool on) noexcept : before_(uncounted) { uncounted = on; }
Uncounted::~Uncounted() { uncounted = before_; }

void note_copy_slow(const char* way, int64_t nbytes, const char* where) {
  call_hook(Hook::Copied, "(sLsO)", way, static_cast<long long>(nbytes), where,
            uncounted ? Py_True : Py_False);
}

bool copy_takes_dtypes(const Array& dst, const Array& src) {
  return dst.dtype == src.dtype ||
         (dst.device == src.device && ops::cast_loop(src.dtype, dst.dtype));
}

void copy_elements(const Array& dst, const Array& src, const char* where, bool async) {
  if (dst.layout.size() == 0) return;
  if (!dst.device.is_cuda() && !src.device.is_cuda()) {
    if (ops::recording_on_host()) return record_copy(dst, src);
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

Array copy_for(const Array& a, Device target, const char* where) {
  Array out = empty_like(a, target, where);
  copy_elements(out, a, where);
  return out;
}

void fill_elements(const Array& dst, const void* item, const char* where) {
  if (dst.layout.size() == 0) return;
  if (!dst.device.is_cuda()) {
    Array one;
    one.dtype = dst.dtype;
    one.data = const_cast<char*>(static_cast<const char*>(item));
    one.layout = Layout().broadcast_to(dst.layout.ndim(), dst.layout.shape(), where);
    if (ops::recording_on_host()) {
      // The replays need the item later, so copy it to separate memory.
      Array kept = make_empty(dst.device, dst.dtype, 0, nullptr, where);
      std::memcpy(kept.data, item, static_cast<size_t>(dst.itemsize()));
      kept.layout = one.layout;
      return record_copy(dst, kept);
    }
    ops::note_write(dst);
    return copy_unreported(dst, one, where);
  }
  ops::note_use(dst);
  uint64_t words[2] = {0, 0};
  std::memcpy(words, item, static_cast<size_t>(dst.itemsize()));
  const ops::StoredType raw = ops::raw_type(dst.itemsize());
  ops::IterationSpace w;
  w.inputs = 1;
  w.add_constant({words[0], words[1]}, raw);
  w.add_array(dst, raw, dst.layout);
  ops::build_iteration_space(w, dst.layout.ndim(), dst.layout.shape());
  if (dst.itemsize() > 4 || !is_one_block(w))
    return ops::launch(ops::kFill, w, dst.device.id, where);
  cuda::DeviceGuard guard(dst.device.id);
  CUstream stream = cuda::current_stream(dst.device.id);
  Buffer* used[] = {dst.buffer.get()};
  cuda::queue(used, 1, stream, where, [&] {
    cuda::fill_bytes(dst.device.id, w.data[1], item, static_cast<int>(dst.itemsize()),
                     dst.layout.size(), stream, where);
  });
}

}  // namespace gpuinterop
