// Philox 4x32-10 (Salmon and others, 2011), and what its words become. Also compiled for the host, by
// native/random/fill.cpp. Only operations that IEEE 754 rounds, and none contracted, so that both devices compute the
// same bits.

// The place in the sequence before the first block.
struct GiState {
  u64 low, high;  // the number of the block
  u32 keys[20];   // two for each round
};

GI_FN void gi_round(u32& a, u32& b, u32& c, u32& d, u32 k0, u32 k1) {
  const u64 x = (u64)0xd2511f53u * a, y = (u64)0xcd9e8d57u * c;
  a = (u32)(y >> 32) ^ b ^ k0;
  b = (u32)y;
  c = (u32)(x >> 32) ^ d ^ k1;
  d = (u32)x;
}

// The ten rounds, on the words of a block's number.
GI_FN void gi_rounds(const GiState& state, u32 a, u32 b, u32 c, u32 d, u32 (&words)[4]) {
  for (int round = 0; round < 10; ++round)
    gi_round(a, b, c, d, state.keys[2 * round], state.keys[2 * round + 1]);
  words[0] = a;
  words[1] = b;
  words[2] = c;
  words[3] = d;
}
// The four words of a block. A later attempt has words of its own.
GI_FN void gi_block(const GiState& state, u64 block, u32 attempt, u32 (&words)[4]) {
  const u64 low = state.low + block, high = state.high + (low < block);
  gi_rounds(state, (u32)low, (u32)(low >> 32), (u32)high, (u32)(high >> 32) + attempt, words);
}
GI_FN u64 gi_join(u32 low, u32 high) { return low | (u64)high << 32; }

// ---- uniform numbers, from 0 to below 1 -----------------------------------------------------------
GI_FN float gi_unit(u32 x) { return (float)(int)(x >> 8) * 5.9604644775390625e-8f; }
// (x >> 11) / 2^53 without a conversion, which a GPU does at a quarter of the speed: the upper 32 bits, and the 21 below, are
// the last bits of numbers from 2^20 and from 1/2 on. Both sums are exact.
GI_FN double gi_unit(u64 x) {
  return (gi_double(x >> 32 | 0x4130000000000000ull) - 1048576.5) + gi_double((u32)x >> 11 | 0x3fe0000000000000ull);
}

// ---- roots and quotients --------------------------------------------------------------------------
#ifdef __CUDACC_RTC__
// sqrt(x) of 0 or a normal number, and x / y of numbers that are neither tiny nor huge: the steps of the compiler, which
// adds a branch for all others.
GI_FN float gi_root(float x) {
  float y;
  asm("rsqrt.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(fmaxf(x, 1e-30f)));
  const float root = x * y;
  return gi_fma(gi_fma(-root, root, x), 0.5f * y, root);
}
GI_FN double gi_root(double x) {
  double y;
  asm("rsqrt.approx.ftz.f64 %0, %1;" : "=d"(y) : "d"(x > 0 ? x : 1.0));
  y = gi_double(gi_bits(y) | (u32)((gi_bits(x) >> 32) + 0xfcb00000u));
  const double error = gi_fma(x, -(y * y), 1.0);
  y = gi_fma(gi_fma(error, 0.375, 0.5), y * error, y);
  const double root = x * y;
  return gi_fma(gi_fma(-root, root, x), 0.5 * y, root);
}
GI_FN double gi_quotient(double x, double y) {
  double inverse;
  asm("rcp.approx.ftz.f64 %0, %1;" : "=d"(inverse) : "d"(y));
  inverse = gi_double(gi_bits(inverse) | 1);
  const double error = gi_fma(-y, inverse, 1.0);
  inverse = gi_fma(inverse, gi_fma(error, error, error), inverse);
  inverse = gi_fma(inverse, gi_fma(-y, inverse, 1.0), inverse);
  const double quotient = x * inverse;
  return gi_fma(inverse, gi_fma(-y, quotient, x), quotient);
}
#else
GI_FN float gi_root(float x) { return sqrt(x); }
GI_FN double gi_root(double x) { return sqrt(x); }
GI_FN double gi_quotient(double x, double y) { return x / y; }
#endif

// ---- normal numbers: the method of Box and Muller -----------------------------------------------
// A uniform number above 0, at most 1.
GI_FN float gi_above_zero(u32 x) { return gi_fma((float)x, 2.3283064365386963e-10f, 1.1641532182693481e-10f); }
GI_FN double gi_above_zero(u64 x) { return gi_unit(x) + 1.1102230246251565e-16; }

// -2 log(u), for u above 0 and at most 1: u = m 2^e with m from sqrt(1/2) to sqrt(2), and log(m) by a polynomial.
GI_FN float gi_minus_two_log(float u) {
  const u32 exponent = (gi_bits(u) - 0x3f3504f3u) & 0xff800000u;  // e 2^23
  const float f = gi_float(gi_bits(u) - exponent) - 1.0f;
  float p = -0.17066626166f;
  p = gi_fma(p, f, 0.28538516412f);
  p = gi_fma(p, f, -0.2995480256f);
  p = gi_fma(p, f, 0.33155985794f);
  p = gi_fma(p, f, -0.39911866716f);
  p = gi_fma(p, f, 0.5000270437f);
  p = gi_fma(p, f, -0.66668386572f);
  p = gi_fma(p, f, 0.99999992764f);
  p = gi_fma(p, f, -1.99999994826f);
  return gi_fma((float)(int)exponent, -1.3862943611f / 8388608.0f, f * p);
}
// log(m) = 2 artanh((m - 1) / (m + 1))
GI_FN double gi_minus_two_log(double u) {
  const u64 bits = gi_bits(u) - 0x3fe6a09e667f3bcdull;
  const double e = (double)((int)(u32)(bits >> 32) >> 20);
  const double m = gi_double((bits & 0xfffffffffffffull) + 0x3fe6a09e667f3bcdull);
  const double s = gi_quotient(m - 1.0, m + 1.0), z = s * s;
  double p = 0.0740485518032763835;
  p = gi_fma(p, z, 0.0765626407418209548);
  p = gi_fma(p, z, 0.090918158401146644);
  p = gi_fma(p, z, 0.111110985283630233);
  p = gi_fma(p, z, 0.142857143803208399);
  p = gi_fma(p, z, 0.199999999996511691);
  p = gi_fma(p, z, 0.333333333333338228);
  p = gi_fma(p, z, 1.0);
  return gi_fma(e, -1.3862943611198906, -4.0 * s * p);
}

// The angle, in quarter turns from -1/2 to 1/2: the bits below the two that choose the quadrant.
GI_FN float gi_quarter(u32 x) { return (float)(int)(x << 2) * 2.3283064365386963e-10f; }
GI_FN double gi_quarter(u64 x) {
  return gi_fma((double)(int)(u32)(x >> 30), 2.3283064365386963e-10,
                (double)(int)((u32)(x << 2) >> 1) * 1.0842021724855044e-19);
}
// The quadrant, in the upper two bits.
GI_FN u32 gi_quadrant(u32 x) { return x + 0x20000000u; }
GI_FN u32 gi_quadrant(u64 x) { return (u32)(x >> 32) + 0x20000000u; }

// Sine and cosine of t quarter turns; a is t * t.
GI_FN float gi_sine(float t, float a) {
  float p = gi_fma(-0.0046021492128f, a, 0.079680217648f);
  p = gi_fma(p, a, -0.64596347766f);
  return t * gi_fma(p, a, 1.570796322f);
}
GI_FN float gi_cosine(float a) {
  float p = gi_fma(0.00090362806638f, a, -0.0208600695f);
  p = gi_fma(p, a, 0.25366920366f);
  p = gi_fma(p, a, -1.2337005406f);
  return gi_fma(p, a, 0.99999999995f);
}
GI_FN double gi_sine(double t, double a) {
  double p = gi_fma(-6.62762493899247236e-10, a, 5.69192785048963342e-8);
  p = gi_fma(p, a, -3.5988427171448578e-6);
  p = gi_fma(p, a, 0.0001604411847266723);
  p = gi_fma(p, a, -0.00468175413531482707);
  p = gi_fma(p, a, 0.0796926262461669245);
  p = gi_fma(p, a, -0.645964097506246252);
  return t * gi_fma(p, a, 1.57079632679489662);
}
GI_FN double gi_cosine(double a) {
  double p = gi_fma(6.50665423542469793e-11, a, -6.38632546338635623e-9);
  p = gi_fma(p, a, 4.71087407753643867e-7);
  p = gi_fma(p, a, -0.0000252020423627333048);
  p = gi_fma(p, a, 0.000919260274838533092);
  p = gi_fma(p, a, -0.0208634807633529174);
  p = gi_fma(p, a, 0.253669507901048013);
  p = gi_fma(p, a, -1.23370055013616983);
  return gi_fma(p, a, 1.0);
}

// With the opposite sign if the upper bit of `sign` is set.
GI_FN float gi_turned(float x, u32 sign) { return gi_float(gi_bits(x) ^ (sign & 0x80000000u)); }
GI_FN double gi_turned(double x, u32 sign) { return gi_double(gi_bits(x) ^ (u64)(sign & 0x80000000u) << 32); }

// Two normal numbers from two words.
template <class Word, class T>
GI_FN void gi_normal_pair(Word radius, Word angle, T& x, T& y) {
  const T r = gi_root(gi_minus_two_log(gi_above_zero(radius)));
  const T t = gi_quarter(angle), a = t * t, sine = gi_sine(t, a), cosine = gi_cosine(a);
  const u32 q = gi_quadrant(angle);
  const bool odd = q & 0x40000000u;
  x = gi_turned(r * (odd ? sine : cosine), q ^ q << 1);
  y = gi_turned(r * (odd ? cosine : sine), q);
}

// ---- integers below a range ---------------------------------------------------------------------
#ifdef __CUDACC_RTC__
GI_FN u64 gi_high_product(u64 a, u64 b) { return __umul64hi(a, b); }
#else
__extension__ typedef unsigned __int128 gi_u128;
GI_FN u64 gi_high_product(u64 a, u64 b) { return (u64)(((gi_u128)a * b) >> 64); }
#endif

// The upper half of word times range (Lemire, 2019), of the word `at` (0 or 1) of 64 bits of a block. A lower half below
// 2^64 mod range would favour some integers, so another attempt replaces the word. Range 0 stands for 2^64, and `least`
// is 2^64 mod range.
GI_FN u64 gi_below(u64 range, u64 least, const GiState& state, u64 block, int at, u64 word) {
  if (!range) return word;
  for (u32 attempt = 1; word * range < least; ++attempt) {
    u32 words[4];
    gi_block(state, block, attempt, words);
    word = gi_join(words[2 * at], words[2 * at + 1]);
  }
  return gi_high_product(word, range);
}
