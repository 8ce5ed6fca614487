// Reductions in host memory: programs that join elements to accumulators, and programs of the accumulators; or
// positions, by NumPy's argmin and argmax.
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

// A reduction that Python prepared for one layout.
struct HostReduction : Plan, std::enable_shared_from_this<HostReduction> {
  int inputs = 0;
  std::vector<HostStage> stages;
  bool starts =
      false;  // the first value of the accumulators of the only stage is a further operand
  const FindBest* find = nullptr;  // of positions, which have no stages
  std::vector<int64_t> shape;      // which the inputs broadcast to
  uint64_t axes = 0;               // the reduced ones, as bits

  // `out` has the shape without the reduced axes, or with axes of extent 1 in their place.
  void reduce(const Array* const* ins, const Array& out, const char* where) const;

 protected:
  void compute(const MaybeArray* ins, int n_ins, const MaybeArray* outs, const bool* fresh,
               const char* where) const override;
};

}  // namespace gpuinterop::ops
