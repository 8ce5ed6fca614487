// Functions that exist only on the device. The tests on the host replace this file.
static __device__ __forceinline__ float gi_half_to_float(unsigned short h) {
  float f;
  asm("cvt.f32.f16 %0, %1;" : "=f"(f) : "h"(h));
  return f;
}
static __device__ __forceinline__ unsigned short gi_float_to_half(float f) {
  unsigned short h;
  asm("cvt.rn.f16.f32 %0, %1;" : "=h"(h) : "f"(f));
  return h;
}
static __device__ __forceinline__ unsigned short gi_double_to_half(double d) {
  unsigned short h;
  asm("cvt.rn.f16.f64 %0, %1;" : "=h"(h) : "d"(d));
  return h;
}
// x * y + z, rounded once; kernels are compiled without contractions.
static __device__ __forceinline__ float gi_fma(float x, float y, float z) { return __fmaf_rn(x, y, z); }
static __device__ __forceinline__ double gi_fma(double x, double y, double z) { return __fma_rn(x, y, z); }
