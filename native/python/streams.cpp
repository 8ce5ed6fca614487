#include "python/streams.hpp"

#include <unordered_map>

#include "cuda/device_state.hpp"
#include "cuda/stream.hpp"
#include "python/error_translation.hpp"

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

// Owners of streams that went out of use while they were being captured, by handle.
struct Watched {
  PyObject* owner;  // borrowed: the weak reference goes first
  PyObject* watch;
};
auto& watched = *new std::unordered_map<CUstream, Watched>;

PyObject* owner_has_gone(PyObject* handle, PyObject* watch) {
  auto stream = static_cast<CUstream>(PyLong_AsVoidPtr(handle));
  auto it = watched.find(stream);
  if (it != watched.end() && it->second.watch == watch) {
    watched.erase(it);
    cuda::end_deferred_retirement(stream);
    Py_DECREF(watch);
  }
  Py_RETURN_NONE;
}
PyMethodDef owner_has_gone_method = {"owner_has_gone", owner_has_gone, METH_O, nullptr};

// Lets the stream of `owner` linger until one of the two is over, the capture or the owner. Without a
// strong reference: the owner need not own the stream, and then it says nothing after its end.
void watch_on(CUstream stream, PyObject* owner) noexcept {
  ErrorSaver saver;
  try {
    auto known = watched.find(stream);
    if (known == watched.end() || known->second.owner != owner) {
      PyObject* self = PyLong_FromVoidPtr(stream);
      PyObject* callback = self ? PyCFunction_New(&owner_has_gone_method, self) : nullptr;
      PyObject* watch = callback ? PyWeakref_NewRef(owner, callback) : nullptr;
      Py_XDECREF(callback);
      Py_XDECREF(self);
      if (!watch) return;  // of a type without weak references
      Watched& w = watched[stream];
      w.owner = owner;
      Py_XDECREF(std::exchange(w.watch, watch));
    }
    if (cuda::defer_retirement(stream)) return;
    Py_DECREF(watched[stream].watch);
    watched.erase(stream);
  } catch (...) {
  }
}

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
  // An owner that nobody else holds goes right after this.
  if (owner_stays && owner && Py_REFCNT(owner.ptr()) > 1) watch_on(handle, owner.ptr());
}

void Stream::leave() noexcept {
  // Nobody has said that he keeps it alive beyond the block.
  if (--blocks_ == 0 && origin == Origin::Lent && !owner) let_go(true);
}

void Stream::check_usable(const char* where) const {
  if (handle) cuda::require(where);  // a handle from before a fork means nothing here
}

void Stream::put_to_use() {
  if (origin != Origin::Lent) return;
  cuda::borrow_stream(device.id, handle, used_, "Stream");
  used_ = true;
  watch_owner();
}

void Stream::enter() {
  put_to_use();
  ++blocks_;
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
