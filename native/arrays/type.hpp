// Shared by the files of the Array type: array_type (lifetime), array_attributes, array_index (keys,
// assignment), array_methods, array_functions (of the module), exchange_methods (protocols).
#pragma once

#include <nanobind/nanobind.h>

#include <optional>
#include <vector>

#include "arrays/array.hpp"

namespace gpuinterop {

// Zero-terminated tables.
extern PyMethodDef array_methods[], exchange_methods[], ops_methods[];
extern PyGetSetDef array_getset[], exchange_getset[];
extern PyType_Slot exchange_slots[], ops_slots[], product_slots[];
void register_array_functions(nanobind::module_& m);

// Slots, which may throw.
Py_ssize_t array_length(PyObject* self);
PyObject* array_subscript(PyObject* self, PyObject* key);
int array_assign_subscript(PyObject* self, PyObject* key, PyObject* value);
PyObject* array_item(PyObject* self, Py_ssize_t i);
PyObject* array_iter(PyObject* self);

// Kind::Bounds error unless the address is a multiple of alignment_of().
void check_aligned(uint64_t address, DTypeId dtype, Device device, const char* where);
// Kind::DType error if `type` holds only float32 (CudaNdarray and its subclasses) and `dtype` differs.
// `cast` is the suggested call, with {} for the dtype; by default NumPy's.
void require_holds(PyTypeObject* type, DTypeId dtype, const char* where,
                   const char* cast = "x.astype('{}')");
// The default class of a new array: CudaNdarray for float32, else GpuArray. Imports the module that gives them if it has
// not been loaded.
PyTypeObject* result_type(DTypeId dtype);
// Of a result of a dtype for an operand of a class: the class, or GpuArray for what a CudaNdarray does not hold.
PyTypeObject* class_for(PyTypeObject* type, DTypeId dtype);
nanobind::tuple result_classes();

// GpuArray. The caller holds the GIL; loads gpuinterop.ndarray if nothing has.
nanobind::handle gpuarray_class();

void set_result_types(nanobind::handle float32_class, nanobind::handle other_class);

// Raises for the deletion of an attribute.
void require_value(PyObject* value, const char* name);

// Whether objects of `type` hold only float32 and keep their shape.
bool is_cudandarray(PyTypeObject* type) noexcept;
// Read the class and the dtype arguments of a function.
PyTypeObject* read_class(nanobind::handle cls, const char* where);
DTypeId read_dtype(nanobind::handle dtype, const char* where);
// The device of a gpuinterop.Device; nothing for another object.
std::optional<Device> find_device(PyObject* device);
// The array passed as an argument, or a Kind::Type error; its layout is valid.
Array& read_array(nanobind::handle o, const char* where);

// Stores one Python number as an element of `dtype`; false if Python has to convert it or refuse it.
bool scalar_bytes(PyObject* value, DTypeId dtype, unsigned char* out);
// `source` broadcast to `target`. Any number of leading axes of length 1 is dropped.
Layout fitted(const Layout& source, const Array& target, const char* where);

// Check that every element reached from `data` is inside the memory, if the memory's size is known.
bool within_memory(const Array& a, const Layout& layout, const char* data, const char* where);
void check_reach(const Array& a, const Layout& layout, const char* data, const char* where);

// The layout that the object reports: the core's, or the incomplete one (see change_geometry).
const Layout& shown_layout(PyObject* o) noexcept;
const char* shown_data(PyObject* o) noexcept;
// Theano's setters move an array step by step (_set_stride, _set_shape_i, _dev_data), and the states between
// may reach outside the memory. Such a state is reported but not used: it takes effect once it is inside the
// memory again, and until then require_valid_layout() raises.
void change_geometry(PyObject* o, const Layout& layout, char* data, const char* where);

// Properties of an array that converters check, as bits (exchange/traits.cpp).
uint32_t traits_of(const Array& a) noexcept;

// Changes the shape in place; ContiguityError if the strides do not allow it.
void reshape_in_place(PyObject* self, PyObject* value);

// A view of `self` as an object of `type`.
PyObject* retyped_view(PyObject* self, PyTypeObject* type, Layout layout, char* data);

// values * scale as a tuple of Python ints, exact. Throws.
PyObject* int_tuple(int n, const int64_t* values, int64_t scale);

int64_t as_int64(PyObject* o, const char* where);
// Reads a sequence of ints, or one int, as int64: at most kMaxDims; no bools. The only reader of shapes,
// strides and axes. Throws.
int read_ints(PyObject* value, int64_t* out, const char* where, const char* what);
// The layout of a copy in one of NumPy's orders: "C", "F", "A" or "K". Throws for another order.
Layout layout_of_copy(const Layout& l, std::string_view order, const char* where);
// An axis counted from 0; a negative one counts from the end. Throws for an axis outside of the array.
int count_axis(int64_t axis, int ndim, const char* where);

}  // namespace gpuinterop

// Functions that nanobind binds take the array of an object as `const Array&`, as read_array() returns it.
template <>
struct nanobind::detail::type_caster<gpuinterop::Array> {
  static constexpr auto Name = const_name("Array");
  template <class T>
  using Cast = gpuinterop::Array&;
  template <class T>
  static constexpr bool can_cast() {
    return true;
  }
  bool from_python(handle object, uint8_t, cleanup_list*) noexcept {
    object_ = object;
    return true;
  }
  operator gpuinterop::Array&() const { return gpuinterop::read_array(object_, "gpuinterop"); }
  handle object_;
};
