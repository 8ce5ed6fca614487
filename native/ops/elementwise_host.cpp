// Elementwise calls on arrays in host memory.
#include <nanobind/nanobind.h>

#include "array/hooks.hpp"
#include "ops/elementwise_call.hpp"
#include "ops/graph.hpp"

namespace nb = nanobind;

namespace gpuinterop::ops {

void require_range(const OpInfo& info, const Input* in, const Resolution& r) {
  for (int i = 0; i < info.inputs; ++i)
    if (!in[i].array && in[i].kind == kWeakInt) (void)encode(in[i].object, r.inputs[i], info);
}

namespace {

// Python computes operations without a program.
void run_in_python(OpId op, const OpInfo& info, const Input* in, const Resolution& r,
                   const PyRef* results) {
  require_range(info, in, r);
  nb::list inputs, kinds, outs;
  for (int i = 0; i < info.inputs; ++i) {
    if (!in[i].array) require_exponent(in[i], i, r.inputs[i], info);
    inputs.append(nb::handle(in[i].object));
    kinds.append(in[i].kind);
  }
  for (int j = 0; j < info.results; ++j) outs.append(nb::handle(results[j].get()));
  call_hook(Hook::Host, "(iNNN())", int(op), nb::tuple(kinds).release().ptr(),
            nb::tuple(inputs).release().ptr(), nb::tuple(outs).release().ptr());
}

const std::shared_ptr<const HostProgram>& program_of(OpId op, const OpInfo& info, const Input* in,
                                                     const Resolution& r, const Array* const* out,
                                                     bool in_place) {
  if (r.host_is_known) return r.host;
  nb::list kinds, stored, results;
  for (int i = 0; i < info.inputs; ++i) {
    kinds.append(in[i].kind);
    stored.append(int{in[i].array ? in[i].array->dtype : r.inputs[static_cast<size_t>(i)]});
  }
  for (int j = 0; j < info.results; ++j) results.append(int{out[j]->dtype});
  const PyRef compiled =
      call_hook(Hook::Prepare, "(siNNNO)", "host program", int(op),
                nb::tuple(kinds).release().ptr(), nb::tuple(stored).release().ptr(),
                nb::tuple(results).release().ptr(), in_place ? Py_True : Py_False);
  // Another thread may have compiled it meanwhile, and runs it without the GIL.
  if (!r.host_is_known) r.host = read_program(compiled.get());
  r.host_is_known = true;
  return r.host;
}

}  // namespace

void run_on_host(OpId op, const OpInfo& info, const Input* in, const Resolution& r, int ndim,
                 const int64_t* shape, const Array* const* out, Outs given, const PyRef* results) {
  bool in_place = false;
  for (int j = 0; j < info.results; ++j) in_place = in_place || given[j];
  HostCall call;
  const std::shared_ptr<const HostProgram>& program = program_of(op, info, in, r, out, in_place);
  call.program = program.get();
  if (!call.program) return run_in_python(op, info, in, r, results);
  require_recorded({});
  const bool records = recording_on_host();
  call.where = info.name;
  call.w.inputs = info.inputs;
  for (int i = 0; i < info.inputs; ++i) {
    if (!in[i].array) {
      require_exponent(in[i], i, r.inputs[i], info);
      call.w.add_constant(encode(in[i].object, r.inputs[i], info), r.inputs[i]);
      continue;
    }
    const Array& a = *in[i].array;
    if (records)
      call.inputs.push_back(a);
    else
      require_set("gpuinterop.capture", a);
    call.w.add_array(a);
  }
  for (int j = 0; j < info.results; ++j) {
    call.w.add_array(*out[j]);
    if (records)
      call.outs.push_back(*out[j]);
    else
      note_write(*out[j]);
  }
  build_iteration_space(call.w, ndim, shape);
  if (!records) return call.run();
  call.kept = program;
  recorder->add(std::make_shared<HostCall>(std::move(call)));
}

}  // namespace gpuinterop::ops
