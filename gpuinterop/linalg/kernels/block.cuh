// One matrix in the shared memory of one block of GI_THREADS threads. GI_ROOM is the number of its elements there.
constexpr i32 kWarps = GI_THREADS / 32, kMostRows = 128;

// Where the matrices of a stack are; steps in elements.
struct Stack {
  const T* data;
  i64 next, row, column;
  __device__ __forceinline__ const T& at(i64 matrix, i64 i, i64 j) const { return data[matrix * next + i * row + j * column]; }
};

GI_FN float gi_mirrored(float x) { return x; }
GI_FN double gi_mirrored(double x) { return x; }
GI_FN c64 gi_mirrored(c64 x) { return gi_make(x.re, -x.im); }
GI_FN c128 gi_mirrored(c128 x) { return gi_make(x.re, -x.im); }
GI_FN float gi_real(float x) { return x; }
GI_FN double gi_real(double x) { return x; }
GI_FN float gi_real(c64 x) { return x.re; }
GI_FN double gi_real(c128 x) { return x.re; }
GI_FN T gi_number(i32 x) { return gi_to<T>((float)x); }
