#include "python/streams.hpp"

#include "cuda/state.hpp"
#include "cuda/stream.hpp"

namespace gpuinterop {

Stream::Stream(Device d, bool block, int prio)
    : device(d), origin(Origin::Own), blocking(block), priority(prio) {
  if (d.is_cuda()) handle = cuda::acquire_stream(d.id, block, prio, "Stream");
}

Stream::Stream(Device d, CUstream h, nanobind::object o)
    : device(d),
      handle(h),
      origin(cuda::is_default(h) ? Origin::Default : Origin::Lent),
      owner(std::move(o)) {
  if (d.is_cuda()) cuda::device_state(d.id, "Stream");  // the device exists
}

Stream::~Stream() {
  if (!handle) return;
  if (origin == Origin::Own) {
    cuda::recycle_stream(device.id, handle, blocking, priority);
  } else {
    let_go(true);
    if (watch_) PyCapsule_SetContext(watched_by_.ptr(), nullptr);
  }
}

namespace {

PyObject* owner_goes(PyObject* watched_by, PyObject*) {
  auto* stream = static_cast<Stream*>(PyCapsule_GetContext(watched_by));
  if (stream) stream->let_go(false);
  Py_RETURN_NONE;
}
PyMethodDef owner_goes_method = {"owner_goes", owner_goes, METH_O, nullptr};

}  // namespace

// Only the garbage collector ends an owner whose Stream is still there, both being in one cycle. It calls
// weak references before any finaliser, and a finaliser may destroy the stream.
void Stream::watch_owner() noexcept {
  if (!owner || watch_) return;
  PyObject* self = PyCapsule_New(this, nullptr, nullptr);
  PyObject* callback = self ? PyCFunction_New(&owner_goes_method, self) : nullptr;
  PyObject* watch = callback ? PyWeakref_NewRef(owner.ptr(), callback) : nullptr;
  if (watch) {
    PyCapsule_SetContext(self, this);
    watch_ = nanobind::steal(watch);
    watched_by_ = nanobind::borrow(self);
  } else {
    PyErr_Clear();  // of a type without weak references
  }
  Py_XDECREF(callback);
  Py_XDECREF(self);
}

void Stream::let_go(bool owner_stays) noexcept {
  if (!std::exchange(used_, false) || cuda::retire_stream(device.id, handle)) return;
  if (!owner_stays || !owner) return;
  owner.inc_ref();  // buffers still refer to the handle, so whoever owns it lives on
  cuda::note_lasting(handle);
}

void Stream::check_usable(const char* where) const {
  if (handle) cuda::require(where);  // a handle from before a fork means nothing here
}

void Stream::put_to_use() {
  if (origin != Origin::Lent) return;
  cuda::adopt_stream(device.id, handle, used_, "Stream");
  used_ = true;
  watch_owner();
}

Event::Event(Device d, bool t, bool blocking) : device(d), timing(t) {
  if (!d.is_cuda()) return;
  cuda::DeviceGuard guard(d.id);
  unsigned flags = (t ? 0u : unsigned(CU_EVENT_DISABLE_TIMING)) |
                   (blocking ? unsigned(CU_EVENT_BLOCKING_SYNC) : 0u);
  cuda::RelaxedCapture relaxed;
  cuda::check(cuda::driver().EventCreate(&handle, flags), "cuEventCreate", "Event");
}

Event::~Event() {
  // The driver keeps an event for as long as some stream waits for it.
  if (!handle || cuda::driver_is_gone()) return;
  cuda::RelaxedCapture relaxed;
  cuda::driver().EventDestroy(handle);
}

}  // namespace gpuinterop
