// The core's part of the converters in Python: properties of an array in one call, and the stream on which a
// foreign library works.
#include <nanobind/nanobind.h>

#include <cstdint>

#include "array/array.hpp"
#include "array/error.hpp"
#include "array/text_arguments.hpp"
#include "cuda/cuda.hpp"
#include "cuda/device_state.hpp"
#include "cuda/stream.hpp"
#include "exchange/export.hpp"
#include "ops/graph.hpp"
#include "python/array_type.hpp"
#include "python/error_translation.hpp"
#include "python/register.hpp"

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
// bytes (those of C order, also for axes of length 1), dtype, address. The consumer's stream then waits for
// work queued on the array. Returns None, so that the slow path raises the error, if a context other than
// the device's primary one is current, or a capture forbids the wait.
PyObject* ready_parts(PyObject*, PyObject* const* args, Py_ssize_t nargs) {
  if (nargs != 2)
    fail(Kind::Type, "ready_parts", "two arguments", std::to_string(nargs),
         "ready_parts(x, consumer)");
  const unsigned long long consumer = PyLong_AsUnsignedLongLong(args[1]);
  if (PyErr_Occurred()) throw PythonError();
  const Array& a = read_array(args[0], "ready_parts");
  if (!a.layout.is_c_contiguous()) Py_RETURN_NONE;
  if (a.device.is_cuda()) {
    if (!primary_is_current(a.device.id)) Py_RETURN_NONE;
    try {
      exchange::hand_over(a, cuda::stream_of(consumer), "converters");
    } catch (const Error&) {
      Py_RETURN_NONE;
    }
  }
  // By value: creating a tuple may run the garbage collector, and with it code that changes the array.
  const Layout layout = a.layout;
  const char* data = a.data;
  const DTypeId id = a.dtype;
  int64_t steps[kMaxDims], step = itemsize_of(id);
  for (int i = layout.ndim() - 1; i >= 0; --i) {
    steps[i] = step;
    if (layout.size()) step *= layout.shape()[i];
  }
  return PyRef::checked(Py_BuildValue("(NNOK)", int_tuple(layout.ndim(), layout.shape(), 1),
                                      int_tuple(layout.ndim(), steps, 1), dtype_object(id),
                                      reinterpret_cast<uintptr_t>(data)))
      .release();
}

PyMethodDef converter_functions[] = {
    {"ready_parts", as_method(guarded<ready_parts>), METH_FASTCALL,
     "ready_parts(x, consumer)\n--\n\nReturn (shape, strides, dtype, address) of a C-contiguous "
     "array, and make the stream `consumer` wait for it; None if it cannot wait."},
    {nullptr, nullptr, 0, nullptr},
};

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
  m.def(
      "hand_over",
      [](nb::handle x, uint64_t consumer, const std::string& where) {
        const Array& a = read_array(x, where.c_str());
        if (a.device.is_cuda()) exchange::hand_over(a, cuda::stream_of(consumer), where.c_str());
      },
      "x"_a, "consumer"_a, "where"_a,
      "Make a foreign stream wait for work queued on the array; no host synchronisation.");
  m.def(
      "used_on",
      [](nb::handle x, uint64_t number, const std::string& where, bool lasting) {
        const Array& a = read_array(x, where.c_str());
        if (!a.device.is_cuda() || !a.buffer) return;
        const CUstream stream = cuda::stream_of(number);
        cuda::DeviceGuard guard(a.device.id);
        if (lasting) cuda::note_process_lifetime(stream);
        cuda::begin_untracked_use(a.device.id, stream, where.c_str());
        cuda::order(a.buffer.get(), stream, where.c_str());
      },
      "x"_a, "stream"_a, "where"_a, "lasting"_a = false,
      "Report that the next use of the array is on this stream, so that later uses wait for it. "
      "`lasting`: the stream is never destroyed; else call end_use() before it is destroyed.");
  m.def(
      "end_use",
      [](nb::handle x, uint64_t stream) {
        const Array& a = read_array(x, "end_use");
        if (a.device.is_cuda()) cuda::end_untracked_use(a.device.id, cuda::stream_of(stream));
      },
      "x"_a, "stream"_a, "Report that the work announced by used_on() is queued on this stream.");
  m.def(
      "finish_uses",
      [](nb::handle x, const std::string& where) {
        exchange::settle_for_host(read_array(x, where.c_str()), where.c_str());
      },
      "x"_a, "where"_a, "Wait on the host until all work queued on the array is done.");
  if (PyModule_AddFunctions(m.ptr(), converter_functions) < 0) throw nb::python_error();
  register_borrowing(m);
  register_converter_functions(m);
  m.def(
      "after_stream",
      [](nb::handle x, uint64_t producer, const std::string& where) {
        const Array& a = read_array(x, where.c_str());
        if (!a.device.is_cuda() || !a.buffer) return;
        cuda::wait(a.device.id, cuda::current_stream(a.device.id), cuda::stream_of(producer),
                   where.c_str());
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
