// What kernel text needs to be plain C++: no headers, so that a kernel compiles in a tenth of a second.
#define __device__
#define __forceinline__ inline
#define __global__
#define __shared__ static
#define __launch_bounds__(...)
struct HostIndex {
  unsigned x, y, z;
};
extern HostIndex threadIdx, blockIdx, blockDim, gridDim;
extern "C" void host_barrier();
#define __syncthreads host_barrier
extern "C" int host_barrier_or(int value);
#define __syncthreads_or host_barrier_or
extern "C" void host_meet();
#define __syncwarp host_meet
extern "C" unsigned host_shuffle(unsigned value, unsigned from);
static inline unsigned host_lane() { return threadIdx.x % 32; }
static inline unsigned __shfl_sync(unsigned, unsigned v, int from) { return host_shuffle(v, from); }
static inline unsigned __shfl_down_sync(unsigned, unsigned v, int distance, int width) {
  const unsigned lane = host_lane();
  return host_shuffle(v, lane % width + distance < unsigned(width) ? lane + distance : lane);
}
static inline unsigned __shfl_up_sync(unsigned, unsigned v, int distance) {
  const unsigned lane = host_lane();
  return host_shuffle(v, lane >= unsigned(distance) ? lane - distance : lane);
}
extern "C" unsigned host_ballot(unsigned value);
static inline unsigned __ballot_sync(unsigned, bool v) { return host_ballot(v); }
struct int4 {
  int x, y, z, w;
};
static inline void __stcs(int4* at, const int4& v) { __builtin_memcpy(static_cast<void*>(at), &v, sizeof v); }
static inline int __clz(unsigned v) { return v ? __builtin_clz(v) : 32; }
static inline int __popc(unsigned v) { return __builtin_popcount(v); }
static inline unsigned atomicOr(unsigned* at, unsigned bits) {
  const unsigned old = *at;
  *at = old | bits;
  return old;
}
static inline void __threadfence() {}
static inline unsigned atomicInc(unsigned* at, unsigned most) {
  const unsigned old = *at;
  *at = old >= most ? 0 : old + 1;
  return old;
}
template <class T, class V>
static inline T atomicAdd(T* at, V value) {
  const T old = *at;
  *at = old + value;
  return old;
}
static inline unsigned atomicCAS(unsigned* at, unsigned expected, unsigned value) {
  const unsigned old = *at;
  if (old == expected) *at = value;
  return old;
}
static inline float __fadd_rn(float a, float b) { return a + b; }
static inline float __fsub_rn(float a, float b) { return a - b; }
static inline double __dadd_rn(double a, double b) { return a + b; }
static inline double __dsub_rn(double a, double b) { return a - b; }

static inline unsigned __float_as_uint(float x) {
  unsigned b;
  __builtin_memcpy(&b, &x, 4);
  return b;
}
static inline float __uint_as_float(unsigned b) {
  float x;
  __builtin_memcpy(&x, &b, 4);
  return x;
}
static inline long long __double_as_longlong(double x) {
  long long b;
  __builtin_memcpy(&b, &x, 8);
  return b;
}
static inline double __longlong_as_double(long long b) {
  double x;
  __builtin_memcpy(&x, &b, 8);
  return x;
}
static inline unsigned __funnelshift_r(unsigned low, unsigned high, unsigned by) {
  return (unsigned)(((unsigned long long)high << 32 | low) >> (by % 32));
}
static inline unsigned __umulhi(unsigned a, unsigned b) { return (unsigned)(((unsigned long long)a * b) >> 32); }
static inline float __double2float_rz(double x) {
  float f = (float)x;
  if (__builtin_fabs((double)f) > __builtin_fabs(x)) f = __uint_as_float(__float_as_uint(f) - 1);
  return f;
}
static inline float gi_fma(float x, float y, float z) { return __builtin_fmaf(x, y, z); }
static inline double gi_fma(double x, double y, double z) { return __builtin_fma(x, y, z); }
// A GPU's conversions of halves return one NaN for all.
static inline float gi_half_to_float(unsigned short h) {
  _Float16 v;
  __builtin_memcpy(&v, &h, 2);
  return v != v ? __uint_as_float(0x7fffffff) : (float)v;
}
static inline unsigned short gi_float_to_half(float f) {
  if (f != f) return 0x7fff;
  _Float16 v = (_Float16)f;
  unsigned short h;
  __builtin_memcpy(&h, &v, 2);
  return h;
}
static inline unsigned short gi_double_to_half(double d) {
  if (d != d) return 0x7fff;
  _Float16 v = (_Float16)d;
  unsigned short h;
  __builtin_memcpy(&h, &v, 2);
  return h;
}

// With the names that C has for floats, which users write.
#define HOST_UNARY(name)                                                 \
  extern "C" double name(double);                                        \
  extern "C" float name##f(float);                                       \
  static inline float name(float x) { return __builtin_##name##f(x); }
#define HOST_BINARY(name)                                                             \
  extern "C" double name(double, double);                                             \
  extern "C" float name##f(float, float);                                             \
  static inline float name(float x, float y) { return __builtin_##name##f(x, y); }
HOST_UNARY(exp) HOST_UNARY(exp2) HOST_UNARY(expm1) HOST_UNARY(log) HOST_UNARY(log2) HOST_UNARY(log10)
HOST_UNARY(log1p) HOST_UNARY(sqrt) HOST_UNARY(cbrt) HOST_UNARY(sin) HOST_UNARY(cos) HOST_UNARY(tan)
HOST_UNARY(asin) HOST_UNARY(acos) HOST_UNARY(atan) HOST_UNARY(sinh) HOST_UNARY(cosh) HOST_UNARY(tanh)
HOST_UNARY(asinh) HOST_UNARY(acosh) HOST_UNARY(atanh) HOST_UNARY(erf) HOST_UNARY(erfc)
HOST_UNARY(tgamma) HOST_UNARY(lgamma) HOST_UNARY(floor) HOST_UNARY(ceil) HOST_UNARY(trunc)
HOST_UNARY(rint) HOST_UNARY(fabs)
HOST_BINARY(pow) HOST_BINARY(fmod) HOST_BINARY(hypot) HOST_BINARY(copysign) HOST_BINARY(atan2)
HOST_BINARY(fmax) HOST_BINARY(fmin)
// libm lacks it; Newton's method on erf.
static inline double erfinv(double p) {
  if (!(p > -1 && p < 1)) return p == 1 ? __builtin_inf() : p == -1 ? -__builtin_inf() : __builtin_nan("");
  double l = log1p(-p * p), b = 4.33074675 + l / 2, y = copysign(sqrt(sqrt(b * b - l / 0.147) - b), p);
  for (int i = 0; i < 6; ++i) {
    const double e = p > 0.5 ? (1 - p) - erfc(y) : p < -0.5 ? erfc(-y) - (1 + p) : erf(y) - p;
    y -= e / (1.1283791670955126 * exp(-y * y));
  }
  return p == 0 ? p : y;
}
static inline float erfinv(float p) { return (float)erfinv((double)p); }
template <class T>
static inline bool isinf(T x) { return __builtin_isinf(x); }
template <class T>
static inline bool isfinite(T x) { return __builtin_isfinite(x); }
template <class T>
static inline bool signbit(T x) { return __builtin_signbit(x); }
extern "C" void host_run(const unsigned* grid, const unsigned* block, void (*kernel)(void*), void* parameters, int together);
