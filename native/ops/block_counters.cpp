#include "ops/block_counters.hpp"

#include <memory>
#include <vector>

#include "array/array.hpp"
#include "cuda/cuda.hpp"
#include "cuda/device_state.hpp"
#include "ops/graph.hpp"

namespace gpuinterop::ops {

namespace {

constexpr int64_t kBytes = kTicketWords * 4;
constexpr size_t kMostStreams = 32;  // more of them wait for each other now and then

struct Set {
  std::vector<BufferRef> buffers;
  size_t next = 0;
};

// Never destroyed: at the end of the process the driver may be gone before these.
Set& set_of(int device) {
  static auto* sets = new Set[kMaxDevices];
  return sets[device];
}

bool is_last_used_on(const Buffer& b, CUstream stream) {
  return b.stream == stream &&
         (stream != CU_STREAM_PER_THREAD || b.stream_thread == cuda::thread_token());
}

// Zeroed memory that `stream` may use next; kept by this file, so not among the arrays' statistics.
BufferRef fresh(int device, CUstream stream, const char* where) {
  auto b = std::make_unique<Buffer>();
  b->device = {DeviceType::Cuda, device};
  b->memory = Memory::Device;
  b->nbytes = kBytes;
  b->stream = stream;
  b->stream_thread = stream == CU_STREAM_PER_THREAD ? cuda::thread_token() : 0;
  b->ptr = static_cast<char*>(cuda::allocate(device, kBytes, stream, where));
  b->release = cuda::release;
  const char zero = 0;
  BufferRef made(b.release());
  cuda::fill_bytes(device, made->ptr, &zero, 1, kBytes, stream, where);
  return made;
}

// A graph counts with words of its own: its replays may run beside anything. Ours are cleared once,
// outside of the capture, and kept by the recorder for as long as the graph can be replayed. Of the
// graph that another library records nobody knows how long it lives: each of its replays clears.
BlockCounters for_graph(int device, CUstream stream, const char* where) {
  if (!recorder || recorder->on_host() || recorder->device().id != device) {
    BufferRef words = allocate({DeviceType::Cuda, device}, kBytes, where);
    const char zero = 0;
    cuda::fill_bytes(device, words->ptr, &zero, 1, kBytes, stream, where);
    return {words.get(), words};
  }
  cuda::DeviceState& d = cuda::device_state(device, where);
  CUstream outside = cuda::allocator_stream(d, where);
  Array words;
  words.dtype = kUInt32;
  words.device = {DeviceType::Cuda, device};
  words.buffer = fresh(device, outside, where);
  words.data = words.buffer->ptr;
  cuda::synchronize_stream(device, outside, where);  // it carries nothing that takes time
  recorder->use(words);
  return {words.buffer.get(), {}};
}

}  // namespace

BlockCounters tickets(int device, CUstream stream, const char* where) {
  if (cuda::is_capturing(stream)) [[unlikely]]
    return for_graph(device, stream, where);
  Set& set = set_of(device);
  for (BufferRef& b : set.buffers)
    if (is_last_used_on(*b.get(), stream)) return {b.get(), {}};
  if (set.buffers.size() < kMostStreams) {
    set.buffers.push_back(fresh(device, stream, where));
    return {set.buffers.back().get(), {}};
  }
  // Whoever counted there last has to end first.
  return {set.buffers[set.next++ % kMostStreams].get(), {}};
}

}  // namespace gpuinterop::ops
