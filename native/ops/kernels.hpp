// Compiled kernels by what they are for. A miss asks Python (gpuinterop.ops) for machine code once;
// every later call stays in C++.
#pragma once

#include "cuda/cuda.hpp"
#include "ops/elementwise_launch.hpp"

namespace gpuinterop::ops {

using OpId = uint16_t;
// Operations that move bits and are the same for all types of one size.
constexpr OpId kCopy = 0, kFill = 1, kTake = 2;

// A row of the dtype table, or raw bits: kRaw + log2(itemsize).
using StoredType = uint8_t;
constexpr StoredType kRaw = 64;
StoredType raw_type(int64_t itemsize) noexcept;

// Queues op over w's operands, of the given stored types, on the current stream of `device`.
// The caller holds the GIL, has ordered the buffers against that stream, and w.size > 0.
void launch(OpId op, const StoredType* types, const IterationSpace& w, int device, CUstream stream,
            const char* where);

// The Python side: build(op, types, modes, layout, ndim, vector, unroll, wide, tile, threads, loop,
// capability) -> (code, symbol).
void set_kernel_builder(PyRef builder) noexcept;
// Imports the module that registers `hook`. Throws PythonError, also where it has not registered:
// code that runs while the module is being imported may come here.
void import_home(const char* module, const PyRef& hook);
void require_python();           // the same for gpuinterop.ops
void forget_kernels() noexcept;  // tests and tuning
void forget_kernels_of(OpId op);

}  // namespace gpuinterop::ops
