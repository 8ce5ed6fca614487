// Copies, fills, and the driver's information about a pointer.
#include <algorithm>
#include <cstring>
#include <string>

#include "devices/device_state.hpp"
#include "devices/pinned.hpp"
#include "devices/staging.hpp"
#include "devices/stream.hpp"

namespace gpuinterop::cuda {

namespace {

CUdeviceptr address(const void* p) noexcept { return reinterpret_cast<CUdeviceptr>(p); }

bool is_pinned(const void* ptr) noexcept {
  unsigned type = 0;
  CUpointer_attribute what = CU_POINTER_ATTRIBUTE_MEMORY_TYPE;
  void* out = &type;
  return driver().PointerGetAttributes(1, &what, &out, address(ptr)) == CUDA_SUCCESS && type != 0;
}

}  // namespace

BufferRef take_mailbox(int device, int64_t nbytes, const char* where) {
  try {
    return allocate_pinned(device, std::max(nbytes, kMailbox), where);
  } catch (...) {
    return {};
  }
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
  const bool small = !up && !async && nbytes <= kMailbox;
  bool pinned = !small && is_pinned(up ? src : dst);
  if (!(async && pinned) && capture_id(stream))
    fail(Kind::Capture, where, "a copy from or to host memory outside a graph capture",
         "a copy on a stream that is being captured",
         "copy before the capture begins; inside it, only asynchronous copies of pinned memory can "
         "be recorded");
  if (!pinned && nbytes >= kStagedBytes && !d.host_page_tables &&
      copy_staged(device, dst, src, nbytes, direction, stream, where))
    return;
  const BufferRef mailbox = small ? take_mailbox(device, nbytes, where) : BufferRef();
  void* landing = mailbox ? mailbox->ptr : dst;
  const CUresult done = call_blocking([&] {
    CUresult code = up ? cu.MemcpyHtoDAsync(address(dst), src, n, stream)
                       : cu.MemcpyDtoHAsync(landing, address(src), n, stream);
    // The driver has read or staged pageable memory when it returns; pinned memory it reads and writes
    // later.
    bool wait = !async && (!up || pinned || d.host_page_tables);
    if (code == CUDA_SUCCESS && wait) {
      call = "cuStreamSynchronize";
      code = cu.StreamSynchronize(stream);
    }
    return code;
  });
  if (mailbox && done != CUDA_SUCCESS) note_pinned_use(device, landing, stream, where);
  check(done, call, where);
  if (mailbox) std::memcpy(dst, landing, n);
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
  DeviceState& to = device_state(dst_device, where);
  DeviceState& from = device_state(src_device, where);
  CUstream source = current_stream(src_device);
  DeviceGuard guard(dst_device);
  GilRelease released;
  check(link(to, stream, from, source), "cuStreamWaitEvent", where);
  // The driver copies over NVLink or PCIe if the two GPUs can reach each other, else through the host.
  check(driver().MemcpyPeerAsync(address(dst), to.primary, address(src), from.primary,
                                 size_t(nbytes), stream),
        "cuMemcpyPeerAsync", where);
  // Work that overwrites or frees the source is queued after the copy.
  check(link(from, source, to, stream), "cuStreamWaitEvent", where);
}

void fill_bytes(int device, void* dst, const void* item, int itemsize, int64_t count,
                CUstream stream, const char* where) {
  if (count <= 0) return;
  const Driver& cu = driver();
  DeviceGuard guard(device);
  uint32_t value = 0;
  std::memcpy(&value, item, size_t(itemsize));
  const size_t n = size_t(count);
  const CUresult code = itemsize == 1 ? cu.MemsetD8Async(address(dst), uint8_t(value), n, stream)
                        : itemsize == 2
                            ? cu.MemsetD16Async(address(dst), uint16_t(value), n, stream)
                            : cu.MemsetD32Async(address(dst), value, n, stream);
  check(code, "cuMemsetD*Async", where);
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
