// Element types and conversions, without headers. NumPy's bool and float16 and the types of ml_dtypes are
// storage types: a read widens them, a write rounds.
#define GI_FN static __device__ __forceinline__

typedef signed char i8;
typedef short i16;
typedef int i32;
typedef long long i64;
typedef unsigned char u8;
typedef unsigned short u16;
typedef unsigned int u32;
typedef unsigned long long u64;
struct alignas(16) u128 {
  u64 lo, hi;
};

GI_FN u32 gi_bits(float x) { return __float_as_uint(x); }
GI_FN float gi_float(u32 b) { return __uint_as_float(b); }
GI_FN u64 gi_bits(double x) { return (u64)__double_as_longlong(x); }
GI_FN double gi_double(u64 b) { return __longlong_as_double((i64)b); }
// By the bits, because the GPU's -x and fabs(x) return one NaN for all.
GI_FN float gi_neg(float x) { return gi_float(gi_bits(x) ^ 0x80000000u); }
GI_FN double gi_neg(double x) { return gi_double(gi_bits(x) ^ 0x8000000000000000ull); }
GI_FN float gi_abs(float x) { return gi_float(gi_bits(x) & 0x7fffffffu); }
GI_FN double gi_abs(double x) { return gi_double(gi_bits(x) & 0x7fffffffffffffffull); }

// Every byte except zero reads as true, as in NumPy. Writes store 0 or 1.
struct b8 {
  u8 bits;
};

struct f16 {
  u16 bits;
};
struct bf16 {
  u16 bits;
};
GI_FN float gi_widen(f16 x) {
  const float wide = gi_half_to_float(x.bits);
  return GI_NAN_SIGNS ? gi_float(gi_bits(wide) | (u32)(x.bits & 0x8000) << 16) : wide;
}
GI_FN float gi_widen(bf16 x) { return gi_float((u32)x.bits << 16); }
GI_FN bool gi_widen(b8 x) { return x.bits != 0; }

// Small floats by their layout: E exponent bits, M mantissa bits, and the meaning of the highest codes.
enum GiSpecials { GI_IEEE, GI_FN_NAN, GI_FNUZ, GI_FINITE, GI_SCALE };
template <int E, int M, int BIAS, int KIND>
struct minifloat {
  u8 bits;
};
typedef minifloat<3, 4, 3, GI_IEEE> f8e3m4;
typedef minifloat<4, 3, 7, GI_IEEE> f8e4m3;
typedef minifloat<4, 3, 11, GI_FNUZ> f8e4m3b11fnuz;
typedef minifloat<4, 3, 7, GI_FN_NAN> f8e4m3fn;
typedef minifloat<4, 3, 8, GI_FNUZ> f8e4m3fnuz;
typedef minifloat<5, 2, 15, GI_IEEE> f8e5m2;
typedef minifloat<5, 2, 16, GI_FNUZ> f8e5m2fnuz;
typedef minifloat<8, 0, 127, GI_SCALE> f8e8m0fnu;
typedef minifloat<2, 3, 1, GI_FINITE> f6e2m3fn;
typedef minifloat<3, 2, 3, GI_FINITE> f6e3m2fn;
typedef minifloat<2, 1, 1, GI_FINITE> f4e2m1fn;

template <int E, int M, int BIAS, int KIND>
GI_FN float gi_widen(minifloat<E, M, BIAS, KIND> x) {
  constexpr u32 mask = (1u << M) - 1, top = (1u << E) - 1;
  const u32 m = x.bits & mask, e = (x.bits >> M) & top, sign = KIND == GI_SCALE ? 0 : (x.bits >> (E + M)) & 1;
  const float nan = gi_float(0x7fc00000u | sign << 31);
  if (KIND == GI_SCALE) return e == 255 ? nan : (e == 0 ? gi_float(0x00400000u) : gi_float(e << 23));
  if (KIND == GI_FNUZ && (u32)x.bits == 1u << (E + M)) return gi_float(0xffc00000u);
  if (KIND == GI_FN_NAN && e == top && m == mask) return nan;
  if (KIND == GI_IEEE && e == top) return m ? nan : gi_float(0x7f800000u | sign << 31);
  float v = e ? gi_float((e + 127 - BIAS) << 23 | m << (23 - M))
              : (float)m * gi_float((u32)(128 - BIAS - M) << 23);
  return sign ? -v : v;
}

// Round a float or double to nearest even. Overflow has the same result as in ml_dtypes.
template <int E, int M, int BIAS, int KIND>
GI_FN u32 gi_narrow(double x) {
  constexpr u32 top = (1u << E) - 1, mask = (1u << M) - 1, sign_bit = 1u << (E + M);
  const u64 b = gi_bits(x);
  const u32 sign = KIND == GI_SCALE ? 0 : (b >> 63 ? sign_bit : 0);
  const int exponent = (int)((b >> 52) & 2047);
  const u64 fraction = b & 0xfffffffffffffull;
  const u32 nan = KIND == GI_FNUZ ? sign_bit : KIND == GI_SCALE ? 255u
      : KIND == GI_FN_NAN ? (sign | top << M | mask) : KIND == GI_IEEE ? (sign | top << M | (1u << (M ? M - 1 : 0)))
      : sign_bit;
  const u32 over = KIND == GI_IEEE ? (sign | top << M) : KIND == GI_FINITE ? (sign | top << M | mask) : nan;
  if (exponent == 2047) return fraction ? nan : over;
  if (KIND == GI_SCALE && b >> 63) return nan;
  if (exponent == 0) return KIND == GI_SCALE ? nan : KIND == GI_FNUZ ? 0 : sign;  // a scale is never zero
  int e = exponent - 1023 + BIAS;
  const u64 full = fraction | 1ull << 52;
  int shift = 52 - M;
  const int least = KIND == GI_SCALE ? 0 : 1;
  if (e < least) shift += least - e;
  if (shift > 60) shift = 60;
  u64 q = full >> shift;
  const u64 rest = full & ((1ull << shift) - 1), half = 1ull << (shift - 1);
  if (KIND == GI_SCALE ? rest >= half : (rest > half || (rest == half && (q & 1)))) ++q;
  u32 code;
  if (e < least) {
    code = (u32)q;  // subnormal, or the smallest normal number by carry
  } else {
    code = (u32)(((u64)e << M) + (q - (1ull << M)));
  }
  constexpr u32 largest = KIND == GI_IEEE ? (top << M) - 1 : KIND == GI_FN_NAN ? (top << M | mask) - 1
      : KIND == GI_SCALE ? 254u : (top << M | mask);
  if (code > largest) return over;
  return KIND == GI_FNUZ && code == 0 ? 0 : sign | code;
}

template <class T>
struct gi_complex {
  T re, im;
};
struct alignas(8) c64 : gi_complex<float> {};
struct alignas(16) c128 : gi_complex<double> {};
GI_FN c64 gi_make(float re, float im) { return {{re, im}}; }
GI_FN c128 gi_make(double re, double im) { return {{re, im}}; }

#define GI_COMPLEX(C, T)                                                                       \
  GI_FN C operator+(C a, C b) { return gi_make(a.re + b.re, a.im + b.im); }                    \
  GI_FN C operator-(C a, C b) { return gi_make(a.re - b.re, a.im - b.im); }                    \
  GI_FN C gi_neg(C a) { return gi_make(gi_neg(a.re), gi_neg(a.im)); }                          \
  GI_FN C operator-(C a) { return gi_neg(a); }                                                 \
  GI_FN C operator*(C a, C b) {                                                                \
    return gi_make(a.re * b.re - a.im * b.im, a.re * b.im + a.im * b.re);                      \
  }                                                                                            \
  GI_FN C operator/(C a, C b) {                                                                \
    /* Divided by the larger part first, so that squares cannot overflow. */                   \
    if (fabs(b.re) >= fabs(b.im)) {                                                            \
      if (b.re == 0 && b.im == 0) return gi_make(a.re / fabs(b.re), a.im / fabs(b.re));        \
      const T q = b.im / b.re, s = (T)1 / (b.re + b.im * q);                                   \
      return gi_make((a.re + a.im * q) * s, (a.im - a.re * q) * s);                            \
    }                                                                                          \
    const T q = b.re / b.im, s = (T)1 / (b.im + b.re * q);                                     \
    return gi_make((a.re * q + a.im) * s, (a.im * q - a.re) * s);                              \
  }                                                                                            \
  GI_FN bool operator==(C a, C b) { return a.re == b.re && a.im == b.im; }                     \
  GI_FN bool operator!=(C a, C b) { return a.re != b.re || a.im != b.im; }                     \
  /* NumPy's order: real part first. */                                                        \
  GI_FN bool operator<(C a, C b) {                                                             \
    return (a.re < b.re && a.im == a.im && b.im == b.im) || (a.re == b.re && a.im < b.im);     \
  }                                                                                            \
  GI_FN bool operator<=(C a, C b) {                                                            \
    return (a.re < b.re && a.im == a.im && b.im == b.im) || (a.re == b.re && a.im <= b.im);    \
  }                                                                                            \
  GI_FN bool operator>(C a, C b) { return b < a; }                                             \
  GI_FN bool operator>=(C a, C b) { return b <= a; }                                           \
  /* A real factor does not make the other part of an infinity NaN. */                         \
  GI_FN C operator*(T a, C b) { return gi_make(a * b.re, a * b.im); }
GI_COMPLEX(c64, float)
GI_COMPLEX(c128, double)

// gi_read: the value of a stored element (a C++ arithmetic type or a complex number).
template <class T>
GI_FN T gi_read(T x) {
  return x;
}
GI_FN bool gi_read(b8 x) { return gi_widen(x); }
GI_FN float gi_read(f16 x) { return gi_widen(x); }
GI_FN float gi_read(bf16 x) { return gi_widen(x); }
template <int E, int M, int B, int K>
GI_FN float gi_read(minifloat<E, M, B, K> x) {
  return gi_widen(x);
}

// gi_to<T>(value): conversion to the storage or working type T, by NumPy's rules for casts.
template <class T>
struct gi_cast {
  template <class S>
  GI_FN T from(S x) {
    return (T)x;
  }
  GI_FN T from(c64 x) { return (T)x.re; }
  GI_FN T from(c128 x) { return (T)x.re; }
};
// Convert to a wider integer first and then truncate, so that -1.0 becomes 255 in a uint8, as in NumPy on
// x86. A GPU clamps values that the wider integer cannot hold, where x86 returns its smallest value.
#define GI_CAST_THROUGH(T, WIDE)                                             \
  template <>                                                                \
  struct gi_cast<T> {                                                        \
    template <class S>                                                       \
    GI_FN T from(S x) {                                                      \
      return (T)x;                                                           \
    }                                                                        \
    GI_FN T from(float x) { return (T)(WIDE)x; }                             \
    GI_FN T from(double x) { return (T)(WIDE)x; }                            \
    GI_FN T from(c64 x) { return from(x.re); }                               \
    GI_FN T from(c128 x) { return from(x.re); }                              \
  };
GI_CAST_THROUGH(i8, i32)
GI_CAST_THROUGH(i16, i32)
GI_CAST_THROUGH(u8, i32)
GI_CAST_THROUGH(u16, i32)
GI_CAST_THROUGH(u32, i64)
template <>
struct gi_cast<bool> {
  template <class S>
  GI_FN bool from(S x) {
    return x != (S)0;
  }
  GI_FN bool from(c64 x) { return x.re != 0 || x.im != 0; }
  GI_FN bool from(c128 x) { return x.re != 0 || x.im != 0; }
};
template <>
struct gi_cast<b8> {
  template <class S>
  GI_FN b8 from(S x) {
    return {(u8)gi_cast<bool>::from(x)};
  }
};
template <>
struct gi_cast<f16> {
  GI_FN f16 from(c64 x) { return from(x.re); }
  GI_FN f16 from(c128 x) { return from(x.re); }
  template <class S>
  GI_FN f16 from(S x) {
    return {(u16)gi_half_bits(x)};
  }
};
template <>
struct gi_cast<bf16> {
  GI_FN bf16 from(c64 x) { return from(x.re); }
  GI_FN bf16 from(c128 x) { return from(x.re); }
  template <class S>
  GI_FN bf16 from(S x) {
    return {(u16)gi_bfloat_bits(x)};
  }
};
template <int E, int M, int B, int K>
struct gi_cast<minifloat<E, M, B, K>> {
  typedef minifloat<E, M, B, K> T;
  template <class S>
  GI_FN T from(S x) {
    return {(u8)gi_narrow<E, M, B, K>(gi_double_to_round(x))};
  }
  GI_FN T from(c64 x) { return from(x.re); }
  GI_FN T from(c128 x) { return from(x.re); }
};
template <>
struct gi_cast<c64> {
  template <class S>
  GI_FN c64 from(S x) {
    return gi_make((float)x, 0.0f);
  }
  GI_FN c64 from(c64 x) { return x; }
  GI_FN c64 from(c128 x) { return gi_make((float)x.re, (float)x.im); }
};
template <>
struct gi_cast<c128> {
  template <class S>
  GI_FN c128 from(S x) {
    return gi_make((double)x, 0.0);
  }
  GI_FN c128 from(c64 x) { return gi_make((double)x.re, (double)x.im); }
  GI_FN c128 from(c128 x) { return x; }
};
// Values of equal types pass unchanged, so that copies keep all bits of a NaN.
template <class T, class S>
struct gi_convert {
  GI_FN T run(S x) { return gi_cast<T>::from(gi_read(x)); }
};
template <class T>
struct gi_convert<T, T> {
  GI_FN T run(T x) { return x; }
};
template <class T, class S>
GI_FN T gi_to(S x) {
  return gi_convert<T, S>::run(x);
}
