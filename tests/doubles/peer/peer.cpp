// Another DLPack library in C++ for the tests: deleters that count, deleters on native threads, and C exchange
// API tables that misbehave in every way a table can.
#include <dlpack/dlpack.h>
#include <dlfcn.h>

#include <atomic>
#include <chrono>
#include <cstdlib>
#include <new>
#include <stdexcept>
#include <thread>
#include <vector>

namespace {

std::atomic<long> deleted{0};
float memory[6] = {0, 1, 2, 3, 4, 5};

struct Tensor {
  DLManagedTensorVersioned m;
  int64_t shape[2] = {2, 3}, strides[2] = {3, 1};
};

void drop(DLManagedTensorVersioned* m) {
  ++deleted;
  delete static_cast<Tensor*>(m->manager_ctx);
}

template <class Managed>
void count_and_throw(Managed*) {
  ++deleted;
  throw std::runtime_error("the deleter fell over");
}

DLManagedTensorVersioned* make(uint32_t major = 1) {
  auto* t = new Tensor;
  t->m = {{major, 3}, t, drop, 0, {memory, {kDLCPU, 0}, 2, {kDLFloat, 32, 1}, t->shape, t->strides, 0}};
  return &t->m;
}

int good(void*, DLManagedTensorVersioned** out) { return *out = make(), 0; }
int from_the_future(void*, DLManagedTensorVersioned** out) { return *out = make(2), 0; }
int ends_badly(void*, DLManagedTensorVersioned** out) {
  *out = make(2);
  (*out)->deleter = count_and_throw;
  return 0;
}
int nothing(void*, DLManagedTensorVersioned**) { return 0; }
int minus_one(void*, DLManagedTensorVersioned**) { return -1; }
int interrupted(void*, DLManagedTensorVersioned**) {
  auto set = reinterpret_cast<void (*)(void*)>(dlsym(RTLD_DEFAULT, "PyErr_SetNone"));
  return set(*static_cast<void**>(dlsym(RTLD_DEFAULT, "PyExc_KeyboardInterrupt"))), -1;
}
int throws(void*, DLManagedTensorVersioned**) { throw std::runtime_error("peer fell over"); }
int throws_int(void*, DLManagedTensorVersioned**) { throw 7; }
int no_stream(DLDeviceType, int32_t, void** out) { return *out = nullptr, 0; }
int refuses(DLManagedTensorVersioned*, void**) { return -1; }
int takes_and_gives_nothing(DLManagedTensorVersioned* m, void** out) {
  m->deleter(m);
  return *out = nullptr, 0;
}
int takes_and_refuses(DLManagedTensorVersioned* m, void**) { return m->deleter(m), -1; }

DLPackExchangeAPI tables[] = {
    {{{1, 3}, nullptr}, nullptr, good, nullptr, nullptr, no_stream},
    {{{1, 3}, nullptr}, nullptr, nullptr, nullptr, nullptr, nullptr},
    {{{1, 3}, nullptr}, nullptr, minus_one, nullptr, nullptr, no_stream},
    {{{1, 3}, nullptr}, nullptr, nothing, nullptr, nullptr, no_stream},
    {{{1, 3}, nullptr}, nullptr, throws, nullptr, nullptr, no_stream},
    {{{1, 3}, nullptr}, nullptr, throws_int, nullptr, nullptr, no_stream},
    {{{2, 0}, nullptr}, nullptr, throws, nullptr, nullptr, no_stream},       // a major of its own
    {{{2, 0}, &tables[0].header}, nullptr, throws, nullptr, nullptr, nullptr},  // the valid table is its predecessor
    {{{1, 9}, nullptr}, nullptr, from_the_future, nullptr, nullptr, nullptr},
    {{{1, 3}, nullptr}, nullptr, good, refuses, nullptr, no_stream},
    {{{1, 3}, nullptr}, nullptr, ends_badly, nullptr, nullptr, no_stream},
    {{{1, 3}, nullptr}, nullptr, interrupted, nullptr, nullptr, no_stream},
    {{{1, 3}, nullptr}, nullptr, good, takes_and_gives_nothing, nullptr, no_stream},
    {{{1, 3}, nullptr}, nullptr, good, takes_and_refuses, nullptr, no_stream},
};

template <class Managed>
void count(Managed*) {
  ++deleted;
}
void call(DLManagedTensorVersioned* m) { m->deleter(m); }

std::atomic<int> allocations_left{-1};

}  // namespace

// For a process that has this library preloaded: every C++ library in it allocates here.
void* operator new(size_t size) {
  if (allocations_left >= 0 && allocations_left-- == 0) throw std::bad_alloc();
  if (void* block = std::malloc(size ? size : 1)) return block;
  throw std::bad_alloc();
}

extern "C" {

// The allocation after `n` further ones fails.
void peer_fail_new(int n) { allocations_left = n; }

long peer_deleted() { return deleted.load(); }
void* peer_count_legacy() { return reinterpret_cast<void*>(&count<DLManagedTensor>); }
void* peer_count_versioned() { return reinterpret_cast<void*>(&count<DLManagedTensorVersioned>); }
void* peer_throw_legacy() { return reinterpret_cast<void*>(&count_and_throw<DLManagedTensor>); }
void* peer_throw_versioned() { return reinterpret_cast<void*>(&count_and_throw<DLManagedTensorVersioned>); }
void* peer_table(int i) { return &tables[i]; }

// Ends a consumed struct as a consumer written in C++ does: on a thread Python has never seen.
void peer_delete_on_thread(DLManagedTensorVersioned* m) { std::thread(call, m).join(); }
// The same, while the caller (and its GIL, if it comes through PyDLL) waits for nothing.
void peer_delete_later(DLManagedTensorVersioned* m, int milliseconds) {
  std::thread([=] {
    std::this_thread::sleep_for(std::chrono::milliseconds(milliseconds));
    call(m);
  }).detach();
}
// After the interpreter has been finalized.
void peer_delete_at_exit(DLManagedTensorVersioned* m) {
  static auto* kept = new std::vector<DLManagedTensorVersioned*>;
  kept->push_back(m);
  if (kept->size() == 1)
    std::atexit([] {
      for (auto* each : *kept) call(each);
    });
}
// In the middle of the interpreter's end, from another thread.
void peer_delete_while_finalizing(DLManagedTensorVersioned* m) {
  using Question = int (*)();
  auto ask = reinterpret_cast<Question>(dlsym(RTLD_DEFAULT, "Py_IsFinalizing"));
  if (!ask) ask = reinterpret_cast<Question>(dlsym(RTLD_DEFAULT, "_Py_IsFinalizing"));
  std::thread([=] {
    while (!ask()) std::this_thread::sleep_for(std::chrono::microseconds(50));
    call(m);
  }).detach();
}

}  // extern "C"
