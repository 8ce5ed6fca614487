// Running values, joined by gi_join(), which is associative up to rounding. The code before this file defines In and Out, the types
// of elements in memory, and Acc, in which they are joined. No value is joined to a neutral one, so that -0.0 stays.
#define GI_ALL 0xffffffffu

GI_FN Acc gi_value(In x) { return gi_to<Acc>(gi_to<Out>(x)); }

// The value of the lane `distance` before this one.
GI_FN Acc gi_from_before(const Acc& value, int distance) {
  Acc got;
#pragma unroll
  for (int k = 0; k < (int)sizeof(Acc) / 4; ++k)
    ((u32*)&got)[k] = __shfl_up_sync(GI_ALL, ((const u32*)&value)[k], distance);
  return got;
}

// The values up to this lane of the warp, joined.
GI_FN Acc gi_join_in_warp(Acc value) {
  const int lane = threadIdx.x % 32;
#pragma unroll
  for (int distance = 1; distance < 32; distance *= 2) {
    const Acc before = gi_from_before(value, distance);
    if (lane >= distance) value = gi_join(before, value);
  }
  return value;
}
