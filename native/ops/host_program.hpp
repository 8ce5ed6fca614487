// Programs of inner loops: how an elementwise operation, or a whole fused expression, is computed in host memory.
// Python compiles a program for the dtypes of the operands (gpuinterop/ops/host_program.py); the core runs it block
// by block over the iteration space of the operands, without Python.
#pragma once

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "ops/graph.hpp"
#include "ops/host_loops.hpp"
#include "ops/iteration_space.hpp"

namespace gpuinterop::ops {

struct HostStep {
  HostLoop loop;  // none: `owner` is a Python function of the registers, as core arrays
  PyRef owner;    // of the loop: a ufunc
  std::vector<uint16_t> registers;  // inputs, then outputs
};

// Registers are the operands (inputs, then results), temporaries of one block, and constants.
struct HostProgram {
  int inputs = 0, results = 0;
  std::vector<DTypeId> temporaries;
  std::vector<Constant> constants;
  std::vector<HostStep> steps;
  int64_t block = 0;  // elements that a step computes at once; 0 without temporaries: no bound
  bool calls_python = false;

  int operands() const noexcept { return inputs + results; }
  size_t registers() const noexcept { return operands() + temporaries.size() + constants.size(); }
};

// A program and its operands: run at once, or kept by a capture for its replays.
struct HostCall : HostWork {
  std::shared_ptr<const HostProgram> program;
  std::string where;
  IterationSpace w;
  std::vector<std::pair<Array, Array>> copies;  // to, from: inputs that an `out` array overlaps
  std::vector<Array> inputs, outs;              // only in a capture, as they were recorded

  void run() const override;
  int traverse(visitproc visit, void* arg) const override;
};

// The program that PREPARE["host program"] returned: (inputs, results, temporaries, constants, steps), or null
// for None.
std::shared_ptr<const HostProgram> read_program(PyObject* compiled);

// Runs it over w's operands. Holds the GIL, except in long computations. Throws what a Python step raises.
void run_program(const HostProgram& program, const IterationSpace& w, const char* where);

}  // namespace gpuinterop::ops
