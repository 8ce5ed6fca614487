// Loans: memory that was exported to a library which reads it when it computes, as JAX does, and whose
// arrays are immutable. The struct's deleter returns the loan, because the library calls it only when the
// computations that read the memory are done. A write by gpuinterop waits for loans, or is refused.
#pragma once

#include "arrays/array.hpp"

namespace gpuinterop {

// One loan, inside the struct that the consumer holds. All loans form one list.
struct Loan {
  Loan *previous = nullptr, *next = nullptr;
  Buffer* buffer = nullptr;  // null: not lent
  const char *low = nullptr, *high = nullptr;
};

void lend(Loan& loan, const Array& a) noexcept;
void give_back(
    Loan& loan) noexcept;  // on any thread, without the GIL; does nothing for an empty loan

// Whether there is an outstanding loan of the memory of these elements.
bool is_lent(const Array& a) noexcept;

// Called before elements are written: returns when the write cannot change what a consumer reads, or raises
// the error of the consumer's converter. May drop the GIL.
void wait_for_loans(const Array& written, const char* where);
inline void require_returned(const Array& written, const char* where) {
  if (written.buffer && written.buffer->loans.load(std::memory_order_acquire)) [[unlikely]]
    wait_for_loans(written, where);
}

}  // namespace gpuinterop
