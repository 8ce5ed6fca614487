#include "elementwise/call_cache.hpp"

#include <algorithm>
#include <unordered_map>
#include <unordered_set>
#include <utility>

#include "interpreter/error.hpp"

namespace gpuinterop::ops {

namespace {

constexpr size_t kMostCalls = 16384;

struct Entry {
  std::shared_ptr<const Prepared> prepared;
  std::vector<PyTypeObject*> classes;  // of the key, borrowed: see forget_class
};
struct BytesHash {
  using is_transparent = void;
  size_t operator()(std::string_view s) const noexcept { return std::hash<std::string_view>()(s); }
};
using Calls = std::unordered_map<std::string, Entry, BytesHash, std::equal_to<>>;

Calls& calls = *new Calls;  // never destroyed

template <class Condition>
void forget_if(Condition&& condition) {
  std::vector<Entry> dropped;  // destroyed last: Python code may run then
  for (auto it = calls.begin(); it != calls.end();) {
    if (!condition(it->first, it->second)) {
      ++it;
      continue;
    }
    dropped.push_back(std::move(it->second));
    it = calls.erase(it);
  }
}

auto& watched = *new std::unordered_set<PyTypeObject*>;  // the classes of all keys

void forget_class(PyTypeObject* type) {
  watched.erase(type);
  forget_if([type](const std::string&, const Entry& entry) {
    return std::find(entry.classes.begin(), entry.classes.end(), type) != entry.classes.end();
  });
}

}  // namespace

void CallKey::begin(Subject subject, uint32_t number) {
  size_ = 0;
  classes_.clear();
  put(subject);
  put(number);
}

void CallKey::put_class(PyTypeObject* type) {
  classes_.push_back(type);
  put(type);
}

void CallKey::put_array(PyObject* array) {
  const Array& a = unwrap(array);
  struct {
    int32_t device;
    DTypeId dtype;
    uint8_t ndim, alignment, readonly;
  } head = {};
  head.device = a.device.is_cuda() ? a.device.id : -1;
  head.dtype = a.dtype;
  head.ndim = static_cast<uint8_t>(a.layout.ndim());
  head.alignment = static_cast<uint8_t>(reinterpret_cast<uintptr_t>(a.data) & 15);
  head.readonly = a.readonly;
  put_class(Py_TYPE(array));
  put(head);
  // Shape and strides are adjacent.
  append(a.layout.shape(), 2 * sizeof(int64_t) * static_cast<size_t>(a.layout.ndim()));
}

std::shared_ptr<const Prepared> find_prepared(const CallKey& key) {
  const auto found = calls.find(key.bytes());
  return found == calls.end() ? nullptr : found->second.prepared;
}

void keep_prepared(const CallKey& key, std::shared_ptr<const Prepared> prepared) {
  for (PyTypeObject* type : key.classes()) {
    if (watched.count(type)) continue;
    before_destruction(type, forget_class);
    watched.insert(type);
  }
  Calls dropped;  // destroyed last: Python code may run then
  if (calls.size() >= kMostCalls) calls.swap(dropped);
  calls.insert_or_assign(std::string(key.bytes()), Entry{std::move(prepared), key.classes()});
}

void forget_calls(Subject subject, uint32_t number) {
  CallKey head;
  head.begin(subject, number);
  forget_if([&](const std::string& bytes, const Entry&) {
    return std::string_view(bytes).starts_with(head.bytes());
  });
}

void forget_calls() { const Calls dropped = std::exchange(calls, Calls()); }

void fail_changed(const std::string& where) {
  fail(Kind::Bounds, where, "operands that keep their layout during the call",
       "an operand whose shape or strides changed during the call",
       "do not change the array in a finaliser or in another thread");
}

}  // namespace gpuinterop::ops
