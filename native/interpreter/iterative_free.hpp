// Frees long ownership chains without recursion. Freeing one object may drop the last reference to the
// next of its kind, through foreign objects between them, as in repeated
// from_dlpack(numpy.from_dlpack(x)); recursion would exhaust the C stack.
#pragma once

#include <utility>

namespace gpuinterop {

// Calls Free(one). Beyond a few nested calls on a thread, `one` is queued for the outermost call;
// Link(one) is its link in the queue.
template <auto Free, auto Link, class T>
void free_iteratively(T* one) noexcept {
  constexpr int kMaxNested = 16;
  struct Here {
    int nested = 0;
    T* waiting = nullptr;
  };
  // With this model an access is not a function call.
  thread_local Here here [[gnu::tls_model("initial-exec")]];
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
