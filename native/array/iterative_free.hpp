// Freeing without deep recursion. Freeing one thing may drop the last reference to the next of its
// kind, through any foreign object between them, as in from_dlpack(numpy.from_dlpack(x)) repeated; a
// long chain would exhaust the C stack.
#pragma once

#include <utility>

namespace gpuinterop {

// Calls Free(one); beyond a few nested calls on a thread, `one` waits for the outermost of them.
// Link(one) is where it keeps its place in the queue meanwhile.
template <auto Free, auto Link, class T>
void free_iteratively(T* one) noexcept {
  constexpr int kMaxNested = 16;
  struct Here {  // together, because finding a thread's own variable is a call
    int nested = 0;
    T* waiting = nullptr;
  };
  thread_local Here of_thread;
  Here& here = of_thread;
  if (here.nested >= kMaxNested) {
    Link(one) = std::exchange(here.waiting, one);
    return;
  }
  ++here.nested;
  Free(one);
  while (here.nested == 1 && here.waiting) {
    T* next = here.waiting;
    here.waiting = Link(next);
    Free(next);
  }
  --here.nested;
}

}  // namespace gpuinterop
