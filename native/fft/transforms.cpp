// Fourier transforms by cuFFT, and the calls of gpuinterop.fft that need no Python: of one GpuArray without gaps.
#include <nanobind/nanobind.h>

#include <algorithm>
#include <memory>
#include <mutex>
#include <optional>
#include <vector>

#include "arrays/type.hpp"
#include "captures/recorder.hpp"
#include "devices/cuda.hpp"
#include "devices/device_state.hpp"
#include "elementwise/call_cache.hpp"
#include "elementwise/calls.hpp"
#include "fft/cufft.hpp"
#include "interpreter/error.hpp"
#include "interpreter/register.hpp"
#include "interpreter/served.hpp"

namespace nb = nanobind;
using namespace nb::literals;

namespace gpuinterop::cufft {

namespace {

constexpr int kMostAxes = 3;  // that one plan transforms

// How cuFFT steps through the memory of an operand, in elements; see cufftPlanMany.
struct Steps {
  long long embed[kMostAxes] = {};
  long long stride = 1, distance = 1;
};

// A transform of the last axes of an operand.
struct Transform {
  Type type;
  int axes;
  Direction direction;
  long long lengths[kMostAxes] = {};
  Steps from, to;
  long long batch = 1;
};

// False if cuFFT cannot step through the layout. No axis has length 0.
bool read_steps(const Layout& l, int axes, Steps* steps) {
  const int leading = l.ndim() - axes;
  const int64_t *shape = l.shape(), *strides = l.strides();
  int64_t step = 1, length = 1;  // of the axis inside the one that is read
  for (int k = axes - 1; k >= 0; --k) {
    const int d = leading + k;
    const bool innermost = k == axes - 1;
    const int64_t own = shape[d] > 1 ? strides[d] : step * length;  // an axis of length 1: any
    if (own <= 0) return false;
    if (innermost) {
      steps->stride = own;
    } else {
      if (own % step || own / step < length) return false;
      steps->embed[k + 1] = own / step;
    }
    step = own;
    length = shape[d];
  }
  steps->embed[0] = length;  // cuFFT does not read it
  int last = leading - 1;
  while (last >= 0 && shape[last] == 1) --last;
  steps->distance = last < 0 ? step * length : strides[last];
  // The leading axes step through memory as one.
  return steps->distance > 0 &&
         (last < 0 || first_gap(last + 1, shape, strides, true, steps->distance) < 0);
}

// Nothing for dtypes that cuFFT does not transform into each other.
std::optional<Type> type_of(DTypeId from, DTypeId to) {
  if (from == kComplex64) return to == kComplex64 ? kC2C : kC2R;
  if (from == kComplex128) return to == kComplex128 ? kZ2Z : kZ2D;
  if (from == kFloat32 && to == kComplex64) return kR2C;
  if (from == kFloat64 && to == kComplex128) return kD2Z;
  return {};
}

// Kept in the call cache. Its memory outside of the work area is a table of a few kilobytes.
struct FftPlan : ops::Prepared {
  Plan plan = -1;
  size_t work = 0;
  mutable std::mutex lock;  // of the members below, and of the plan's stream and work area
  mutable CUstream stream = nullptr;
  mutable void* area = nullptr;

  FftPlan() = default;
  FftPlan(const FftPlan&) = delete;
  FftPlan& operator=(const FftPlan&) = delete;
  ~FftPlan() {
    if (plan >= 0) library().Destroy(plan);
  }
};

void make_plan(FftPlan& made, Transform t, const char* where) {
  const Library& f = library();
  check(f.Create(&made.plan), "cufftCreate", where);
  check(f.SetAutoAllocation(made.plan, 0), "cufftSetAutoAllocation", where);
  check(f.MakePlanMany(made.plan, t.axes, t.lengths, t.from.embed, t.from.stride, t.from.distance,
                       t.to.embed, t.to.stride, t.to.distance, t.type, t.batch, &made.work),
        "cufftMakePlanMany64", where);
}

std::shared_ptr<const FftPlan> plan_for(const Transform& t, int device, const char* where) {
  auto write_key = [&](ops::CallKey& key) {
    key.begin(ops::Subject::Cufft, static_cast<uint32_t>(device));
    key.put(t.type);
    key.put(t.axes);
    key.put(t.lengths);
    for (const Steps* steps : {&t.from, &t.to}) key.put(*steps);
    key.put(t.batch);
  };
  auto prepare = [&] {
    auto made = std::make_shared<FftPlan>();
    const GilRelease released;  // a first plan loads kernels, for up to 0.2 s
    make_plan(*made, t, where);
    return std::shared_ptr<const FftPlan>(made);
  };
  return ops::find_or_prepare<FftPlan>(write_key, prepare, where);
}

int execute(const Transform& t, Plan plan, void* from, void* to) {
  const Library& f = library();
  switch (t.type) {
    case kC2C: return f.C2C(plan, from, to, t.direction);
    case kZ2Z: return f.Z2Z(plan, from, to, t.direction);
    case kR2C: return f.R2C(plan, from, to);
    case kD2Z: return f.D2Z(plan, from, to);
    case kC2R: return f.C2R(plan, from, to);
    default: return f.Z2D(plan, from, to);
  }
}

// Transforms the last `axes` axes of x into out, without a factor. False if cuFFT cannot step through a layout.
// No axis has length 0; out does not overlap x. Queued on the current stream.
bool transform(Array x, const Array& out, int axes, bool inverse, const char* where) {
  Transform t = {};
  t.type = *type_of(x.dtype, out.dtype);
  t.axes = axes;
  t.direction = inverse ? kInverse : kForward;
  const int device = out.device.id;
  cuda::DeviceGuard guard(device);
  cuda::RelaxedCapture relaxed;  // cuFFT loads its kernels on first use
  ops::note_use(x);
  ops::note_use(out);
  const bool destroyed = t.type == kC2R || t.type == kZ2D;  // as cuFFT does with these operands
  // cuFFT requires the alignment of a complex number, of real operands too.
  if (destroyed ||
      reinterpret_cast<uintptr_t>(x.data) % static_cast<uintptr_t>(out.itemsize()) != 0) {
    const Array copy = empty_like(x, x.device, where);
    copy_unreported(copy, x, where);
    x = copy;
  }
  if (!read_steps(x.layout, axes, &t.from) || !read_steps(out.layout, axes, &t.to)) return false;
  const Layout& real = is_complex(x.dtype) ? out.layout : x.layout;  // or both are complex
  const int leading = real.ndim() - axes;
  for (int k = 0; k < axes; ++k) t.lengths[k] = real.shape()[leading + k];
  for (int d = 0; d < leading; ++d) t.batch *= real.shape()[d];
  const auto plan = plan_for(t, device, where);
  if (ops::recorder) ops::recorder->keep(plan);  // kernels of the graph read tables of the plan
  const CUstream stream = cuda::current_stream(device);
  BufferRef work;
  if (plan->work) work = allocate(out.device, static_cast<int64_t>(plan->work), where);
  Buffer* buffers[] = {x.buffer.get(), out.buffer.get(), work.get()};
  cuda::queue(buffers, 3, stream, where, [&] {
    const std::lock_guard<std::mutex> held(plan->lock);
    if (plan->stream != stream) {
      plan->stream = nullptr;  // a call that fails leaves it unknown
      check(library().SetStream(plan->plan, stream), "cufftSetStream", where);
      plan->stream = stream;
    }
    if (work && plan->area != work->ptr) {
      check(library().SetWorkArea(plan->plan, work->ptr), "cufftSetWorkArea", where);
      plan->area = work->ptr;
    }
    check(execute(t, plan->plan, x.data, out.data), "cufftExec", where);
  });
  return true;
}

// ---- calls without Python -----------------------------------------------------------------------

// The functions that the core carries out: of the last axis, the last two, or all.
struct FftFunction {
  const char* name;
  const char* parameters;
  int axes;  // 0: all
  bool inverse;
  enum Numbers { kComplex, kFromReal, kToReal } numbers;
};
constexpr const char *kOne = "a n axis norm out", *kSeveral = "a s axes norm out";
constexpr FftFunction kFunctions[] = {
    {"fft", kOne, 1, false, FftFunction::kComplex},
    {"ifft", kOne, 1, true, FftFunction::kComplex},
    {"rfft", kOne, 1, false, FftFunction::kFromReal},
    {"irfft", kOne, 1, true, FftFunction::kToReal},
    {"fft2", kSeveral, 2, false, FftFunction::kComplex},
    {"ifft2", kSeveral, 2, true, FftFunction::kComplex},
    {"rfft2", kSeveral, 2, false, FftFunction::kFromReal},
    {"irfft2", kSeveral, 2, true, FftFunction::kToReal},
    {"fftn", kSeveral, 0, false, FftFunction::kComplex},
    {"ifftn", kSeveral, 0, true, FftFunction::kComplex},
    {"rfftn", kSeveral, 0, false, FftFunction::kFromReal},
    {"irfftn", kSeveral, 0, true, FftFunction::kToReal},
};

// The dtype of the result; nothing for operands that Python casts first.
std::optional<DTypeId> result_dtype(DTypeId from, FftFunction::Numbers numbers) {
  const bool wide = from == kFloat64 || from == kComplex128;
  if (!wide && from != kFloat32 && from != kComplex64) return {};
  if (is_complex(from) == (numbers == FftFunction::kFromReal)) return {};
  if (numbers == FftFunction::kToReal) return wide ? kFloat64 : kFloat32;
  return wide ? kComplex128 : kComplex64;
}

PyObject* carry_out(const FftFunction& f, const Values& values) {
  PyObject* const a = values[0];
  for (int i = 1; i < 5; ++i)
    if (given(values[i])) return nullptr;
  auto* const general = reinterpret_cast<PyTypeObject*>(gpuarray_class().ptr());
  const bool known = Py_TYPE(a) == general || Py_TYPE(a) == result_type(kFloat32);
  if (!is_open() || !known) return nullptr;
  const Array x = read_array(a, f.name);
  const int ndim = x.layout.ndim(), axes = f.axes ? f.axes : ndim;
  if (!x.device.is_cuda() || axes < 1 || axes > std::min(ndim, kMostAxes) || !x.layout.size())
    return nullptr;
  const auto dtype = result_dtype(x.dtype, f.numbers);
  if (!dtype || !x.layout.is_c_contiguous()) return nullptr;
  int64_t shape[kMaxDims];
  std::copy_n(x.layout.shape(), ndim, shape);
  int64_t& last = shape[ndim - 1];
  if (f.numbers == FftFunction::kFromReal) last = last / 2 + 1;
  if (f.numbers == FftFunction::kToReal) last = 2 * (last - 1);
  if (last < 1) return nullptr;
  const Array out = make_empty(x.device, *dtype, ndim, shape, f.name);
  if (!transform(x, out, axes, f.inverse, f.name)) return nullptr;
  PyRef result = PyRef::steal(wrap(general, Array(out)));
  if (!f.inverse) return result.release();
  double count = 1;
  for (int d = ndim - axes; d < ndim; ++d)
    count *=
        static_cast<double>(f.numbers == FftFunction::kToReal ? shape[d] : x.layout.shape()[d]);
  const PyRef factor = PyRef::checked(PyFloat_FromDouble(1 / count));
  PyObject *args[] = {result.get(), factor.get()}, *outs[] = {result.get()};
  return ops::call(ops::op_by_name("multiply"), args, outs, false);
}

template <size_t... I>
void serve_all(std::index_sequence<I...>) {
  (serve({{kFunctions[I].name, kFunctions[I].parameters, 1},
          [](const Values& values) { return carry_out(kFunctions[I], values); }}),
   ...);
}

}  // namespace

}  // namespace gpuinterop::cufft

namespace gpuinterop {

void register_fft(nb::module_& m) {
  m.def("_fft_open", &cufft::open, "path"_a, "Open cuFFT, once in a process.");
  m.def(
      "_fft_transform",
      [](const Array& x, const Array& out, int axes, bool inverse, const char* where) {
        return cufft::transform(x, out, axes, inverse, where);
      },
      "x"_a, "out"_a, "axes"_a, "inverse"_a, "where"_a,
      "Transform the last axes of x into out, without a factor; False for layouts that cuFFT "
      "cannot "
      "step through.");
  cufft::serve_all(std::make_index_sequence<std::size(cufft::kFunctions)>());
}

}  // namespace gpuinterop
