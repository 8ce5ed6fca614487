// Keys: unsigned integers in the order of the elements. Kinds of elements: 0 unsigned, 1 signed, 2 floats, whose bits
// of infinity are GI_INFINITY, 3 bools. The code before this file defines Stored and Key, the unsigned types of an element
// in memory and in registers.
//
// The keys of floats are one to one: those of NaN are above infinity, and those of -0.0 and 0.0 differ in their lowest bit,
// which gi_digit() and gi_order() hide. Where indices are written (GI_INDICES: 1 alone, 2 with the elements), all NaN have one
// key, so that they keep their order.
#define GI_ONES ((Key)(Stored)~(Stored)0)
#define GI_SIGN ((Key)1 << (8 * sizeof(Stored) - 1))
#define GI_LOWEST ((GI_SIGN - 1) ^ (Key)GI_INFINITY)  // of -infinity, before it becomes 0
#define GI_MINUS_ZERO (GI_DESCENDING ? GI_ONES ^ (Key)GI_INFINITY : (Key)GI_INFINITY)

GI_FN Key gi_key(Stored stored) {
  Key key = stored;
#if GI_KIND == 1
  key ^= GI_SIGN;
#elif GI_KIND == 2
  const bool is_nan = (key & (GI_SIGN - 1)) > (Key)GI_INFINITY;
  key = (((key & GI_SIGN) ? ~key : key | GI_SIGN) - GI_LOWEST) & GI_ONES;
  if (GI_INDICES && is_nan) key = GI_ONES;
#elif GI_KIND == 3
  key = key != 0;
#endif
  return GI_DESCENDING ? ~key & GI_ONES : key;
}

// The element of a key.
GI_FN Stored gi_unkey(Key key) {
  if (GI_DESCENDING) key = ~key & GI_ONES;
#if GI_KIND == 1
  key ^= GI_SIGN;
#elif GI_KIND == 2
  key = (key + GI_LOWEST) & GI_ONES;
  key = (key & GI_SIGN) ? key ^ GI_SIGN : ~key;
#endif
  return (Stored)key;
}

// The key, or that of 0.0 for -0.0.
GI_FN Key gi_order(Key key) { return GI_KIND == 2 && key == GI_MINUS_ZERO ? key ^ 1 : key; }
GI_FN u32 gi_digit(Key key, int shift) { return (u32)((shift ? key : gi_order(key)) >> shift) & 255; }
