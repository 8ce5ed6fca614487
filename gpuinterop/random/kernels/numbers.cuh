// Philox 4x64-10 (Salmon and others, 2011), the generator of numpy.random.Philox, and what its words become.
// Also compiled for the host, by native/random/fill.cpp. Only operations that IEEE 754 rounds, none of them contracted,
// so that both devices compute the same bits.

#ifdef __CUDACC_RTC__
GI_FN u64 gi_high_product(u64 a, u64 b) { return __umul64hi(a, b); }
#else
__extension__ typedef unsigned __int128 gi_u128;
GI_FN u64 gi_high_product(u64 a, u64 b) { return (u64)(((gi_u128)a * b) >> 64); }
#endif

// The place in the sequence before the first block: NumPy's counter and key.
struct GiState {
  u64 counter[4], key[2];
};

// The words of a block, 0 being the first one after the counter. A later attempt has words of its own.
GI_FN void gi_block(const GiState& state, u64 block, u64 attempt, u64 (&words)[4]) {
  u64 a = state.counter[0] + block + 1, b = state.counter[1], c = state.counter[2], d = state.counter[3] + attempt;
  if (a <= block && !++b && !++c) ++d;  // the sum has wrapped
  u64 k0 = state.key[0], k1 = state.key[1];
  for (int round = 0; round < 10; ++round) {
    const u64 low_a = 0xd2e7470ee14c6c93ull * a, high_a = gi_high_product(0xd2e7470ee14c6c93ull, a);
    const u64 low_c = 0xca5a826395121157ull * c, high_c = gi_high_product(0xca5a826395121157ull, c);
    a = high_c ^ b ^ k0;
    b = low_c;
    c = high_a ^ d ^ k1;
    d = low_a;
    k0 += 0x9e3779b97f4a7c15ull;
    k1 += 0xbb67ae8584caa73bull;
  }
  words[0] = a;
  words[1] = b;
  words[2] = c;
  words[3] = d;
}

// ---- uniform numbers, from 0 to below 1: those of NumPy ----------------------------------------
GI_FN float gi_unit(u32 x) { return (float)(int)(x >> 8) * 5.9604644775390625e-8f; }
// By halves of 32 bits, which vectors convert.
GI_FN double gi_unit(u64 x) {
  return ((double)(int)(x >> 38) * 134217728.0 + (double)(int)((u32)(x >> 11) & 0x7ffffffu)) * 1.1102230246251565e-16;
}

// ---- normal numbers: the method of Box and Muller -----------------------------------------------
// A uniform number above 0, at most 1.
GI_FN float gi_above_zero(u32 x) {
  return ((float)(int)(x >> 16) * 65536.0f + ((float)(int)(x & 0xffffu) + 0.5f)) * 2.3283064365386963e-10f;
}
GI_FN double gi_above_zero(u64 x) { return gi_unit(x) + 1.1102230246251565e-16; }

// -2 log(u), for u above 0 and at most 1: u = m 2^e with m from sqrt(1/2) to sqrt(2), and
// log(m) = 2 artanh((m - 1) / (m + 1)) by a polynomial.
GI_FN float gi_minus_two_log(float u) {
  const u32 bits = gi_bits(u) - 0x3f3504f3u;
  const float e = (float)((int)bits >> 23), m = gi_float((bits & 0x7fffffu) + 0x3f3504f3u);
  const float s = (m - 1.0f) / (m + 1.0f), z = s * s;
  const float p = 0.99999999932f + z * (0.33333407669f + z * (0.19987425259f + z * 0.1496219524f));
  return e * -1.3862943611f - 4.0f * s * p;
}
GI_FN double gi_minus_two_log(double u) {
  const u64 bits = gi_bits(u) - 0x3fe6a09e667f3bcdull;
  const double e = (double)((int)(u32)(bits >> 32) >> 20);
  const double m = gi_double((bits & 0xfffffffffffffull) + 0x3fe6a09e667f3bcdull);
  const double s = (m - 1.0) / (m + 1.0), z = s * s;
  const double p = 1.0 + z * (0.333333333333338228 + z * (0.199999999996511691 + z * (0.142857143803208399
      + z * (0.111110985283630233 + z * (0.090918158401146644 + z * (0.0765626407418209548
      + z * 0.0740485518032763835))))));
  return e * -1.3862943611198906 - 4.0 * s * p;
}

// The angle, in quarter turns from -1/2 to 1/2: the bits below the two that choose the quadrant.
GI_FN float gi_quarter(u32 x) { return (float)(int)(x << 2) * 2.3283064365386963e-10f; }
GI_FN double gi_quarter(u64 x) {
  return (double)(int)(u32)(x >> 30) * 2.3283064365386963e-10
      + (double)(int)((u32)(x << 2) >> 1) * 1.0842021724855044e-19;
}
GI_FN u32 gi_quadrant(u32 x) { return (x + 0x20000000u) >> 30; }
GI_FN u32 gi_quadrant(u64 x) { return ((u32)(x >> 32) + 0x20000000u) >> 30; }

GI_FN float gi_sine(float t, float a) {
  return t * (1.570796322f + a * (-0.64596347766f + a * (0.079680217648f + a * -0.0046021492128f)));
}
GI_FN float gi_cosine(float a) {
  return 0.99999999995f + a * (-1.2337005406f + a * (0.25366920366f + a * (-0.0208600695f + a * 0.00090362806638f)));
}
GI_FN double gi_sine(double t, double a) {
  return t * (1.57079632679489662 + a * (-0.645964097506246252 + a * (0.0796926262461669245
      + a * (-0.00468175413531482707 + a * (0.0001604411847266723 + a * (-3.5988427171448578e-6
      + a * (5.69192785048963342e-8 + a * -6.62762493899247236e-10)))))));
}
GI_FN double gi_cosine(double a) {
  return 1.0 + a * (-1.23370055013616983 + a * (0.253669507901048013 + a * (-0.0208634807633529174
      + a * (0.000919260274838533092 + a * (-0.0000252020423627333048 + a * (4.71087407753643867e-7
      + a * (-6.38632546338635623e-9 + a * 6.50665423542469793e-11)))))));
}

// Two normal numbers from two words.
template <class Word, class T>
GI_FN void gi_normal_pair(Word radius, Word angle, T& x, T& y) {
  const T r = sqrt(gi_minus_two_log(gi_above_zero(radius)));
  const T t = gi_quarter(angle), a = t * t, sine = gi_sine(t, a), cosine = gi_cosine(a);
  const u32 q = gi_quadrant(angle);
  const T across = q & 1 ? sine : cosine, up = q & 1 ? cosine : sine;
  x = r * ((q + 1) & 2 ? -across : across);
  y = r * (q & 2 ? -up : up);
}

// ---- integers below a range ---------------------------------------------------------------------
// The upper half of word times range (Lemire, 2019). A lower half below 2^64 mod range would favour some integers, so
// another attempt replaces the word. Range 0 stands for 2^64, and `least` is 2^64 mod range.
GI_FN u64 gi_below(u64 range, u64 least, const GiState& state, u64 block, int at, u64 word) {
  if (!range) return word;
  for (u64 attempt = 1; word * range < least; ++attempt) {
    u64 words[4];
    gi_block(state, block, attempt, words);
    word = words[at];
  }
  return gi_high_product(word, range);
}
