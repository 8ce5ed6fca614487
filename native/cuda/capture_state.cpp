// Whether a stream is being captured, and whether any is.
#include <algorithm>

#include "cuda/device_state.hpp"
#include "cuda/stream.hpp"

namespace gpuinterop::cuda {

namespace {

// Streams that have been captured. The driver cannot say whether anything is being captured, so the
// state of these streams is queried. An external stream that was not borrowed may be destroyed and is not
// queried: its capture counts as running until the stream is passed again, or presume_captures_over().
std::mutex captured_lock;
std::vector<CUstream> captured;
std::atomic<size_t> captured_count{0};

void note_capturing(CUstream stream) noexcept {
  std::lock_guard lock(captured_lock);
  if (std::find(captured.begin(), captured.end(), stream) != captured.end()) return;
  try {
    captured.push_back(stream);
    captured_count.store(captured.size());
  } catch (...) {
  }
}

void forget_capturing(CUstream stream) noexcept {
  std::lock_guard lock(captured_lock);
  captured.erase(std::remove(captured.begin(), captured.end(), stream), captured.end());
  captured_count.store(captured.size());
}

// The default streams are those of the current context: without a context the driver returns an error.
bool can_be_queried(CUstream stream) noexcept {
  CUcontext context = nullptr;
  return !is_default(stream) || (driver().CtxGetCurrent(&context) == CUDA_SUCCESS && context);
}

// As capture_id() != 0, without recording the stream.
bool is_captured(CUstream stream) noexcept {
  CUstreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_NONE;
  return stream != CU_STREAM_LEGACY && can_be_queried(stream) &&
         driver().StreamIsCapturing(stream, &status) == CUDA_SUCCESS &&
         status != CU_STREAM_CAPTURE_STATUS_NONE;
}

}  // namespace

uint64_t capture_id(CUstream stream, CUgraph* graph) noexcept {
  // The legacy stream cannot be captured, and a query would be an error.
  if (stream == CU_STREAM_LEGACY || !can_be_queried(stream)) return 0;
  CUstreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_NONE;
  cuuint64_t id = 0;
  const CUresult code =
      driver().StreamGetCaptureInfo(stream, &status, &id, graph, nullptr, nullptr);
  if (code != CUDA_SUCCESS || status == CU_STREAM_CAPTURE_STATUS_NONE) [[likely]] {
    if (captured_count.load(std::memory_order_relaxed) != 0) forget_capturing(stream);
    return 0;
  }
  note_capturing(stream);
  return status == CU_STREAM_CAPTURE_STATUS_ACTIVE ? id : UINT64_MAX;  // a broken one has no id
}

bool is_capturing(CUstream stream) noexcept { return driver().ok && capture_id(stream) != 0; }

bool any_capture() noexcept {
  const Driver& cu = driver();
  if (!cu.ok) return false;
  bool found = false;
  for (int i = 0; i < cu.devices && i < kMaxDevices; ++i)
    if (capture_id(current_stream(i))) found = true;
  if (captured_count.load() != 0) {
    std::lock_guard lock(captured_lock);
    captured.erase(std::remove_if(captured.begin(), captured.end(),
                                  [&](CUstream s) {
                                    const bool active = !is_known_live(s) || is_captured(s);
                                    found = found || active;
                                    return !active;
                                  }),
                   captured.end());
    captured_count.store(captured.size());
  }
  // Another library may have begun a capture on a stream that gpuinterop also uses.
  found = found || any_known_live(is_captured);
  // The driver returns this error, without harm, when a blocking stream of the current context is being
  // captured.
  CUstreamCaptureStatus status;
  return found ||
         (can_be_queried(CU_STREAM_LEGACY) &&
          cu.StreamIsCapturing(CU_STREAM_LEGACY, &status) == CUDA_ERROR_STREAM_CAPTURE_IMPLICIT);
}

void presume_captures_over() noexcept {
  std::lock_guard lock(captured_lock);
  captured.erase(std::remove_if(captured.begin(), captured.end(),
                                [](CUstream s) { return !is_known_live(s); }),
                 captured.end());
  captured_count.store(captured.size());
}

}  // namespace gpuinterop::cuda
