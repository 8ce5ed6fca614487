// How a thread reads or writes V neighbouring elements of an operand. The mode is a compile-time type:
//   C unit stride   U unit stride, not aligned   R stride -1   X any stride   S stride 0: one element
//   K a number in the parameters   A the address of the element, for bodies that read its neighbours
// p: address of the thread's first element. s: the operand's stride along the row, in elements. A part has
// the elements from `from` up to `to`, at least one.
#define GI_INLINE __device__ __forceinline__

template <class T, int V>
struct alignas(sizeof(T) * V) GiPack {
  T x[V];
};

#define GI_PART(k) (k >= from && k < to)

// A run of elements of stride STEP, 1 or -1, in one access; in memory order.
template <class T, int V, int STEP>
struct GiRun {
  GiPack<T, V> v;
  template <class I>
  static GI_INLINE I offset(I position, I) {
    return STEP * position;
  }
  static GI_INLINE int place(int k) { return STEP > 0 ? k : V - 1 - k; }
  GI_INLINE void load(const T* p, i64) { v = *reinterpret_cast<const GiPack<T, V>*>(p - place(0)); }
  GI_INLINE void load_part(const T* p, i64, i64 from, i64 to) {
#pragma unroll
    for (int k = 0; k < V; ++k) at(k) = p[STEP * (GI_PART(k) ? k : from)];
  }
  GI_INLINE void store(T* p, i64) const { *reinterpret_cast<GiPack<T, V>*>(p - place(0)) = v; }
  GI_INLINE void store_part(T* p, i64, i64 from, i64 to) const {
#pragma unroll
    for (int k = 0; k < V; ++k)
      if (GI_PART(k)) p[STEP * k] = v.x[place(k)];
  }
  GI_INLINE T& at(int k) { return v.x[place(k)]; }
};
template <class T, int V>
struct GiC : GiRun<T, V, 1> {};
template <class T, int V>
struct GiR : GiRun<T, V, -1> {};

template <class T, int V>
struct GiU : GiC<T, V> {
  // Small elements are read in whole words, each of which has an element of the pack.
  GI_INLINE void load(const T* p, i64) {
    constexpr int kEach = 4 / sizeof(T), kWords = V * sizeof(T) / 4;
    if constexpr (kEach > 1 && V % kEach == 0) {
      const u32 before = (u32)((u64)p % 4);
      const u32* words = (const u32*)((u64)p - before);
      u32 w[kWords + 1];
#pragma unroll
      for (int k = 0; k < kWords; ++k) w[k] = words[k];
      w[kWords] = before ? words[kWords] : 0;
#pragma unroll
      for (int k = 0; k < kWords; ++k) {
        union {
          u32 word;
          T x[kEach];
        } bits;
        bits.word = __funnelshift_r(w[k], w[k + 1], before * 8);
#pragma unroll
        for (int i = 0; i < kEach; ++i) this->v.x[k * kEach + i] = bits.x[i];
      }
    } else {
#pragma unroll
      for (int k = 0; k < V; ++k) this->v.x[k] = p[k];
    }
  }
  GI_INLINE void store(T* p, i64) const {
#pragma unroll
    for (int k = 0; k < V; ++k) p[k] = this->v.x[k];
  }
};

template <class T, int V>
struct GiX {
  T v[V];
  template <class I>
  static GI_INLINE I offset(I position, I s) {
    return position * s;
  }
  GI_INLINE void load(const T* p, i64 s) {
#pragma unroll
    for (int k = 0; k < V; ++k) v[k] = p[k * s];
  }
  GI_INLINE void load_part(const T* p, i64 s, i64 from, i64 to) {
#pragma unroll
    for (int k = 0; k < V; ++k) v[k] = p[(GI_PART(k) ? k : from) * s];
  }
  GI_INLINE void store(T* p, i64 s) const {
#pragma unroll
    for (int k = 0; k < V; ++k) p[k * s] = v[k];
  }
  GI_INLINE void store_part(T* p, i64 s, i64 from, i64 to) const {
#pragma unroll
    for (int k = 0; k < V; ++k)
      if (GI_PART(k)) p[k * s] = v[k];
  }
  GI_INLINE T& at(int k) { return v[k]; }
};

template <class T, int V>
struct GiS {
  T v;
  template <class I>
  static GI_INLINE I offset(I, I) {
    return 0;
  }
  GI_INLINE void load(const T* p, i64) { v = *p; }
  GI_INLINE void load_part(const T* p, i64, i64, i64) { v = *p; }
  GI_INLINE T& at(int) { return v; }
};

// The number's bytes replace the operand's pointer and stride.
template <class T, int V>
struct GiK {
  T v;
  template <class I>
  static GI_INLINE I offset(I, I) {
    return 0;
  }
  GI_INLINE void load(const T* p, i64 s) {
    union {
      u128 words;
      T value;
    } bits;
    bits.words.lo = (u64)p;
    bits.words.hi = (u64)s;
    v = bits.value;
  }
  GI_INLINE void load_part(const T* p, i64 s, i64, i64) { load(p, s); }
  GI_INLINE T& at(int) { return v; }
};

template <class T, int V>
struct GiA {
  const T* first;
  i64 step;
  template <class I>
  static GI_INLINE I offset(I position, I s) {
    return position * s;
  }
  GI_INLINE void load(const T* p, i64 s) {
    first = p;
    step = s;
  }
  GI_INLINE void load_part(const T* p, i64 s, i64, i64) { load(p, s); }
  GI_INLINE const T* at(int k) const { return first + k * step; }
};

// Reads or writes a part that is often all of the elements.
template <int V, class A, class T>
GI_INLINE void gi_load_part(A& pack, const T* p, i64 s, i64 from, i64 to) {
  if (from <= 0 && to >= V)
    pack.load(p, s);
  else
    pack.load_part(p, s, from, to);
}
template <int V, class A, class T>
GI_INLINE void gi_store_part(const A& pack, T* p, i64 s, i64 from, i64 to) {
  if (from <= 0 && to >= V)
    pack.store(p, s);
  else
    pack.store_part(p, s, from, to);
}

// A dimension, with the constants of a division by its extent: one multiplication and one shift, exact for
// indices below 2^31.
struct GiDim {
  i64 extent;
  u32 factor, shift;
};
GI_FN i32 gi_quotient(i32 n, const GiDim& d) { return (i32)((__umulhi((u32)n, d.factor) + (u32)n) >> d.shift); }

// The offsets, in elements, of element `rest` of ND dimensions in K operands.
template <int ND, int N, int K>
GI_FN void gi_offsets(i32 rest, const GiDim (&d)[N], const i64 (&strides)[N][K], i32 (&o)[K]) {
#pragma unroll
  for (int k = 0; k < K; ++k) o[k] = 0;
#pragma unroll
  for (int i = 0; i < ND; ++i) {
    const i32 q = i + 1 < ND ? gi_quotient(rest, d[i]) : 0;
    const i32 at = rest - q * (i32)d[i].extent;
    rest = q;
#pragma unroll
    for (int k = 0; k < K; ++k) o[k] += at * (i32)strides[i][k];
  }
}
