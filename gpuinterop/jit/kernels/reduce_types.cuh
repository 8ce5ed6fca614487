// Storage types without arithmetic in C++, and the conversions to them.

struct GiHalf { unsigned short bits; };
struct GiBFloat { unsigned short bits; };
struct GiBool { unsigned char byte; };

template <typename T>
struct GiComplex {
  T re, im;
  __device__ GiComplex() {}
  __device__ GiComplex(T r, T i = T(0)) : re(r), im(i) {}
  template <typename U>
  __device__ explicit GiComplex(const GiComplex<U>& o) : re(T(o.re)), im(T(o.im)) {}
  __device__ GiComplex& operator*=(const GiComplex& o) {
    const T r = re * o.re - im * o.im;
    im = re * o.im + im * o.re;
    re = r;
    return *this;
  }
  __device__ friend GiComplex operator*(GiComplex a, const GiComplex& b) { return a *= b; }
  // A real factor must not turn the other part of an infinity into NaN.
  __device__ friend GiComplex operator*(T a, const GiComplex& b) {
    return GiComplex(a * b.re, a * b.im);
  }
  __device__ friend GiComplex operator*(const GiComplex& a, T b) { return b * a; }
  __device__ friend GiComplex operator+(const GiComplex& a, const GiComplex& b) {
    return GiComplex(a.re + b.re, a.im + b.im);
  }
  __device__ friend GiComplex operator-(const GiComplex& a, const GiComplex& b) {
    return GiComplex(a.re - b.re, a.im - b.im);
  }
  __device__ bool operator==(const GiComplex& o) const { return re == o.re && im == o.im; }
  __device__ bool operator!=(const GiComplex& o) const { return re != o.re || im != o.im; }
  // NumPy's order: the imaginary parts decide between equal real parts. A NaN is not less.
  __device__ bool operator<(const GiComplex& o) const {
    return (re < o.re && im == im && o.im == o.im) || (re == o.re && im < o.im);
  }
  __device__ bool operator>(const GiComplex& o) const { return o < *this; }
};

template <typename T>
__device__ inline T gi_value(T x) { return x; }
__device__ inline bool gi_value(GiBool x) { return x.byte != 0; }
__device__ inline float gi_value(GiBFloat x) { return __uint_as_float((unsigned)x.bits << 16); }
__device__ inline float gi_value(GiHalf x) { return gi_half_to_float(x.bits); }

template <typename T, typename U>
struct GiInto {
  __device__ static inline T from(U x) { return T(x); }
};
template <typename U>
struct GiInto<GiBool, U> {
  __device__ static inline GiBool from(U x) { return {(unsigned char)(x != U(0))}; }
};
template <typename U>
struct GiInto<GiHalf, U> {
  __device__ static inline GiHalf from(U x) { return {gi_half_bits(x)}; }
};
template <typename U>
struct GiInto<GiBFloat, U> {
  __device__ static inline GiBFloat from(U x) { return {gi_bfloat_bits(x)}; }
};

template <typename T, typename U>
__device__ inline T gi_into(U x) { return GiInto<T, U>::from(x); }
