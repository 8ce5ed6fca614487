// The call cache: finds what Python prepared for a call by the bytes of the call's key. For elementwise
// operations it keeps the dtypes and classes of the results, and a compiled kernel for each class of layouts.
// For reductions and products it keeps launch plans for exact layouts.
#pragma once

#include <cstring>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "arrays/array.hpp"

namespace gpuinterop::ops {

struct Prepared {
  virtual ~Prepared() = default;
};

// What is called. Keys begin with it and a number: the id of an operation, a reduction, a PlanCache or a planned function, the kind
// of a product, or the device of cublasLt, of tensor products and of cuFFT.
enum class Subject : uint8_t {
  Operation,
  Kernel,
  Reduction,
  ProductTypes,
  Product,
  CublasLt,
  TensorProduct,
  Cufft,
  PlanCache,
  Planned
};

class CallKey {
 public:
  void begin(Subject subject, uint32_t number);
  void append(const void* from, size_t n) {  // inline, unlike std::string's
    if (size_ + n > bytes_.size()) bytes_.resize(2 * (size_ + n));
    std::memcpy(bytes_.data() + size_, from, n);
    size_ += n;
  }
  template <class T>
  void put(const T& value) {
    append(&value, sizeof value);
  }
  void put_class(PyTypeObject* type);
  // Class, device, dtype, shape, strides, and the properties of the address that a plan depends on.
  void put_array(PyObject* array);

  std::string_view bytes() const noexcept { return {bytes_.data(), size_}; }
  const std::vector<PyTypeObject*>& classes() const noexcept { return classes_; }
  bool operator==(const CallKey& other) const noexcept { return bytes() == other.bytes(); }

 private:
  std::vector<char> bytes_;  // of which size_ are used
  size_t size_ = 0;
  std::vector<PyTypeObject*> classes_;  // borrowed
};

// The GIL guards the cache. An entry is removed when a class of its key is destroyed, because another class may
// then get the same address. A full cache drops all entries, so that varying layouts do not fill memory.
std::shared_ptr<const Prepared> find_prepared(const CallKey& key);
void keep_prepared(const CallKey& key, std::shared_ptr<const Prepared> prepared);
void forget_calls(Subject subject, uint32_t number);
void forget_calls();

// A plan for one layout must not run on another.
[[noreturn]] void fail_changed(const std::string& where);

// Returns the entry for the key that write_key(CallKey&) writes, or else stores what prepare() returns. Null
// if prepare() returns null, because it has carried the call out. prepare() may run Python code, which may
// use the cache and change the operands.
template <class T, class WriteKey, class Prepare>
std::shared_ptr<const T> find_or_prepare(WriteKey&& write_key, Prepare&& prepare,
                                         const char* where) {
  static CallKey key;  // kept for its capacity
  write_key(key);
  if (std::shared_ptr<const Prepared> found = find_prepared(key))
    return std::static_pointer_cast<const T>(std::move(found));
  const CallKey own = key;
  std::shared_ptr<const T> made = prepare();
  if (!made) return made;
  write_key(key);
  if (!(key == own)) fail_changed(where);
  keep_prepared(own, made);
  return made;
}

}  // namespace gpuinterop::ops
