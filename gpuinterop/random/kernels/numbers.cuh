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

// The four words of a block. A later attempt has words of its own.
GI_FN void gi_block(const GiState& state, u64 block, u32 attempt, u32 (&words)[4]) {
  const u64 low = state.low + block, high = state.high + (low < block);
  u32 a = (u32)low, b = (u32)(low >> 32), c = (u32)high, d = (u32)(high >> 32) + attempt;
  for (int round = 0; round < 10; ++round)
    gi_round(a, b, c, d, state.keys[2 * round], state.keys[2 * round + 1]);
  words[0] = a;
  words[1] = b;
  words[2] = c;
  words[3] = d;
}
GI_FN u64 gi_join(u32 low, u32 high) { return low | (u64)high << 32; }

// ---- uniform numbers, from 0 to below 1 -----------------------------------------------------------
GI_FN float gi_unit(u32 x) { return (float)(int)(x >> 8) * 5.9604644775390625e-8f; }
// (x >> 11) / 2^53 without a conversion, which a GPU does at a quarter of the speed: the upper 52 bits make a number from 1 to
// below 2, and the lowest bit decides whether 1 or the number just below 1 is subtracted.
GI_FN double gi_unit(u64 x) {
  return gi_double(x >> 12 | 0x3ff0000000000000ull) - gi_double(0x3ff0000000000000ull - (x >> 11 & 1));
}

// ---- normal numbers: the method of Box and Muller -----------------------------------------------
// A uniform number above 0, at most 1.
GI_FN float gi_above_zero(u32 x) { return gi_fma((float)x, 2.3283064365386963e-10f, 1.1641532182693481e-10f); }
GI_FN double gi_above_zero(u64 x) { return gi_unit(x) + 1.1102230246251565e-16; }

// -2 log(u), for u above 0 and at most 1: u = m 2^e with m from sqrt(1/2) to sqrt(2), and log(m) by a polynomial.
GI_FN float gi_minus_two_log(float u) {
  const u32 bits = gi_bits(u) - 0x3f3504f3u;
  const float e = (float)((int)bits >> 23), f = gi_float((bits & 0x7fffffu) + 0x3f3504f3u) - 1.0f;
  float p = 0.08533313083f;
  p = gi_fma(p, f, -0.14269258206f);
  p = gi_fma(p, f, 0.1497740128f);
  p = gi_fma(p, f, -0.16577992897f);
  p = gi_fma(p, f, 0.19955933358f);
  p = gi_fma(p, f, -0.25001352185f);
  p = gi_fma(p, f, 0.33334193286f);
  p = gi_fma(p, f, -0.49999996382f);
  p = gi_fma(p, f, 0.99999997413f);
  return gi_fma(e, -1.3862943611f, -2.0f * f * p);
}
// log(m) = 2 artanh((m - 1) / (m + 1))
GI_FN double gi_minus_two_log(double u) {
  const u64 bits = gi_bits(u) - 0x3fe6a09e667f3bcdull;
  const double e = (double)((int)(u32)(bits >> 32) >> 20);
  const double m = gi_double((bits & 0xfffffffffffffull) + 0x3fe6a09e667f3bcdull);
  const double s = (m - 1.0) / (m + 1.0), z = s * s;
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
GI_FN u32 gi_quadrant(u32 x) { return (x + 0x20000000u) >> 30; }
GI_FN u32 gi_quadrant(u64 x) { return ((u32)(x >> 32) + 0x20000000u) >> 30; }

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

// Two normal numbers from two words.
template <class Word, class T>
GI_FN void gi_normal_pair(Word radius, Word angle, T& x, T& y) {
  const T r = sqrt(gi_minus_two_log(gi_above_zero(radius)));
  const T t = gi_quarter(angle), a = t * t, sine = gi_sine(t, a), cosine = gi_cosine(a);
  const u32 q = gi_quadrant(angle);
  const T across = q & 1 ? sine : cosine, up = q & 1 ? cosine : sine;
  x = ((q + 1) & 2 ? -r : r) * across;
  y = (q & 2 ? -r : r) * up;
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
