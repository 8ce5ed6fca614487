// Part of fakecuda.cpp: memory and events between processes. Virtual memory, allocations of cuMemAlloc and those of
// exportable pools are files without a name, so another process that maps them sees the same bytes.

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
  const bool mapped = a->kind == fake::Kind::Mapped, pool = a->kind == fake::Kind::Exportable;
  unsigned long long value = 0;
  switch (what) {
    case CU_POINTER_ATTRIBUTE_RANGE_START_ADDR:
    case CU_POINTER_ATTRIBUTE_MAPPING_BASE_ADDR: value = reinterpret_cast<uintptr_t>(a->base); break;
    case CU_POINTER_ATTRIBUTE_RANGE_SIZE:
    case CU_POINTER_ATTRIBUTE_MAPPING_SIZE: value = a->bytes; break;
    case CU_POINTER_ATTRIBUTE_BUFFER_ID: value = 1; break;
    case CU_POINTER_ATTRIBUTE_ALLOWED_HANDLE_TYPES: value = mapped || pool; break;
    case CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE: value = pool || a->kind == fake::Kind::Pool; break;
    case CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE: value = a->kind == fake::Kind::Device; break;
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

// ---- legacy handles and exportable pools ---------------------------------------------------------
struct FileHandle {  // in the 64 bytes of the driver's handles
  pid_t process;
  int descriptor;
};
static_assert(sizeof(FileHandle) <= sizeof(CUipcMemHandle));

static CUresult give_file(void* out, CUdeviceptr p, fake::Kind kind) {
  LOCKED();
  Allocation* a = find_memory(host(p));
  if (!a || a->kind != kind) return CUDA_ERROR_INVALID_VALUE;
  const FileHandle handle{getpid(), a->descriptor};
  std::memset(out, 0, sizeof(CUipcMemHandle));
  std::memcpy(out, &handle, sizeof handle);
  return CUDA_SUCCESS;
}
static CUresult open_file(CUdeviceptr* out, const void* from, Context* context) {
  FileHandle handle;
  std::memcpy(&handle, from, sizeof handle);
  if (handle.process == getpid()) return CUDA_ERROR_INVALID_CONTEXT;
  const std::string path = "/proc/" + std::to_string(handle.process) + "/fd/" + std::to_string(handle.descriptor);
  const int file = open(path.c_str(), O_RDWR | O_CLOEXEC);
  struct stat found;
  if (file < 0 || fstat(file, &found) || size_t(found.st_size) <= kZone) return CUDA_ERROR_INVALID_VALUE;
  const size_t whole = size_t(found.st_size);
  void* p = mmap(nullptr, whole, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
  if (p == MAP_FAILED) return CUDA_ERROR_INVALID_VALUE;
  machine().memory[uintptr_t(p)] = {static_cast<char*>(p), whole - kZone, fake::Kind::Opened, context->device,
                                    context,               false,         file};
  *out = reinterpret_cast<CUdeviceptr>(p);
  return CUDA_SUCCESS;
}

CUresult cuIpcGetMemHandle(CUipcMemHandle* out, CUdeviceptr p) {
  ENTER(cuIpcGetMemHandle);
  return give_file(out, p, fake::Kind::Device);
}
CUresult cuIpcOpenMemHandle_v2(CUdeviceptr* out, CUipcMemHandle handle, unsigned) {
  ENTER_CONTEXT(cuIpcOpenMemHandle);
  return open_file(out, &handle, context);
}
CUresult cuIpcCloseMemHandle(CUdeviceptr p) {
  ENTER_CONTEXT(cuIpcCloseMemHandle);
  drop_memory(host(p));
  return CUDA_SUCCESS;
}

// All exportable pools are one, which has no memory of its own.
CUresult cuMemPoolCreate(CUmemoryPool* out, const CUmemPoolProps* wanted) {
  ENTER(cuMemPoolCreate);
  if (wanted->handleTypes != CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR) return CUDA_ERROR_INVALID_VALUE;
  *out = reinterpret_cast<CUmemoryPool>(1);
  return CUDA_SUCCESS;
}
CUresult cuMemPoolDestroy(CUmemoryPool) {
  ENTER(cuMemPoolDestroy);
  return CUDA_SUCCESS;
}
CUresult cuMemAllocFromPoolAsync(CUdeviceptr* out, size_t bytes, CUmemoryPool, CUstream handle) {
  ENTER_STREAM(cuMemAllocFromPoolAsync, s, handle);
  return allocate(out, bytes, fake::Kind::Exportable, s->context);
}
CUresult cuMemPoolExportToShareableHandle(void* out, CUmemoryPool, CUmemAllocationHandleType, unsigned long long) {
  ENTER(cuMemPoolExportToShareableHandle);
  *static_cast<int*>(out) = memfd_create("fakecuda pool", MFD_CLOEXEC);
  return *static_cast<int*>(out) < 0 ? CUDA_ERROR_OPERATING_SYSTEM : CUDA_SUCCESS;
}
CUresult cuMemPoolImportFromShareableHandle(CUmemoryPool* out, void*, CUmemAllocationHandleType, unsigned long long) {
  ENTER(cuMemPoolImportFromShareableHandle);
  *out = reinterpret_cast<CUmemoryPool>(1);
  return CUDA_SUCCESS;
}
CUresult cuMemPoolExportPointer(CUmemPoolPtrExportData* out, CUdeviceptr p) {
  ENTER(cuMemPoolExportPointer);
  return give_file(out, p, fake::Kind::Exportable);
}
CUresult cuMemPoolImportPointer(CUdeviceptr* out, CUmemoryPool, CUmemPoolPtrExportData* data) {
  ENTER_CONTEXT(cuMemPoolImportPointer);
  return open_file(out, data, context);
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
