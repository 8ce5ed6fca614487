// Functions of the operation table that CUDA C++ lacks, with the same results as NumPy.

// ---- integers ---------------------------------------------------------------------------------
#define GI_SIGNED_INTEGER(T)                                                                   \
  GI_FN T gi_floordiv(T a, T b) {                                                              \
    if (b == 0) return 0;                                                                      \
    if (b == -1) return (T)(0 - (u64)a);                                                       \
    const T q = a / b;                                                                         \
    return q - (T)((a % b != 0) && ((a < 0) != (b < 0)));                                      \
  }                                                                                            \
  GI_FN T gi_mod(T a, T b) {                                                                   \
    if (b == 0 || b == -1) return 0;                                                           \
    const T r = a % b;                                                                         \
    return (r != 0 && ((r < 0) != (b < 0))) ? (T)(r + b) : r;                                  \
  }                                                                                            \
  GI_FN T gi_fmod(T a, T b) { return (b == 0 || b == -1) ? (T)0 : (T)(a % b); }                \
  GI_FN T gi_abs(T a) { return a < 0 ? (T)(0 - (u64)a) : a; }                                  \
  GI_FN T gi_sign(T a) { return (T)((a > 0) - (a < 0)); }                                      \
  GI_FN T gi_shl(T a, T b) { return (u64)b < 8 * sizeof(T) ? (T)((u64)a << b) : (T)0; }        \
  GI_FN T gi_shr(T a, T b) { return (T)(a >> ((u64)b < 8 * sizeof(T) ? b : (T)(8 * sizeof(T) - 1))); }
#define GI_UNSIGNED_INTEGER(T)                                                                 \
  GI_FN T gi_floordiv(T a, T b) { return b == 0 ? (T)0 : (T)(a / b); }                         \
  GI_FN T gi_mod(T a, T b) { return b == 0 ? (T)0 : (T)(a % b); }                              \
  GI_FN T gi_fmod(T a, T b) { return gi_mod(a, b); }                                           \
  GI_FN T gi_abs(T a) { return a; }                                                            \
  GI_FN T gi_sign(T a) { return (T)(a > 0); }                                                  \
  GI_FN T gi_shl(T a, T b) { return (u64)b < 8 * sizeof(T) ? (T)((u64)a << b) : (T)0; }        \
  GI_FN T gi_shr(T a, T b) { return (u64)b < 8 * sizeof(T) ? (T)(a >> b) : (T)0; }
GI_SIGNED_INTEGER(i8)
GI_SIGNED_INTEGER(i16)
GI_SIGNED_INTEGER(i32)
GI_SIGNED_INTEGER(i64)
GI_UNSIGNED_INTEGER(u8)
GI_UNSIGNED_INTEGER(u16)
GI_UNSIGNED_INTEGER(u32)
GI_UNSIGNED_INTEGER(u64)

template <class T>
GI_FN T gi_ipow(T a, T b) {
  // NumPy raises for negative exponents of integers. A kernel cannot raise: truncate the exact value.
  if (b < 0) return a == 1 ? (T)1 : a == (T)-1 ? ((b & 1) ? (T)-1 : (T)1) : (T)0;
  u64 result = 1, base = (u64)a, e = (u64)b;
  while (e) {
    if (e & 1) result *= base;
    base *= base;
    e >>= 1;
  }
  return (T)result;
}
// Magnitudes are unsigned, because the magnitude of the smallest integer has no signed form.
template <class U, class T>
GI_FN T gi_gcd_as(T x, T y) {
  U a = x < 0 ? 0 - (U)x : (U)x, b = y < 0 ? 0 - (U)y : (U)y;
  while (b) {
    const U r = a % b;
    a = b;
    b = r;
  }
  return (T)a;
}
template <class T>
GI_FN T gi_gcd(T x, T y) {
  return sizeof(T) < 8 ? gi_gcd_as<u32>(x, y) : gi_gcd_as<u64>(x, y);
}

// Comparison by value between signed and unsigned integers.
template <class A, class B>
GI_FN bool gi_lt(A a, B b) {
  return a < b;
}
GI_FN bool gi_lt(i64 a, u64 b) { return a < 0 || (u64)a < b; }
GI_FN bool gi_lt(u64 a, i64 b) { return b >= 0 && a < (u64)b; }
template <class A, class B>
GI_FN bool gi_le(A a, B b) {
  return a <= b;
}
GI_FN bool gi_le(i64 a, u64 b) { return a < 0 || (u64)a <= b; }
GI_FN bool gi_le(u64 a, i64 b) { return b >= 0 && a <= (u64)b; }
template <class A, class B>
GI_FN bool gi_eq(A a, B b) {
  return a == b;
}
GI_FN bool gi_eq(i64 a, u64 b) { return a >= 0 && (u64)a == b; }
GI_FN bool gi_eq(u64 a, i64 b) { return b >= 0 && a == (u64)b; }

// ---- real numbers -----------------------------------------------------------------------------
#define GI_REAL(T)                                                                             \
  GI_FN T gi_fmod(T a, T b) { return fmod(a, b); }                                             \
  GI_FN T gi_mod(T a, T b) {                                                                   \
    T m = fmod(a, b);                                                                          \
    if (b == 0) return m;                                                                      \
    if (m != 0) return ((b < 0) != (m < 0)) ? m + b : m;                                       \
    return copysign((T)0, b);                                                                  \
  }                                                                                            \
  GI_FN T gi_floordiv(T a, T b) {                                                              \
    if (b == 0) return a / b;                                                                  \
    T m = fmod(a, b), q = (a - m) / b;                                                         \
    if (m != 0 && ((b < 0) != (m < 0))) q -= (T)1;                                             \
    if (q == 0) return copysign((T)0, a / b);                                                  \
    const T f = floor(q);                                                                      \
    return q - f > (T)0.5 ? f + (T)1 : f;                                                      \
  }                                                                                            \
  GI_FN T gi_sign(T a) { return a > 0 ? (T)1 : a < 0 ? (T)-1 : a == 0 ? (T)0 : a; }            \
  GI_FN T gi_sigmoid(T x) {                                                                    \
    const T t = exp(-fabs(x));                                                                 \
    return (x >= 0 ? (T)1 : t) / ((T)1 + t);                                                   \
  }                                                                                            \
  GI_FN T gi_softplus(T x) { return x != x ? x : (x > 0 ? x : (T)0) + log1p(exp(-fabs(x))); }  \
  GI_FN T gi_logaddexp(T a, T b) {                                                             \
    if (a == b) return a + (T)0.693147180559945309417232121458;                                \
    return (a > b ? a : b) + log1p(exp(-fabs(a - b)));                                         \
  }                                                                                            \
  GI_FN T gi_heaviside(T x, T h) { return x != x ? x : x == 0 ? h : x < 0 ? (T)0 : (T)1; }
GI_REAL(float)
GI_REAL(double)

// Minimum and maximum that return NaN if either operand is NaN.
template <class T>
GI_FN T gi_max(T a, T b) {
  return (a >= b || a != a) ? a : b;
}
template <class T>
GI_FN T gi_min(T a, T b) {
  return (a <= b || a != a) ? a : b;
}
template <class T>
GI_FN T gi_fmax(T a, T b) {
  return (a >= b || b != b) ? a : b;
}
template <class T>
GI_FN T gi_fmin(T a, T b) {
  return (a <= b || b != b) ? a : b;
}

// ---- complex numbers --------------------------------------------------------------------------
#define GI_COMPLEX_FUNCTIONS(C, T)                                                             \
  GI_FN bool gi_is_true(C a) { return a.re != 0 || a.im != 0; }                                \
  GI_FN T gi_abs(C a) { return hypot(a.re, a.im); }                                            \
  GI_FN C gi_conj(C a) { return gi_make(a.re, gi_neg(a.im)); }
GI_COMPLEX_FUNCTIONS(c64, float)
GI_COMPLEX_FUNCTIONS(c128, double)

// The functions below return C99's special values (annex G), as NumPy does through the C library.
template <class C>
GI_FN C gi_no_number(C) {
  const float nan = gi_float(0x7fc00000u);
  return gi_make((decltype(C::re))nan, (decltype(C::re))nan);
}
template <class C>
GI_FN C gi_sign(C a) {
  typedef decltype(a.re) T;
  const T r = gi_abs(a);
  if (r == 0) return gi_make((T)0, (T)0);
  if (!isinf(r)) return gi_make(a.re / r, a.im / r);
  if (!isinf(a.re)) return gi_make((T)0, copysign((T)1, a.im));
  return isinf(a.im) ? gi_no_number(a) : gi_make(copysign((T)1, a.re), (T)0);
}
template <class C>
GI_FN C gi_reciprocal(C a) {
  typedef decltype(a.re) T;
  if (fabs(a.im) <= fabs(a.re)) {
    const T q = a.im / a.re, d = a.re + a.im * q;
    return gi_make((T)1 / d, -q / d);
  }
  const T q = a.re / a.im, d = a.re * q + a.im;
  return gi_make(q / d, (T)-1 / d);
}
template <class C>
GI_FN C gi_exp(C a) {
  typedef decltype(a.re) T;
  const T r = exp(a.re);
  if (a.im == 0) return gi_make(r, a.im);
  if (isinf(a.re) && !isfinite(a.im)) return a.re < 0 ? gi_make((T)0, (T)0) : gi_make(r, a.im - a.im);
  return gi_make(r * cos(a.im), r * sin(a.im));
}
// log|a|, to the last places also where |a| is near 1, and where |a| overflows.
template <class C>
GI_FN decltype(C::re) gi_log_abs(C a) {
  typedef decltype(a.re) T;
  const T re = fabs(a.re), im = fabs(a.im), x = re > im ? re : im, y = re > im ? im : re, r = hypot(x, y);
  if (r > (T)0.5 && r < (T)2) return log1p((x - 1) * (x + 1) + y * y) / 2;
  if (isinf(r)) return log(hypot(x / 2, y / 2)) + (T)0.693147180559945309;
  return log(r);
}
template <class C>
GI_FN C gi_log(C a) {
  return gi_make(gi_log_abs(a), atan2(a.im, a.re));
}
template <class C>
GI_FN C gi_scaled(C a, double by) {
  return gi_make(a.re * (decltype(a.re))by, a.im * (decltype(a.re))by);
}
template <class C>
GI_FN C gi_log1p(C a) {
  typedef decltype(a.re) T;
  const bool near = fabs(a.re) < (T)0.5 && fabs(a.im) < (T)0.5;
  const C b = gi_make(1 + a.re, a.im);
  return gi_make(near ? log1p(a.re * (2 + a.re) + a.im * a.im) / 2 : gi_log_abs(b), atan2(b.im, b.re));
}
template <class C>
GI_FN C gi_expm1(C a) {
  typedef decltype(a.re) T;
  if (a.im == 0) return gi_make(expm1(a.re), a.im);
  if (isinf(a.re) || !isfinite(a.im)) {
    const C e = gi_exp(a);
    return gi_make(e.re - 1, e.im);
  }
  const T half = sin(a.im / 2);
  return gi_make(expm1(a.re) * cos(a.im) - 2 * half * half, exp(a.re) * sin(a.im));
}

template <class C>
GI_FN C gi_sqrt(C a) {
  typedef decltype(a.re) T;
  if (a.re == 0 && a.im == 0) return gi_make((T)0, a.im);
  if (isinf(a.im)) return gi_make(fabs(a.im), a.im);
  // Scale by powers of 4, so that the sum below does not overflow and denormal parts keep their digits.
  const bool single = sizeof(T) == 4;
  const T size = fabs(a.re) > fabs(a.im) ? fabs(a.re) : fabs(a.im);
  T scale = 1, back = 1;
  if (size > (T)(single ? 4e37 : 4e307)) scale = (T)0.25, back = 2;
  if (size < (T)(single ? 1e-30 : 1e-290))
    scale = (T)(single ? 0x1p48 : 0x1p108), back = (T)(single ? 0x1p-24 : 0x1p-54);
  const T re = a.re * scale, im = a.im * scale;
  const T t = sqrt((fabs(re) + gi_abs(gi_make(re, im))) / 2);
  const T u = im / (2 * t) * back;
  return re >= 0 ? gi_make(t * back, u) : gi_make(fabs(u), copysign(t * back, im));
}
template <class C>
GI_FN C gi_sinh(C a) {
  if (a.im == 0) return gi_make(sinh(a.re), a.im);
  if ((a.re == 0 || isinf(a.re)) && !isfinite(a.im)) return gi_make(a.re, a.im - a.im);
  return gi_make(sinh(a.re) * cos(a.im), cosh(a.re) * sin(a.im));
}
template <class C>
GI_FN C gi_cosh(C a) {
  typedef decltype(a.re) T;
  if (a.im == 0) return gi_make(cosh(a.re), copysign((T)1, a.re) * a.im);
  if (a.re == 0 && !isfinite(a.im)) return gi_make(a.im - a.im, a.re);
  if (isinf(a.re) && !isfinite(a.im)) return gi_make(fabs(a.re), a.im - a.im);
  return gi_make(cosh(a.re) * cos(a.im), sinh(a.re) * sin(a.im));
}
template <class C>
GI_FN C gi_tanh(C a) {
  typedef decltype(a.re) T;
  if (a.im == 0) return gi_make(tanh(a.re), a.im);
  if (!isfinite(a.im)) {
    if (isinf(a.re)) return gi_make(copysign((T)1, a.re), (T)0);
    return a.re == 0 ? gi_make(a.re, a.im - a.im) : gi_no_number(a);
  }
  const T s = sin(a.im), c = cos(a.im);
  if (fabs(a.re) > (T)20) return gi_make(copysign((T)1, a.re), 4 * s * c * exp(-2 * fabs(a.re)));
  const T h = sinh(a.re), d = h * h + c * c;
  return gi_make(h * cosh(a.re) / d, s * c / d);
}
// Circular functions are hyperbolic functions of the argument times i.
template <class C>
GI_FN C gi_turned(C a) { return gi_make(-a.im, a.re); }
template <class C>
GI_FN C gi_back(C a) { return gi_make(a.im, -a.re); }
template <class C>
GI_FN C gi_sin(C a) { return gi_back(gi_sinh(gi_turned(a))); }
template <class C>
GI_FN C gi_cos(C a) { return gi_cosh(gi_turned(a)); }
template <class C>
GI_FN C gi_tan(C a) { return gi_back(gi_tanh(gi_turned(a))); }

// Kahan's formulas for the inverses. Far from zero |a| alone determines the logarithm.
template <class C>
GI_FN bool gi_is_far(C a) {
  typedef decltype(a.re) T;
  const T far = (T)(sizeof(T) == 4 ? 0x1p14 : 0x1p30);
  return fabs(a.re) > far || fabs(a.im) > far;
}
template <class C>
GI_FN decltype(C::re) gi_log_of_double(C a) {
  typedef decltype(a.re) T;
  return log(hypot(a.re / 2, a.im / 2)) + (T)1.38629436111989061883;
}
template <class C>
GI_FN C gi_acos(C a) {
  typedef decltype(a.re) T;
  if (gi_is_far(a)) return gi_make(atan2(fabs(a.im), a.re), copysign(gi_log_of_double(a), gi_neg(a.im)));
  if (a.im != a.im && a.re == 0) return gi_make((T)1.57079632679489661923, a.im);
  const C down = gi_sqrt(gi_make(1 - a.re, gi_neg(a.im))), up = gi_sqrt(gi_make(1 + a.re, a.im));
  return gi_make(2 * atan2(down.re, up.re), asinh(up.re * down.im - up.im * down.re));
}
template <class C>
GI_FN C gi_asin(C a) {
  typedef decltype(a.re) T;
  if (gi_is_far(a)) return gi_make(atan2(a.re, fabs(a.im)), copysign(gi_log_of_double(a), a.im));
  if (a.im != a.im && a.re == 0) return a;
  const C down = gi_sqrt(gi_make(1 - a.re, gi_neg(a.im))), up = gi_sqrt(gi_make(1 + a.re, a.im));
  return gi_make(atan2(a.re, down.re * up.re - down.im * up.im), asinh(down.re * up.im - down.im * up.re));
}
template <class C>
GI_FN C gi_acosh(C a) {
  const C b = gi_acos(a);
  if (a.re != a.re && !isinf(a.im)) return gi_no_number(a);
  return gi_make(fabs(b.im), copysign(b.re, a.im));
}
template <class C>
GI_FN C gi_atanh(C a) {
  typedef decltype(a.re) T;
  const T x = fabs(a.re), y = fabs(a.im), half_turn = (T)1.57079632679489661923;
  if (a.re != a.re && !isinf(a.im)) return gi_no_number(a);
  const T far = (T)(sizeof(T) == 4 ? 0x1p60 : 0x1p500);  // its square is finite
  if (x > far || y > far) {
    // The real part is x / |a|^2.
    const T r = hypot(x, y), small = isinf(r) ? (T)0 : x / r / r;
    if (a.im != a.im) return gi_make(copysign(small, a.re), a.im);
    return gi_make(copysign(small, a.re), copysign(half_turn, a.im));
  }
  if (a.re == 0 && a.im != a.im) return a;
  const T r = hypot(1 - x, y);
  const T part = r < (T)0.5 ? (log(hypot(1 + x, y)) - log(r)) / 2 : log1p(4 * x / r / r) / 4;
  return gi_make(copysign(part, a.re), copysign(atan2(2 * y, (1 - x) * (1 + x) - y * y) / 2, a.im));
}
template <class C>
GI_FN C gi_asinh(C a) { return gi_back(gi_asin(gi_turned(a))); }
template <class C>
GI_FN C gi_atan(C a) { return gi_back(gi_atanh(gi_turned(a))); }
// The product of C99: infinite if a factor is infinite, where a * b has NaN in both parts.
template <class T>
GI_FN T gi_one_if_infinite(T x) { return copysign(isinf(x) ? (T)1 : (T)0, x); }
template <class T>
GI_FN T gi_zero_if_nan(T x) { return x != x ? copysign((T)0, x) : x; }
template <class C>
GI_FN C gi_times(C a, C b) {
  typedef decltype(a.re) T;
  const C p = a * b;
  if (p.re == p.re || p.im == p.im) return p;
  const bool a_infinite = isinf(a.re) || isinf(a.im), b_infinite = isinf(b.re) || isinf(b.im);
  const bool overflows = isinf(a.re * b.re) || isinf(a.im * b.im) || isinf(a.re * b.im) || isinf(a.im * b.re);
  if (!a_infinite && !b_infinite && !overflows) return p;
  if (a_infinite) a = gi_make(gi_one_if_infinite(a.re), gi_one_if_infinite(a.im));
  if (b_infinite) b = gi_make(gi_one_if_infinite(b.re), gi_one_if_infinite(b.im));
  a = gi_make(gi_zero_if_nan(a.re), gi_zero_if_nan(a.im));
  b = gi_make(gi_zero_if_nan(b.re), gi_zero_if_nan(b.im));
  const C q = a * b;
  const T infinity = gi_float(0x7f800000u);
  return gi_make(infinity * q.re, infinity * q.im);
}
// NumPy's algorithm: integer exponents up to 99 by products, and powers of zero as special cases.
template <class C>
GI_FN C gi_pow(C a, C b) {
  typedef decltype(a.re) T;
  if (b.re == 0 && b.im == 0) return gi_make((T)1, (T)0);
  if (a.re == 0 && a.im == 0) return b.re > 0 ? gi_make((T)0, (T)0) : gi_no_number(a);
  if (b.im == 0 && fabs(b.re) < 100 && b.re == trunc(b.re)) {
    if (b.re == 1) return a;
    if (b.re == 2) return a * a;
    if (b.re == 3) return a * (a * a);
    int n = (int)fabs(b.re);
    C result = gi_make((T)1, (T)0);
    for (;;) {
      if (n & 1) result = result * a;
      n >>= 1;
      if (!n) break;
      a = a * a;
    }
    return b.re < 0 ? gi_make((T)1, (T)0) / result : result;
  }
  return gi_exp(gi_times(b, gi_log(a)));
}
template <class T>
GI_FN bool gi_is_true(T a) {
  return a != (T)0;
}
