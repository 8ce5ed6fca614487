// Sorts lines of any length by sweeps over memory, one for each digit of 8 bits. A block sorts a tile of a line, learns from the tiles
// before it how many of their keys have each digit, and writes its keys to their places.
//
// A tile's word for a digit has two bits for what it counts: 0 nothing yet, 1 the keys of the tile, 2 those of all tiles of the
// line up to it. Blocks take tiles in turn, so the tiles before are finished or running, and no block waits forever.
#define GI_COUNT_BITS (8 * sizeof(Place) - 2)
#define GI_COUNT (((Place)1 << GI_COUNT_BITS) - 1)
#define GI_TILE_ONLY ((Place)1 << GI_COUNT_BITS)
#define GI_UP_TO_HERE ((Place)2 << GI_COUNT_BITS)
#define GI_DIGITS ((int)sizeof(Stored))

struct Params {
  const Stored* in;  // elements in the first sweep, then keys
  Stored* out;       // keys, elements in the last sweep
  const Place* places;
  void* places_out;  // with GI_INDICES 1 int64 in the last sweep
  Place *words, *cleared;  // of all tiles: of this sweep, and those that it sets to 0 for the next one
  Place *starts, *turn;    // of each line, digit and value the number of keys before; the tiles that blocks have taken
  i64 lines, n, tiles, parts;  // tiles of a line; blocks that count a line
  int shift, first, last, unused;
};

// Sets the starts and the turns to 0. Blocks of 256 words.
extern "C" __global__ void __launch_bounds__(256) gi_sort_clear(const Params p) {
  p.starts[(i64)blockIdx.x * 256 + threadIdx.x] = 0;
}

// Counts the values of all digits in each line, in p.parts blocks for a line, and clears the words of the first sweep.
#define GI_COPIES (sizeof(Stored) == 8 ? 2 : 4)  // of the counters in shared memory, against conflicts
extern "C" __global__ void __launch_bounds__(256) gi_sort_count(const Params p) {
  __shared__ u32 counts[GI_DIGITS * 256 * GI_COPIES];
  const int t = threadIdx.x, copy = t % GI_COPIES;
  const i64 words = p.lines * p.tiles * 256, all = (i64)gridDim.x * 256;
  for (i64 i = (i64)blockIdx.x * 256 + t; i < words; i += all) p.cleared[i] = 0;
  for (int i = t; i < GI_DIGITS * 256 * GI_COPIES; i += 256) counts[i] = 0;
  __syncthreads();
  const i64 line = blockIdx.x / p.parts;
  const Stored* const in = p.in + line * p.n;
  for (i64 start = (blockIdx.x % p.parts) * 2048; start < p.n; start += p.parts * 2048) {
    Key keys[8];
#pragma unroll
    for (int i = 0; i < 8; ++i)
      if (start + i * 256 + t < p.n) keys[i] = gi_key(in[start + i * 256 + t]);
#pragma unroll
    for (int i = 0; i < 8; ++i)
      if (start + i * 256 + t < p.n) {
#pragma unroll
        for (int d = 0; d < GI_DIGITS; ++d)
          atomicAdd(&counts[(d * 256 + gi_digit(keys[i], 8 * d)) * GI_COPIES + copy], 1u);
      }
  }
  __syncthreads();
  for (int i = t; i < GI_DIGITS * 256; i += 256) {
    Place sum = 0;
    for (int c = 0; c < GI_COPIES; ++c) sum += counts[i * GI_COPIES + c];
    if (sum) atomicAdd(p.starts + line * GI_DIGITS * 256 + i, sum);
  }
}

// Replaces the counts of a line and a digit by the sums of the counts before. One block for each.
extern "C" __global__ void __launch_bounds__(256) gi_sort_starts(const Params p) {
  __shared__ Place sums[256];
  const int t = threadIdx.x;
  Place* const counts = p.starts + (i64)blockIdx.x * 256;
  const Place own = counts[t];
  Place sum = own;
  sums[t] = sum;
  for (int distance = 1; distance < 256; distance *= 2) {
    __syncthreads();
    const Place before = t >= distance ? sums[t - distance] : (Place)0;
    __syncthreads();
    sum += before;
    sums[t] = sum;
  }
  counts[t] = sum - own;
}

// The number of keys with a digit in the tiles of the line before this one; `word` is that of this tile.
GI_FN Place gi_look_back(const Place* word, i64 tiles) {
  Place sum = 0;
  for (i64 k = 1; k <= tiles; ++k) {
    Place found;
    do found = *(const volatile Place*)(word - k * 256);
    while (!(found & ~GI_COUNT));
    sum += found & GI_COUNT;
    if (found & GI_UP_TO_HERE) break;
  }
  return sum;
}

extern "C" __global__ void __launch_bounds__(GI_THREADS, GI_BLOCKS) gi_sort_sweep(const Params p) {
  __shared__ Shared s;
  __shared__ i64 turn, line;
  const int t = threadIdx.x, first = gi_first_place();
  if (t == 0) {
    turn = (i64)atomicAdd(p.turn, (Place)1);
    line = turn / p.tiles;
  }
  __syncthreads();
  const i64 tile = turn - line * p.tiles, base = tile * GI_TILE, start = line * p.n;
  const int valid = p.n - base < GI_TILE ? (int)(p.n - base) : GI_TILE;
  Place* const word = p.words + turn * 256 + t;
  const Stored* const in = p.in + start + base;
  Key keys[GI_ITEMS];
  u32 to[GI_ITEMS];
#pragma unroll
  for (int i = 0; i < GI_ITEMS; ++i) {
    const int at = first + i * 32;
    keys[i] = at < valid ? (Key)in[at] : GI_ONES;
  }
  if (p.first) {
#pragma unroll
    for (int i = 0; i < GI_ITEMS; ++i)
      if (first + i * 32 < valid) keys[i] = gi_key((Stored)keys[i]);
  }
  if (t < 256) p.cleared[turn * 256 + t] = 0;
  const u32 count = gi_rank(s, keys, p.shift, to, [&](u32 own) {
    *(volatile Place*)word = (tile ? GI_TILE_ONLY : GI_UP_TO_HERE) | own;
  });
#pragma unroll
  for (int i = 0; i < GI_ITEMS; ++i) s.keys[to[i]] = keys[i];
  if (t < 256) {
    Place before = 0;
    if (tile) {
      before = gi_look_back(word, tile);
      *(volatile Place*)word = GI_UP_TO_HERE | (before + count);
    }
    const i64 of_digit = (line * GI_DIGITS + p.shift / 8) * 256 + t;
    s.offsets[t] = p.starts[of_digit] + before - s.starts[t];  // wraps around, and back where a place is added
  }
  __syncthreads();
#if GI_INDICES
  u8 digits[GI_ITEMS];
#endif
#pragma unroll
  for (int i = 0; i < GI_ITEMS; ++i) {
    const int at = i * GI_THREADS + t;
    const Key key = s.keys[at];
    const u32 digit = gi_digit(key, p.shift);
#if GI_INDICES
    digits[i] = (u8)digit;
    if (GI_INDICES == 1 && p.last) continue;
#endif
    if (at < valid) p.out[start + (Place)(s.offsets[digit] + at)] = p.last ? gi_unkey(key) : (Stored)key;
  }
#if GI_INDICES
  __syncthreads();
#pragma unroll
  for (int i = 0; i < GI_ITEMS; ++i) {
    const int at = first + i * 32;
    s.places[to[i]] = p.first ? (Place)(base + at) : at < valid ? p.places[start + base + at] : (Place)0;
  }
  __syncthreads();
#pragma unroll
  for (int i = 0; i < GI_ITEMS; ++i) {
    const int at = i * GI_THREADS + t;
    if (at >= valid) continue;
    const i64 target = start + (Place)(s.offsets[digits[i]] + at);
    if (GI_INDICES == 1 && p.last)
      ((i64*)p.places_out)[target] = s.places[at];
    else
      ((Place*)p.places_out)[target] = s.places[at];
  }
#endif
}
