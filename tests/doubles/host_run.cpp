// Runs a kernel's grid on the host: block after block, thread after thread. Where a kernel has barriers
// or shuffles its threads are fibers: one that has to wait yields to the next until all have arrived.
#include <ucontext.h>

#include <deque>
#include <memory>
#include <mutex>

struct HostIndex {
  unsigned x, y, z;
};
HostIndex threadIdx, blockIdx, blockDim, gridDim;

namespace {

struct Fiber {
  void* place[5];  // where it resumes
  std::unique_ptr<char[]> stack;
  unsigned lane;
  bool done;
};
constexpr size_t STACK = 64 * 1024;
std::deque<Fiber> fibers;  // each serves one thread of every block to come
void* scheduler[5];
unsigned current, arrived, generation;
void (*kernel_now)(void*);
void* parameters_now;

// Not swapcontext, whose two system calls cost more than a kernel's thread does.
[[noreturn, gnu::noinline]] void jump(void** to) { __builtin_longjmp(to, 1); }
[[gnu::noinline]] void leave(void** here, void** to) {
  if (!__builtin_setjmp(here)) jump(to);
}
void yield() { leave(fibers[current].place, scheduler); }

void body() {
  for (;;) {
    kernel_now(parameters_now);
    fibers[current].done = true;
    yield();
  }
}

[[gnu::noinline]] void start(ucontext_t* context) {
  if (!__builtin_setjmp(scheduler)) setcontext(context);
}

void resume(unsigned t) {
  current = t;
  threadIdx = {t % blockDim.x, t / blockDim.x, 0};
  if (t < fibers.size()) return leave(scheduler, fibers[t].place);
  fibers.push_back({{}, std::unique_ptr<char[]>(new char[STACK]), 0, false});
  ucontext_t context;
  getcontext(&context);
  context.uc_stack.ss_sp = fibers[t].stack.get();
  context.uc_stack.ss_size = STACK;
  context.uc_link = nullptr;
  makecontext(&context, body, 0);
  start(&context);
}

void run_together(unsigned threads) {
  for (unsigned t = 0; t < threads && t < fibers.size(); ++t) fibers[t].done = false;
  for (unsigned left = threads; left;) {
    left = 0;
    for (unsigned t = 0; t < threads; ++t) {
      if (t < fibers.size() && fibers[t].done) continue;
      resume(t);
      left += !fibers[t].done;
    }
    // Released between two rounds, so that the threads of a warp go on together.
    if (arrived == threads) {
      arrived = 0;
      ++generation;
    }
  }
}

}  // namespace

extern "C" void host_barrier() {
  const unsigned own_generation = generation;
  for (++arrived; generation == own_generation;) yield();
}

extern "C" int host_barrier_or(int value) {
  fibers[current].lane = value;
  host_barrier();
  unsigned any = 0;
  for (unsigned t = 0; t < blockDim.x; ++t) any |= fibers[t].lane;
  host_barrier();
  return any != 0;
}

// The threads of a warp meet, because each of them runs once in a round.
extern "C" void host_meet() { yield(); }

// Every thread of a warp publishes, all meet, everyone reads, all meet again.
extern "C" unsigned host_shuffle(unsigned value, unsigned from) {
  const unsigned me = current;
  fibers[me].lane = value;
  yield();
  const unsigned got = fibers[me / 32 * 32 + from].lane;
  yield();
  return got;
}

extern "C" unsigned host_ballot(unsigned value) {
  const unsigned me = current, first = me / 32 * 32;
  fibers[me].lane = value;
  yield();
  unsigned bits = 0;
  for (unsigned i = 0; i < 32; ++i) bits |= fibers[first + i].lane << i;
  yield();
  return bits;
}

extern "C" void host_run(const unsigned* grid, const unsigned* block, void (*kernel)(void*), void* parameters, int together) {
  static std::mutex one_at_a_time;
  std::lock_guard<std::mutex> lock(one_at_a_time);
  blockDim = {block[0], block[1], block[2]};
  gridDim = {grid[0], grid[1], grid[2]};
  kernel_now = kernel;
  parameters_now = parameters;
  const unsigned threads = block[0] * block[1];
  for (unsigned y = 0; y < grid[1]; ++y)
    for (unsigned x = 0; x < grid[0]; ++x) {
      blockIdx = {x, y, 0};
      if (together) {
        run_together(threads);
        continue;
      }
      for (unsigned t = 0; t < threads; ++t) {
        threadIdx = {t % block[0], t / block[0], 0};
        kernel(parameters);
      }
    }
}
