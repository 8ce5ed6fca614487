#include "arrays/loans.hpp"

#include <mutex>
#include <tuple>

#include "devices/device_state.hpp"
#include "devices/stream.hpp"
#include "interpreter/hooks.hpp"

namespace gpuinterop {

namespace {

std::mutex lock;
Loan* first = nullptr;  // protected by `lock`

// The addresses between which the elements lie. An array whose span is not known counts as all memory.
std::pair<const char*, const char*> bytes_of(const Array& a) noexcept {
  try {
    return a.bytes("write");
  } catch (...) {
    return {nullptr, reinterpret_cast<const char*>(UINTPTR_MAX)};
  }
}

}  // namespace

void lend(Loan& loan, const Array& a) noexcept {
  if (!a.buffer || a.layout.size() == 0) return;
  std::tie(loan.low, loan.high) = bytes_of(a);
  loan.buffer = a.buffer.get();
  std::lock_guard guard(lock);
  loan.next = first;
  if (first) first->previous = &loan;
  first = &loan;
  loan.buffer->loans.fetch_add(1, std::memory_order_relaxed);
}

void give_back(Loan& loan) noexcept {
  if (!loan.buffer) return;
  std::lock_guard guard(lock);
  (loan.previous ? loan.previous->next : first) = loan.next;
  if (loan.next) loan.next->previous = loan.previous;
  if (loan.buffer->device.is_cuda())
    loan.buffer->loans.fetch_or(kLoanReturned, std::memory_order_relaxed);
  loan.buffer->loans.fetch_sub(1, std::memory_order_release);
  loan.buffer = nullptr;
}

bool is_lent(const Array& a) noexcept {
  if (!a.buffer || !(a.buffer->loans.load(std::memory_order_acquire) & ~kLoanReturned))
    return false;
  const auto [low, high] = bytes_of(a);
  std::lock_guard guard(lock);
  for (const Loan* l = first; l; l = l->next)
    if (l->buffer == a.buffer.get() && l->low < high && low < l->high) return true;
  return false;
}

void wait_for_loans(const Array& written, const char* where) {
  if (written.layout.size() == 0) return;
  const Array kept = written;  // Python code may change or drop the array
  if (is_lent(kept)) {
    const PyRef seen = PyRef::steal(wrap(array_type, Array(kept)));
    call_hook(Hook::Foreign, "(sOs)", "wait", seen.get(), where);
  }
  Buffer* b = kept.buffer.get();
  if (!(b->loans.load(std::memory_order_acquire) & kLoanReturned)) return;
  // The consumer may call the deleter when its work is queued, on a stream that it does not report.
  const CUstream stream = cuda::current_stream(b->device.id);
  if (cuda::is_capturing(stream)) return;  // the replay waits
  cuda::wait_for_all(b->device.id, stream, where);
  b->loans.fetch_and(~kLoanReturned, std::memory_order_relaxed);
}

}  // namespace gpuinterop
