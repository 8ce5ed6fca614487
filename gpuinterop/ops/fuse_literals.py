"""Numbers in the CUDA text of a fused function."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from gpuinterop.dtypes import NAMES, dtype_from_id
from gpuinterop.jit.codegen import WORKING

from .dtype_promotion import dtype_kind

__all__ = ["literal"]


def _real(value: float, working: str) -> str:
    if math.isnan(value):
        return f"({working})gi_double(0x7ff8000000000000ull)"
    if math.isinf(value):
        return f"({working})gi_double({'0x7ff' if value > 0 else '0xfff'}0000000000000ull)"
    return f"({working}){value.hex()}"


def literal(number: Any, row: int) -> str:
    """The number in the working type of a dtype, rounded to the dtype first."""
    name = NAMES[row]
    working = WORKING[name]
    plain = number.item() if isinstance(number, np.generic) else number
    kind = dtype_kind(row)
    if kind == "b":
        return "true" if plain else "false"
    if kind in "iu":
        held = int(np.asarray(plain, dtype=dtype_from_id(row)))
        return (
            f"({working}){held}{'ull' if kind == 'u' else 'll'}"
            if held >= 0
            else f"({working})(-{-held - 1}ll - 1)"
        )
    if kind == "c":
        value = complex(plain)
        part = "float" if name == "complex64" else "double"
        return f"gi_make({_real(value.real, part)}, {_real(value.imag, part)})"
    with np.errstate(all="ignore"):
        rounded = float(np.asarray(plain).astype(dtype_from_id(row)).astype(np.float64))
    return _real(rounded, working)
