// Part of fakecuda.cpp: allocation, copies, fills, pointer attributes.

static CUresult allocate(CUdeviceptr* out, size_t bytes, fake::Kind kind, Context* context) {
  Device* d = context->device;
  if (bytes == 0) return CUDA_ERROR_INVALID_VALUE;
  int64_t n = int64_t(bytes);
  // The pool serves from what it holds before it takes more.
  int64_t grow = kind == fake::Kind::Pool ? std::max<int64_t>(0, d->used + n - d->reserved) : n;
  if (d->reserved + grow > d->total) return CUDA_ERROR_OUT_OF_MEMORY;
  char* p = add_memory(bytes, kind, d, context);
  if (!p) return CUDA_ERROR_OUT_OF_MEMORY;
  d->used += n;
  d->reserved += grow;
  *out = reinterpret_cast<CUdeviceptr>(p);
  return CUDA_SUCCESS;
}

CUresult cuMemGetInfo_v2(size_t* free_bytes, size_t* total) {
  ENTER_CONTEXT(cuMemGetInfo);
  if (unsafe()) return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
  *total = size_t(context->device->total);
  *free_bytes = size_t(std::max<int64_t>(0, context->device->total - context->device->reserved));
  return CUDA_SUCCESS;
}
CUresult cuMemAlloc_v2(CUdeviceptr* out, size_t bytes) {
  ENTER_CONTEXT(cuMemAlloc);
  if (unsafe()) return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
  return allocate(out, bytes, fake::Kind::Device, context);
}
CUresult cuMemAllocManaged(CUdeviceptr* out, size_t bytes, unsigned) {
  ENTER_CONTEXT(cuMemAllocManaged);
  if (unsafe()) return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
  char* p = add_memory(bytes, fake::Kind::Managed, context->device, context);
  *out = reinterpret_cast<CUdeviceptr>(p);
  return p ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}
CUresult cuMemFree_v2(CUdeviceptr p) {
  ENTER_CONTEXT(cuMemFree);
  if (unsafe()) return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
  if (!machine().memory.count(uintptr_t(p))) {
    machine().fault("cuMemFree of an unknown or freed pointer");
    return CUDA_ERROR_INVALID_VALUE;
  }
  wait_for(lock, context);
  drop_memory(host(p));
  return CUDA_SUCCESS;
}
CUresult cuMemHostAlloc(void** out, size_t bytes, unsigned) {
  ENTER_CONTEXT(cuMemHostAlloc);
  if (unsafe()) return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
  wait_for(lock, context);
  *out = add_memory(bytes, fake::Kind::Pinned, context->device, context);
  return *out ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}
CUresult cuMemFreeHost(void* p) {
  ENTER_CONTEXT(cuMemFreeHost);
  if (unsafe()) return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
  wait_for(lock, context);
  drop_memory(static_cast<char*>(p));
  return CUDA_SUCCESS;
}

// ---- the device's default pool ----------------------------------------------------------------
CUresult cuDeviceGetDefaultMemPool(CUmemoryPool* out, CUdevice d) {
  ENTER(cuDeviceGetDefaultMemPool);
  *out = reinterpret_cast<CUmemoryPool>(machine().devices[size_t(d)]);
  return CUDA_SUCCESS;
}
CUresult cuMemPoolSetAttribute(CUmemoryPool pool, CUmemPool_attribute what, void* value) {
  ENTER(cuMemPoolSetAttribute);
  if (what == CU_MEMPOOL_ATTR_RELEASE_THRESHOLD)
    reinterpret_cast<Device*>(pool)->threshold = *static_cast<cuuint64_t*>(value);
  return CUDA_SUCCESS;
}
CUresult cuMemPoolGetAttribute(CUmemoryPool pool, CUmemPool_attribute what, void* value) {
  ENTER(cuMemPoolGetAttribute);
  LOCKED();
  auto* d = reinterpret_cast<Device*>(pool);
  auto* out = static_cast<cuuint64_t*>(value);
  *out = what == CU_MEMPOOL_ATTR_RELEASE_THRESHOLD     ? d->threshold
         : what == CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT ? cuuint64_t(d->reserved)
                                                        : cuuint64_t(d->used);
  return CUDA_SUCCESS;
}
CUresult cuMemPoolTrimTo(CUmemoryPool pool, size_t keep) {
  ENTER(cuMemPoolTrimTo);
  LOCKED();
  if (unsafe()) return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
  auto* d = reinterpret_cast<Device*>(pool);
  d->reserved = std::max<int64_t>(d->used, std::min<int64_t>(d->reserved, int64_t(keep)));
  return CUDA_SUCCESS;
}
CUresult cuMemAllocAsync(CUdeviceptr* out, size_t bytes, CUstream handle) {
  ENTER_STREAM(cuMemAllocAsync, s, handle);
  if (s->capture) machine().fault("cuMemAllocAsync on a captured stream makes a graph node");
  else if (unsafe()) return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
  return allocate(out, bytes, fake::Kind::Pool, s->context);
}
CUresult cuMemFreeAsync(CUdeviceptr p, CUstream handle) {
  ENTER_STREAM(cuMemFreeAsync, s, handle);
  auto it = machine().memory.find(uintptr_t(p));
  if (it == machine().memory.end() || it->second.freed) {
    machine().fault("cuMemFreeAsync of an unknown or freed pointer");
    return CUDA_ERROR_INVALID_VALUE;
  }
  if (s->capture) {
    machine().fault("cuMemFreeAsync on a captured stream of memory from outside the graph");
    s->capture->invalid = true;
    return CUDA_ERROR_INVALID_VALUE;
  }
  if (unsafe()) return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
  it->second.freed = true;
  enqueue(s, [base = host(p)] {
    LOCKED();
    drop_memory(base);
  });
  return CUDA_SUCCESS;
}

// ---- copies and fills -------------------------------------------------------------------------
static CUresult outside(const char* what) {
  machine().fault(std::string(what) + " outside an allocation");
  return CUDA_ERROR_INVALID_VALUE;
}

CUresult cuMemcpyHtoDAsync_v2(CUdeviceptr dst, const void* src, size_t n, CUstream handle) {
  ENTER_STREAM(cuMemcpyHtoDAsync, s, handle);
  if (!covers(host(dst), n)) return outside("cuMemcpyHtoDAsync");
  if (!pinned(src) && !s->capture && unsafe()) return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
  if (pinned(src) || s->capture) {
    enqueue(s, [=] { std::memcpy(host(dst), src, n); });
  } else {
    // The driver reads pageable memory before it returns.
    auto copy = std::make_shared<std::vector<char>>(static_cast<const char*>(src), static_cast<const char*>(src) + n);
    enqueue(s, [=] { std::memcpy(host(dst), copy->data(), n); });
  }
  return CUDA_SUCCESS;
}
CUresult cuMemcpyDtoHAsync_v2(void* dst, CUdeviceptr src, size_t n, CUstream handle) {
  ENTER_STREAM(cuMemcpyDtoHAsync, s, handle);
  if (!covers(host(src), n)) return outside("cuMemcpyDtoHAsync");
  if (!pinned(dst) && !s->capture && unsafe()) return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
  enqueue(s, [=] { std::memcpy(dst, host(src), n); });
  if (!pinned(dst) && !s->capture) wait_for(lock, s);
  return CUDA_SUCCESS;
}
CUresult cuMemcpyDtoDAsync_v2(CUdeviceptr dst, CUdeviceptr src, size_t n, CUstream handle) {
  ENTER_STREAM(cuMemcpyDtoDAsync, s, handle);
  if (!covers(host(dst), n) || !covers(host(src), n)) return outside("cuMemcpyDtoDAsync");
  enqueue(s, [=] { std::memmove(host(dst), host(src), n); });
  return CUDA_SUCCESS;
}
CUresult cuMemcpyPeerAsync(CUdeviceptr dst, CUcontext, CUdeviceptr src, CUcontext, size_t n, CUstream handle) {
  ENTER_STREAM(cuMemcpyPeerAsync, s, handle);
  if (!covers(host(dst), n) || !covers(host(src), n)) return outside("cuMemcpyPeerAsync");
  enqueue(s, [=] { std::memmove(host(dst), host(src), n); });
  return CUDA_SUCCESS;
}
extern "C++" {
template <class T>
static CUresult fill(CUdeviceptr dst, T value, size_t n, CUstream handle) {
  NEED_CONTEXT();
  LOCKED();
  STREAM(s, handle);
  if (uintptr_t(dst) % sizeof(T)) return CUDA_ERROR_INVALID_VALUE;
  if (!covers(host(dst), n * sizeof(T))) return outside("cuMemset");
  enqueue(s, [=] {
    for (size_t i = 0; i < n; ++i) std::memcpy(host(dst) + i * sizeof(T), &value, sizeof(T));
  });
  return CUDA_SUCCESS;
}
}
CUresult cuMemsetD8Async(CUdeviceptr dst, unsigned char v, size_t n, CUstream s) {
  ENTER(cuMemsetD8Async);
  return fill(dst, v, n, s);
}
CUresult cuMemsetD16Async(CUdeviceptr dst, unsigned short v, size_t n, CUstream s) {
  ENTER(cuMemsetD16Async);
  return fill(dst, v, n, s);
}
CUresult cuMemsetD32Async(CUdeviceptr dst, unsigned v, size_t n, CUstream s) {
  ENTER(cuMemsetD32Async);
  return fill(dst, v, n, s);
}

CUresult cuPointerGetAttributes(unsigned n, CUpointer_attribute* what, void** out, CUdeviceptr p) {
  ENTER(cuPointerGetAttributes);
  LOCKED();
  Allocation* a = find_memory(host(p));
  if (a && a->freed) a = nullptr;
  for (unsigned i = 0; i < n; ++i) switch (what[i]) {
      case CU_POINTER_ATTRIBUTE_CONTEXT:
        *static_cast<CUcontext*>(out[i]) =
            a && (a->kind == fake::Kind::Device || a->kind == fake::Kind::Pinned || a->kind == fake::Kind::Managed)
                ? reinterpret_cast<CUcontext>(a->context)
                : nullptr;
        break;
      case CU_POINTER_ATTRIBUTE_MEMORY_TYPE:
        *static_cast<unsigned*>(out[i]) =
            !a ? 0 : a->kind == fake::Kind::Pinned ? CU_MEMORYTYPE_HOST : CU_MEMORYTYPE_DEVICE;
        break;
      case CU_POINTER_ATTRIBUTE_IS_MANAGED: *static_cast<unsigned*>(out[i]) = a && a->kind == fake::Kind::Managed; break;
      case CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL: *static_cast<int*>(out[i]) = a ? a->device->ordinal : -2; break;
      case CU_POINTER_ATTRIBUTE_RANGE_START_ADDR:
        *static_cast<CUdeviceptr*>(out[i]) = a ? reinterpret_cast<CUdeviceptr>(a->base) : 0;
        break;
      case CU_POINTER_ATTRIBUTE_RANGE_SIZE: *static_cast<size_t*>(out[i]) = a ? a->bytes : 0; break;
      default: return CUDA_ERROR_INVALID_VALUE;
    }
  return CUDA_SUCCESS;
}
