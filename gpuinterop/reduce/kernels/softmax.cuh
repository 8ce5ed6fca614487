// softmax, or its logarithm, of rows: a block holds a row in its registers.
struct Params {
  const Stored* in;
  Stored* out;
  i64 n;
};

template <class T>
GI_FN T gi_larger(T a, T b) { return b > a || b != b ? b : a; }  // NaN stays

// The sum, or the maximum, of the values of all threads.
template <bool SUM, class T>
GI_FN T gi_of_block(T value) {
  __shared__ T values[GI_THREADS];
  const int t = threadIdx.x;
  values[t] = value;
  __syncthreads();
#pragma unroll
  for (int half = GI_THREADS / 2; half > 0; half /= 2) {
    if (t < half) values[t] = SUM ? values[t] + values[t + half] : gi_larger(values[t], values[t + half]);
    __syncthreads();
  }
  const T found = values[0];
  __syncthreads();
  return found;
}

extern "C" __global__ void __launch_bounds__(GI_THREADS) gi_softmax_rows(const Params p) {
  const int n = (int)p.n, t = threadIdx.x;
  const i64 start = (i64)blockIdx.x * p.n;
  const Acc least = -(Acc)gi_float(0x7f800000u);  // -inf
  Acc x[GI_ITEMS], most = least;
#pragma unroll
  for (int i = 0; i < GI_ITEMS; ++i) {
    const int at = t + i * GI_THREADS;
    x[i] = at < n ? gi_to<Acc>(p.in[start + at]) : least;
    most = gi_larger(most, x[i]);
  }
  most = gi_of_block<false>(most);
  double sum = 0;
#pragma unroll
  for (int i = 0; i < GI_ITEMS; ++i) {
    x[i] -= most;
    const Acc e = exp(x[i]);
    if (t + i * GI_THREADS < n) sum += e;
    if (!GI_LOG) x[i] = e;
  }
  const Acc total = (Acc)gi_of_block<true>(sum), shift = log(total);
#pragma unroll
  for (int i = 0; i < GI_ITEMS; ++i) {
    const int at = t + i * GI_THREADS;
    if (at < n) p.out[start + at] = gi_to<Stored>(GI_LOG ? x[i] - shift : x[i] / total);
  }
}
