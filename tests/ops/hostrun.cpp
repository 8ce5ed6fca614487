// Runs a kernel's grid on the host: block after block, thread after thread; with one real thread each
// where the kernel has barriers.
#include <barrier>
#include <thread>
#include <vector>

struct HostIndex {
  unsigned x, y, z;
};
thread_local HostIndex threadIdx;
HostIndex blockIdx, blockDim, gridDim;
static std::barrier<>* barrier_now = nullptr;
extern "C" void host_barrier() { barrier_now->arrive_and_wait(); }

extern "C" void host_run(const unsigned* grid, const unsigned* block, void (*kernel)(void*), void* parameters, int barrier) {
  blockDim = {block[0], block[1], block[2]};
  gridDim = {grid[0], grid[1], grid[2]};
  const unsigned threads = block[0] * block[1];
  auto one = [&](unsigned t) {
    threadIdx = {t % block[0], t / block[0], 0};
    kernel(parameters);
  };
  for (unsigned b = 0; b < grid[0]; ++b) {
    blockIdx = {b, 0, 0};
    if (!barrier) {
      for (unsigned t = 0; t < threads; ++t) one(t);
      continue;
    }
    std::barrier<> gate(threads);
    barrier_now = &gate;
    std::vector<std::thread> pool;
    for (unsigned t = 0; t < threads; ++t) pool.emplace_back(one, t);
    for (auto& thread : pool) thread.join();
  }
}
