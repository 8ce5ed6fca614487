"""The table on host memory: NumPy's loops, in the dtypes that the rules chose."""

from __future__ import annotations

from typing import Any

import numpy as np

from .operation_table import Row

__all__ = ["run_row"]

# NumPy 2.4 fills results of theirs rightly only where these lie side by side, as new ones do.
_DENSE = (np.isfinite, np.isinf, np.isnan, np.signbit)


def run_row(row: Row, arrays: list[Any], outs: list[Any], types: tuple[Any, ...]) -> None:
    """Compute a row on host arrays, in NumPy's loop for `types`."""
    n = row.inputs
    with np.errstate(all="ignore"):
        read = [a if a.dtype == t else a.astype(t) for a, t in zip(arrays, types[:n], strict=True)]
        if row.name == "where":
            outs[0][...] = np.where(*read)
        elif row.name == "clip":
            outs[0][...] = np.minimum(np.maximum(read[0], read[1]), read[2])
        elif row.name == "reciprocal" and types[0].kind in "iu":
            # NumPy gives what the processor makes of 1 / 0; here it is 0, as on CUDA.
            outs[0][...] = np.where(read[0] == 0, types[0].type(0), np.reciprocal(read[0]))
        elif row.name == "power" and types[0].kind == "i":
            # NumPy looks at every exponent and raises. No kernel can, so both give the true value, cut.
            low, base = read[1] < 0, read[0]
            power = np.power(base, np.where(low, types[1].type(0), read[1]))
            odd = np.where(read[1] % 2 != 0, base, base * base)
            outs[0][...] = np.where(low, np.where(np.abs(base) == 1, odd, types[2].type(0)), power)
        elif row.name == "cast":
            outs[0][...] = arrays[0].astype(outs[0].dtype)
        elif row.compares or row.numpy in _DENSE:
            # NumPy's loop for int64 against uint64 answers to no signature.
            outs[0][...] = row.numpy(*read)
        elif isinstance(row.numpy, np.ufunc) and all(
            o.dtype == t for o, t in zip(outs, types[n:], strict=True)
        ):
            row.numpy(*read, out=tuple(outs), signature=types, casting="unsafe")
        else:
            found = (
                row.numpy(*read, signature=types, casting="unsafe")
                if isinstance(row.numpy, np.ufunc)
                else row.numpy(*read)
            )
            for out, value, t in zip(
                outs, found if row.results > 1 else (found,), types[n:], strict=True
            ):
                out[...] = np.asarray(value).astype(t).astype(out.dtype)
