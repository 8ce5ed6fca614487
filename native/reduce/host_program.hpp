// Reductions in host memory: programs that join elements to accumulators, and programs of the accumulators; or
// positions, by NumPy's argmin and argmax. Programs of rows, which use reductions of them.
#pragma once

#include <memory>
#include <vector>

#include "elementwise/host_program.hpp"
#include "reduce/launch_plan.hpp"

namespace gpuinterop::ops {

// One pass over the elements. Inputs of `join` are the operands and, after the first stage, the value of the
// stage before; its result is the accumulator, which it reads too. `finish` computes the value of the stage.
struct HostStage {
  std::shared_ptr<const HostProgram> join, finish;
  Constant initial;
  DTypeId accumulator, value;
};

constexpr size_t kMostHostStages = 2;

// A plan in host memory with one result; a capture records it.
struct HostPlan : Plan, std::enable_shared_from_this<HostPlan> {
  int inputs = 0;

  // The arrays have the layouts of the plan.
  virtual void carry_out(const Array* const* ins, const Array& out, const char* where) const = 0;

 protected:
  virtual bool fits(const Array* const* ins, int n_ins) const = 0;
  void compute(const MaybeArray* ins, int n_ins, const MaybeArray* outs, const bool* fresh,
               const char* where) const override;
};

// A reduction that Python prepared for one layout.
struct HostReduction : HostPlan {
  std::vector<HostStage> stages;
  bool starts =
      false;  // the first value of the accumulators of the only stage is a further operand
  const FindBest* find = nullptr;  // of positions, which have no stages
  std::vector<int64_t> shape;      // which the inputs broadcast to
  uint64_t axes = 0;               // the reduced ones, as bits

  // `out` has the shape without the reduced axes, or with axes of extent 1 in their place.
  void carry_out(const Array* const* ins, const Array& out, const char* where) const override;

 protected:
  bool fits(const Array* const* ins, int n_ins) const override;
};

// The values of a step over rows: the row of the operand, that of the result, and numbers of the row.
constexpr size_t kOperandRow = 0, kResultRow = 1, kMostRowValues = 4, kMostRowSteps = 5;

// Writes a value by the program `stage.join` of others; with `joins`, the number that is the reduction of the one it reads.
struct RowStep {
  HostStage stage;
  bool joins;
  std::vector<size_t> reads;
  size_t writes;
};

// Steps over the rows of a C-contiguous array; all values have the dtype of the result.
struct HostRows : HostPlan {
  std::vector<RowStep> steps;
  int64_t rows, length;

  void carry_out(const Array* const* ins, const Array& out, const char* where) const override;

 protected:
  bool fits(const Array* const* ins, int n_ins) const override;
};

}  // namespace gpuinterop::ops
