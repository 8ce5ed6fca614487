// Freeing without deep recursion. Freeing one thing may drop the last reference to the next of its
// kind, through any foreign object between them, as in from_dlpack(numpy.from_dlpack(x)) repeated; a
// long chain would exhaust the C stack.
#pragma once

#include <utility>

namespace gpuinterop {

// Calls Free(one); beyond a few nested calls on a thread, `one` waits for the outermost of them.
// Link(one) is where it keeps its place in the queue meanwhile.
template <auto Free, auto Link, class T>
void unwind(T* one) noexcept {
  constexpr int kMaxNested = 16;
  thread_local int nested = 0;
  thread_local T* waiting = nullptr;
  if (nested >= kMaxNested) {
    Link(one) = std::exchange(waiting, one);
    return;
  }
  ++nested;
  Free(one);
  while (nested == 1 && waiting) {
    T* next = waiting;
    waiting = Link(next);
    Free(next);
  }
  --nested;
}

}  // namespace gpuinterop
