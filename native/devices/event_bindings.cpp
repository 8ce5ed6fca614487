
#include <chrono>
#include <string>

#include "devices/deferred_release.hpp"
#include "devices/device_objects.hpp"
#include "devices/device_state.hpp"
#include "devices/stream.hpp"
#include "devices/stream_objects.hpp"
#include "interpreter/error_translation.hpp"
#include "interpreter/text_arguments.hpp"

namespace nb = nanobind;

namespace gpuinterop {

namespace {

CUstream stream_for(const nb::object& stream, Device device, const char* where) {
  if (stream.is_none()) return cuda::current_stream(device.id);
  Stream* s = nullptr;
  if (!nb::try_cast(stream, s) || !s)
    fail_with("not_a_stream", where, {"None", type_text(stream.ptr())});
  if (s->device != device)
    fail(Kind::Stream, where, "a stream of " + device_text(device), stream_repr(*s),
         "use one event for each device, or Stream.wait");
  return s->handle;
}

bool query_event(Event& e) {
  if (!e.handle || !e.recorded) return true;
  cuda::DeviceGuard guard(e.device.id);
  // RelaxedCapture, because the query would otherwise break a capture of another stream.
  cuda::RelaxedCapture relaxed;
  CUresult code = cuda::driver().EventQuery(e.handle);
  if (code == CUDA_ERROR_NOT_READY) return false;
  cuda::check(code, "cuEventQuery", "Event.query");
  return true;
}

void synchronize_event(Event& e) {
  if (!e.handle || !e.recorded) return;
  cuda::DeviceGuard guard(e.device.id);
  cuda::check(cuda::call_blocking([&] { return cuda::driver().EventSynchronize(e.handle); }),
              "cuEventSynchronize", "Event.synchronize");
  cuda::run_completed_releases();
}

double elapsed(Event& start, Event& end) {
  if (start.device != end.device || !start.timing || !end.timing || !start.recorded ||
      !end.recorded)
    fail(Kind::Stream, "Event.elapsed_time",
         "two recorded events of one device, both made with timing=True",
         start.device != end.device     ? "events of different devices"
         : !start.timing || !end.timing ? "an event without timing"
                                        : "an event that was never recorded",
         "create both with Event(timing=True) and record both");
  if (!start.handle)
    return std::chrono::duration<double, std::milli>(end.time - start.time).count();
  synchronize_event(end);
  float ms = 0;
  cuda::DeviceGuard guard(start.device.id);
  cuda::RelaxedCapture relaxed;
  cuda::check(cuda::driver().EventElapsedTime(&ms, start.handle, end.handle), "cuEventElapsedTime",
              "Event.elapsed_time");
  return double(ms);
}

}  // namespace

void record_event(Event& e, nb::object stream) {
  CUstream s = stream_for(stream, e.device, "Event.record");
  e.time = std::chrono::steady_clock::now();
  if (e.handle) {
    cuda::DeviceGuard guard(e.device.id);
    GilRelease released;
    cuda::check(cuda::driver().EventRecord(e.handle, s), "cuEventRecord", "Event.record");
  }
  e.recorded = true;
}

void wait_event(Device d, CUstream stream, const Event& e, const char* where) {
  if (!e.handle || !stream || !e.recorded) return;
  cuda::DeviceGuard guard(d.id);
  GilRelease released;
  cuda::check(cuda::driver().StreamWaitEvent(stream, e.handle, CU_EVENT_WAIT_DEFAULT),
              "cuStreamWaitEvent", where);
}

void register_events(nb::module_& m) {
  nb::class_<Event>(m, "Event", nb::is_weak_referenceable(), "A point in a stream's order of work.")
      .def(
          "__init__",
          [](Event* self, nb::object device, bool timing, bool blocking) {
            new (self) Event(parse_device(device), timing, blocking);
          },
          nb::arg("device") = nb::none(), nb::kw_only(), nb::arg("timing") = false,
          nb::arg("blocking") = false,
          "A new event. With `timing` it can measure; with `blocking` synchronize() sleeps, not "
          "spins.")
      .def_prop_ro(
          "device", [](const Event& e) { return python_device(e.device); },
          "The device whose streams can record the event.")
      .def_prop_ro(
          "handle", [](const Event& e) { return reinterpret_cast<uintptr_t>(e.handle); },
          "The driver's handle as an int; 0 on device \"cpu\".")
      .def_prop_ro(
          "timing", [](const Event& e) { return e.timing; }, "Whether the event can measure time.")
      .def("record", &record_event, nb::arg("stream") = nb::none(),
           "Mark this point of a stream, by default the current one.")
      .def(
          "wait",
          [](Event& e, nb::object stream) {
            wait_event(e.device, stream_for(stream, e.device, "Event.wait"), e, "Event.wait");
          },
          nb::arg("stream") = nb::none(),
          "Make a stream's later work, by default the current stream's, wait for this point.")
      .def("query", &query_event,
           "Return whether the work before this point is done; True if never recorded.")
      .def("synchronize", &synchronize_event, "Wait on the host for this point.")
      .def("elapsed_time", &elapsed, nb::arg("end"),
           "Wait for `end`, and return the milliseconds from this event to it.")
      .def("__repr__", [](const Event& e) {
        return "<Event on " + device_text(e.device) + (e.recorded ? ">" : ", not recorded>");
      });
}

}  // namespace gpuinterop
