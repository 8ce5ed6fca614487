// Each thread scans one line of p.n elements, p.inner elements apart.
struct Params {
  const In* in;
  Out* out;
  i64 lines, n, inner;
};

extern "C" __global__ void __launch_bounds__(GI_THREADS) gi_scan_few(const Params p) {
  const i64 line = (i64)blockIdx.x * GI_THREADS + threadIdx.x;
  if (line >= p.lines) return;
  const i64 start = line / p.inner * p.n * p.inner + line % p.inner;
  Acc value = gi_value(p.in[start]);
  p.out[start] = gi_to<Out>(value);
  for (i64 k = 1; k < p.n; ++k) {
    value = gi_join(value, gi_value(p.in[start + k * p.inner]));
    p.out[start + k * p.inner] = gi_to<Out>(value);
  }
}
