#include "exchange/import.hpp"

#include <atomic>
#include <tuple>

#include "devices/cuda.hpp"
#include "devices/stream.hpp"
#include "interpreter/error.hpp"

namespace gpuinterop::exchange {

namespace {

// No 64-bit system assigns addresses above this to a process.
constexpr uintptr_t kAddressEnd = uintptr_t{1} << 57;

[[noreturn]] void malformed(const char* where, std::string expected, std::string got) {
  fail(Kind::Exchange, where, std::move(expected), std::move(got),
       "pass shape, strides and address of real memory; if a library provides them, report it "
       "there");
}

// Called for errors only, so it costs a successful import nothing.
[[noreturn]] void refuse_dtype(const DLDataType& t, const char* where) {
  fail(Kind::Exchange, where,
       "a dtype of gpuinterop, with whole bytes and one lane for each element",
       "DLPack type " + std::to_string(t.code) + ", " + std::to_string(t.bits) + " bits, " +
           std::to_string(t.lanes) + " lanes",
       "cast in the producer, for example to float32");
}

void checked_device(const DLDevice& d, Checked* c, const char* where) {
  switch (static_cast<int32_t>(d.device_type)) {
    case kDLCPU: return;
    case kDLCUDAHost: c->memory = Memory::Pinned; return;
    case kDLCUDA:
    case kDLCUDAManaged:
      c->device = {DeviceType::Cuda, d.device_id};
      c->memory = d.device_type == kDLCUDA ? Memory::Device : Memory::Managed;
      return;
    default: fail_with("memory_elsewhere", where, {device_text(d.device_type, d.device_id)});
  }
}

// Pages that the driver has confirmed, by device: a direct-mapped table of tags.
constexpr uintptr_t kPageShift = 21;
std::atomic<uintptr_t> vouched[256];

uintptr_t page_tag(const void* p, int device) noexcept {
  return (reinterpret_cast<uintptr_t>(p) >> kPageShift) << 8 | uintptr_t(device & 0x7f) << 1 | 1;
}
std::atomic<uintptr_t>& page_slot(const void* p) noexcept {
  return vouched[(reinterpret_cast<uintptr_t>(p) >> kPageShift) & 255];
}

void verify_cuda(Checked* c, Trust trust, const char* where) {
  const int devices = cuda::device_count();
  if (!devices) cuda::require(where);
  const int claimed = c->device.id;
  const bool managed = c->memory == Memory::Managed;
  if (!managed && (claimed < 0 || claimed >= devices))
    fail_with("no_such_device", where, {int64_t{devices}, int64_t{claimed}});
  if (!c->layout.size()) {
    if (managed) c->device.id = claimed > 0 && claimed < devices ? claimed : 0;
    return;
  }
  const uintptr_t tag = page_tag(c->low, claimed);
  if (trust == Trust::ByPage && !managed &&
      page_slot(c->low).load(std::memory_order_relaxed) == tag)
    return;

  const cuda::PointerInfo info = cuda::inspect(c->low);
  const std::string at = "address " + cuda::handle_text(c->low);
  if (!info.known)
    fail(Kind::Exchange, where, "an address of live CUDA memory",
         at + ", which is not CUDA memory: host memory, or freed",
         "keep the owner of the memory alive, and pass host memory as host memory");
  if (!info.same_context)
    fail_with("foreign_context", where, {"memory", at + " on cuda:" + std::to_string(info.device)});
  if (info.memory == Memory::Managed) {
    c->memory = Memory::Managed;
    if (managed || claimed == info.device) c->device.id = info.device;
  } else if (info.device != claimed && !managed) {
    fail_with("wrong_device_reported", where,
              {"cuda:" + std::to_string(claimed), "cuda:" + std::to_string(info.device)});
  } else if (managed) {
    c->device.id = info.device;
    c->memory = info.memory;
  } else if (info.memory == Memory::Pinned) {
    c->memory = Memory::Pinned;  // host memory that the device reaches as well
  }
  if (info.range_start && info.range_bytes > 0) {
    const char* start = static_cast<const char*>(info.range_start);
    if (c->low < start || c->reach > info.range_bytes - (c->low - start))
      malformed(where,
                "strides that stay inside the allocation of " + std::to_string(info.range_bytes) +
                    " bytes",
                std::to_string(c->reach) + " bytes from " + at);
  }
  // Other kinds of memory are queried every time, because only the driver can distinguish them.
  if (trust == Trust::ByPage && c->memory == Memory::Device)
    page_slot(c->low).store(tag, std::memory_order_relaxed);
}

}  // namespace

DTypeId checked_dtype(const DLDataType& t, uint64_t flags, const char* where) {
  const int id = t.lanes == 1 ? dtype_from_dlpack(t.code, t.bits) : -1;
  const bool padded = flags & DLPACK_FLAG_BITMASK_IS_SUBBYTE_TYPE_PADDED;
  if (id < 0 || (is_subbyte(static_cast<DTypeId>(id)) && !padded)) refuse_dtype(t, where);
  return static_cast<DTypeId>(id);
}

bool is_aligned(const Array& a) noexcept {
  return reinterpret_cast<uintptr_t>(a.data) % alignment_of(a.dtype, a.device) == 0;
}

Layout checked_layout(int32_t ndim, const int64_t* shape, const int64_t* strides, int64_t item,
                      const char* where) {
  if (ndim < 0 || ndim > kMaxDims)
    malformed(where, "0 to " + std::to_string(kMaxDims) + " dimensions", std::to_string(ndim));
  if (ndim > 0 && !shape)
    malformed(where, "a shape", "a null pointer for " + std::to_string(ndim) + " dimensions");
  int64_t total = item;
  bool overflow = false;
  for (int i = 0; i < ndim; ++i) {
    if (shape[i] < 0)
      malformed(where, "axis lengths of 0 or more", "shape " + shape_text(ndim, shape));
    if (shape[i] > 1) overflow |= __builtin_mul_overflow(total, shape[i], &total);
  }
  // wrap() has the same limit, but by then a capsule would be consumed.
  if (overflow)
    malformed(where, "a shape whose bytes fit 63 bits", "shape " + shape_text(ndim, shape));
  return strides || ndim == 0 ? Layout(ndim, shape, strides) : Layout::c_order(ndim, shape, where);
}

Layout layout_of_bytes(int32_t ndim, const int64_t* shape, int64_t* strides, int64_t item,
                       const char* where) {
  bool empty = false;
  for (int i = 0; i < ndim; ++i) empty |= shape[i] == 0;
  for (int i = 0; strides && i < ndim; ++i) {
    if (strides[i] % item && shape[i] > 1 && !empty)
      fail(Kind::Contiguity, where,
           "strides of whole elements, " + std::to_string(item) + " bytes each",
           "stride " + std::to_string(strides[i]) + " bytes on axis " + std::to_string(i),
           "copy the array in its own library first");
    strides[i] /= item;
  }
  return checked_layout(ndim, shape, strides, item, where);
}

void check_memory(Checked* c, Trust trust, bool may_copy, const char* where) {
  const int64_t item = itemsize_of(c->dtype);
  if (c->layout.size() == 0) {
    // The address of an empty array has no meaning.
    c->data = c->low = nullptr;
    c->reach = 0;
    if (c->device.is_cuda()) verify_cuda(c, trust, where);
    return;
  }
  if (!c->data)
    fail(Kind::Exchange, where, "an address for " + std::to_string(c->layout.size()) + " elements",
         "a null pointer (a tensor without storage, for example a meta or fake tensor)",
         "convert it while its storage is allocated; if it is, report this to the producer");
  int64_t lo = 0, hi = c->layout.size() - 1;
  if (!c->layout.is_c_contiguous()) {
    try {
      std::tie(lo, hi) = c->layout.span(where);
    } catch (const Error& e) {
      malformed(where, e.expected, e.got);
    }
  }
  // Every byte in reach must have a valid address. This also bounds later arithmetic.
  int64_t low_bytes, count, nbytes;
  const auto address = reinterpret_cast<uintptr_t>(c->data);
  uintptr_t first, last;
  if (__builtin_mul_overflow(lo, item, &low_bytes) || __builtin_sub_overflow(hi, lo, &count) ||
      __builtin_add_overflow(count, int64_t{1}, &count) ||
      __builtin_mul_overflow(count, item, &nbytes) || 0 - uintptr_t(low_bytes) > address ||
      (first = address + uintptr_t(low_bytes)) == 0 ||
      __builtin_add_overflow(first, uintptr_t(nbytes), &last) || last > kAddressEnd)
    malformed(where, "strides whose reach fits the address space",
              layout_text(c->layout) + " from " + cuda::handle_text(c->data));
  c->low = c->data + low_bytes;
  c->reach = nbytes;
  if (!may_copy && !is_aligned(*c))
    fail_with("misaligned", where, {item, cuda::handle_text(c->data)});
  if (c->device.is_cuda()) verify_cuda(c, trust, where);
}

Checked check(const Incoming& in, Trust trust, bool may_copy, const char* where) {
  const DLTensor& t = in.tensor;
  Checked c;
  checked_device(t.device, &c, where);
  c.dtype = checked_dtype(t.dtype, in.flags, where);
  c.layout = checked_layout(t.ndim, t.shape, t.strides, itemsize_of(c.dtype), where);
  c.readonly = in.flags & DLPACK_FLAG_BITMASK_READ_ONLY;
  c.is_copied = in.flags & DLPACK_FLAG_BITMASK_IS_COPIED;
  if (c.layout.size() && t.data) {
    uintptr_t start;
    if (__builtin_add_overflow(reinterpret_cast<uintptr_t>(t.data), t.byte_offset, &start))
      malformed(where, "a byte_offset inside the address space", std::to_string(t.byte_offset));
    c.data = reinterpret_cast<char*>(start);
  }
  check_memory(&c, trust, may_copy, where);
  return c;
}

Array make_array(Checked&& c, Buffer* stolen, PyRef base) {
  Array a;
  fill_array(&a, std::move(c), stolen, std::move(base));
  return a;
}

void fill_array(Array* a, Checked&& c, Buffer* stolen, PyRef base) {
  if (stolen) remember_base(stolen, base.get());
  *a = std::move(c);
  a->base = std::move(base);
  a->buffer = BufferRef(stolen);
}

}  // namespace gpuinterop::exchange
