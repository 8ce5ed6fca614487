// Part of fakecuda.cpp: virtual memory that processes share by descriptors, and events between processes.
// Physical memory is a file without a name, so another process that maps its descriptor sees the same bytes.

struct Physical {
  int descriptor;
  size_t bytes;
  int uses;  // handles and mappings
};
struct Mapping {
  Physical* memory;
  size_t bytes;
};
static std::map<uintptr_t, Mapping> mappings;  // guarded by the machine's lock
constexpr size_t kGranularity = 1 << 16;

static void drop(Physical* p) {
  if (--p->uses) return;
  close(p->descriptor);
  delete p;
}
static Physical* physical(CUmemGenericAllocationHandle handle) { return reinterpret_cast<Physical*>(handle); }
static CUmemGenericAllocationHandle handle_of(Physical* p) { return reinterpret_cast<CUmemGenericAllocationHandle>(p); }

CUresult cuDeviceGetUuid_v2(CUuuid* out, CUdevice d) {
  ENTER(cuDeviceGetUuid);
  std::memset(out, 0, sizeof *out);
  std::snprintf(out->bytes, sizeof out->bytes, "fake %d", d);
  return CUDA_SUCCESS;
}
CUresult cuPointerGetAttribute(void* out, CUpointer_attribute what, CUdeviceptr p) {
  ENTER(cuPointerGetAttribute);
  LOCKED();
  Allocation* a = find_memory(host(p));
  if (!a || a->freed) return CUDA_ERROR_INVALID_VALUE;
  const bool mapped = a->kind == fake::Kind::Mapped;
  unsigned long long value = 0;
  switch (what) {
    case CU_POINTER_ATTRIBUTE_RANGE_START_ADDR:
    case CU_POINTER_ATTRIBUTE_MAPPING_BASE_ADDR: value = reinterpret_cast<uintptr_t>(a->base); break;
    case CU_POINTER_ATTRIBUTE_RANGE_SIZE:
    case CU_POINTER_ATTRIBUTE_MAPPING_SIZE: value = a->bytes; break;
    case CU_POINTER_ATTRIBUTE_BUFFER_ID: value = 1; break;
    case CU_POINTER_ATTRIBUTE_ALLOWED_HANDLE_TYPES: value = mapped; break;
    case CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE: value = a->kind == fake::Kind::Pool; break;
    case CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE: value = 0; break;
    default: return CUDA_ERROR_INVALID_VALUE;
  }
  std::memcpy(out, &value, sizeof value);
  return CUDA_SUCCESS;
}

CUresult cuMemGetAllocationGranularity(size_t* out, const CUmemAllocationProp*, CUmemAllocationGranularity_flags) {
  ENTER(cuMemGetAllocationGranularity);
  *out = kGranularity;
  return CUDA_SUCCESS;
}
CUresult cuMemCreate(CUmemGenericAllocationHandle* out, size_t bytes, const CUmemAllocationProp* wanted,
                     unsigned long long) {
  ENTER_CONTEXT(cuMemCreate);
  if (!bytes || bytes % kGranularity || wanted->requestedHandleTypes != CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR)
    return CUDA_ERROR_INVALID_VALUE;
  if (int64_t(bytes) > context->device->total) return CUDA_ERROR_OUT_OF_MEMORY;
  const int descriptor = memfd_create("fakecuda", MFD_CLOEXEC);
  if (descriptor < 0 || ftruncate(descriptor, off_t(bytes))) return CUDA_ERROR_OUT_OF_MEMORY;
  *out = handle_of(new Physical{descriptor, bytes, 1});
  return CUDA_SUCCESS;
}
CUresult cuMemRelease(CUmemGenericAllocationHandle handle) {
  ENTER(cuMemRelease);
  LOCKED();
  drop(physical(handle));
  return CUDA_SUCCESS;
}
CUresult cuMemRetainAllocationHandle(CUmemGenericAllocationHandle* out, void* p) {
  ENTER(cuMemRetainAllocationHandle);
  LOCKED();
  auto it = mappings.find(reinterpret_cast<uintptr_t>(p));
  if (it == mappings.end()) return CUDA_ERROR_INVALID_VALUE;
  ++it->second.memory->uses;
  *out = handle_of(it->second.memory);
  return CUDA_SUCCESS;
}
CUresult cuMemExportToShareableHandle(void* out, CUmemGenericAllocationHandle handle, CUmemAllocationHandleType,
                                      unsigned long long) {
  ENTER(cuMemExportToShareableHandle);
  const int copy = fcntl(physical(handle)->descriptor, F_DUPFD_CLOEXEC, 0);
  if (copy < 0) return CUDA_ERROR_OPERATING_SYSTEM;
  *static_cast<int*>(out) = copy;
  return CUDA_SUCCESS;
}
CUresult cuMemImportFromShareableHandle(CUmemGenericAllocationHandle* out, void* descriptor, CUmemAllocationHandleType) {
  ENTER_CONTEXT(cuMemImportFromShareableHandle);
  struct stat found;
  const int copy = fcntl(int(reinterpret_cast<intptr_t>(descriptor)), F_DUPFD_CLOEXEC, 0);
  if (copy < 0 || fstat(copy, &found)) return CUDA_ERROR_INVALID_VALUE;
  *out = handle_of(new Physical{copy, size_t(found.st_size), 1});
  return CUDA_SUCCESS;
}

CUresult cuMemAddressReserve(CUdeviceptr* out, size_t bytes, size_t, CUdeviceptr, unsigned long long) {
  ENTER(cuMemAddressReserve);
  void* p = mmap(nullptr, bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (p == MAP_FAILED) return CUDA_ERROR_OUT_OF_MEMORY;
  *out = reinterpret_cast<CUdeviceptr>(p);
  return CUDA_SUCCESS;
}
CUresult cuMemAddressFree(CUdeviceptr p, size_t bytes) {
  ENTER(cuMemAddressFree);
  LOCKED();
  if (mappings.count(uintptr_t(p))) machine().fault("cuMemAddressFree of mapped memory");
  munmap(host(p), bytes);
  return CUDA_SUCCESS;
}
CUresult cuMemMap(CUdeviceptr p, size_t bytes, size_t, CUmemGenericAllocationHandle handle, unsigned long long) {
  ENTER_CONTEXT(cuMemMap);
  Physical* memory = physical(handle);
  if (bytes != memory->bytes) return CUDA_ERROR_INVALID_VALUE;
  if (mmap(host(p), bytes, PROT_NONE, MAP_SHARED | MAP_FIXED, memory->descriptor, 0) == MAP_FAILED)
    return CUDA_ERROR_INVALID_VALUE;
  ++memory->uses;
  mappings[uintptr_t(p)] = {memory, bytes};
  machine().memory[uintptr_t(p)] = {host(p), bytes, fake::Kind::Mapped, context->device, context};
  return CUDA_SUCCESS;
}
CUresult cuMemSetAccess(CUdeviceptr p, size_t bytes, const CUmemAccessDesc* access, size_t) {
  ENTER(cuMemSetAccess);
  const bool writable = access->flags == CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
  return mprotect(host(p), bytes, writable ? PROT_READ | PROT_WRITE : PROT_READ) ? CUDA_ERROR_INVALID_VALUE
                                                                                   : CUDA_SUCCESS;
}
CUresult cuMemUnmap(CUdeviceptr p, size_t bytes) {
  ENTER_CONTEXT(cuMemUnmap);
  auto it = mappings.find(uintptr_t(p));
  if (it == mappings.end() || it->second.bytes != bytes) {
    machine().fault("cuMemUnmap of memory that is not mapped");
    return CUDA_ERROR_INVALID_VALUE;
  }
  for (Stream* s : context->streams)
    if (s->done < s->queued) machine().fault("cuMemUnmap while work is queued");
  mmap(host(p), bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED | MAP_NORESERVE, -1, 0);
  drop(it->second.memory);
  mappings.erase(it);
  machine().memory.erase(uintptr_t(p));
  return CUDA_SUCCESS;
}

// The handle's process waits for the event, so it is complete wherever it is opened.
CUresult cuIpcGetEventHandle(CUipcEventHandle* out, CUevent e) {
  ENTER(cuIpcGetEventHandle);
  LOCKED();
  auto* event = reinterpret_cast<Event*>(e);
  if (event->stream) machine().moved.wait(lock, [&] { return event->stream->done >= event->count; });
  std::memset(out, 1, sizeof *out);
  const pid_t process = getpid();
  std::memcpy(out, &process, sizeof process);
  return CUDA_SUCCESS;
}
CUresult cuIpcOpenEventHandle(CUevent* out, CUipcEventHandle handle) {
  ENTER_CONTEXT(cuIpcOpenEventHandle);
  pid_t process;
  std::memcpy(&process, &handle, sizeof process);
  if (process == getpid()) return CUDA_ERROR_INVALID_CONTEXT;
  auto* event = new Event{context, 0};
  machine().events.insert(event);
  *out = reinterpret_cast<CUevent>(event);
  return CUDA_SUCCESS;
}
