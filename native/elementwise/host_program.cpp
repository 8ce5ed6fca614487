#include "elementwise/host_program.hpp"

#include <nanobind/nanobind.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/shared_ptr.h>
#include <nanobind/stl/vector.h>

#include <algorithm>
#include <cstring>
#include <utility>

#include "interpreter/error.hpp"
#include "interpreter/gil.hpp"
#include "interpreter/hooks.hpp"
#include "interpreter/register.hpp"

namespace nb = nanobind;

namespace gpuinterop::ops {

namespace {

constexpr int64_t kBlockBytes = 32 << 10;  // of all temporaries: they stay in the first-level cache
// Lines shorter than this cost more in calls of loops than strided accesses along a longer axis.
constexpr int64_t kShortLine = 16;
constexpr int64_t kTile = 2048;  // elements of a line along another axis than the results' fastest

// The dimension along which the loops run: the last one, or the longest if the last one is shorter than `shortest`.
int line_dimension(const IterationSpace& w, int64_t shortest) {
  const int last = w.ndim - 1;
  if (last < 1 || w.shape[last] >= shortest) return last;
  return static_cast<int>(std::max_element(w.shape, w.shape + w.ndim) - w.shape);
}

// Calls line(addresses, steps, n) until all elements are done.
template <class Line>
void run_lines(Line&& line, const IterationSpace& w, char** at, int64_t shortest) {
  const int along = line_dimension(w, shortest);
  const int64_t extent = w.shape[along], tile = along == w.ndim - 1 ? extent : kTile;
  int64_t step[kMaxOperands];
  for (int i = 0; i < w.operands; ++i) step[i] = w.stride[along][i] * w.itemsize[i];
  int64_t index[kMaxDims];
  std::fill_n(index, w.ndim, 0);
  const int other =
      1 - along;  // of two dimensions, over which advance() would take as long as short lines
  auto step_of = [&](int d, int i) { return w.stride[d][i] * w.itemsize[i]; };
  for (int64_t start = 0; start < extent; start += tile) {
    const int64_t n = std::min(tile, extent - start);
    if (w.ndim == 2) {
      const int64_t lines = w.shape[other];
      for (int64_t k = 0; k < lines; ++k) {
        line(at, step, n);
        for (int i = 0; i < w.operands; ++i) at[i] += step_of(other, i);
      }
      for (int i = 0; i < w.operands; ++i) at[i] += n * step[i] - lines * step_of(other, i);
      continue;
    }
    do {
      line(at, step, n);
    } while (advance(at, w.operands, index, w.shape, w.ndim, along, step_of));
    for (int i = 0; i < w.operands; ++i) at[i] += n * step[i];
  }
}

// The same for any number of dimensions; there is at least one element.
template <class Line>
void run_elements(Line&& line, const IterationSpace& w, char** at, int64_t shortest = kShortLine) {
  if (w.ndim > 1) return run_lines(line, w, at, shortest);
  int64_t step[kMaxOperands];
  for (int i = 0; i < w.operands; ++i)
    step[i] = w.constant[i] ? 0 : (w.ndim ? w.stride[0][i] : 1) * w.itemsize[i];
  line(at, step, w.ndim ? w.shape[0] : 1);
}

bool is_two(const char* number, DTypeId dtype) {
  if (dtype == kFloat32) return *reinterpret_cast<const float*>(number) == 2;
  return *reinterpret_cast<const double*>(number) == 2;
}

}  // namespace

ProgramRun::ProgramRun(const HostProgram& program, int64_t longest, const char* where)
    : program_(program),
      operands_(static_cast<size_t>(program.operands())),
      block_(program.block ? std::min(longest, program.block) : longest),
      inner_(static_cast<int>(program.registers() - operands_)) {
  if (!program.temporaries.empty()) place_temporaries(where);
  Register* next = inner_.get() + program.temporaries.size();
  for (const Constant& constant : program.constants)
    *next++ = {reinterpret_cast<char*>(const_cast<Constant*>(&constant)), 0};
}

void ProgramRun::line(char* const* at, const int64_t* steps, int64_t n) {
  if (n <= block_) return run_steps(at, steps, n);
  char* start[kMaxOperands];
  for (size_t i = 0; i < operands_; ++i) start[i] = at[i];
  for (int64_t done = 0; done < n; done += block_) {
    run_steps(start, steps, std::min(block_, n - done));
    for (size_t i = 0; i < operands_; ++i) start[i] += block_ * steps[i];
  }
}

void ProgramRun::place_temporaries(const char* where) {
  Register* next = inner_.get();
  if (program_.calls_python) {
    for (DTypeId dtype : program_.temporaries) {
      arrays_.push_back(make_empty({}, dtype, 1, &block_, where));
      *next++ = {arrays_.back().data, itemsize_of(dtype)};
    }
    return;
  }
  auto room = [&](DTypeId dtype) { return (block_ * itemsize_of(dtype) + 63) & ~int64_t{63}; };
  int64_t bytes = 0;
  for (DTypeId dtype : program_.temporaries) bytes += room(dtype);
  char* at = stack_;
  if (bytes > static_cast<int64_t>(sizeof stack_)) {
    heap_ = allocate({}, bytes, where);
    at = heap_->ptr;
  }
  for (DTypeId dtype : program_.temporaries) {
    *next++ = {at, itemsize_of(dtype)};
    at += room(dtype);
  }
}

void ProgramRun::run_steps(char* const* at, const int64_t* given, int64_t n) {
  for (const HostStep& step : program_.steps) {
    if (!step.loop) {
      call_python(step, n);
      continue;
    }
    char* args[kMaxOperands];
    intptr_t steps[kMaxOperands];
    for (size_t i = 0; i < step.registers.size(); ++i) {
      const size_t r = step.registers[i];
      const Register inner =
          r < operands_ ? Register{at[r], given[r]} : inner_[static_cast<int>(r - operands_)];
      args[i] = inner.at;
      steps[i] = inner.step;
    }
    if (step.squares && steps[1] == 0 && is_two(args[1], step.exponent)) {
      args[1] = args[2];
      steps[1] = steps[2];
      step.squares(args, n, steps);
    } else {
      step.loop(args, n, steps);
    }
  }
}

void ProgramRun::call_python(const HostStep& step, int64_t n) {
  auto bound = std::find_if(bound_.begin(), bound_.end(),
                            [&](const Bound& b) { return b.step == &step && b.length == n; });
  if (bound == bound_.end()) bound = bound_.insert(bound, {&step, n, bind(step, n)});
  const PyRef result = PyRef::checked(PyObject_CallNoArgs(bound->call.get()));
}

// Its registers are temporaries, so the arrays own their memory.
PyRef ProgramRun::bind(const HostStep& step, int64_t n) {
  PyRef arguments = PyRef::checked(PyTuple_New(static_cast<Py_ssize_t>(step.registers.size())));
  for (size_t i = 0; i < step.registers.size(); ++i) {
    Array part = arrays_[step.registers[i] - operands_];
    part.layout = Layout::c_order(1, &n, "gpuinterop");
    PyTuple_SetItem(arguments.get(), static_cast<Py_ssize_t>(i), wrap(array_type, std::move(part)));
  }
  return PyRef::checked(PyObject_CallObject(step.owner.get(), arguments.get()));
}

void run_loop(const HostLoop& loop, const IterationSpace& w) {
  auto line = [&](char* const* start, const int64_t* steps, int64_t n) {
    loop(const_cast<char**>(start), n, steps);  // the core's own loops do not write them
  };
  char* at[] = {w.data[0], w.data[1]};
  run_elements(line, w, at);
}

void run_program(const HostProgram& program, const IterationSpace& w, const char* where) {
  int64_t itemsizes = 0;
  for (int i = 0; i < w.operands; ++i) itemsizes += w.itemsize[i];
  GilRelease released(!program.calls_python && w.size * itemsizes >= kGilBytes);
  char* at[kMaxOperands];
  uint64_t numbers[kMaxOperands]
                  [2];  // the iteration space holds the bytes of a number as an address
  for (int i = 0; i < w.operands; ++i) {
    at[i] = w.data[i];
    if (!w.constant[i]) continue;
    numbers[i][0] = reinterpret_cast<uint64_t>(w.data[i]);
    numbers[i][1] = w.high[i];
    at[i] = reinterpret_cast<char*>(numbers[i]);
  }
  ProgramRun run(program, w.size, where);
  auto line = [&](char* const* start, const int64_t* steps, int64_t n) {
    run.line(start, steps, n);
  };
  run_elements(line, w, at, program.calls_python ? program.block : kShortLine);
}

namespace {

[[noreturn]] void refuse_step() { throw nb::value_error("a step of a host program"); }

HostStep read_step(nb::handle fields) {
  HostStep step;
  const nb::object owner = fields.attr("owner"), loop = fields.attr("loop");
  step.owner = PyRef::borrow(owner.ptr());
  std::vector<DTypeId> dtypes;
  for (const char* values : {"inputs", "outputs"})
    for (nb::handle value : nb::object(fields.attr(values))) {
      step.registers.push_back(field<uint16_t>(value, "register"));
      dtypes.push_back(field<DTypeId>(value, "dtype"));
    }
  if (loop.is_none() && owner.is_none()) refuse_step();
  if (loop.is_none()) return step;  // a Python function
  if (dtypes.size() < 2) refuse_step();
  if (owner.is_none())
    step.loop = own_loop(nb::cast<const char*>(loop), dtypes[0], dtypes[1]);
  else
    step.loop = ufunc_loop(owner.ptr(), nb::cast<int>(loop));
  if (!step.loop) refuse_step();
  if (field<bool>(fields, "squares")) {
    step.exponent = dtypes[0];
    step.squares = own_loop("square", dtypes[0], dtypes[0]);
  }
  return step;
}

std::shared_ptr<HostProgram> make_program(int inputs, int results, std::vector<DTypeId> temporaries,
                                          std::vector<std::pair<uint64_t, uint64_t>> constants,
                                          std::vector<nb::handle> steps) {
  auto program = std::make_shared<HostProgram>();
  program->inputs = inputs;
  program->results = results;
  program->temporaries = std::move(temporaries);
  int64_t itemsizes = 0;
  for (const DTypeId dtype : program->temporaries) itemsizes += itemsize_of(dtype);
  for (const auto& [low, high] : constants) program->constants.push_back({low, high});
  for (const nb::handle item : steps) {
    HostStep step = read_step(item);
    program->calls_python |= !step.loop;
    const size_t operands = static_cast<size_t>(program->operands());
    bool valid = step.registers.size() <= kMaxOperands;
    for (const uint16_t r : step.registers)
      valid = valid && r < program->registers() &&
              (step.loop || (r >= operands && r < operands + program->temporaries.size()));
    if (!valid) refuse_step();
    program->steps.push_back(std::move(step));
  }
  // A Python function makes arrays of its own.
  if (program->calls_python) itemsizes *= 2;
  if (itemsizes) program->block = std::max<int64_t>(64, kBlockBytes / itemsizes & ~int64_t{63});
  return program;
}

}  // namespace

std::shared_ptr<const HostProgram> read_program(PyObject* compiled) {
  return nb::cast<std::shared_ptr<HostProgram>>(nb::handle(compiled));
}

}  // namespace gpuinterop::ops

void gpuinterop::register_programs(nb::module_& m) {
  using namespace nb::literals;
  nb::class_<ops::HostProgram>(m, "HostProgram",
                               "Inner loops that compute an operation in host memory.")
      .def(nb::new_(&ops::make_program), "inputs"_a, "results"_a, "temporaries"_a, "constants"_a,
           "steps"_a,
           "`temporaries`: dtypes. `constants`: the words of each. `steps`: Step of "
           "gpuinterop/elementwise/host_program.py.");
}
