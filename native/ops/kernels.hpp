// Compiled kernels by what they are for. Python compiles each of them once (Hook::Prepare).
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

void forget_kernels() noexcept;  // for tests
void forget_kernels_of(OpId op);

}  // namespace gpuinterop::ops
