// Streams and events as Python objects. On device "cpu" both exist and do nothing, because work there is
// complete when the call returns. So programs need no second version for the CPU.
#include <nanobind/nanobind.h>

#include <algorithm>
#include <chrono>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "devices/cuda.hpp"
#include "devices/deferred_release.hpp"
#include "devices/device_objects.hpp"
#include "devices/device_state.hpp"
#include "devices/stream.hpp"
#include "interpreter/error_translation.hpp"
#include "interpreter/hooks.hpp"
#include "interpreter/register.hpp"

namespace nb = nanobind;

namespace gpuinterop {

namespace {

class Stream {
 public:
  enum class Origin { Own, Lent, Default };

  // A new one.
  Stream(Device d, bool block, int prio)
      : device(d), origin(Origin::Own), blocking(block), priority(prio) {
    if (d.is_cuda()) handle = cuda::acquire_stream(d.id, block, prio, "Stream");
  }
  // An external or a default one.
  Stream(Device d, CUstream h, nb::object o)
      : device(d),
        handle(h),
        origin(cuda::is_default(h) ? Origin::Default : Origin::Lent),
        owner(std::move(o)) {
    if (d.is_cuda()) cuda::device_state(d.id, "Stream");  // the device exists
  }
  ~Stream() {
    if (!handle) return;
    if (origin == Origin::Own)
      cuda::recycle_stream(device.id, handle, blocking, priority);
    else
      retire();
  }
  Stream(const Stream&) = delete;
  Stream& operator=(const Stream&) = delete;

  void check_usable(const char* where) const {
    if (!handle) return;
    cuda::require(where);  // a handle from before a fork is invalid in this process
    cuda::require_context(cuda::device_state(device.id, where), where);
  }
  // Called before it becomes current in a block; leave() after the block.
  void enter() {
    if (origin == Origin::Lent) {
      cuda::borrow_stream(device.id, handle, used_, "Stream");
      used_ = true;
    }
    ++blocks_;
  }
  // Without an owner the caller keeps it alive only during the block.
  void leave() noexcept {
    if (--blocks_ == 0 && origin == Origin::Lent && !owner) retire();
  }

  Device device;
  CUstream handle = nullptr;  // null on the CPU only
  Origin origin;
  bool blocking = true;
  int priority = 0;
  // Keeps the handle alive. Hidden from the garbage collector: in a cycle with this Stream the collector
  // could destroy the owner, and with it the driver's stream, before this Stream has retired the handle.
  // Such a cycle is never freed.
  nb::object owner;

 private:
  // The handle is not used afterwards.
  void retire() noexcept {
    if (std::exchange(used_, false)) cuda::retire_stream(device.id, handle);
  }
  bool used_ = false;
  int blocks_ = 0;
};

class Event {
 public:
  Event(Device d, bool t, bool blocking) : device(d), timing(t) {
    if (!d.is_cuda()) return;
    cuda::DeviceGuard guard(d.id);
    unsigned flags = (t ? 0u : unsigned(CU_EVENT_DISABLE_TIMING)) |
                     (blocking ? unsigned(CU_EVENT_BLOCKING_SYNC) : 0u);
    cuda::check(cuda::call_blocking([&] { return cuda::driver().EventCreate(&handle, flags); }),
                "cuEventCreate", "Event");
  }
  ~Event() {
    // The driver keeps an event while a stream waits for it.
    if (!handle || cuda::driver_is_gone()) return;
    const cuda::DeviceState* d = cuda::started_device(device.id);
    if (!d || !cuda::context_exists(*d)) return;
    cuda::call_blocking([&] { return cuda::driver().EventDestroy(handle); });
  }
  Event(const Event&) = delete;
  Event& operator=(const Event&) = delete;

  Device device;
  bool timing;
  bool recorded = false;
  CUevent handle = nullptr;                    // null on the CPU
  std::chrono::steady_clock::time_point time;  // of the record, on the CPU
};

std::string stream_repr(const Stream& s) {
  const std::string place = device_text(s.device);
  if (!s.handle) return "<Stream on cpu>";
  if (s.handle == CU_STREAM_LEGACY) return "<Stream legacy default on " + place + ">";
  if (s.handle == CU_STREAM_PER_THREAD) return "<Stream per-thread default on " + place + ">";
  std::string whose = s.origin == Stream::Origin::Own
                          ? ""
                          : " of " + (s.owner ? type_text(s.owner.ptr()) : "another library");
  return "<Stream " + cuda::handle_text(s.handle) + whose + " on " + place + ">";
}

// ---- Event ----------------------------------------------------------------------------------------

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

// stream None: the current one.
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
  nb::class_<Event>(m, "Event", nb::is_weak_referenceable(), R"(A point in a stream's order of work.

Examples
--------
>>> import gpuinterop
>>> event, y = gpuinterop.Event("cpu"), gpuinterop.ones(3, device="cpu") + 1
>>> event.record()
>>> event.synchronize()
>>> event.query()
True)")
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

// ---- Stream ---------------------------------------------------------------------------------------

struct Entered {
  int device;
  CUstream previous;
  PyObject* stream;
};

// Streams that threads had entered and not left when they ended.
std::mutex abandoned_lock;
std::vector<PyObject*> abandoned;

int release_abandoned(void*) {
  std::vector<PyObject*> all;
  {
    std::lock_guard lock(abandoned_lock);
    all.swap(abandoned);
  }
  for (PyObject* o : all) Py_DECREF(o);
  return 0;
}

// The streams that this thread has entered with `with`, innermost last. The references keep their owners
// alive while they are current.
struct EnteredStreams : std::vector<Entered> {
  EnteredStreams() = default;
  EnteredStreams(const EnteredStreams&) = delete;
  // Runs after the thread's last Python code. Taking the GIL could collide with the end of the
  // interpreter, so the main thread releases the streams.
  ~EnteredStreams() {
    if (empty() || !Py_IsInitialized()) return;
    try {
      std::lock_guard lock(abandoned_lock);
      for (const Entered& e : *this) abandoned.push_back(e.stream);
    } catch (...) {
    }
    Py_AddPendingCall(release_abandoned, nullptr);
  }
};
thread_local EnteredStreams entered;

Stream& made_stream(nb::handle self, const char* where) {
  const bool stream = nb::isinstance<Stream>(self);
  if (stream && nb::inst_ready(self)) return *nb::inst_ptr<Stream>(self);
  fail(Kind::Type, where, "a gpuinterop.Stream",
       stream ? "a Stream whose __init__ was never called" : type_text(self.ptr()),
       "create it with gpuinterop.Stream()");
}

// Key among the entered streams. Those of the CPU are listed only to check the order of leaving.
int ordinal_of(Device d) { return d.is_cuda() ? d.id : -1; }

nb::object enter(nb::handle self) {
  Stream& s = made_stream(self, "Stream.__enter__");
  s.check_usable("Stream.__enter__");
  const int device = ordinal_of(s.device);
  s.enter();
  entered.push_back({device, cuda::current_stream(device), self.inc_ref().ptr()});
  cuda::set_current_stream(device, s.handle);
  return nb::borrow(self);
}

void leave(nb::handle self) {
  Stream& s = made_stream(self, "Stream.__exit__");
  size_t at = entered.size();
  while (at > 0 && entered[at - 1].stream != self.ptr()) --at;
  const bool in_order = at == entered.size() && at > 0;
  if (at > 0) {
    const Entered entry = entered[at - 1];
    entered.erase(entered.begin() + ptrdiff_t(at - 1));
    // If streams are left out of order, the next entered one must restore the stream before the one left.
    auto next = std::find_if(entered.begin() + ptrdiff_t(at - 1), entered.end(),
                             [&](const Entered& e) { return e.device == entry.device; });
    if (next == entered.end())
      cuda::set_current_stream(entry.device, entry.previous);
    else
      next->previous = entry.previous;
    s.leave();
    Py_DECREF(entry.stream);
  }
  if (!in_order)
    fail(Kind::Stream, "Stream.__exit__", "the stream that this thread entered last",
         stream_repr(s),
         "leave streams in the reverse order, on the thread that entered them: use `with stream:`");
}

// The object that was entered, so that `current_stream() is s` is true inside `with s:`; null if the current
// stream was not set from Python.
nb::object current(int type, int id) {
  const Device d = read_device(type, id, "Stream");
  const int device = ordinal_of(d);
  CUstream handle = d.is_cuda() ? cuda::current_stream(id) : nullptr;
  for (size_t i = entered.size(); i-- > 0;)
    if (entered[i].device == device &&
        nb::cast<Stream&>(nb::handle(entered[i].stream)).handle == handle)
      return nb::borrow(entered[i].stream);
  return nb::none();
}

void wait_any(Stream& s, nb::object other) {
  s.check_usable("Stream.wait");
  Event* event = nullptr;
  if (nb::try_cast(other, event) && event)
    return wait_event(s.device, s.handle, *event, "Stream.wait");
  Stream* producer = nullptr;
  if (!nb::try_cast(other, producer) || !producer)
    fail_with("not_a_stream", "Stream.wait", {"Event", type_text(other.ptr())});
  if (!s.handle || !producer->handle) return;
  if (s.device == producer->device)
    return cuda::join(s.device.id, s.handle, producer->handle, "Stream.wait");
  cuda::check(cuda::link(cuda::device_state(s.device.id, "Stream.wait"), s.handle,
                         cuda::device_state(producer->device.id, "Stream.wait"), producer->handle),
              "cuStreamWaitEvent", "Stream.wait");
}

bool query_stream(Stream& s) {
  if (!s.handle) return true;
  s.check_usable("Stream.query");
  if (cuda::is_capturing(s.handle))
    fail(Kind::Capture, "Stream.query", "a stream that is not being captured", stream_repr(s),
         "query it before the capture begins or after it ends");
  cuda::DeviceGuard guard(s.device.id);
  const CUresult code = cuda::call_blocking([&] { return cuda::driver().StreamQuery(s.handle); });
  if (code == CUDA_ERROR_NOT_READY) return false;
  cuda::check(code, "cuStreamQuery", "Stream.query");
  return true;
}

nb::object record(nb::handle self, nb::object event) {
  Stream& s = made_stream(self, "Stream.record");
  if (event.is_none())
    event = nb::cast(new Event(s.device, false, false), nb::rv_policy::take_ownership);
  Event* e = nullptr;
  if (!nb::try_cast(event, e) || !e)
    fail(Kind::Type, "Stream.record", "a gpuinterop.Event or None", type_text(event.ptr()),
         "omit event: stream.record() returns a new Event");
  record_event(*e, nb::borrow(self));
  return event;
}

nb::object equals(const Stream& a, nb::handle b) {
  Stream* other = nullptr;
  if (!nb::try_cast(b, other) || !other) return nb::borrow(Py_NotImplemented);
  return nb::bool_(a.device == other->device && a.handle == other->handle);
}

void register_stream_class(nb::module_& m) {
  auto address = [](const Stream& s) { return reinterpret_cast<uintptr_t>(s.handle); };
  nb::class_<Stream>(
      m, "Stream", nb::is_weak_referenceable(),
      R"(An order of work on one device. `with stream:` makes it this thread's current one.

Examples
--------
>>> import gpuinterop
>>> x = gpuinterop.ones(3, device="cpu")
>>> with gpuinterop.Stream("cpu") as stream:
...     y = x + 1
>>> stream.synchronize()
>>> y.tolist()
[2.0, 2.0, 2.0])")
      .def(
          "__init__",
          [](Stream* self, nb::object device, bool blocking, int priority) {
            new (self) Stream(parse_device(device), blocking, priority);
          },
          nb::arg("device") = nb::none(), nb::kw_only(), nb::arg("blocking") = false,
          nb::arg("priority") = 0,
          "Create a stream. A blocking one is ordered with the legacy default stream. Streams\n"
          "with a lower `priority` go first.")
      .def_prop_ro(
          "device", [](const Stream& s) { return python_device(s.device); },
          "The device whose work the stream orders.")
      .def_prop_ro("handle", address,
                   "The driver's handle as an int; 1 is the legacy default stream.")
      .def_prop_ro("ptr", address, "The handle, under CuPy's name.")
      .def_prop_ro("cuda_stream", address, "The handle, under torch's name.")
      .def_prop_ro(
          "owner", [](const Stream& s) { return s.owner ? s.owner : nb::none(); },
          "The foreign object whose stream this is, or None.")
      .def_prop_ro(
          "priority", [](const Stream& s) { return s.priority; },
          "The priority; streams with a lower number go first.")
      .def(
          "__cuda_stream__",
          [](const Stream& s) { return nb::make_tuple(0, reinterpret_cast<uintptr_t>(s.handle)); },
          "The protocol of CUDA's Python libraries: (version, handle).")
      .def("__index__", address)
      .def(
          "synchronize",
          [](Stream& s) {
            s.check_usable("Stream.synchronize");
            if (s.handle) cuda::synchronize_stream(s.device.id, s.handle, "Stream.synchronize");
          },
          "Wait on the host until all work queued so far is done.")
      .def("query", &query_stream, "Return whether all work queued so far is done.")
      .def("wait", &wait_any, nb::arg("other"),
           "Make later work wait for another stream's work, or for an event.")
      .def("record", &record, nb::arg("event") = nb::none(),
           "Record an event, a new one by default, and return it.")
      .def_prop_ro(
          "is_capturing",
          [](const Stream& s) {
            s.check_usable("Stream.is_capturing");
            return s.handle && cuda::is_capturing(s.handle);
          },
          "Whether the stream is being captured into a graph.")
      .def("__enter__", [](nb::handle self) { return enter(self); })
      .def("__exit__", [](nb::handle self, nb::args) { leave(self); })
      .def("__eq__", &equals, nb::arg("other").none())
      .def("__hash__",
           [](const Stream& s) {
             return (reinterpret_cast<uintptr_t>(s.handle) >> 4) * 31 + uintptr_t(s.device.id);
           })
      .def("__repr__", &stream_repr);
}

}  // namespace

void register_streams(nb::module_& m) {
  register_stream_class(m);
  register_events(m);
  m.def(
      "foreign_stream",
      [](int type, int id, uintptr_t handle, nb::object owner, bool lasting) {
        if (owner.is_none()) owner.reset();
        const auto stream = reinterpret_cast<CUstream>(handle);
        if (lasting && !cuda::is_default(stream)) cuda::note_process_lifetime(stream);
        return new Stream(read_device(type, id, "Stream"), stream, std::move(owner));
      },
      nb::arg("device_type"), nb::arg("device_id"), nb::arg("handle"), nb::arg("owner").none(),
      nb::arg("lasting") = false,
      "Return a stream by its handle; the result keeps `owner` alive. `lasting`: the stream is\n"
      "never destroyed, even if the owner is.");
  m.def("entered_stream", &current,
        nb::sig("def entered_stream(device_type: int, device_id: int) -> Stream | None"),
        nb::arg("device_type"), nb::arg("device_id"),
        "Return the Stream that is current in this thread, or None if it was not set by `with`.");
  m.def(
      "current_stream_handle",
      [](int id) { return reinterpret_cast<uintptr_t>(cuda::current_stream(id)); },
      nb::arg("device_id"), "Handle of this thread's current stream.");
  m.def("stream_device", &cuda::device_of_stream, nb::arg("handle"),
        "Number of the device whose primary context a stream handle belongs to.");
}

}  // namespace gpuinterop
