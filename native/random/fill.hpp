// Random numbers in host memory, the bits of the kernels.
#pragma once

#include <cstdint>

namespace gpuinterop::random {

enum class Numbers { kUniform, kNormal, kIntegers };  // as in generator.py

// The place in the sequence before the first block, as kernels read it.
struct State {
  uint64_t low, high;  // the number of the block
  uint32_t keys[20];   // two for each round
};

// What the kernels have as parameters. Integers use low, range and least, the others shift and scale.
struct Job {
  char* out;  // without gaps
  int64_t n;
  State state;
  uint64_t low = 0, range = 0, least = 0;
  double shift = 0, scale = 1;
};

// May release the GIL; the caller keeps the memory. Integers have the size of an element, others are float32 or float64.
void fill(const Job& job, Numbers kind, int64_t itemsize);

}  // namespace gpuinterop::random
