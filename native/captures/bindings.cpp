// The capture's Recorder as Python sees it.
#include <nanobind/nanobind.h>

#include "arrays/type.hpp"
#include "captures/recorder.hpp"
#include "interpreter/collected.hpp"
#include "interpreter/gil.hpp"
#include "interpreter/register.hpp"

namespace nb = nanobind;

namespace gpuinterop {

using ops::Recorder;

namespace {

// The work of calling `object`.
void call_object(const ops::HostWork& work) {
  const PyRef result = PyRef::checked(PyObject_CallNoArgs(work.object.get()));
}

}  // namespace

void register_recorder(nb::module_& m) {
  const Collected<Recorder> collected;
  nb::class_<Recorder>(m, "Recorder", nb::type_slots(collected.slots),
                       "A captured sequence: see gpuinterop.capture.")
      .def(
          "__init__",
          [](Recorder* self, int device_type, int device_id) {
            new (self) Recorder(read_device(device_type, device_id, "capture"));
          },
          nb::arg("device_type"), nb::arg("device_id"))
      .def("begin", [](nb::handle self) { nb::cast<Recorder&>(self).begin(self.ptr()); })
      .def("end", &Recorder::end)
      .def("leave", &Recorder::leave)
      .def("replay", &Recorder::replay)
      .def_prop_ro("nodes", &Recorder::nodes)
      .def_prop_ro("ready", &Recorder::ready);
  m.def(
      "_recording",
      []() -> nb::object {
        if (!ops::recorder) return nb::none();
        return nb::cast(ops::recorder, nb::rv_policy::reference);
      },
      "Return the capture of this thread, or None.");
  m.def("_require_values", &ops::require_values, nb::arg("where"), nb::arg("array"),
        "Raise while this thread records on the host, and for results that are not computed yet.");
  m.def("_require_set", &ops::require_set, nb::arg("where"), nb::arg("array"),
        "Raise for results of a capture that are not computed yet.");
  m.def("_note_write", &ops::note_write, nb::arg("array"),
        "Report that a write outside a capture has given the array values.");
  m.def("_prepare_write", &ops::prepare_write, nb::arg("array"), nb::arg("where"),
        "Before a write: wait until no library reads memory that was lent to it, or raise its "
        "error.");
  m.def("_is_lent", &is_lent, nb::arg("array"),
        "Return whether a library that reads later still holds the memory.");
  m.def(
      "_record_call",
      [](nb::object fn) {
        // False: nothing records, so the caller does the work itself.
        ops::require_recorded({DeviceType::Cpu, 0});
        if (!ops::recording_on_host()) return false;
        ops::recorder->add({.compute = call_object, .object = PyRef::borrow(fn.ptr())});
        return true;
      },
      nb::arg("call"));
}

}  // namespace gpuinterop
