#include "devices/staging.hpp"

#include <sched.h>
#include <sys/mman.h>
#ifdef __SSE2__
#include <emmintrin.h>
#endif

#include <algorithm>
#include <bit>
#include <chrono>
#include <condition_variable>
#include <cstdlib>
#include <cstring>
#include <string>
#include <thread>
#include <vector>

#include "devices/device_state.hpp"
#include "devices/pinned.hpp"
#include "devices/stream.hpp"

namespace gpuinterop::cuda {

namespace {

// Large enough for the bandwidth of the bus. Smaller pieces give several threads work in a copy of a few
// megabytes. Pieces meet at multiples of their size, a power of two: if two threads write to one new huge
// page, the system fills it with zeros twice.
constexpr int64_t kMostPiece = int64_t(2) << 20, kLeastPiece = int64_t(256) << 10;
constexpr int kUsefulThreads = 16;  // more do not make a copy faster
constexpr int kMostThreads = 64;

// Copies data that the device wrote. Stores that bypass the caches double the speed of one thread, except into
// new memory, because the system has just filled it with zeros through the caches.
void copy_landed(char* dst, const char* src, size_t n) noexcept {
#ifdef __SSE2__
  const uintptr_t page = uintptr_t(dst + n / 2) & ~uintptr_t(4095);
  unsigned char resident = 0;
  if (mincore(reinterpret_cast<void*>(page), 1, &resident) == 0 && (resident & 1)) {
    const size_t head = std::min(n, size_t(-uintptr_t(dst) % 16));
    std::memcpy(dst, src, head);
    size_t i = head;
    for (; i + 64 <= n; i += 64)
      for (size_t j = i; j < i + 64; j += 16)
        _mm_stream_si128(reinterpret_cast<__m128i*>(dst + j),
                         _mm_loadu_si128(reinterpret_cast<const __m128i*>(src + j)));
    _mm_sfence();
    dst += i, src += i, n -= i;
  }
#endif
  std::memcpy(dst, src, n);
}

// One copy, in the stack frame of its caller. Its threads take the pieces one after the other.
struct Transfer {
  DeviceState& device;
  CUstream stream;  // gpuinterop's own, for such copies only
  char* host;
  CUdeviceptr there;
  int64_t nbytes, piece;
  int64_t skew;  // how much shorter the first piece is
  bool up;
  std::atomic<int64_t> next{0};
  std::atomic<CUresult> failed{CUDA_SUCCESS};  // the first failure ends all threads
  const char* call = "";                       // that failed
  int helpers = 0;                             // threads that still copy; guarded by Pool::lock

  struct Piece {
    int64_t at = 0;
    size_t n = 0;  // 0: none
  };
  Piece take() noexcept {
    if (failed.load(std::memory_order_relaxed) != CUDA_SUCCESS) return {};
    const int64_t end = next.fetch_add(piece, std::memory_order_relaxed) + piece - skew;
    const int64_t at = std::max<int64_t>(end - piece, 0);
    return at < nbytes ? Piece{at, size_t(std::min(end, nbytes) - at)} : Piece{};
  }
  // Whether the call failed.
  bool stop(CUresult code, const char* name) noexcept {
    CUresult none = CUDA_SUCCESS;
    if (code != CUDA_SUCCESS && failed.compare_exchange_strong(none, code)) call = name;
    return code != CUDA_SUCCESS;
  }
};

// Two pinned blocks, and for each the event after which the device no longer uses it.
class Lane {
 public:
  Lane(Transfer& transfer, char* blocks) noexcept
      : t(transfer), block{{blocks, t.device}, {blocks + t.piece, t.device}} {}

  // Runs in any thread, without the GIL, in the device's context. When it returns, the last blocks of an
  // upload may still be in use, after a failure those of a download too.
  void run() noexcept {
    int turn = 0;
    for (Transfer::Piece p; (p = t.take()).n; turn ^= 1) {
      Block& b = block[turn];
      if (!finish(b)) return;
      if (t.up) std::memcpy(b.ptr, t.host + p.at, p.n);
      const CUdeviceptr place = t.there + CUdeviceptr(p.at);
      const CUresult code = t.up ? driver().MemcpyHtoDAsync(place, b.ptr, p.n, t.stream)
                                 : driver().MemcpyDtoHAsync(b.ptr, place, p.n, t.stream);
      if (t.stop(code, t.up ? "cuMemcpyHtoDAsync" : "cuMemcpyDtoHAsync") ||
          t.stop(b.done.code, "cuEventCreate") ||
          t.stop(driver().EventRecord(b.done.event, t.stream), "cuEventRecord"))
        return;
      b.piece = p;
    }
    if (!t.up && finish(block[turn])) finish(block[turn ^ 1]);
  }

 private:
  struct Block {
    char* ptr;
    EventLease done;
    Transfer::Piece piece;  // that is being copied
    Block(char* p, DeviceState& d) noexcept : ptr(p), done(d) {}
  };

  // Waits for the device, and copies what it has written.
  bool finish(Block& b) noexcept {
    if (!b.piece.n) return true;
    if (t.stop(driver().EventSynchronize(b.done.event), "cuEventSynchronize")) return false;
    if (!t.up) copy_landed(t.host + b.piece.at, b.ptr, b.piece.n);
    b.piece = {};
    return true;
  }

  Transfer& t;
  Block block[2];
};

// The threads that help the callers. Between copies they wait without cost, until the process ends.
struct Pool {
  struct Work {
    Transfer* transfer;
    char* blocks;
  };
  std::mutex lock;
  std::condition_variable offered, finished;
  std::vector<Work> work;  // that no helper has begun
  int idle = 0;            // helpers without work
  int lanes = 0;           // of all copies, those of the callers included
};
Pool& pool = *new Pool;  // never destroyed, because its threads may outlive static objects

void help() noexcept {
  RelaxedCapture
      relaxed;  // otherwise a capture in another thread would forbid the copies of this one
  std::unique_lock lock(pool.lock);
  for (;;) {
    pool.offered.wait(lock, [] { return !pool.work.empty(); });
    const Pool::Work work = pool.work.back();
    pool.work.pop_back();
    lock.unlock();
    Transfer& t = *work.transfer;
    if (!t.stop(driver().CtxSetCurrent(t.device.primary), "cuCtxSetCurrent"))
      Lane(t, work.blocks).run();
    lock.lock();
    ++pool.idle;
    if (--t.helpers == 0) pool.finished.notify_all();
  }
}

// Copies all pieces in this thread and in helpers. Does not wait for a helper that has not begun when the last
// piece is taken.
void run_lanes(Transfer& t, const std::vector<BufferRef>& blocks) noexcept {
  {
    std::lock_guard guard(pool.lock);
    const int wanted = int(blocks.size()) - 1;
    try {
      pool.work.reserve(pool.work.size() + blocks.size());
      for (; pool.idle < wanted; ++pool.idle) std::thread(help).detach();
    } catch (...) {  // the system is short of memory or threads: use the helpers that exist
    }
    t.helpers = std::min({wanted, pool.idle, int(pool.work.capacity() - pool.work.size())});
    pool.idle -= t.helpers;
    for (int i = 1; i <= t.helpers; ++i) pool.work.push_back({&t, blocks[size_t(i)]->ptr});
  }
  pool.offered.notify_all();
  Lane(t, blocks[0]->ptr).run();
  {
    std::unique_lock lock(pool.lock);
    const auto begun = std::remove_if(pool.work.begin(), pool.work.end(),
                                      [&](const Pool::Work& w) { return w.transfer == &t; });
    const int unbegun = int(pool.work.end() - begun);
    pool.work.erase(begun, pool.work.end());
    pool.idle += unbegun, t.helpers -= unbegun;
    pool.finished.wait(lock, [&] { return t.helpers == 0; });
  }
  if (t.up && t.failed == CUDA_SUCCESS)
    t.stop(driver().StreamSynchronize(t.stream), "cuStreamSynchronize");
}

int allowed_threads() {
  const char* text = std::getenv("GPUINTEROP_TRANSFER_THREADS");
  if (text && *text) {
    char* end;
    const long n = std::strtol(text, &end, 10);
    if (*end || n < 0 || n > kMostThreads)
      fail(Kind::Bounds, "GPUINTEROP_TRANSFER_THREADS",
           "a number of threads from 0 to " + std::to_string(kMostThreads), text,
           "unset it, or set it to 0 to leave copies to the driver");
    return int(n);
  }
  cpu_set_t set;
  const int cores = sched_getaffinity(0, sizeof set, &set) == 0 ? CPU_COUNT(&set) : kUsefulThreads;
  return std::min(cores, kUsefulThreads);
}

// Pinned blocks of `nbytes` for up to `wanted` lanes; fewer if other copies use some, or if memory is short.
// All copies together have at most `allowed` lanes, which bounds the threads and the pinned memory.
struct Lanes {
  std::vector<BufferRef> blocks;
  int count;
  Lanes(int device, int wanted, int allowed, int64_t nbytes, const char* where) {
    {
      std::lock_guard guard(pool.lock);
      count = exiting() ? 0 : std::max(0, std::min(wanted, allowed - pool.lanes));
      pool.lanes += count;
    }
    try {
      while (int(blocks.size()) < count) blocks.push_back(allocate_pinned(device, nbytes, where));
    } catch (...) {  // no pinned memory: use what there is
    }
  }
  ~Lanes() {
    blocks.clear();
    std::lock_guard guard(pool.lock);
    if (pool.lanes -= count; pool.lanes == 0) pool.finished.notify_all();
  }
  Lanes(const Lanes&) = delete;
};

}  // namespace

bool copy_staged(int device, void* dst, const void* src, int64_t nbytes, Direction direction,
                 CUstream stream, const char* where) {
  const int allowed = allowed_threads();
  if (allowed == 0) return false;
  // Few sizes, so that later copies find pinned blocks of their size.
  const uint64_t share = uint64_t(std::clamp(nbytes / 16, kLeastPiece, kMostPiece));
  const auto piece = int64_t(std::bit_floor(share));
  // Each thread has two pieces at least, of which the device copies one while the thread copies the other.
  const int wanted = int(std::min<int64_t>(nbytes / piece / 2, allowed));
  const bool up = direction == Direction::HostToDevice;
  auto* host = static_cast<char*>(up ? const_cast<void*>(src) : dst);
  const auto there = reinterpret_cast<CUdeviceptr>(up ? dst : src);
  const int64_t skew = reinterpret_cast<intptr_t>(host) & (piece - 1);
  DeviceState& d = device_state(device, where);
  Transfer t{d, d.copies, host, there, nbytes, piece, skew, up};
  {
    GilRelease released;
    RelaxedCapture relaxed;
    // The stream may wait for another thread's copy, so this comes before the lanes are taken.
    check(driver().StreamSynchronize(stream), "cuStreamSynchronize", where);
    const Lanes lanes(device, wanted, allowed, 2 * piece, where);
    if (lanes.blocks.empty()) return false;
    run_lanes(t, lanes.blocks);
    if (t.failed != CUDA_SUCCESS)  // some copies may be queued
      for (const BufferRef& block : lanes.blocks)
        note_pinned_use(device, block->ptr, t.stream, where);
  }
  check(t.failed, t.call, where);
  return true;
}

void finish_staging() noexcept {
  if (forked()) return;  // the copies that the parent was making have no threads here
  GilRelease released;
  std::unique_lock lock(pool.lock);
  pool.finished.wait_for(lock, std::chrono::seconds(10), [] { return pool.lanes == 0; });
}

}  // namespace gpuinterop::cuda
