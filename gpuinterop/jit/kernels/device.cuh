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
// Reads and writes in words of up to 16 bytes, with the hint that the data is used only once.
template <int N>
struct GiOnce {
  typedef uint4 type;
};
template <>
struct GiOnce<1> {
  typedef unsigned char type;
};
template <>
struct GiOnce<2> {
  typedef unsigned short type;
};
template <>
struct GiOnce<4> {
  typedef unsigned type;
};
template <>
struct GiOnce<8> {
  typedef uint2 type;
};
template <class P>
static __device__ __forceinline__ P gi_load_once(const P* p) {
  typedef typename GiOnce<sizeof(P)>::type Word;
  P value;
#pragma unroll
  for (int i = 0; i < sizeof(P) / sizeof(Word); ++i)
    reinterpret_cast<Word*>(&value)[i] = __ldcs(reinterpret_cast<const Word*>(p) + i);
  return value;
}
template <class P>
static __device__ __forceinline__ void gi_store_once(P* p, const P& value) {
  typedef typename GiOnce<sizeof(P)>::type Word;
#pragma unroll
  for (int i = 0; i < sizeof(P) / sizeof(Word); ++i)
    __stcs(reinterpret_cast<Word*>(p) + i, reinterpret_cast<const Word*>(&value)[i]);
}
static __device__ __forceinline__ unsigned short gi_double_to_half(double d) {
  unsigned short h;
  asm("cvt.rn.f16.f64 %0, %1;" : "=h"(h) : "d"(d));
  return h;
}
