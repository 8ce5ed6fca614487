// Sorts lines of at most GI_THREADS elements: each thread counts the elements that come before its own. A line has
// p.width threads, a power of two.
struct Params {
  const Stored* in;
  void* out;
  i64 lines, n, width;
};

extern "C" __global__ void __launch_bounds__(GI_THREADS) gi_sort_short_lines(const Params p) {
  __shared__ Key keys[GI_THREADS];
  const int t = threadIdx.x, place = t & ((int)p.width - 1), first = t - place;
  const i64 line = (i64)blockIdx.x * (GI_THREADS / p.width) + t / (int)p.width;
  const bool inside = line < p.lines && place < p.n;
  const i64 start = line * p.n;
  const Key key = inside ? gi_key(p.in[start + place]) : (Key)0;
  const Key own = gi_order(key);
  keys[t] = own;
  __syncthreads();
  if (!inside) return;
  int before = 0;
  for (int j = 0; j < (int)p.n; ++j) {
    const Key other = keys[first + j];
    before += other < own || (other == own && j < place);
  }
#if GI_INDICES
  ((i64*)p.out)[start + before] = place;
#else
  ((Stored*)p.out)[start + before] = gi_unkey(key);
#endif
}
