// For each of p.count values the number of elements of the sorted p.x that are before it in NumPy's order (GI_RESULT 0), or not
// behind it (1), as int64; or whether it is among them (2), or not (3). GI_PARTS: the values are complex.
struct Params {
  const Stored* x;
  const Stored* values;
  void* out;
  i64 n, count;
};

#if GI_PARTS
template <class T>
GI_FN bool gi_before(T a, T b) {
  const bool a_is_real = a.im == a.im, b_is_real = b.im == b.im;  // or NaN in the imaginary part
  if (a.re < b.re) return a_is_real || !b_is_real;
  if (a.re > b.re) return !b_is_real && a_is_real;
  if (a.re == b.re || (a.re != a.re && b.re != b.re)) return a.im < b.im || (!b_is_real && a_is_real);
  return b.re != b.re;
}
#else
template <class T>
GI_FN bool gi_before(T a, T b) {
  return a < b || (b != b && a == a);
}
#endif

extern "C" __global__ void __launch_bounds__(GI_THREADS) gi_search(const Params p) {
  const i64 at = (i64)blockIdx.x * GI_THREADS + threadIdx.x;
  if (at >= p.count) return;
  const auto value = gi_read(p.values[at]);
  i64 low = 0, left = p.n;
  while (left > 0) {
    const i64 half = left / 2;
    const auto middle = gi_read(p.x[low + half]);
    const bool behind = GI_RESULT == 1 ? !gi_before(value, middle) : gi_before(middle, value);
    low = behind ? low + half + 1 : low;
    left = behind ? left - half - 1 : half;
  }
#if GI_RESULT < 2
  ((i64*)p.out)[at] = low;
#else
  const bool found = low < p.n && gi_read(p.x[low]) == value;
  ((bool*)p.out)[at] = found == (GI_RESULT == 2);
#endif
}
