// x[key], x[key] = value, len and iteration.
#include <algorithm>
#include <cmath>

#include "arrays/type.hpp"
#include "captures/recorder.hpp"
#include "elementwise/host_loops.hpp"
#include "elementwise/operands.hpp"
#include "elementwise/overlap.hpp"
#include "exchange/foreign_types.hpp"
#include "exchange/import_any.hpp"
#include "index/calls.hpp"
#include "index/elements.hpp"
#include "interpreter/error.hpp"
#include "interpreter/error_translation.hpp"
#include "interpreter/hooks.hpp"

namespace gpuinterop {

namespace {

constexpr const char* kGet = "x[key]";
constexpr const char* kSet = "x[key] = value";

// Whether a key whose __index__ returned `number` is nevertheless an index array or a mask. For a torch tensor
// with one element, __index__ returns that element, and 1 for True.
bool is_index_array(PyObject* item, int64_t number) {
  if (!PyMapping_Check(item) || PyObject_CheckBuffer(item)) return false;  // NumPy's numbers, fast
  const PyRef axes = PyRef::steal(PyObject_GetAttrString(item, "ndim"));   // faster than its shape
  const long ndim = axes && PyLong_Check(axes.get()) ? PyLong_AsLong(axes.get()) : 0;
  forgive();
  if (!axes) return false;
  return ndim > 0 || (number >> 1 == 0 &&
                      exchange::text_attribute(item, "dtype").find("bool") != std::string::npos);
}

// True and the value when `item` is an integer; bools and index arrays are not.
bool read_index(PyObject* item, int64_t* out, const char* where) {
  if (PyBool_Check(item) || PyList_Check(item) || PyTuple_Check(item)) return false;
  if (is_array(item) && unwrap(item).layout.ndim() > 0) return false;
  if (!PyLong_Check(item) && !PyIndex_Check(item)) return false;
  *out = PyNumber_AsSsize_t(item, PyExc_IndexError);
  if (*out == -1 && PyErr_Occurred()) {
    const bool index_array = PyErr_ExceptionMatches(PyExc_TypeError);
    if (!index_array && !PyErr_ExceptionMatches(PyExc_IndexError)) throw PythonError();
    PyErr_Clear();
    if (index_array) return false;
    fail(Kind::Index, where, "an index that fits 63 bits", repr_text(item),
         "index within the array's shape");
  }
  return PyLong_Check(item) || !is_index_array(item, *out);
}

// Called when a slice could not be read. Errors raised by its parts pass through.
[[noreturn]] void bad_slice(PyObject* slice, const char* where) {
  const bool zero = PyErr_ExceptionMatches(PyExc_ValueError);
  if (!zero && !PyErr_ExceptionMatches(PyExc_TypeError)) throw PythonError();
  PyErr_Clear();
  fail(zero ? Kind::Shape : Kind::Type, where, "a slice of ints whose step is not zero",
       repr_text(slice), "convert its parts with int(), and omit a step of zero");
}

// Whether the key certainly has no arrays: each of its parts stands for one axis or none. Only then an error
// that depends on the number of axes is certain.
bool is_basic(PyObject* key) {
  const bool several = PyTuple_Check(key);
  for (Py_ssize_t i = 0, n = several ? PyTuple_Size(key) : 1; i < n; ++i) {
    PyObject* item = several ? PyTuple_GetItem(key, i) : key;
    const bool is_number = PyIndex_Check(item) && !PyBool_Check(item) && !PyMapping_Check(item);
    if (!is_number && !PySlice_Check(item) && item != Py_Ellipsis && item != Py_None) return false;
  }
  return true;
}

// Reads a key of ints, slices, Ellipsis and None, and writes the view's layout and address into `view`. The
// key may also have arrays of integers on the array's device, whose axes the view keeps.
class KeyReader {
 public:
  // Copies what it reads: an __index__ in the key may run code that changes the array.
  KeyReader(const Array& source, Array& view, const char* where)
      : layout_(source.layout),
        data_(source.data),
        item_(source.itemsize()),
        view_(view),
        where_(where) {}

  // False for keys with other arrays, or with arrays and ints, and for keys with too many parts:
  // gpuinterop/index/keys.py reads the first and raises for the second.
  bool run(PyObject* key) {
    key_ = key;
    const bool several = PyTuple_Check(key);
    const Py_ssize_t n = several ? PyTuple_Size(key) : 1;
    auto part = [&](Py_ssize_t i) { return several ? PyTuple_GetItem(key, i) : key; };
    int used = 0, ellipses = 0;
    for (Py_ssize_t i = 0; i < n; ++i) {
      ellipses += part(i) == Py_Ellipsis;
      used += part(i) != Py_Ellipsis && part(i) != Py_None;
    }
    const int ndim = layout_.ndim();
    if (ellipses > 1 || used > ndim) return false;
    for (Py_ssize_t i = 0; i < n; ++i) {
      if (part(i) == Py_Ellipsis)
        keep(ndim - used);
      else if (!apply(part(i), i))
        return false;
    }
    if (has_int_ && !arrays_.arrays.empty()) return false;
    keep(ndim - axis_);
    view_.layout = Layout::with_ndim(count_);
    std::copy_n(shape_, count_, view_.layout.shape());
    std::copy_n(strides_, count_, view_.layout.strides());
    view_.layout.finish(where_);
    view_.data = view_.layout.size() ? data_ + offset_ * item_ : nullptr;
    return true;
  }

  const IndexArrays& arrays() const noexcept { return arrays_; }

 private:
  bool apply(PyObject* item, Py_ssize_t place) {
    if (item == Py_None) {
      push(1, 0);
      return true;
    }
    const int64_t n = layout_.shape()[axis_], step = layout_.strides()[axis_];
    if (PySlice_Check(item)) {
      Py_ssize_t start, stop, by;
      if (PySlice_Unpack(item, &start, &stop, &by) < 0) bad_slice(item, where_);
      const Py_ssize_t length = PySlice_AdjustIndices(n, &start, &stop, by);
      if (length > 0) offset_ += start * step;
      // With one element the step is not used, and step * by might overflow.
      push(length, length > 1 ? step * by : step);
      ++axis_;
      return true;
    }
    if (is_index(item, view_) && unwrap(item).layout.ndim() > 0) {
      // The axes of arrays that are not side by side in the key come first.
      const bool first = arrays_.arrays.empty();
      arrays_.axis = first ? count_ : place == last_place_ + 1 ? arrays_.axis : 0;
      last_place_ = place;
      arrays_.arrays.push_back(item);
      arrays_.axes.push_back(count_);
      arrays_.source_axes.push_back(axis_);
      keep(1);
      return true;
    }
    int64_t index;
    if (!read_index(item, &index, where_)) return false;
    has_int_ = true;
    if (index < -n || index >= n) {
      if (!is_basic(key_)) return false;
      fail_with("index_out_of_range", where_,
                {n, "index " + std::to_string(index), int64_t{axis_}});
    }
    offset_ += (index < 0 ? index + n : index) * step;
    ++axis_;
    return true;
  }

  void keep(int count) {
    for (int i = 0; i < count; ++i, ++axis_) push(layout_.shape()[axis_], layout_.strides()[axis_]);
  }

  void push(int64_t n, int64_t stride) {
    if (count_ == kMaxDims)
      fail(Kind::Index, where_, "a view of at most " + std::to_string(kMaxDims) + " dimensions",
           "more dimensions", "insert fewer new axes");
    shape_[count_] = n;
    strides_[count_++] = stride;
  }

  const Layout layout_;
  char* const data_;
  const int64_t item_;
  Array& view_;
  const char* const where_;
  PyObject* key_ = nullptr;
  IndexArrays arrays_;
  Py_ssize_t last_place_ = 0;  // in the key, of an index array
  bool has_int_ = false;
  int axis_ = 0, count_ = 0;
  int64_t offset_ = 0;
  int64_t shape_[kMaxDims], strides_[kMaxDims];
};

// The core array over a NumPy array of integers or bools, or null.
PyRef shared_index(PyObject* item) {
  exchange::ForeignType& type = exchange::foreign_type_of(Py_TYPE(item));
  if (type.family != exchange::Family::Numpy || exchange::converters_changed) return {};
  PyRef found = PyRef::steal(exchange::import_ordinary(type, item));
  if (!found) return found;
  const Array& a = unwrap(found.get());
  const bool indexes = a.layout.ndim() > 0 && (a.dtype == kBool || is_integer(a.dtype));
  return indexes ? std::move(found) : PyRef();
}

// The key with core arrays in place of NumPy's, which can index an array in host memory; null if there are none. In a
// capture Python copies them, because replays must not see later changes.
PyRef with_shared_indices(PyObject* key, const Array& x) {
  if (x.device.is_cuda() || ops::recorder) return {};
  if (!PyTuple_Check(key)) return shared_index(key);
  const Py_ssize_t n = PyTuple_Size(key);
  PyRef made = PyRef::checked(PyTuple_New(n));
  bool shares = false;
  for (Py_ssize_t i = 0; i < n; ++i) {
    PyRef item = shared_index(PyTuple_GetItem(key, i));
    shares = shares || item;
    if (!item) item = PyRef::borrow(PyTuple_GetItem(key, i));
    PyTuple_SetItem(made.get(), i, item.release());
  }
  return shares ? std::move(made) : PyRef();
}

// x[key], or x[key] = value, where the key has index arrays or masks.
PyRef call_by_arrays(const char* name, PyObject* arguments) {
  const PyRef owned = PyRef::checked(arguments);
  static bool imported = false;  // the GIL guards it
  if (!imported) import_module("gpuinterop.index.getitem");
  imported = true;
  return call_hook(Hook::Call, "(sO{})", name, owned.get());
}

}  // namespace

// Stores one Python number as an element of `dtype`. False if `value` is not a number, the core has no cast to
// the dtype, or the number does not fit; gpuinterop/arrays/scalars.py then converts it or raises.
bool scalar_bytes(PyObject* value, DTypeId dtype, unsigned char* out) {
  PyRef whole;
  if (is_integer(dtype) && PyFloat_Check(value)) {
    whole = PyRef::steal(PyLong_FromDouble(PyFloat_AsDouble(value)));
    forgive();  // infinity and nan
    if (!whole) return false;
    value = whole.get();
  }
  if (is_integer(dtype) && PyLong_CheckExact(value)) {
    const auto bits = ops::integer_bits(value, dtype);
    if (bits) std::memcpy(out, &*bits, static_cast<size_t>(itemsize_of(dtype)));
    return bits.has_value();
  }
  const bool is_number = PyFloat_Check(value) || PyLong_CheckExact(value) || PyBool_Check(value) ||
                         (is_complex(dtype) && PyComplex_Check(value));
  if (!is_number) return false;
  const auto read = ops::read_number(value);
  if (!read) return false;
  if (dtype == kFloat32) {  // without loops, because this is the most frequent dtype
    const float narrow = static_cast<float>(read->parts[0]);
    std::memcpy(out, &narrow, sizeof narrow);
    return std::isfinite(narrow) || !std::isfinite(read->parts[0]);
  }
  if (!ops::cast_loop(read->dtype, dtype)) return false;
  double stored[2] = {0, 0};
  ops::cast_one(read->parts, read->dtype, out, dtype);
  ops::cast_one(out, dtype, stored, read->dtype);
  for (int i = 0; i < 2; ++i)
    if (std::isfinite(read->parts[i]) && !std::isfinite(stored[i])) return false;
  return true;
}

// `source` broadcast to `target`. Any number of leading axes of length 1 is dropped.
Layout fitted(const Layout& source, const Array& target, const char* where) {
  int skip = 0;
  while (source.ndim() - skip > target.layout.ndim() && source.shape()[skip] == 1) ++skip;
  const Layout rest(source.ndim() - skip, source.shape() + skip, source.strides() + skip);
  return rest.broadcast_to(target.layout.ndim(), target.layout.shape(), where);
}

void assign(const Array& target, PyTypeObject* target_type, PyObject* value, const char* where) {
  if (target.readonly) fail_with("read_only", where);
  ops::require_recorded(target.device);
  unsigned char item[16];
  if (scalar_bytes(value, target.dtype, item)) {
    ops::prepare_write(target, where);
    fill_elements(target, item, where);
    return;
  }
  // A capsule can be consumed only once, so check the shape before.
  if (PyCapsule_CheckExact(value))
    fitted(exchange::look_into(value, where, true).layout, target, where);
  PyRef converted;
  bool is_converted = false, is_number = false;
  if (is_array(value) && unwrap(value).dtype != target.dtype)
    require_holds(target_type, unwrap(value).dtype, where, "value.astype('{}')");
  if (!is_array(value) || !copy_takes_dtypes(target, unwrap(value))) {
    const PyRef like = PyRef::steal(wrap(target_type, Array(target)));
    converted = call_hook(Hook::Foreign, "(sOOs)", "assigned", value, like.get(), where);
    PyObject* const array = PyTuple_GetItem(converted.get(), 0);
    if (!is_array(array) || !copy_takes_dtypes(target, unwrap(array))) {
      PyErr_SetString(PyExc_RuntimeError,
                      "the hook foreign did not return an array that the copy can cast");
      throw PythonError();
    }
    is_converted = array != value;
    value = array;
    is_number = PyTuple_GetItem(converted.get(), 1) == Py_True;
  }
  require_valid_layout(value);
  Array source = unwrap(value);
  ops::require_apart(target, source, where);
  const bool may_fill = is_converted && source.layout.size() == 1 && !source.device.is_cuda();
  source.layout = fitted(source.layout, target, where);
  if (target.layout.size() == 0) return;
  ops::prepare_write(target, where);
  if (may_fill && target.device.is_cuda()) {
    // This is not an upload: the host does not wait, and a capture records it.
    if (!is_number) note_copy("host_to_device", target.itemsize(), where);
    fill_elements(target, source.data, where);
    return;
  }
  const Uncounted guard(is_number);
  copy_elements(target, source, where);
}

static Py_ssize_t length(PyObject* self, const char* where) {
  const Layout& l = shown_layout(self);
  if (l.ndim()) return static_cast<Py_ssize_t>(l.shape()[0]);
  fail(Kind::Type, where, "an array of at least one dimension", "a 0-d array",
       "read the value with x.item()");
}

Py_ssize_t array_length(PyObject* self) { return length(self, "len"); }

PyObject* array_subscript(PyObject* self, PyObject* key) {
  require_valid_layout(self);
  if (is_array(key) && unwrap(key).dtype != kBool)
    if (PyRef made = read_line(Py_TYPE(self), Array(unwrap(self)), key, kGet))
      return made.release();
  if (is_mask_of(key, unwrap(self)))
    if (PyRef made = read_masked(Py_TYPE(self), Array(unwrap(self)), key, kGet))
      return made.release();
  Array view = view_of(self);
  KeyReader reader(unwrap(self), view, kGet);
  const bool is_read = reader.run(key);
  if (is_read && reader.arrays().arrays.empty()) return wrap(Py_TYPE(self), std::move(view));
  PyRef made = is_read ? read_at(Py_TYPE(self), view, reader.arrays(), kGet) : PyRef();
  if (made) return made.release();
  if (const PyRef shared = is_read ? PyRef() : with_shared_indices(key, view))
    return array_subscript(self, shared.get());
  return call_by_arrays("getitem", Py_BuildValue("(OO)", self, key)).release();
}

int array_assign_subscript(PyObject* self, PyObject* key, PyObject* value) {
  if (!value)
    fail(Kind::Type, "del x[key]", "an assignment", "a deletion",
         "select the remaining elements: x[key]");
  require_valid_layout(self);
  Array target = view_of(self);
  if (is_mask_of(key, unwrap(self))) {
    target.layout = unwrap(self).layout;
    target.data = unwrap(self).data;
    if (write_masked(target, key, value, kSet)) return 0;
  }
  KeyReader reader(unwrap(self), target, kSet);
  const bool is_read = reader.run(key);
  if (is_read && reader.arrays().arrays.empty())
    assign(target, Py_TYPE(self), value, kSet);
  else if (const PyRef shared = is_read ? PyRef() : with_shared_indices(key, target))
    return array_assign_subscript(self, shared.get(), value);
  else if (!is_read || !write_at(target, reader.arrays(), value, kSet))
    call_by_arrays("setitem", Py_BuildValue("(OOO)", self, key, value));
  return 0;
}

bool add_at(PyObject* self, PyObject* key, PyObject* value,
            std::shared_ptr<const ops::HostProgram> sum) {
  const char* where = "add.at";
  require_valid_layout(self);
  Array target = view_of(self);
  KeyReader reader(unwrap(self), target, where);
  if (!reader.run(key)) {
    const PyRef shared = with_shared_indices(key, target);
    return shared && add_at(self, shared.get(), value, std::move(sum));
  }
  return !reader.arrays().arrays.empty() &&
         add_at(target, reader.arrays(), value, where, std::move(sum));
}

// Used only for iteration, which counts from 0 upwards.
PyObject* array_item(PyObject* self, Py_ssize_t i) {
  return array_subscript(self, PyRef::checked(PyLong_FromSsize_t(i)).get());
}

PyObject* array_iter(PyObject* self) {
  length(self, "iter");  // or an error
  return PySeqIter_New(self);
}

}  // namespace gpuinterop
