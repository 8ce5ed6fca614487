// Products of float32 on Hopper's tensor cores by three products of TF32.
#pragma once

#include "product/matrices.hpp"

namespace gpuinterop::ops {

// Queues the product of float32 matrices on `stream`, with the GIL and inside a DeviceGuard. False if cuBLAS is faster,
// or is the only one that computes it: Python decides on the first call with a shape and a layout
// (gpuinterop/product/tensor_product.py). The addend is read where beta is not 0.
bool tensor_product(const Product& p, double alpha, double beta, int device, CUstream stream,
                    const char* where);

}  // namespace gpuinterop::ops
