// The place of a generator in its sequence, and calls of a generator of the host that need no Python.
#include <nanobind/nanobind.h>

#include <algorithm>
#include <bit>
#include <cstring>
#include <limits>
#include <vector>

#include "arrays/type.hpp"
#include "captures/recorder.hpp"
#include "elementwise/call_cache.hpp"
#include "interpreter/gil.hpp"
#include "interpreter/register.hpp"
#include "interpreter/served.hpp"
#include "random/fill.hpp"

namespace nb = nanobind;
using namespace nb::literals;

namespace gpuinterop {

using random::Job, random::Numbers, random::State;

namespace {

// The number of the next block, and the key. The GIL guards it.
class Place {
 public:
  explicit Place(uint64_t key) { move(0, 0, key); }
  void move(uint64_t low, uint64_t high, uint64_t key) {
    state_.low = low;
    state_.high = high;
    key_ = key;
    for (uint32_t i = 0; i < 10; ++i) {  // after a round each half is increased by a constant
      state_.keys[2 * i] = static_cast<uint32_t>(key) + 0x9E3779B9u * i;
      state_.keys[2 * i + 1] = static_cast<uint32_t>(key >> 32) + 0xBB67AE85u * i;
    }
  }
  void advance(uint64_t low, uint64_t high) {
    state_.low += low;
    state_.high += high + (state_.low < low);
  }
  State take(uint64_t blocks) {
    const State before = state_;
    advance(blocks, 0);
    return before;
  }
  nb::tuple numbers() const { return nb::make_tuple(state_.low, state_.high, key_); }

 private:
  State state_;
  uint64_t key_;
};

// ---- calls ------------------------------------------------------------------------------------------

// Of a generator whose arrays are in host memory; null for others, and while a capture records.
Place* place_on_host(PyObject* generator) {
  static PyObject *const device = PyUnicode_InternFromString("_device"),
                         *const bits = PyUnicode_InternFromString("bit_generator"),
                         *const name = PyUnicode_InternFromString("_place");
  if (ops::recorder) return nullptr;
  const PyRef on = PyRef::checked(PyObject_GetAttr(generator, device));
  const auto found = find_device(on.get());
  if (!found || found->is_cuda()) return nullptr;
  const PyRef philox = PyRef::checked(PyObject_GetAttr(generator, bits));
  const PyRef place = PyRef::checked(PyObject_GetAttr(philox.get(), name));
  Place* made = nullptr;
  return nb::try_cast(nb::handle(place.get()), made) ? made : nullptr;
}

// Fills a new array, and counts the blocks.
Array filled(Place& place, Job job, Numbers kind, DTypeId dtype, int ndim, const int64_t* shape,
             const char* where) {
  const Array made = make_empty({}, dtype, ndim, shape, where);
  const int64_t each = kind == Numbers::kIntegers ? 2 : 16 / made.itemsize();
  job.out = made.data;
  job.n = made.layout.size();
  if (!job.n) return made;
  job.state = place.take(static_cast<uint64_t>((job.n + each - 1) / each));
  random::fill(job, kind, made.itemsize());
  return made;
}

PyObject* with_size(PyObject* generator, Job job, Numbers kind, PyObject* size, DTypeId dtype,
                    const char* where) {
  Place* const place = place_on_host(generator);
  if (!place) return nullptr;
  int64_t shape[kMaxDims];
  const int ndim = size ? read_ints(size, shape, where, "size") : 0;
  return wrap(result_type(dtype), filled(*place, job, kind, dtype, ndim, shape, where));
}

// Random or standard normal numbers.
PyObject* floats(const Values& v, Numbers kind, const char* where) {
  const auto [generator, size, given_dtype, out] = std::tuple(v[0], v[1], given(v[2]), v[3]);
  if (given(out)) return nullptr;
  const DTypeId dtype = given_dtype ? read_dtype(given_dtype, where) : kFloat32;
  if (dtype != kFloat32 && dtype != kFloat64) return nullptr;
  return with_size(generator, {}, kind, given(size), dtype, where);
}

// Whether a dtype holds the integers from `first` to `last`.
bool holds(DTypeId dtype, int64_t first, int64_t last) {
  if (dtype == kBool) return first >= 0 && last <= 1;
  if (!is_integer(dtype)) return false;
  const bool is_unsigned = kDTypes[dtype].kind == 'u';
  const int bits = static_cast<int>(8 * itemsize_of(dtype)) - !is_unsigned;
  if (is_unsigned && first < 0) return false;
  const int64_t most = bits >= 63 ? std::numeric_limits<int64_t>::max() : (int64_t{1} << bits) - 1;
  return last <= most && (is_unsigned || first >= -most - 1);
}

PyObject* integers(const Values& v) {
  const char* where = "integers";
  const bool both = given(v[2]), with_end = v[5] == Py_True;
  if (!PyLong_CheckExact(v[1]) || (both && !PyLong_CheckExact(v[2])) ||
      (v[5] && !PyBool_Check(v[5])))
    return nullptr;
  const DTypeId dtype = v[4] ? read_dtype(v[4], where) : kInt64;
  const int64_t first = both ? as_int64(v[1], where) : 0;
  int64_t last = as_int64(v[both ? 2 : 1], where);
  if (!with_end && last-- == std::numeric_limits<int64_t>::min()) return nullptr;
  if (first > last || !holds(dtype, first, last)) return nullptr;
  Job job{.low = static_cast<uint64_t>(first)};
  job.range = static_cast<uint64_t>(last) - static_cast<uint64_t>(first) + 1;  // 0: 2^64
  job.least = job.range ? (0 - job.range) % job.range : 0;
  return with_size(v[0], job, Numbers::kIntegers, given(v[3]), dtype, where);
}

// ---- permutations -----------------------------------------------------------------------------------

// Orders the ints below n by random keys: by as many upper bits as there are ints, in passes over digits. That leaves few
// out of order, which insertions put right.
void order_by_keys(const uint64_t* keys, uint64_t n, uint64_t* places, uint64_t* other) {
  const int own = std::bit_width(n - 1), upper = std::min(own + 2, 64 - own);
  const int passes = (upper + 10) / 11, digit = (upper + passes - 1) / passes;
  const uint64_t below = (uint64_t{1} << own) - 1;
  std::vector<uint64_t> starts(size_t{1} << digit);
  if (passes % 2) std::swap(places, other);
  // An int is in the lower bits of its key.
  for (uint64_t i = 0; i < n; ++i) places[i] = (keys[i] & ~below) | i;
  for (int pass = 0; pass < passes; ++pass) {
    const int shift = 64 - digit * (passes - pass);
    const uint64_t mask = starts.size() - 1;
    std::fill(starts.begin(), starts.end(), 0);
    for (uint64_t i = 0; i < n; ++i) ++starts[places[i] >> shift & mask];
    for (uint64_t at = 0; uint64_t& start : starts) at += std::exchange(start, at);
    for (uint64_t i = 0; i < n; ++i) other[starts[places[i] >> shift & mask]++] = places[i];
    std::swap(places, other);
  }
  auto is_before = [&](uint64_t x, uint64_t y) {
    return x >> own != y >> own ? x >> own < y >> own : keys[x & below] < keys[y & below];
  };
  for (uint64_t i = 1; i < n; ++i) {
    const uint64_t one = places[i];
    uint64_t at = i;
    for (; at && is_before(one, places[at - 1]); --at) places[at] = places[at - 1];
    places[at] = one;
  }
  for (uint64_t i = 0; i < n; ++i) places[i] &= below;
}

// The ints below a number in random order.
PyObject* permutation(PyObject* generator, PyObject* count, const char* where) {
  if (!PyLong_CheckExact(count)) return nullptr;
  const int64_t n = as_int64(count, where);
  Place* const place = n > 0 && n >> 31 == 0 ? place_on_host(generator) : nullptr;
  if (!place) return nullptr;
  const Array keys = filled(*place, {}, Numbers::kIntegers, kUInt64, 1, &n, where);
  const Array other = make_empty({}, kInt64, 1, &n, where);
  Array places = make_empty({}, kInt64, 1, &n, where);
  {
    const GilRelease released(places.nbytes() >= kGilBytes / 8);
    const auto of = [](const Array& a) { return reinterpret_cast<uint64_t*>(a.data); };
    order_by_keys(of(keys), static_cast<uint64_t>(n), of(places), of(other));
  }
  return wrap(result_type(kInt64), std::move(places));
}

}  // namespace

void register_random(nb::module_& m) {
  serve({{"random", "self size dtype out", 1},
         [](const Values& v) { return floats(v, Numbers::kUniform, "random"); }});
  serve({{"standard_normal", "self size dtype out", 1},
         [](const Values& v) { return floats(v, Numbers::kNormal, "standard_normal"); }});
  serve({{"integers", "self low high size dtype endpoint", 2}, integers});
  serve({{"permutation", "self x axis", 2},
         [](const Values& v) { return permutation(v[0], v[1], "permutation"); }});
  serve({{"_order", "self count where weights", 3}, [](const Values& v) {
           return given(v[3]) ? nullptr : permutation(v[0], v[1], "permutation");
         }});
  nb::class_<Place>(m, "PhiloxPlace", "The place in a sequence of Philox: a block and a key.")
      .def(nb::init<uint64_t>(), "key"_a)
      .def("move", &Place::move, "low"_a, "high"_a, "key"_a, "Move to a block.")
      .def("advance", &Place::advance, "low"_a, "high"_a, "Move by a number of blocks.")
      .def("numbers", &Place::numbers, "The halves of the block's number, and the key.")
      .def(
          "take",
          [](Place& place, uint64_t blocks) {
            const State before = place.take(blocks);
            return nb::bytes(reinterpret_cast<const char*>(&before), sizeof before);
          },
          "blocks"_a, "Move behind some blocks; return the place before them, as kernels read it.");
  m.def(
      "_random_fill",
      [](nb::handle array, int kind, nb::bytes state, uint64_t low, uint64_t range, uint64_t least,
         double shift, double scale, const char* where) {
        const Array a = read_array(array, where);
        const bool floats = a.dtype == kFloat32 || a.dtype == kFloat64;
        const bool integers = is_integer(a.dtype) || a.dtype == kBool;
        if (a.device.is_cuda() || !a.layout.is_c_contiguous() || state.size() != sizeof(State) ||
            !(static_cast<Numbers>(kind) == Numbers::kIntegers ? integers : floats))
          ops::fail_changed(where);
        ops::note_write(a);
        Job job{a.data, a.layout.size(), {}, low, range, least, shift, scale};
        std::memcpy(&job.state, state.c_str(), sizeof job.state);
        const BufferRef held = a.buffer;  // this thread may lose the GIL
        random::fill(job, static_cast<Numbers>(kind), a.itemsize());
      },
      "array"_a, "kind"_a, "state"_a, "low"_a = 0, "range"_a = 0, "least"_a = 0, "shift"_a = 0.0,
      "scale"_a = 1.0, "where"_a = "random",
      "Fill a C-contiguous array in host memory with the numbers after a state, the bytes of a "
      "GiState. `kind`: 0 uniform, 1 normal, 2 integers.");
}

}  // namespace gpuinterop
