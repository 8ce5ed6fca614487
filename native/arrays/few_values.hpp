// Containers for the values of one call: cheap to construct when most of the values are not used.
#pragma once

#include <memory>

#include "arrays/array.hpp"

namespace gpuinterop::ops {

// The array of an object as it was at one time, or nothing. The object must outlive the copy, which uses its
// references to the memory: counting new ones would cost as much as a small addition.
class MaybeArray {
 public:
  MaybeArray() noexcept {}
  MaybeArray(const MaybeArray& o) {
    if (o) *this = *o;
  }
  ~MaybeArray() { reset(); }
  MaybeArray& operator=(const Array& a) {
    reset();
    new (&array_) Array{a.layout,
                        a.data,
                        PyRef::steal(a.base.get()),
                        BufferRef(a.buffer.get()),
                        a.device,
                        a.dtype,
                        a.readonly,
                        a.is_copied};
    has_value_ = true;
    return *this;
  }
  explicit operator bool() const noexcept { return has_value_; }
  const Array& operator*() const noexcept { return array_; }
  const Array* operator->() const noexcept { return &array_; }

 private:
  void reset() noexcept {
    if (!std::exchange(has_value_, false)) return;
    array_.base.release();
    array_.buffer.release();
    array_.~Array();
  }

  union {
    Array array_;
  };
  bool has_value_ = false;
};

// The result of a call: an array, or a tuple of several. New reference; throws.
inline PyObject* one_or_tuple(PyRef* results, int n) {
  if (n == 1) return results[0].release();
  PyRef tuple = PyRef::checked(PyTuple_New(n));
  for (int j = 0; j < n; ++j) PyTuple_SetItem(tuple.get(), j, results[j].release());
  return tuple.release();
}

// n default values, on the stack if they are few: most calls have one to three operands.
template <class T, int Few>
class FewValues {
 public:
  explicit FewValues(int n)
      : more_(n > Few ? new T[static_cast<size_t>(n)] : nullptr), at_(more_ ? more_.get() : few_) {}
  FewValues(const FewValues&) = delete;
  T& operator[](int i) noexcept { return at_[i]; }
  T* get() noexcept { return at_; }

 private:
  T few_[Few];
  std::unique_ptr<T[]> more_;
  T* at_;
};

}  // namespace gpuinterop::ops
