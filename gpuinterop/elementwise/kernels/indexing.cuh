// Positions given by index arrays, and additions to positions that other threads may add to at the same time.

// The offset of an index along its axis. axis: {extent, stride in elements}. control: {address of words for
// indices that are outside, or 0; OutOfRange of native/index/elements.hpp}. Such an index sets `inside` to
// false and reads element 0. If there are several such indices, any one of them may be recorded.
template <class T>
GI_FN i64 gi_place(T index, const u128& axis, const u128& control, int number, bool& inside) {
  const i64 extent = (i64)axis.lo;
  i64 at = (i64)index;
  const bool huge = sizeof(T) == 8 && (T)-1 > 0 && at < 0;  // beyond 63 bits
  if (control.hi == 2) {                                   // wrap
    at = huge ? (i64)((u64)index % (u64)extent) : at % extent;
    if (at < 0) at += extent;
  } else if (control.hi == 1) {  // clip
    at = huge || at >= extent ? extent - 1 : at < 0 ? 0 : at;
  } else {
    if (huge) at = 0x7fffffffffffffffll;
    const i64 given = at;
    if (at < 0) at += extent;
    if ((u64)at >= (u64)extent) {
      if (control.lo) ((volatile i64*)control.lo)[number] = given;
      inside = false;
      at = 0;
    }
  }
  return at * (i64)axis.hi;
}

template <class T>
GI_FN T* gi_writable(const T* first, i64 offset) {
  return const_cast<T*>(first) + offset;
}

// Types without an atomic addition: replaces the aligned word that contains the element. It reads the element's
// neighbours, which may be outside the array and uninitialized, but not outside the allocation: allocations begin
// and end at multiples of a word. Their bytes are written back only if nothing has changed them in between.
template <class T, class V>
GI_FN void gi_atomic_add(T* at, V value) {
  u32* word = (u32*)((u64)at & ~(u64)3);
  const u32 shift = (u32)((u64)at & 3) * 8, mask = (sizeof(T) == 1 ? 0xffu : 0xffffu) << shift;
  union {
    u32 bits;
    T element;
  } part;
  u32 expected, seen = *(volatile u32*)word;
  do {
    expected = seen;
    part.bits = (expected & mask) >> shift;
    part.element = gi_to<T>(gi_read(part.element) + value);
    seen = atomicCAS(word, expected, (expected & ~mask) | (part.bits << shift & mask));
  } while (seen != expected);
}
GI_FN void gi_atomic_add(float* at, float value) { atomicAdd(at, value); }
GI_FN void gi_atomic_add(double* at, double value) { atomicAdd(at, value); }
GI_FN void gi_atomic_add(i32* at, i32 value) { atomicAdd(at, value); }
GI_FN void gi_atomic_add(u32* at, u32 value) { atomicAdd(at, value); }
GI_FN void gi_atomic_add(u64* at, u64 value) { atomicAdd(at, value); }
GI_FN void gi_atomic_add(i64* at, i64 value) { atomicAdd((u64*)at, (u64)value); }
GI_FN void gi_atomic_add(c64* at, c64 value) {
  atomicAdd(&at->re, value.re);
  atomicAdd(&at->im, value.im);
}
GI_FN void gi_atomic_add(c128* at, c128 value) {
  atomicAdd(&at->re, value.re);
  atomicAdd(&at->im, value.im);
}
