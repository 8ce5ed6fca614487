// Bits of a float, rounded to the nearest TF32 number. An infinity stays one; a NaN need not.
GI_FN u32 gi_round_to_tf32(u32 bits) { return (bits + 0x1000u) & ~0x1fffu; }
