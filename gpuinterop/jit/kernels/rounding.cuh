// Whether conversions of float16 keep the sign of a NaN. The GPU's own ones return one NaN for all; kernels that
// compute would lose up to a tenth of their speed.
#ifndef GI_NAN_SIGNS
#define GI_NAN_SIGNS 0
#endif

// Values as doubles from which a rounding to at most 32 bits has the result that it has from the value itself.
// A 64-bit integer beyond 2^53 is rounded to odd: the bits that a double cannot hold become one bit.
static __device__ __forceinline__ double gi_double_to_round(unsigned long long x) {
  return (double)(x >> 53 ? (x & ~0x7ffull) | (x & 0x7ff ? 0x800 : 0) : x);
}
static __device__ __forceinline__ double gi_double_to_round(long long x) {
  return x < 0 ? -gi_double_to_round(0 - (unsigned long long)x) : gi_double_to_round((unsigned long long)x);
}
template <class S>
static __device__ __forceinline__ double gi_double_to_round(S x) {
  return (double)x;
}

// The bits of 16-bit floats: rounded once to nearest even, from any working type.
static __device__ __forceinline__ unsigned short gi_half_bits(float x) {
  return (unsigned short)(gi_float_to_half(x) | (GI_NAN_SIGNS ? __float_as_uint(x) >> 16 & 0x8000u : 0u));
}
static __device__ __forceinline__ unsigned short gi_half_bits(double x) {
  return (unsigned short)(gi_double_to_half(x) | (GI_NAN_SIGNS ? __double_as_longlong(x) >> 48 & 0x8000 : 0));
}
// Through double: a 64-bit integer beyond 2^53 overflows to infinity either way.
template <class S>
static __device__ __forceinline__ unsigned short gi_half_bits(S x) {
  return gi_double_to_half((double)x);
}

static __device__ __forceinline__ unsigned short gi_bfloat_bits(float x) {
  const unsigned b = __float_as_uint(x);
  // Set a bit, so that a NaN stays a NaN even if only its lower half was not zero.
  return (unsigned short)(x != x ? (b >> 16) | 0x40u : (b + 0x7fffu + (b >> 16 & 1)) >> 16);
}
static __device__ __forceinline__ unsigned short gi_bfloat_bits(double x) {
  // To float first, but rounded to odd, so that the second rounding sees the bits that the first one drops.
  if (x != x) return gi_bfloat_bits((float)x);
  const float cut = __double2float_rz(x);
  return gi_bfloat_bits((double)cut == x ? cut : __uint_as_float(__float_as_uint(cut) | 1u));
}
template <class S>
static __device__ __forceinline__ unsigned short gi_bfloat_bits(S x) {
  return gi_bfloat_bits(gi_double_to_round(x));
}
