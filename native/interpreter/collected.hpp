// Classes of nanobind whose objects hold references to Python objects.
#pragma once

#include <nanobind/nanobind.h>

namespace gpuinterop {

// Slots by which the garbage collector finds and drops the references of a T, by T::traverse(visit, arg) and
// T::clear().
template <class T>
struct Collected {
  static int traverse(PyObject* self, visitproc visit, void* arg) {
    Py_VISIT(Py_TYPE(self));
    return nanobind::inst_ready(self) ? nanobind::inst_ptr<T>(self)->traverse(visit, arg) : 0;
  }
  static int clear(PyObject* self) {
    if (nanobind::inst_ready(self)) nanobind::inst_ptr<T>(self)->clear();
    return 0;
  }
  // With slots of the class itself.
  explicit Collected(PyType_Slot own = {}, PyType_Slot other = {})
      : slots{{Py_tp_traverse, reinterpret_cast<void*>(traverse)},
              {Py_tp_clear, reinterpret_cast<void*>(clear)},
              own,
              other,
              {}} {}
  PyType_Slot slots[5];
};

}  // namespace gpuinterop
