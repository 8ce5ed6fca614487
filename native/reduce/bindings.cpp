// Python types of plans: Plan and PlanCache.
#include <nanobind/nanobind.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/shared_ptr.h>
#include <nanobind/stl/vector.h>

#include <algorithm>
#include <memory>
#include <tuple>
#include <utility>
#include <vector>

#include "arrays/type.hpp"
#include "devices/cuda.hpp"
#include "elementwise/overlap.hpp"
#include "interpreter/collected.hpp"
#include "interpreter/error.hpp"
#include "interpreter/error_translation.hpp"
#include "interpreter/gil.hpp"
#include "interpreter/hooks.hpp"
#include "interpreter/register.hpp"
#include "jit/kernel.hpp"
#include "reduce/host_program.hpp"
#include "reduce/launch_plan.hpp"

namespace nb = nanobind;

namespace gpuinterop {

using ops::LaunchPlan;
using ops::Plan;
using ops::PlanCache;

namespace {

// ---- LaunchPlan ----------------------------------------------------------------------------------

// An Output, Patch or KernelLaunch of gpuinterop/reduce/codegen.py, a HostStage of reduce/host_program.py.
ops::PlannedOutput read_output(nb::handle output) {
  int64_t shape[kMaxDims];
  const nb::object extents = output.attr("shape"), cls = output.attr("cls");
  const int ndim = read_ints(extents.ptr(), shape, "plan", "a shape");
  return {cls.is_none() ? nullptr : reinterpret_cast<PyTypeObject*>(cls.ptr()),
          field<DTypeId>(output, "dtype"), Layout::c_order(ndim, shape, "plan"),
          field<bool>(output, "counted")};
}

ops::Patch read_patch(nb::handle patch) {
  return {field<uint32_t>(patch, "offset"), field<ops::Slot>(patch, "slot"),
          field<uint8_t>(patch, "operand"), field<int64_t>(patch, "shift")};
}

ops::PlannedLaunch read_launch(nb::handle fields) {
  ops::PlannedLaunch launch;
  const auto& loaded = field<const LoadedKernel&>(fields, "kernel");
  loaded.module->keep_loaded();  // plans may be dropped while their work still runs
  launch.kernel = loaded.kernel;
  std::tie(launch.how.grid[0], launch.how.grid[1]) =
      field<std::pair<unsigned, unsigned>>(fields, "grid");
  launch.how.block[0] = field<unsigned>(fields, "threads");
  const auto params = field<nb::bytes>(fields, "params");
  launch.params.assign(params.c_str(), params.size());
  if (launch.params.size() > ops::kMaxPlannedParams)
    fail(Kind::Shape, "plan", "kernel parameters of at most 4096 bytes",
         std::to_string(launch.params.size()) + " bytes", "merge dimensions: x.copy() first");
  for (const nb::handle patch : fields.attr("patches")) launch.patches.push_back(read_patch(patch));
  return launch;
}

ops::HostStage read_stage(nb::handle stage) {
  const nb::object join = stage.attr("join"), finish = stage.attr("finish");
  const auto initial = field<std::pair<uint64_t, uint64_t>>(stage, "initial");
  return {ops::read_program(join.ptr()),
          ops::read_program(finish.ptr()),
          {initial.first, initial.second},
          field<DTypeId>(stage, "accumulator"),
          field<DTypeId>(stage, "value")};
}

std::shared_ptr<ops::HostReduction> host_reduction(nb::handle shape, const std::vector<int>& axes,
                                                   nb::handle output) {
  auto made = std::make_shared<ops::HostReduction>();
  int64_t extents[kMaxDims];
  const int ndim = read_ints(shape.ptr(), extents, "plan", "a shape");
  made->shape.assign(extents, extents + ndim);
  for (const int axis : axes) {
    if (axis < 0 || axis >= ndim) throw nb::value_error("axes of the shape expected");
    made->axes |= uint64_t{1} << axis;
  }
  made->outputs.push_back(read_output(output));
  return made;
}

std::shared_ptr<Plan> make_host_reduction(std::vector<nb::handle> stages, nb::handle shape,
                                          std::vector<int> axes, nb::handle output, bool starts) {
  auto made = host_reduction(shape, axes, output);
  made->starts = starts;
  for (const nb::handle stage : stages) made->stages.push_back(read_stage(stage));
  bool valid = !made->stages.empty() && made->stages.size() <= (starts ? 1 : ops::kMostHostStages);
  if (valid) made->inputs = made->stages[0].join->inputs;
  for (size_t i = 0; i < made->stages.size() && valid; ++i)
    valid = made->stages[i].join->inputs == made->inputs + (i > 0) &&
            made->stages[i].join->results == 1 && made->stages[i].finish->operands() == 2;
  if (!valid || made->inputs < 1 || made->inputs + starts > ops::kMaxPlanned)
    throw nb::value_error("stages of a reduction expected");
  return made;
}

std::shared_ptr<Plan> make_place_reduction(DTypeId dtype, bool max, nb::handle shape,
                                           std::vector<int> axes, nb::handle output) {
  auto made = host_reduction(shape, axes, output);
  made->find = ops::find_best(dtype, max);
  made->inputs = 1;
  return made;
}

// A RowStep of gpuinterop/reduce/softmax.py.
ops::RowStep read_row_step(nb::handle step) {
  const nb::object stage = step.attr("stage"), program = step.attr("program");
  ops::RowStep made{{},
                    !stage.is_none(),
                    field<std::vector<size_t>>(step, "reads"),
                    field<size_t>(step, "writes")};
  if (made.joins)
    made.stage = read_stage(stage);
  else
    made.stage.join = ops::read_program(program.ptr());
  const auto inputs = static_cast<size_t>(made.stage.join->inputs);
  bool valid = inputs == made.reads.size() && inputs < ops::kMostRowValues &&
               made.stage.join->results == 1 && !made.stage.join->calls_python &&
               made.writes != ops::kOperandRow && made.writes < ops::kMostRowValues;
  for (const size_t value : made.reads) valid = valid && value < ops::kMostRowValues;
  if (made.joins)  // accumulators have up to 8 bytes
    valid = valid && inputs == 1 && made.writes > ops::kResultRow &&
            itemsize_of(made.stage.accumulator) <= 8 && !made.stage.finish->calls_python;
  if (!valid) throw nb::value_error("a step over rows expected");
  return made;
}

std::shared_ptr<Plan> make_host_rows(std::vector<nb::handle> steps, int64_t rows, int64_t length,
                                     nb::handle output) {
  auto made = std::make_shared<ops::HostRows>();
  for (const nb::handle step : steps) made->steps.push_back(read_row_step(step));
  made->outputs.push_back(read_output(output));
  made->rows = rows;
  made->length = length;
  const ops::PlannedOutput& o = made->outputs[0];
  if (made->steps.size() > ops::kMostRowSteps || rows < 1 || length < 1 ||
      rows * length != o.layout.size() || itemsize_of(o.dtype) > 8)
    throw nb::value_error("steps over rows of a result expected");
  return made;
}

std::shared_ptr<Plan> make_plan(int device, std::vector<nb::handle> launches, int64_t scratch_bytes,
                                std::vector<nb::handle> outputs, std::shared_ptr<Plan> work) {
  auto plan = std::make_shared<LaunchPlan>();
  plan->device = {DeviceType::Cuda, device};
  plan->work = std::move(work);
  plan->scratch_bytes = scratch_bytes;
  for (const nb::handle fields : launches) {
    plan->launches.push_back(read_launch(fields));
    for (const ops::Patch& patch : plan->launches.back().patches)
      plan->counts |= patch.slot == ops::Slot::BlockCounters;
  }
  for (const nb::handle output : outputs) plan->outputs.push_back(read_output(output));
  if (plan->outputs.size() > ops::kMaxPlanned)
    fail(Kind::Shape, "plan", "at most 16 results", std::to_string(plan->outputs.size()),
         "split the operation");
  return plan;
}

nb::object run_plan(const Plan& plan, const ops::PlanCall& c, const std::string& where) {
  if (std::max(c.n_ins, c.n_outs) > ops::kMaxPlanned)
    throw nb::value_error("at most MAX_PLANNED operands and outs expected");
  if (c.outs && plan.outputs.size() > static_cast<size_t>(c.n_outs))
    fail(Kind::Shape, where, std::to_string(plan.outputs.size()) + " outs",
         std::to_string(c.n_outs), "pass an array for each result");
  return nb::steal(plan.run(c.ins, c.n_ins, c.outs, where.c_str()));
}

void write_key(uint32_t number, const ops::PlanCall& c, ops::CallKey& key, const char* where) {
  key.begin(ops::Subject::PlanCache, number);
  for (int i = 0; i < c.n_ins; ++i) {
    require_valid_layout(c.ins[i]);
    key.put_array(c.ins[i]);
  }
  for (int j = 0; j < c.n_outs; ++j) {
    require_valid_layout(c.outs[j]);
    key.put('o');
    key.put_array(c.outs[j]);
    for (int i = 0; i < c.n_ins; ++i) {
      // An input may have the same address as an `out` array, but may not overlap it otherwise.
      const Array &in = unwrap(c.ins[i]), &out = unwrap(c.outs[j]);
      key.put(ops::may_overlap(in, out, where));
      key.put(in.data == out.data);
    }
    for (int k = 0; k < j; ++k)
      key.put(ops::may_overlap(unwrap(c.outs[k]), unwrap(c.outs[j]), where));
  }
}

// The items of a tuple, borrowed.
std::vector<PyObject*> items(const nb::tuple& t) {
  std::vector<PyObject*> found;
  for (const nb::handle item : t) found.push_back(item.ptr());
  return found;
}

nb::tuple as_tuple(PyObject* const* values, int n) {
  nb::list made;
  for (int i = 0; i < n; ++i) made.append(nb::handle(values[i]));
  return nb::tuple(made);
}

}  // namespace

nb::object ops::PlanCache::run(const PlanCall& call) const {
  nb::object result;
  auto prepare = [&]() -> std::shared_ptr<const Plan> {
    const nb::object function = miss;  // a call may clear it
    if (!function)
      fail(Kind::Type, where, "a PlanCache in use",
           "a PlanCache that the garbage collector has cleared", "create a new PlanCache");
    result = function(as_tuple(call.ins, call.n_ins),
                      call.outs ? nb::object(as_tuple(call.outs, call.n_outs)) : nb::none());
    std::shared_ptr<Plan> plan;
    return nb::try_cast(result, plan) ? plan : nullptr;
  };
  const std::shared_ptr<const Plan> plan = find_or_prepare<Plan>(
      [&](CallKey& key) { write_key(number, call, key, where.c_str()); }, prepare, where.c_str());
  return plan ? run_plan(*plan, call, where) : result;
}

void register_plans(nb::module_& m) {
  nb::class_<Plan>(m, "Plan", "An operation on operands of known layout.")
      .def(
          "run",
          [](const std::shared_ptr<Plan>& plan, nb::tuple operands, nb::object outs) {
            const std::vector<PyObject*> ins = items(operands);
            if (outs.is_none())
              return run_plan(*plan, {ins.data(), int(ins.size()), nullptr, 0}, "plan");
            const std::vector<PyObject*> to = items(nb::cast<nb::tuple>(outs));
            return run_plan(*plan, {ins.data(), int(ins.size()), to.data(), int(to.size())},
                            "plan");
          },
          nb::arg("operands"), nb::arg("outs") = nb::none());
  nb::enum_<ops::Slot>(m, "Slot",
                       "The operand or memory whose address a plan writes into parameters.")
      .value("Input", ops::Slot::Input)
      .value("Output", ops::Slot::Output)
      .value("Scratch", ops::Slot::Scratch)
      .value("BlockCounters", ops::Slot::BlockCounters);
  m.def("make_host_reduction", &make_host_reduction, nb::arg("stages"), nb::arg("shape"),
        nb::arg("axes"), nb::arg("output"), nb::arg("starts") = false,
        "A Plan from programs; see native/reduce/host_program.hpp.");
  m.def("make_place_reduction", &make_place_reduction, nb::arg("dtype"), nb::arg("max"),
        nb::arg("shape"), nb::arg("axes"), nb::arg("output"), "A Plan of argmin or argmax.");
  m.def("make_host_rows", &make_host_rows, nb::arg("steps"), nb::arg("rows"), nb::arg("length"),
        nb::arg("output"), "A Plan from steps over rows; see native/reduce/host_program.hpp.");
  m.def("make_plan", &make_plan, nb::arg("device"), nb::arg("launches"), nb::arg("scratch_bytes"),
        nb::arg("outputs"), nb::arg("work") = nb::none(),
        "A Plan from parameters with null addresses and where to write them. `work`: a plan that "
        "runs first; its result, int64 numbers, ends with the length of counted outputs, and is "
        "the last operand.");
  m.attr("MAX_PLANNED") = ops::kMaxPlanned;
  m.attr("MAX_COUNTERS") = ops::kMaxCounters;
  const Collected<PlanCache> collected;
  nb::class_<PlanCache>(
      m, "PlanCache", nb::type_slots(collected.slots),
      "A step of CompiledSteps: plans by the layouts of operands, which `miss` makes.")
      .def(nb::init<nb::object, std::string>(), nb::arg("miss"), nb::arg("where") = "plan");
  m.def("_forget_calls", nb::overload_cast<>(&ops::forget_calls), "Empty the cache of calls.");
  register_reductions(m);
  register_reduced_dimensions(m);
  register_recorder(m);
  register_replays(m);
}

}  // namespace gpuinterop
