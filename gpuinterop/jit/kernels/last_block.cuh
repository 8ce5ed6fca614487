// Whether this block is the last of the `blocks` blocks that share a counter; it then sees the writes of all.
// The counter is 0 before the first block and, because atomicInc wraps, again after the last one. So the
// next launch, or the next replay of a graph, needs no reset.
__device__ inline bool gi_is_last(unsigned* finished, unsigned blocks) {
  __shared__ int last;
  __syncthreads();  // all threads of the block have written their parts
  if (threadIdx.x == 0) {
    __threadfence();  // and blocks that increment the counter later see the parts
    last = atomicInc(finished, blocks - 1) == blocks - 1;
    __threadfence();
  }
  __syncthreads();
  return last;
}
