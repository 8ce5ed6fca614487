// The core's part of the converters in Python: properties of an array in one call, and the stream on which a
// foreign library works.
#include <nanobind/nanobind.h>

#include <cstdint>

#include "arrays/array.hpp"
#include "arrays/type.hpp"
#include "captures/recorder.hpp"
#include "devices/cuda.hpp"
#include "devices/device_state.hpp"
#include "devices/stream.hpp"
#include "exchange/export_structs.hpp"
#include "interpreter/error.hpp"
#include "interpreter/error_translation.hpp"
#include "interpreter/register.hpp"

namespace nb = nanobind;

namespace gpuinterop {

// X(name in Python, bit, whether array `a` of layout `l` has the property)
#define GPUINTEROP_TRAITS(X)                                      \
  X(C_CONTIGUOUS, 1, l.is_c_contiguous())                         \
  X(F_CONTIGUOUS, 2, l.is_f_contiguous())                         \
  X(NEGATIVE, 4, l.size() != 0 && l.has_negative_stride())        \
  X(READONLY, 8, a.readonly)                                      \
  X(ON_CUDA, 16, a.device.is_cuda())                              \
  X(EMPTY, 32, l.size() == 0)                                     \
  X(ALIGNED64, 64, reinterpret_cast<uintptr_t>(a.data) % 64 == 0) \
  X(IS_FLOAT32, 128, a.dtype == kFloat32)                         \
  X(NUMPY_DTYPE, 256, kDTypes[a.dtype].kind != 'V')

uint32_t traits_of(const Array& a) noexcept {
  const Layout& l = a.layout;
  uint32_t bits = 0;
#define X(name, bit, holds) bits |= (holds) ? bit : 0;
  GPUINTEROP_TRAITS(X)
#undef X
  return bits;
}

namespace {

bool primary_is_current(int device) {
  cuda::DeviceState& d = cuda::device_state(device, "gpuinterop.converters");
  unsigned long long current = 0;
  return cuda::driver().CtxGetId(nullptr, &current) == CUDA_SUCCESS && current == d.context_id;
}

// Returns all data of a C-contiguous array that a library without a protocol needs: shape, strides in
// bytes (those of C order, even for axes of length 1), dtype, address. The consumer's stream then waits for
// work queued on the array. Returns None, so that the slow path raises the error, if a context other than
// the device's primary one is current, or a capture forbids the wait.
nb::object ready_parts(const Array& a, uint64_t consumer) {
  if (!a.layout.is_c_contiguous()) return nb::none();
  if (a.device.is_cuda()) {
    if (!primary_is_current(a.device.id)) return nb::none();
    try {
      exchange::hand_over(a, cuda::stream_of(consumer), "converters");
    } catch (const Error&) {
      return nb::none();
    }
  }
  // By value: creating a tuple may run the garbage collector, and with it code that changes the array.
  const Layout layout = a.layout;
  const char* data = a.data;
  const DTypeId id = a.dtype;
  return nb::make_tuple(nb::steal(int_tuple(layout.ndim(), layout.shape(), 1)),
                        nb::steal(int_tuple(layout.ndim(), layout.strides(), itemsize_of(id))),
                        nb::borrow(dtype_object(id)), reinterpret_cast<uintptr_t>(data));
}

void used_on(const Array& a, uint64_t number, const char* where, bool lasting) {
  if (!a.device.is_cuda() || !a.buffer) return;
  const CUstream stream = cuda::stream_of(number);
  cuda::DeviceGuard guard(a.device.id);
  if (lasting) cuda::note_process_lifetime(stream);
  cuda::begin_untracked_use(a.device.id, stream, where);
  cuda::order(a.buffer.get(), stream, where);
}

}  // namespace

void register_converters(nb::module_& m) {
  using namespace nb::literals;
#define X(name, bit, holds) m.attr(#name) = bit;
  GPUINTEROP_TRAITS(X)
#undef X
  m.def(
      "traits",
      [](nb::handle x) { return is_array(x.ptr()) ? traits_of(read_array(x, "traits")) : 0u; },
      "x"_a.none(),
      "Return the properties of an array that converters check, as bits; 0 for other objects.");
  m.def("primary_is_current", &primary_is_current, "device"_a,
        "Return whether the device's primary context is current in the calling thread.");
  m.def("ready_parts", &ready_parts, "x"_a, "consumer"_a,
        "Return (shape, strides, dtype, address) of a C-contiguous array, and make the stream "
        "`consumer` wait for it; None if it cannot wait.");
  m.def(
      "hand_over",
      [](const Array& a, uint64_t consumer, const char* where) {
        exchange::hand_over(a, cuda::stream_of(consumer), where);
      },
      "x"_a, "consumer"_a, "where"_a,
      "Make a foreign stream wait for work queued on the array; no host synchronisation.");
  m.def("used_on", &used_on, "x"_a, "stream"_a, "where"_a, "lasting"_a = false,
        "Report that the next use of the array is on this stream, so that later uses wait for it. "
        "`lasting`: the stream is never destroyed; else call end_use() before it is destroyed.");
  m.def(
      "end_use",
      [](const Array& a, uint64_t stream) {
        if (a.device.is_cuda()) cuda::end_untracked_use(a.device.id, cuda::stream_of(stream));
      },
      "x"_a, "stream"_a, "Report that the work announced by used_on() is queued on this stream.");
  m.def("finish_uses", &exchange::settle_for_host, "x"_a, "where"_a,
        "Wait on the host until all work queued on the array is done.");
  register_borrowing(m);
  register_converter_functions(m);
  m.def(
      "after_stream",
      [](const Array& a, uint64_t producer, const char* where) {
        if (!a.device.is_cuda() || !a.buffer) return;
        cuda::wait(a.device.id, cuda::current_stream(a.device.id), cuda::stream_of(producer),
                   where);
      },
      "x"_a, "producer"_a, "where"_a,
      "Make the current stream wait for a stream on which another library wrote the array.");
  m.def(
      "writable_alias",
      [](nb::handle x) {
        Array same = read_array(x, "writable_alias");
        same.readonly = false;
        return nb::steal(wrap(Py_TYPE(x.ptr()), std::move(same)));
      },
      "x"_a, "Return the array without the read-only flag, for consumers known not to write.");
}

}  // namespace gpuinterop
