// Accumulators of the reductions. Each operation defines the accumulator of a thread (Acc), how N values are
// added to it (push), how two accumulators are merged (merge), and the result (finish). The order of all
// merges depends only on shape and layout, so results are reproducible.
//
// The code before this file defines Index (int or long long), Value (the type of the map expression) and
// the macros that rows.cuh and columns.cuh describe.

// Explicitly rounded arithmetic: the compiler must not contract or reorder the error terms.
__device__ inline float gi_add(float a, float b) { return __fadd_rn(a, b); }
__device__ inline double gi_add(double a, double b) { return __dadd_rn(a, b); }
__device__ inline float gi_sub(float a, float b) { return __fsub_rn(a, b); }
__device__ inline double gi_sub(double a, double b) { return __dsub_rn(a, b); }

// For types that do not wrap around.
template <typename T>
__device__ inline T gi_mul(T a, T b) { return a * b; }

template <typename T>
__device__ inline bool gi_is_nan(T x) { return x != x; }

// A sum of N values as a balanced tree.
template <int N>
struct Tree {
  template <typename T>
  __device__ static inline T sum(const T* v) {
    return gi_add(Tree<N / 2>::sum(v), Tree<N - N / 2>::sum(v + N / 2));
  }
};
template <>
struct Tree<1> {
  template <typename T>
  __device__ static inline T sum(const T* v) { return v[0]; }
};

// Floating sums: small trees, each added to a running sum whose rounding errors are kept (Knuth's
// two-sum). The result's error is that of a tree over N values and of the final rounding: it does
// not grow with the number of elements. RESULT 0 is the sum, 1 the mean, 2 the root (of squares).
template <typename T, int RESULT = 0>
struct FloatSum {
  struct Acc { T sum, error; };
  __device__ static inline Acc init() { return {T(0), T(0)}; }
  __device__ static inline void take(Acc& a, T x) {
    const T total = gi_add(a.sum, x);
    const T x_part = gi_sub(total, a.sum);
    a.error = gi_add(a.error, gi_add(gi_sub(a.sum, gi_sub(total, x_part)), gi_sub(x, x_part)));
    a.sum = total;
  }
  template <int N, typename V>
  __device__ static inline void push(Acc& a, const V (&v)[N], Index, Index) {
    T t[N];
#pragma unroll
    for (int k = 0; k < N; ++k) t[k] = T(v[k]);
    take(a, Tree<N>::sum(t));
  }
  __device__ static inline void merge(Acc& a, const Acc& b) {
    take(a, b.sum);
    a.error = gi_add(a.error, b.error);
  }
  // An infinite or NaN sum makes its error term NaN; the plain sum is then the right answer.
  __device__ static inline T value(const Acc& a) {
    return gi_sub(a.error, a.error) == T(0) ? gi_add(a.sum, a.error) : a.sum;
  }
  __device__ static inline T finish(const Acc& a, double count, double) {
    return RESULT == 0 ? value(a) : RESULT == 1 ? value(a) / T(count) : T(sqrt(value(a)));
  }
};

// Sums of integers wrap around as NumPy's do; T is a 64-bit type.
template <typename T>
struct IntegerSum {
  struct Acc { T sum; };
  __device__ static inline Acc init() { return {T(0)}; }
  template <int N, typename V>
  __device__ static inline void push(Acc& a, const V (&v)[N], Index, Index) {
#pragma unroll
    for (int k = 0; k < N; ++k) a.sum = gi_add(a.sum, T(v[k]));
  }
  __device__ static inline void merge(Acc& a, const Acc& b) { a.sum = gi_add(a.sum, b.sum); }
  __device__ static inline T finish(const Acc& a, double, double) { return a.sum; }
};

// A complex sum is a pair of sums.
template <typename T, int MEAN>
struct ComplexSum {
  typedef FloatSum<T> Part;
  struct Acc { typename Part::Acc re, im; };
  __device__ static inline Acc init() { return {Part::init(), Part::init()}; }
  template <int N, typename V>
  __device__ static inline void push(Acc& a, const V (&v)[N], Index, Index) {
    T re[N], im[N];
#pragma unroll
    for (int k = 0; k < N; ++k) {
      re[k] = v[k].re;
      im[k] = v[k].im;
    }
    Part::take(a.re, Tree<N>::sum(re));
    Part::take(a.im, Tree<N>::sum(im));
  }
  __device__ static inline void merge(Acc& a, const Acc& b) {
    Part::merge(a.re, b.re);
    Part::merge(a.im, b.im);
  }
  __device__ static inline auto finish(const Acc& a, double count, double) {
    const T n = MEAN ? T(count) : T(1);
    return gi_make(Part::value(a.re) / n, Part::value(a.im) / n);
  }
};

// Reductions of several values that are computed from the same elements.
template <typename A, typename B>
struct Pair {
  A first;
  B second;
};
template <typename A, typename B>
__device__ inline Pair<A, B> gi_pair(A a, B b) { return {a, b}; }

template <typename First, typename Second>
struct Both {
  typedef Pair<typename First::Acc, typename Second::Acc> Acc;
  __device__ static inline Acc init() { return {First::init(), Second::init()}; }
  template <int N, typename A, typename B>
  __device__ static inline void push(Acc& a, const Pair<A, B> (&v)[N], Index at, Index step) {
    A x[N];
    B y[N];
#pragma unroll
    for (int k = 0; k < N; ++k) {
      x[k] = v[k].first;
      y[k] = v[k].second;
    }
    First::push(a.first, x, at, step);
    Second::push(a.second, y, at, step);
  }
  __device__ static inline void merge(Acc& a, const Acc& b) {
    First::merge(a.first, b.first);
    Second::merge(a.second, b.second);
  }
  __device__ static inline auto finish(const Acc& a, double count, double extra) {
    return gi_pair(First::finish(a.first, count, extra), Second::finish(a.second, count, extra));
  }
};

template <typename T>
struct Product {
  struct Acc { T product; };
  __device__ static inline Acc init() { return {gi_to<T>(1)}; }
  template <int N, typename V>
  __device__ static inline void push(Acc& a, const V (&v)[N], Index, Index) {
#pragma unroll
    for (int k = 0; k < N; ++k) a.product = gi_mul(a.product, gi_to<T>(v[k]));
  }
  __device__ static inline void merge(Acc& a, const Acc& b) {
    a.product = gi_mul(a.product, b.product);
  }
  __device__ static inline T finish(const Acc& a, double, double) { return a.product; }
};

// Minimum and maximum. SIGN is +1 for the minimum, -1 for the maximum. A NaN is the result, as in NumPy, or, if
// NaNs are ignored, only where all elements are NaN.
template <typename T, int SIGN, bool IGNORES_NAN = false>
struct Extreme {
  struct Acc { T best; int any; };
  __device__ static inline Acc init() { return {gi_to<T>(0), 0}; }
  __device__ static inline bool beats(T x, T y) {
    return (SIGN > 0 ? x < y : x > y) || gi_is_nan(IGNORES_NAN ? y : x);
  }
  __device__ static inline void take(Acc& a, T x) {
    if (!a.any || beats(x, a.best)) a.best = x;
    a.any = 1;
  }
  template <int N, typename V>
  __device__ static inline void push(Acc& a, const V (&v)[N], Index, Index) {
    T best = gi_to<T>(v[0]);
#pragma unroll
    for (int k = 1; k < N; ++k) {
      const T x = gi_to<T>(v[k]);
      if (beats(x, best)) best = x;
    }
    take(a, best);
  }
  __device__ static inline void merge(Acc& a, const Acc& b) {
    if (b.any) take(a, b.best);
  }
  __device__ static inline T finish(const Acc& a, double, double) { return a.best; }
};

// Position of the minimum or maximum: the first of equal values, and the first NaN if there is one.
template <typename T, int SIGN>
struct ArgExtreme {
  struct Acc { T best; Index at; };  // at < 0: no value yet
  __device__ static inline Acc init() { return {gi_to<T>(0), Index(-1)}; }
  __device__ static inline void take(Acc& a, T x, Index at) {
    bool better;
    if (a.at < 0) better = true;
    else if (gi_is_nan(a.best)) better = gi_is_nan(x) && at < a.at;
    else if (gi_is_nan(x)) better = true;
    else better = (SIGN > 0 ? x < a.best : x > a.best) || (x == a.best && at < a.at);
    if (better) { a.best = x; a.at = at; }
  }
  // Compare the new values first, in the order of their positions, so that the earlier value wins a tie.
  template <int N, typename V>
  __device__ static inline void push(Acc& a, const V (&v)[N], Index at, Index step) {
    T best = gi_to<T>(v[0]);
    int which = 0;
#pragma unroll
    for (int k = 1; k < N; ++k) {
      const T x = gi_to<T>(v[k]);
      const bool better = !gi_is_nan(best) && (gi_is_nan(x) || (SIGN > 0 ? x < best : x > best));
      best = better ? x : best;
      which = better ? k : which;
    }
    take(a, best, at + Index(which) * step);
  }
  __device__ static inline void merge(Acc& a, const Acc& b) {
    if (b.at >= 0) take(a, b.best, b.at);
  }
  __device__ static inline long long finish(const Acc& a, double, double) { return a.at; }
};

// Whether all values are true, or with ALL = 0 any.
template <int ALL>
struct AnyOrAll {
  struct Acc { int is; };
  __device__ static inline Acc init() { return {ALL}; }
  __device__ static inline void take(Acc& a, int is) { a.is = ALL ? a.is & is : a.is | is; }
  template <int N, typename V>
  __device__ static inline void push(Acc& a, const V (&v)[N], Index, Index) {
#pragma unroll
    for (int k = 0; k < N; ++k) take(a, gi_to<bool>(v[k]));
  }
  __device__ static inline void merge(Acc& a, const Acc& b) { take(a, b.is); }
  __device__ static inline bool finish(const Acc& a, double, double) { return a.is; }
};

// Variance of values shifted by one of them (or by their mean): sums of d and d*d. Because the shift comes
// from the data, the cancellation in q - s*s/n costs at most log2(n) of 53 bits.
// finish() divides by count - extra, where extra is ddof; a thread with several results computes 1 / count once.
template <int ROOT>
struct Variance {
  struct Acc { double s, q; };
  __device__ static inline Acc init() { return {0.0, 0.0}; }
  template <int N, typename V>
  __device__ static inline void push(Acc& a, const V (&v)[N], Index, Index) {
#pragma unroll
    for (int k = 0; k < N; ++k) {
      const double d = double(v[k]);
      a.s += d;
      a.q += d * d;
    }
  }
  __device__ static inline void merge(Acc& a, const Acc& b) { a.s += b.s; a.q += b.q; }
  __device__ static inline double finish(const Acc& a, double count, double extra) {
    const double squares = a.q - a.s * (a.s * (1.0 / count));
    const double degrees = count > extra ? count - extra : 0.0;
    const double v = (squares < 0.0 ? 0.0 : squares) / degrees;
    return ROOT ? sqrt(v) : v;
  }
};

// The same for complex numbers: the sum of the variances of both parts.
template <int ROOT>
struct ComplexVariance {
  struct Acc { double re, im, q; };
  __device__ static inline Acc init() { return {0.0, 0.0, 0.0}; }
  template <int N, typename V>
  __device__ static inline void push(Acc& a, const V (&v)[N], Index, Index) {
#pragma unroll
    for (int k = 0; k < N; ++k) {
      a.re += v[k].re;
      a.im += v[k].im;
      a.q += v[k].re * v[k].re + v[k].im * v[k].im;
    }
  }
  __device__ static inline void merge(Acc& a, const Acc& b) {
    a.re += b.re;
    a.im += b.im;
    a.q += b.q;
  }
  __device__ static inline double finish(const Acc& a, double count, double extra) {
    const double part = 1.0 / count;
    const double squares = a.q - (a.re * (a.re * part) + a.im * (a.im * part));
    const double degrees = count > extra ? count - extra : 0.0;
    const double v = (squares < 0.0 ? 0.0 : squares) / degrees;
    return ROOT ? sqrt(v) : v;
  }
};
