// Programs of inner loops, which compute an elementwise operation, or a whole fused expression, in host memory.
// Python compiles a program for the dtypes of the operands (gpuinterop/elementwise/host_program.py); the core runs it block
// by block over the iteration space of the operands, without Python except in steps that call it.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "arrays/few_values.hpp"
#include "captures/recorder.hpp"
#include "elementwise/host_loops.hpp"
#include "elementwise/iteration_space.hpp"

namespace gpuinterop::ops {

struct HostStep {
  HostLoop loop;  // none: `owner` is a Python function of the registers, as core arrays
  PyRef owner;    // of the loop: a ufunc
  // For a power: the loop that squares, for a single exponent of 2, and the dtype of its operands.
  HostLoop squares = {};
  DTypeId exponent = 0;
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

// The program of an object of _core.HostProgram, which raises ValueError for steps that would read or write outside of
// their registers, or name a loop that the core lacks. Needs the GIL.
std::shared_ptr<const HostProgram> read_program(PyObject* compiled);

// A running program: the address of each temporary and constant, and the step to its next element. `longest`:
// elements of the longest line. Needs the GIL only if the program calls Python.
class ProgramRun {
 public:
  ProgramRun(const HostProgram& program, int64_t longest, const char* where);
  ProgramRun(const ProgramRun&) = delete;

  // Computes n > 0 elements of each operand, at these addresses and then every steps[operand] bytes.
  void line(char* const* at, const int64_t* steps, int64_t n);

 private:
  struct Register {
    char* at;
    intptr_t step;
  };

  void place_temporaries(const char* where);
  void run_steps(char* const* at, const int64_t* steps, int64_t n);
  void call_python(const HostStep& step, int64_t n);
  PyRef bind(const HostStep& step, int64_t n);

  const HostProgram& program_;
  const size_t operands_;
  int64_t block_;                  // elements that a step computes at once
  FewValues<Register, 16> inner_;  // temporaries, then constants
  std::vector<Array> arrays_;      // the temporaries of a program that calls Python
  struct Bound {
    const HostStep* step;
    int64_t length;
    PyRef call;
  };
  std::vector<Bound> bound_;  // Python steps with the temporaries as their arguments
  BufferRef heap_;
  alignas(64) char stack_[4096];  // enough for the temporaries of small calls
};

// A loop of one input and one output, over w's two operands, of which there is at least one element.
void run_loop(const HostLoop& loop, const IterationSpace& w);

// Runs it over w's operands. Holds the GIL, except in long computations. Throws what a Python step raises.
void run_program(const HostProgram& program, const IterationSpace& w, const char* where);

}  // namespace gpuinterop::ops
