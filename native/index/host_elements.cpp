#include "index/host_elements.hpp"

#include <algorithm>
#include <cstring>
#include <limits>
#include <string>
#include <type_traits>

#include "elementwise/call_cache.hpp"
#include "interpreter/error.hpp"
#include "interpreter/gil.hpp"

namespace gpuinterop::ops {

namespace {

// ---- dimensions ------------------------------------------------------------------------------------

constexpr int kMost = kMaxIndexArrays + 2;

using Dims = Dimensions<kMost>;  // in C order; strides in bytes

// The joint dimensions of arrays of one shape; one without dimensions is repeated.
struct Lines {
  Dims dims;
  char* start[kMost];
  int operands = 0;

  Lines(std::initializer_list<const Array*> arrays) {
    const Layout& shape = (*arrays.begin())->layout;
    for (const Array* a : arrays) start[operands++] = a->data;
    for (int d = 0; d < shape.ndim(); ++d)
      dims.add(shape.shape()[d], operands, [&](int i) {
        const Array& a = *arrays.begin()[i];
        return a.layout.ndim() ? a.layout.strides()[d] * a.itemsize() : 0;
      });
    dims.merge(operands);
  }
  // line(addresses, steps, n)
  template <class Line>
  void each(Line&& line) const {
    int64_t steps[kMost];
    for (int i = 0; i < operands; ++i) steps[i] = dims.last(i);
    dims.lines(start, operands, [&](char** at) { return line(at, steps, dims.line()); });
  }
};

// Calls run() with a type of this itemsize. Elements may lie at any address.
struct Wide {
  uint64_t words[2];
};
template <class Run>
void by_itemsize(int64_t item, Run&& run) {
  switch (item) {
    case 1: return run(uint8_t{});
    case 2: return run(uint16_t{});
    case 4: return run(uint32_t{});
    case 8: return run(uint64_t{});
    default: return run(Wide{});
  }
}

template <class T>
T load(const char* at) {
  T value;
  std::memcpy(&value, at, sizeof value);
  return value;
}
template <class T>
void store(char* at, T value) {
  std::memcpy(at, &value, sizeof value);
}

// ---- indices ----------------------------------------------------------------------------------------

// So many indices are checked, and then used while the cache has them.
constexpr int64_t kChunk = 1024;

template <class Run>
auto by_dtype(DTypeId dtype, Run&& run) {
  switch (dtype) {
    case kInt8: return run(int8_t{});
    case kInt16: return run(int16_t{});
    case kInt32: return run(int32_t{});
    case kUInt8: return run(uint8_t{});
    case kUInt16: return run(uint16_t{});
    case kUInt32: return run(uint32_t{});
    case kUInt64: return run(uint64_t{});
    default: return run(int64_t{});
  }
}

// The position that an index means, by NumPy's rules; outside of the axis if there is none. Without a branch, because
// signs of indices may be random.
template <class T>
int64_t place_inside(T index, int64_t extent) {
  const auto place = static_cast<int64_t>(index);
  if constexpr (std::is_same_v<T, uint64_t>)
    return place < 0 ? extent : place;  // beyond 63 bits
  else
    return place + (extent & place >> 63);
}
// The same where none is outside.
template <class T>
int64_t place_of(T index, int64_t extent, OutOfRange mode) {
  const auto place = static_cast<int64_t>(index);
  const bool huge = std::is_same_v<T, uint64_t> && place < 0;  // beyond 63 bits
  if (mode == OutOfRange::Clip)
    return huge || place >= extent ? extent - 1 : std::max<int64_t>(place, 0);
  const int64_t rest =
      huge ? static_cast<int64_t>(static_cast<uint64_t>(index) % static_cast<uint64_t>(extent))
           : place % extent;
  return rest < 0 ? rest + extent : rest;
}

// Whether no index needs place_of(). An index beyond 63 bits counts as negative.
bool all_inside(const int64_t* index, int64_t n, int64_t extent) {
  const auto last = static_cast<uint64_t>(extent - 1);
  uint64_t signs = 0;
  for (int64_t i = 0; i < n; ++i) {
    const auto value = static_cast<uint64_t>(index[i]);
    signs |= value | (last - value);
  }
  return static_cast<int64_t>(signs) >= 0;
}

// A line of indices of one array.
struct IndexLine {
  const char* at;
  int64_t step, n, extent;
  DTypeId dtype;

  bool is_wide() const noexcept {
    return (dtype == kInt64 || dtype == kUInt64) && (step == 8 || n == 1);
  }
  // Writes the positions; false if one is outside and raises.
  bool read(OutOfRange mode, int64_t* places) const {
    if (extent == 0) return false;
    if (is_wide()) {
      std::memcpy(places, at, static_cast<size_t>(8 * n));
      if (all_inside(places, n, extent)) return true;
    }
    return by_dtype(dtype, [&](auto type) {
      using T = decltype(type);
      uint64_t outside = 0;
      auto run = [&](auto stepped, auto place) {
        for (int64_t i = 0; i < n; ++i) {
          places[i] = place(load<T>(at + i * stepped));
          outside |=
              static_cast<uint64_t>(places[i] < 0) | static_cast<uint64_t>(places[i] >= extent);
        }
      };
      if (mode == OutOfRange::Clip || mode == OutOfRange::Wrap)
        run(step, [&](T index) { return place_of(index, extent, mode); });
      else if (step == sizeof(T))
        run(std::integral_constant<int64_t, sizeof(T)>(),
            [&](T index) { return place_inside(index, extent); });
      else
        run(step, [&](T index) { return place_inside(index, extent); });
      return outside == 0;
    });
  }
};

// Calls visit(line) for the indices of one array, each once, until it returns false.
template <class Visit>
bool each_line(const IndexedElements& at, size_t number, Visit&& visit) {
  const Array& a = at.indices[number];
  Dims dims;
  for (int d = 0; d < a.layout.ndim(); ++d)  // it is broadcast along the others
    if (a.layout.strides()[d])
      dims.add(a.layout.shape()[d], 1, [&](int) { return a.layout.strides()[d] * a.itemsize(); });
  dims.merge(1);
  char* start[] = {a.data};
  const int64_t extent = at.frame.layout.shape()[number];
  return dims.lines(start, 1, [&](char** line) {
    for (int64_t i = 0; i < dims.line(); i += kChunk)
      if (!visit(IndexLine{line[0] + i * dims.last(0), dims.last(0),
                           std::min(kChunk, dims.line() - i), extent, a.dtype}))
        return false;
    return true;
  });
}

bool are_inside(const IndexedElements& at) {
  if (at.mode == OutOfRange::Clip || at.mode == OutOfRange::Wrap) return true;
  int64_t places[kChunk];
  for (size_t i = 0; i < at.indices.size(); ++i)
    if (!each_line(at, i, [&](const IndexLine& line) { return line.read(at.mode, places); }))
      return false;
  return true;
}

// Names the first array with an index outside, and the range of its indices.
[[noreturn]] void fail_outside(const IndexedElements& at, const char* where) {
  for (size_t i = 0; i < at.indices.size(); ++i) {
    const int64_t extent = at.frame.layout.shape()[i];
    const std::string got = by_dtype(at.indices[i].dtype, [&](auto type) -> std::string {
      using T = decltype(type);
      T low = std::numeric_limits<T>::max(), high = std::numeric_limits<T>::lowest();
      each_line(at, i, [&](const IndexLine& line) {
        for (int64_t j = 0; j < line.n; ++j) {
          const T value = load<T>(line.at + j * line.step);
          low = std::min(low, value);
          high = std::max(high, value);
        }
        return true;
      });
      auto outside = [&](T v) {
        return static_cast<uint64_t>(place_inside(v, extent)) >= static_cast<uint64_t>(extent);
      };
      if (!outside(low) && !outside(high)) return "";
      if (low == high) return "index " + std::to_string(low);
      return "indices from " + std::to_string(low) + " to " + std::to_string(high);
    });
    if (!got.empty()) fail_with("index_out_of_range", where, {extent, got, int64_t{at.axes[i]}});
  }
  fail_changed(where);  // another thread wrote the indices meanwhile
}

// ---- elements at indices -----------------------------------------------------------------------------

// The elements of a frame and those of another array, as dimensions before, of and after the index arrays.
// Operands: the index arrays, the frame, the other array.
struct Elements {
  Dims before, block, after;
  char* start[kMost];
  int arrays, frame, other;

  Elements(const IndexedElements& at, const Array& array)
      : arrays(static_cast<int>(at.indices.size())), frame(arrays), other(arrays + 1) {
    const Layout& whole = at.frame.layout;
    for (int i = 0; i < arrays; ++i) start[i] = at.indices[static_cast<size_t>(i)].data;
    start[frame] = at.frame.data;
    start[other] = array.data;
    int first = at.ndim(), last = -1;
    for (int d = 0; d < at.ndim(); ++d)
      for (const Array& a : at.indices)
        if (at.shape()[d] != 1 && a.layout.strides()[d]) {
          first = std::min(first, d);
          last = d;
        }
    for (int d = 0; d < at.ndim(); ++d) {
      Dims& dims = d < first ? before : d > last ? after : block;
      dims.add(at.shape()[d], arrays + 2, [&](int i) {
        if (i == frame) return whole.strides()[arrays + d] * at.frame.itemsize();
        const Array& a = i == other ? array : at.indices[static_cast<size_t>(i)];
        return a.layout.size() == 1 ? 0 : a.layout.strides()[d] * a.itemsize();
      });
    }
    for (Dims* dims : {&before, &block, &after}) dims->merge(arrays + 2);
  }

  bool is_one_chunk() const noexcept { return block.ndim <= 1 && block.line() <= kChunk; }

  // Calls move(frame, places, scale, other, step, n) for lines of n positions: element i is at frame + places[i] * scale
  // and at other + i * step. False as soon as an index is outside; the lines before it have been moved.
  template <class Move>
  bool run(const IndexedElements& at, Move&& move) const {
    int64_t places[kChunk], more[kChunk];
    const int64_t along = block.last(frame), step = block.last(other);
    const bool single = arrays == 1 && along == 0;
    auto stride = [&](int i) { return at.frame.layout.strides()[i] * at.frame.itemsize(); };
    return block.lines(start, arrays + 2, [&](char** line) {
      for (int64_t done = 0; done < block.line(); done += kChunk) {
        const int64_t n = std::min(kChunk, block.line() - done);
        for (int i = 0; i < arrays; ++i) {
          const Array& a = at.indices[static_cast<size_t>(i)];
          const int64_t own = block.last(i);
          const IndexLine indices{line[i] + done * own, own, n, at.frame.layout.shape()[i],
                                  a.dtype};
          if (!indices.read(at.mode, i ? more : places)) return false;
          if (i)
            for (int64_t j = 0; j < n; ++j) places[j] += more[j] * stride(i);
          else if (!single)
            for (int64_t j = 0; j < n; ++j) places[j] = places[j] * stride(0) + (done + j) * along;
        }
        char* const here[] = {line[frame], line[other] + done * step};
        move_lines(here, places, single ? stride(0) : 1, step, n, move);
      }
      return true;
    });
  }

 private:
  // For each index of the dimensions before those of the index arrays.
  template <class Move>
  void move_lines(char* const* here, const int64_t* places, int64_t scale, int64_t step, int64_t n,
                  Move&& move) const {
    char* at[] = {here[0], here[1]};
    int64_t index[kMaxDims];
    std::fill_n(index, before.ndim, 0);
    do {
      move(at[0], places, scale, at[1], step, n);
    } while (advance(at, 2, index, before.shape, before.ndim, -1,
                     [&](int d, int i) { return before.stride[d][frame + i]; }));
  }
};

// Copies from the frame to the other array, or back.
template <class T, bool kWrites>
void move_elements(char* frame, const int64_t* places, int64_t scale, char* other, int64_t step,
                   int64_t n) {
  auto run = [&](auto scaled, auto stepped) {
    for (int64_t i = 0; i < n; ++i) {
      char* const at = frame + places[i] * scaled;
      if constexpr (kWrites)
        store(at, load<T>(other + i * stepped));
      else
        store(other + i * stepped, load<T>(at));
    }
  };
  constexpr std::integral_constant<int64_t, sizeof(T)> item;
  if (scale == item && step == item) return run(item, item);
  if (scale == 1 && step == item) return run(std::integral_constant<int64_t, 1>(), item);
  run(scale, step);
}

template <bool kWrites>
bool move(const IndexedElements& at, const Elements& elements) {
  const int64_t item = at.frame.itemsize();
  const int frame = elements.frame, other = elements.other;
  const Dims& after = elements.after;
  const bool is_run = after.ndim == 1 && after.last(frame) == item && after.last(other) == item;
  const int64_t bytes = is_run ? after.line() * item : item;
  bool inside = false;
  if ((is_run || after.ndim == 0) && bytes <= 16 && (bytes & (bytes - 1)) == 0) {
    by_itemsize(bytes, [&](auto type) {
      inside = elements.run(at, move_elements<decltype(type), kWrites>);
    });
    return inside;
  }
  by_itemsize(item, [&](auto type) {
    using T = decltype(type);
    inside = elements.run(at, [&](char* from, const int64_t* places, int64_t scale, char* to,
                                  int64_t step, int64_t n) {
      for (int64_t i = 0; i < n; ++i) {
        char* pair[] = {from + places[i] * scale, to + i * step};
        if (is_run) {
          std::memcpy(pair[kWrites ? 0 : 1], pair[kWrites ? 1 : 0], static_cast<size_t>(bytes));
          continue;
        }
        const int64_t own = after.last(frame), others = after.last(other);
        auto copy_line = [&](char** line) {
          for (int64_t j = 0; j < after.line(); ++j)
            if constexpr (kWrites)
              store(line[0] + j * own, load<T>(line[1] + j * others));
            else
              store(line[1] + j * others, load<T>(line[0] + j * own));
        };
        after.lines(pair, 2, copy_line, frame);
      }
    });
  });
  return inside;
}

// Adds lines of single elements, one after the other, because an element may occur several times. Integers wrap around.
template <class T>
void add_elements(char* frame, const int64_t* places, int64_t scale, char* other, int64_t step,
                  int64_t n) {
  for (int64_t i = 0; i < n; ++i) {
    char* const at = frame + places[i] * scale;
    store(at, static_cast<T>(load<T>(at) + load<T>(other + i * step)));
  }
}
using AddElements = void (*)(char*, const int64_t*, int64_t, char*, int64_t, int64_t);
AddElements adder(DTypeId dtype) {
  if (dtype == kFloat32) return add_elements<float>;
  if (dtype == kFloat64) return add_elements<double>;
  AddElements found = nullptr;
  if (is_integer(dtype))
    by_dtype(dtype, [&](auto type) { found = add_elements<std::make_unsigned_t<decltype(type)>>; });
  return found;
}

bool add(const IndexedElements& at, const Elements& elements, const HostProgram& sum,
         const char* where) {
  const Dims& after = elements.after;
  const AddElements fast = adder(at.frame.dtype);
  if (fast && after.ndim == 0) return elements.run(at, fast);
  ProgramRun program(sum, after.line(), where);
  const int64_t own = after.last(elements.frame), others = after.last(elements.other);
  const int64_t steps[] = {own, others, own};
  return elements.run(at, [&](char* frame, const int64_t* places, int64_t scale, char* other,
                              int64_t step, int64_t n) {
    for (int64_t i = 0; i < n; ++i) {
      char* const pair[] = {frame + places[i] * scale, other + i * step};
      auto add_line = [&](char** line) {
        char* const operands[] = {line[0], line[1], line[0]};
        program.line(operands, steps, after.line());
      };
      after.lines(pair, 2, add_line, elements.frame);
    }
  });
}

bool is_long(const IndexedElements& at) {
  int64_t size = at.frame.itemsize();
  for (int d = 0; d < at.ndim(); ++d) size *= at.shape()[d];
  return size >= kGilBytes;
}

}  // namespace

void gather_on_host(const IndexedElements& at, const Array& dst, bool keeps_dst,
                    const char* where) {
  bool inside;
  {
    GilRelease released(is_long(at));
    const Elements elements(at, dst);
    inside = (!keeps_dst || elements.is_one_chunk() || are_inside(at)) && move<false>(at, elements);
  }
  if (!inside) fail_outside(at, where);
}

bool take_on_host(const Array& x, const Array& index, const Array& dst) {
  const int64_t item = x.itemsize(), size = index.layout.size();
  GilRelease released(size * item >= kGilBytes);
  const int64_t step = itemsize_of(index.dtype);
  bool inside = true;
  by_itemsize(item, [&](auto type) {
    int64_t places[kChunk];
    for (int64_t done = 0; done < size && inside; done += kChunk) {
      const IndexLine line{index.data + done * step, step, std::min(kChunk, size - done),
                           x.layout.shape()[0], index.dtype};
      inside = line.read(OutOfRange::Raise, places);
      if (inside)
        move_elements<decltype(type), false>(x.data, places, x.layout.strides()[0] * item,
                                             dst.data + done * item, item, line.n);
    }
  });
  return inside;
}

void scatter_on_host(const IndexedElements& at, const Array& value, const HostProgram* sum,
                     const char* where) {
  bool inside;
  {
    GilRelease released(is_long(at) && !(sum && sum->calls_python));
    const Elements elements(at, value);
    inside = elements.is_one_chunk() || are_inside(at);
    if (inside) inside = sum ? add(at, elements, *sum, where) : move<true>(at, elements);
  }
  if (!inside) fail_outside(at, where);
}

// ---- masks -------------------------------------------------------------------------------------------

int64_t count_selected(const Array& mask) {
  if (mask.layout.size() == 0) return 0;
  GilRelease released(mask.layout.size() >= kGilBytes);
  constexpr int64_t kPart = 128;  // a sum of so many fits a byte
  int64_t count = 0;
  Lines({&mask}).each([&](char** at, const int64_t* steps, int64_t n) {
    const char* bits = at[0];
    int64_t i = 0;
    for (; steps[0] == 1 && i + kPart <= n; i += kPart) {
      uint8_t part = 0;
      for (int64_t j = 0; j < kPart; ++j) part = static_cast<uint8_t>(part + (bits[i + j] != 0));
      count += part;
    }
    for (; i < n; ++i) count += bits[i * steps[0]] != 0;
    return true;
  });
  return count;
}

void read_selected(const Array& mask, const Array& x, const Array& dst) {
  const int64_t count = dst.layout.size();
  if (count == 0) return;
  GilRelease released(mask.layout.size() >= kGilBytes);
  by_itemsize(x.itemsize(), [&](auto type) {
    using T = decltype(type);
    int64_t k = 0;  // stays below `count`, also if another thread writes the mask
    Lines({&mask, &x}).each([&](char** at, const int64_t* steps, int64_t n) {
      auto run = [&](auto bit, auto item) {
        for (int64_t i = 0; i < n && k < count; ++i) {  // without a branch that depends on the mask
          store(dst.data + k * static_cast<int64_t>(sizeof(T)), load<T>(at[1] + i * item));
          k += at[0][i * bit] != 0;
        }
      };
      if (steps[0] == 1 && steps[1] == sizeof(T))
        run(std::integral_constant<int64_t, 1>(), std::integral_constant<int64_t, sizeof(T)>());
      else
        run(steps[0], steps[1]);
      return k < count;
    });
  });
}

void write_selected(const Array& mask, const Array& x, const Array& values) {
  const int64_t count = values.layout.size();
  if (count == 0) return;
  GilRelease released(mask.layout.size() >= kGilBytes);
  const int64_t step = values.layout.strides()[0] * values.itemsize();
  by_itemsize(x.itemsize(), [&](auto type) {
    using T = decltype(type);
    int64_t k = 0;
    Lines({&mask, &x}).each([&](char** at, const int64_t* steps, int64_t n) {
      for (int64_t i = 0; i < n && k < count; ++i) {
        char* const to = at[1] + i * steps[1];
        const bool selected = at[0][i * steps[0]] != 0;
        const T value = load<T>(values.data + k * step), old = load<T>(to);
        store(to, selected ? value : old);
        k += selected;
      }
      return k < count;
    });
  });
}

void assign_selected(const Array& mask, const Array& x, const Array& value) {
  if (x.layout.size() == 0) return;
  Array source = value;
  if (value.layout.size() == 1) source.layout = Layout();
  GilRelease released(x.layout.size() >= kGilBytes);
  const Lines lines({&mask, &x, &source});
  by_itemsize(x.itemsize(), [&](auto type) {
    using T = decltype(type);
    lines.each([&](char** at, const int64_t* steps, int64_t n) {
      auto run = [&](auto bit, auto item) {
        for (int64_t i = 0; i < n; ++i) {
          char* const to = at[1] + i * item;
          const T chosen = load<T>(at[2] + i * steps[2]), old = load<T>(to);
          store(to, at[0][i * bit] != 0 ? chosen : old);
        }
      };
      if (steps[0] == 1 && steps[1] == sizeof(T))
        run(std::integral_constant<int64_t, 1>(), std::integral_constant<int64_t, sizeof(T)>());
      else
        run(steps[0], steps[1]);
      return true;
    });
  });
}

void find_selected(const Array& mask, const Array& dst) {
  const Layout& l = mask.layout;
  const int ndim = l.ndim();
  const int64_t count = ndim ? dst.layout.shape()[1] : 0;
  if (count == 0) return;
  GilRelease released(l.size() >= kGilBytes);
  auto* const rows = reinterpret_cast<int64_t*>(dst.data);
  int64_t index[kMaxDims] = {}, k = 0;
  char* at[] = {mask.data};
  const int last = ndim - 1;
  const int64_t step = l.strides()[last];
  constexpr int64_t kTogether = 8;  // elements for which the ends are checked once
  do {
    const int64_t first = k, n = l.shape()[last];
    const char* const bits = at[0];
    int64_t* const row = rows + last * count;
    auto run = [&](auto bit) {
      int64_t i = 0;
      auto find = [&] {
        row[k] = i;
        k += bits[i++ * bit] != 0;
      };
      while (i + kTogether <= n && k + kTogether <= count)
        for (int64_t j = 0; j < kTogether; ++j) find();
      while (i < n && k < count) find();
    };
    step == 1 ? run(std::integral_constant<int64_t, 1>()) : run(step);
    for (int d = 0; d < last; ++d)
      std::fill(rows + d * count + first, rows + d * count + k, index[d]);
  } while (
      k < count &&
      advance(at, 1, index, l.shape(), ndim, last, [&](int d, int) { return l.strides()[d]; }));
}

}  // namespace gpuinterop::ops
