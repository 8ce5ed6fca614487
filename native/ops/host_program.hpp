// Programs of inner loops, which compute an elementwise operation, or a whole fused expression, in host memory.
// Python compiles a program for the dtypes of the operands (gpuinterop/ops/host_program.py); the core runs it block
// by block over the iteration space of the operands, without Python.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "ops/graph.hpp"
#include "ops/host_loops.hpp"
#include "ops/iteration_space.hpp"

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

// A program and its operands: run at once, or kept by a capture for its replays.
struct HostCall : HostWork {
  const HostProgram* program = nullptr;
  std::shared_ptr<const HostProgram> kept;  // the program, in a capture
  std::string where;
  IterationSpace w;
  std::vector<Array> inputs, outs;  // only in a capture, as they were recorded

  void run() const override;
  int traverse(visitproc visit, void* arg) const override;
};

// The program that PREPARE["host program"] returned: (inputs, results, temporaries, constants, steps), or null
// for None.
std::shared_ptr<const HostProgram> read_program(PyObject* compiled);

// One loop over operands and constants, which needs no registers.
class LoopRun {
 public:
  LoopRun(const HostLoop& loop, const uint16_t* registers, size_t count, size_t operands)
      : loop_(&loop), registers_(registers), count_(count), operands_(operands) {}
  // False, as a bool, if the program is not one loop.
  explicit LoopRun(const HostProgram& program) {
    if (program.steps.size() != 1 || !program.temporaries.empty()) return;
    const HostStep& step = program.steps[0];
    if (!step.loop || step.squares) return;
    loop_ = &step.loop;
    registers_ = step.registers.data();
    count_ = step.registers.size();
    operands_ = static_cast<size_t>(program.operands());
    constants_ = program.constants.data();
  }
  explicit operator bool() const noexcept { return loop_ != nullptr; }

  // As those of ProgramRun.
  void set_steps(const int64_t* steps) {
    for (size_t i = 0; i < count_; ++i)
      steps_[i] = registers_[i] < operands_ ? steps[registers_[i]] : 0;
  }
  void line(char* const* at, int64_t n) {
    char* args[kMaxOperands];
    for (size_t i = 0; i < count_; ++i) {
      const size_t r = registers_[i];
      args[i] = r < operands_ ? at[r] : constant(r - operands_);
    }
    (*loop_)(args, n, steps_);
  }

 private:
  char* constant(size_t i) const noexcept {  // a loop only reads it
    return reinterpret_cast<char*>(const_cast<Constant*>(constants_ + i));
  }

  const HostLoop* loop_ = nullptr;
  const uint16_t* registers_;
  size_t count_, operands_;
  const Constant* constants_ = nullptr;
  intptr_t steps_[kMaxOperands];
};

// A running program: the address of each register, and the step to its next element. `longest`: elements of the
// longest line. Needs the GIL only if the program calls Python.
class ProgramRun {
 public:
  ProgramRun(const HostProgram& program, int64_t longest, const char* where);
  ProgramRun(const ProgramRun&) = delete;

  // Sets the step in bytes between the elements of each operand along the lines. Called before line().
  void set_steps(const int64_t* steps);
  // Computes n > 0 elements of each operand, starting at these addresses.
  void line(char* const* at, int64_t n);

 private:
  static constexpr size_t kInlineRegisters = 32;
  struct Register {
    char* at;
    intptr_t step;
  };

  size_t place_temporaries(size_t next, const char* where);
  void run_step(const HostStep& step, int64_t n);
  void call_python(const HostStep& step, int64_t n);

  const HostProgram& program_;
  LoopRun one_;    // does all the work, if the program is one loop
  int64_t block_;  // elements that a step computes at once
  Register inline_[kInlineRegisters];
  Register* registers_ = inline_;
  std::vector<Register> more_;
  std::vector<Array> arrays_;  // the temporaries of a program that calls Python
  BufferRef heap_;
  alignas(64) char stack_[4096];  // enough for the temporaries of small calls
};

// A loop of one input and one output, over w's two operands, of which there is at least one element.
void run_loop(const HostLoop& loop, const IterationSpace& w);

// Runs it over w's operands. Holds the GIL, except in long computations. Throws what a Python step raises.
void run_program(const HostProgram& program, const IterationSpace& w, const char* where);

}  // namespace gpuinterop::ops
