// Copies, fills, and the driver's information about a pointer.
#include <algorithm>
#include <cstring>
#include <memory>
#include <string>

#include "cuda/device_state.hpp"
#include "cuda/pinned.hpp"
#include "cuda/stream.hpp"

namespace gpuinterop::cuda {

namespace {

constexpr int64_t kChunk = int64_t(4) << 20;
// Below this size the driver's own staging is as fast.
constexpr int64_t kStaged = int64_t(1) << 20;

CUdeviceptr address(const void* p) noexcept { return reinterpret_cast<CUdeviceptr>(p); }

bool is_pinned(const void* ptr) noexcept {
  unsigned type = 0;
  CUpointer_attribute what = CU_POINTER_ATTRIBUTE_MEMORY_TYPE;
  void* out = &type;
  return driver().PointerGetAttributes(1, &what, &out, address(ptr)) == CUDA_SUCCESS && type != 0;
}

// Two pinned chunks: the CPU fills one while the GPU reads the other.
struct Staging {
  int device;
  char* chunk[2] = {nullptr, nullptr};
  CUevent done[2] = {nullptr, nullptr};  // the GPU no longer uses the chunk
  explicit Staging(int d, const char* where) : device(d) {
    const Driver& cu = driver();
    try {
      for (int i = 0; i < 2; ++i) {
        void* p = nullptr;
        check(cu.MemHostAlloc(&p, size_t(kChunk), CU_MEMHOSTALLOC_PORTABLE), "cuMemHostAlloc",
              where);
        chunk[i] = static_cast<char*>(p);
        check(cu.EventCreate(&done[i], CU_EVENT_DISABLE_TIMING), "cuEventCreate", where);
      }
    } catch (...) {
      free_all();
      throw;
    }
  }
  void free_all() noexcept {
    for (int i = 0; i < 2; ++i) {
      if (done[i]) driver().EventDestroy(done[i]);
      if (chunk[i]) driver().MemFreeHost(chunk[i]);
    }
  }
};

std::mutex staging_lock;
std::vector<Staging*>
    idle_stagings;  // kept for good: one for each transfer that ever ran at a time

class StagingLease {
 public:
  StagingLease(int device, const char* where) {
    {
      std::lock_guard lock(staging_lock);
      auto it = std::find_if(idle_stagings.begin(), idle_stagings.end(),
                             [&](Staging* s) { return s->device == device; });
      if (it != idle_stagings.end()) {
        staging_ = *it;
        idle_stagings.erase(it);
        return;
      }
    }
    ScopedGilRelease dropped;  // it may wait for work that needs the GIL
    RelaxedCapture relaxed;
    staging_ = new Staging(device, where);
  }
  ~StagingLease() {
    std::lock_guard lock(staging_lock);
    try {
      idle_stagings.push_back(staging_);
    } catch (...) {
    }
  }
  StagingLease(const StagingLease&) = delete;
  Staging* operator->() const noexcept { return staging_; }

 private:
  Staging* staging_;
};

CUresult upload(Staging& s, char* dst, const char* src, int64_t nbytes, CUstream stream) noexcept {
  const Driver& cu = driver();
  int turn = 0;
  for (int64_t at = 0; at < nbytes; at += kChunk, turn ^= 1) {
    size_t n = size_t(std::min(kChunk, nbytes - at));
    // Also waits for the last user of this chunk: an event that was never recorded is complete.
    CUresult code = cu.EventSynchronize(s.done[turn]);
    if (code != CUDA_SUCCESS) return code;
    std::memcpy(s.chunk[turn], src + at, n);
    code = cu.MemcpyHtoDAsync(address(dst + at), s.chunk[turn], n, stream);
    if (code == CUDA_SUCCESS) code = cu.EventRecord(s.done[turn], stream);
    if (code != CUDA_SUCCESS) return code;
  }
  return CUDA_SUCCESS;  // the source has been read; the last chunks may still be on their way
}

CUresult download(Staging& s, char* dst, const char* src, int64_t nbytes,
                  CUstream stream) noexcept {
  const Driver& cu = driver();
  CUresult code = CUDA_SUCCESS;
  for (int64_t at = -kChunk; at < nbytes && code == CUDA_SUCCESS; at += kChunk) {
    int64_t next = at + kChunk;
    int turn = int(next / kChunk) & 1;
    if (next < nbytes) {
      code = cu.EventSynchronize(s.done[turn]);
      size_t n = size_t(std::min(kChunk, nbytes - next));
      if (code == CUDA_SUCCESS)
        code = cu.MemcpyDtoHAsync(s.chunk[turn], address(src + next), n, stream);
      if (code == CUDA_SUCCESS) code = cu.EventRecord(s.done[turn], stream);
    }
    if (at >= 0 && code == CUDA_SUCCESS) {
      code = cu.EventSynchronize(s.done[turn ^ 1]);
      if (code == CUDA_SUCCESS)
        std::memcpy(dst + at, s.chunk[turn ^ 1], size_t(std::min(kChunk, nbytes - at)));
    }
  }
  return code;
}

}  // namespace

void require_host_copies(CUstream stream, const char* where) {
  if (capture_id(stream))
    fail(Kind::Capture, where, "no copy from or to host memory while a graph is captured",
         "one on a stream that is being captured",
         "copy before the capture begins; inside it, only asynchronous copies of pinned memory can "
         "be recorded");
}

void copy_bytes(int device, void* dst, const void* src, int64_t nbytes, Direction direction,
                CUstream stream, bool async, const char* where) {
  if (nbytes <= 0) return;
  const Driver& cu = driver();
  DeviceState& d = device_state(device, where);
  DeviceGuard guard(device);
  size_t n = size_t(nbytes);
  if (direction == Direction::DeviceToDevice)
    return check(cu.MemcpyDtoDAsync(address(dst), address(src), n, stream), "cuMemcpyDtoDAsync",
                 where);

  bool up = direction == Direction::HostToDevice;
  const char* call = up ? "cuMemcpyHtoDAsync" : "cuMemcpyDtoHAsync";
  bool pinned = is_pinned(up ? src : dst);
  if (!(async && pinned)) require_host_copies(stream, where);
  if (!pinned && !d.host_page_tables && nbytes >= kStaged) {
    StagingLease staging(device, where);
    const auto move = up ? upload : download;
    return check(call_blocking([&] {
                   return move(*staging.operator->(), static_cast<char*>(dst),
                               static_cast<const char*>(src), nbytes, stream);
                 }),
                 call, where);
  }
  const CUresult done = call_blocking([&] {
    // The calls wait for pageable memory; the code below waits for pinned memory.
    CUresult code = up ? cu.MemcpyHtoDAsync(address(dst), src, n, stream)
                       : cu.MemcpyDtoHAsync(dst, address(src), n, stream);
    // The driver has read pageable memory when it returns; pinned memory it reads and writes later.
    bool wait = !async && (!up || pinned || d.host_page_tables);
    if (code == CUDA_SUCCESS && wait) code = cu.StreamSynchronize(stream);
    return code;
  });
  check(done, call, where);
  if (async && pinned) note_pinned_use(device, up ? src : dst, stream, where);
}

void finish_current_stream(int device, const char* where) {
  DeviceGuard guard(device);
  CUstream stream = current_stream(device);
  if (!capture_id(stream)) synchronize_stream(device, stream, where);  // else the copy is refused
}

void copy_peer(int dst_device, void* dst, int src_device, const void* src, int64_t nbytes,
               CUstream stream, const char* where) {
  if (nbytes <= 0) return;
  if (dst_device == src_device)
    return copy_bytes(dst_device, dst, src, nbytes, Direction::DeviceToDevice, stream, true, where);
  const Driver& cu = driver();
  DeviceState& to = device_state(dst_device, where);
  DeviceState& from = device_state(src_device, where);
  CUstream source = current_stream(src_device);
  DeviceGuard guard(dst_device);
  check(link(to, stream, from, source), "cuStreamWaitEvent", where);
  // The driver goes over NVLink or PCIe when the two can reach each other, through the host if not.
  CUresult code = cu.MemcpyPeerAsync(address(dst), to.primary, address(src), from.primary,
                                     size_t(nbytes), stream);
  if (code == CUDA_SUCCESS)  // whatever overwrites or frees the source comes after the copy
    return check(link(from, source, to, stream), "cuStreamWaitEvent", where);
  if (capture_id(stream) || capture_id(source)) check(code, "cuMemcpyPeerAsync", where);
  auto host = std::make_unique<char[]>(size_t(std::min(nbytes, kChunk)));
  for (int64_t at = 0; at < nbytes; at += kChunk) {
    int64_t n = std::min(kChunk, nbytes - at);
    copy_bytes(src_device, host.get(), static_cast<const char*>(src) + at, n,
               Direction::DeviceToHost, source, false, where);
    copy_bytes(dst_device, static_cast<char*>(dst) + at, host.get(), n, Direction::HostToDevice,
               stream, false, where);
  }
}

void fill_bytes(int device, void* dst, const void* item, int itemsize, int64_t count,
                CUstream stream, const char* where) {
  if (count <= 0) return;
  const Driver& cu = driver();
  DeviceGuard guard(device);
  uint32_t value = 0;
  std::memcpy(&value, item, size_t(itemsize));
  switch (itemsize) {
    case 1:
      return check(cu.MemsetD8Async(address(dst), uint8_t(value), size_t(count), stream),
                   "cuMemsetD8Async", where);
    case 2:
      return check(cu.MemsetD16Async(address(dst), uint16_t(value), size_t(count), stream),
                   "cuMemsetD16Async", where);
    case 4:
      return check(cu.MemsetD32Async(address(dst), value, size_t(count), stream),
                   "cuMemsetD32Async", where);
    default:
      fail(Kind::Bounds, where, "an item of 1, 2 or 4 bytes", std::to_string(itemsize),
           "fill with a kernel");
  }
}

PointerInfo inspect(const void* ptr) noexcept {
  PointerInfo info;
  if (!ptr || !available()) return info;
  unsigned type = 0, managed = 0;
  int ordinal = -1;
  CUcontext context = nullptr;
  CUdeviceptr start = 0;
  size_t bytes = 0;
  CUpointer_attribute what[] = {
      CU_POINTER_ATTRIBUTE_MEMORY_TYPE,      CU_POINTER_ATTRIBUTE_IS_MANAGED,
      CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL,   CU_POINTER_ATTRIBUTE_CONTEXT,
      CU_POINTER_ATTRIBUTE_RANGE_START_ADDR, CU_POINTER_ATTRIBUTE_RANGE_SIZE};
  void* out[] = {&type, &managed, &ordinal, &context, &start, &bytes};
  if (driver().PointerGetAttributes(6, what, out, address(ptr)) != CUDA_SUCCESS) return info;
  if (type == 0 && !managed) return info;
  info.known = true;
  info.memory = managed                      ? Memory::Managed
                : type == CU_MEMORYTYPE_HOST ? Memory::Pinned
                                             : Memory::Device;
  info.device = ordinal < 0 ? 0 : ordinal;
  info.range_start = reinterpret_cast<void*>(start);
  info.range_bytes = int64_t(bytes);
  if (context) {  // memory from a pool belongs to no context
    try {
      info.same_context = device_state(info.device, "inspect").primary == context;
    } catch (...) {
      info.same_context = false;
    }
  }
  return info;
}

}  // namespace gpuinterop::cuda
