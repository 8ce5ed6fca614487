// What only the device has. The host build of the tests brings its own version of this file.
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
// Keeps a product and a later sum apart: the compiler may not contract across it.
static __device__ __forceinline__ void gi_pin(float& x) { asm("" : "+f"(x)); }
static __device__ __forceinline__ void gi_pin(double& x) { asm("" : "+d"(x)); }
template <class T>
static __device__ __forceinline__ void gi_pin(T&) {}
static __device__ __forceinline__ unsigned short gi_double_to_half(double d) {
  unsigned short h;
  asm("cvt.rn.f16.f64 %0, %1;" : "=h"(h) : "d"(d));
  return h;
}
