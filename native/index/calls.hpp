// Reads and writes of arrays at keys of index arrays and masks.
#pragma once

#include <memory>
#include <vector>

#include "arrays/type.hpp"
#include "elementwise/host_program.hpp"

namespace gpuinterop {

// The index arrays of a key, the axes of the view and of the user's array that they index, and where their axes
// lie in the result.
struct IndexArrays {
  std::vector<PyObject*> arrays;  // borrowed from the key
  std::vector<int> axes, source_axes;
  int axis = 0;
};
// An array of integers on the device of `view`.
bool is_index(PyObject* o, const Array& view);
// view[key] as a new array of `type`, and view[key] = value. Null, false: Python carries the call out.
PyRef read_at(PyTypeObject* type, const Array& view, const IndexArrays& key, const char* where);
bool write_at(const Array& view, const IndexArrays& key, PyObject* value, const char* where);
// x[key] for x of one dimension and one index array in host memory. Null: another case.
PyRef read_line(PyTypeObject* type, const Array& x, PyObject* key, const char* where);
// The same for a mask of the shape of x.
bool is_mask_of(PyObject* o, const Array& x);
PyRef read_masked(PyTypeObject* type, const Array& x, PyObject* mask, const char* where);
bool write_masked(const Array& x, PyObject* mask, PyObject* value, const char* where);
// As numpy.add.at, in host memory by the program `sum`; false: Python carries the call out.
bool add_at(PyObject* x, PyObject* key, PyObject* value,
            std::shared_ptr<const ops::HostProgram> sum);
// The same for a key that has been read.
bool add_at(const Array& view, const IndexArrays& key, PyObject* value, const char* where,
            std::shared_ptr<const ops::HostProgram> sum);

// numpy.take of arrays on one device, take_along_axis on a GPU or of vectors, and numpy.nonzero, flatnonzero and argwhere in
// host memory. Null: Python carries the call out.
PyObject* take(PyObject* x, PyObject* indices, PyObject* axis, PyObject* out, PyObject* mode);
PyObject* take_along_axis(PyObject* x, PyObject* indices, PyObject* axis);
PyObject* nonzero(PyObject* x);
PyObject* flatnonzero(PyObject* x);
PyObject* argwhere(PyObject* x);

}  // namespace gpuinterop
