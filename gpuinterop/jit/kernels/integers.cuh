// Integer arithmetic that wraps around as NumPy's does. In C++ the overflow of signed integers is
// undefined, and compilers use that: they assume that x + 1 > x. The same holds for the int to which
// narrower types are promoted.
#define GI_WRAPPING(T, UNSIGNED)                                                                        \
  static __device__ __forceinline__ T gi_add(T a, T b) { return (T)((UNSIGNED)a + (UNSIGNED)b); }       \
  static __device__ __forceinline__ T gi_sub(T a, T b) { return (T)((UNSIGNED)a - (UNSIGNED)b); }       \
  static __device__ __forceinline__ T gi_mul(T a, T b) { return (T)((UNSIGNED)a * (UNSIGNED)b); }       \
  static __device__ __forceinline__ T gi_neg(T a) { return (T)((UNSIGNED)0 - (UNSIGNED)a); }
GI_WRAPPING(signed char, unsigned)
GI_WRAPPING(short, unsigned)
GI_WRAPPING(int, unsigned)
GI_WRAPPING(long long, unsigned long long)
GI_WRAPPING(unsigned char, unsigned)
GI_WRAPPING(unsigned short, unsigned)
GI_WRAPPING(unsigned, unsigned)
GI_WRAPPING(unsigned long long, unsigned long long)
