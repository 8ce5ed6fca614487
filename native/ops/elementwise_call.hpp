// Declarations that the files of an elementwise call share.
#pragma once

#include <memory>
#include <vector>

#include "ops/call_cache.hpp"
#include "ops/host_program.hpp"
#include "ops/operands.hpp"

namespace gpuinterop::ops {

struct Resolution : Prepared {
  std::vector<DTypeId> inputs;   // the dtypes to which numbers are converted; arrays keep their own
  std::vector<DTypeId> results;  // dtypes of new results
  // Borrowed: the class of an operand, with which the entry is removed, or one of the package's two.
  std::vector<PyTypeObject*> result_types;
  // The program that computes the operation in host memory, compiled by the first call there. Null if there is
  // no program: Python computes each call.
  mutable std::shared_ptr<const HostProgram> host;
  mutable bool host_is_known = false;
};

// An `out` array as it was when it was checked; see Input::array.
using Outs = const MaybeArray*;

// Range errors are the same on both devices, and for empty operands too.
void require_range(const OpInfo& info, const Input* in, const Resolution& r);

// elementwise_host.cpp: computes results of the shape (ndim, shape) in host memory, or records the call. No
// `out` array overlaps an input, unless they are the same. `results` are the objects of `out`.
void run_on_host(OpId op, const OpInfo& info, const Input* in, const Resolution& r, int ndim,
                 const int64_t* shape, const Array* const* out, Outs given, const PyRef* results);

}  // namespace gpuinterop::ops
