"""A small array library, a sound converter for it, and one unsound converter for each fault.

The suite has to pass the first and to find every one of the others.
"""

import ctypes
from dataclasses import replace

import numpy as np

import gpuinterop as gi
from gpuinterop.converters.plan import ArrayInfo, Rules, plan_layout
from gpuinterop.testing import Bridge

PLAIN = frozenset("bool int8 int16 int32 int64 uint8 float16 float32 float64 complex64".split())
TO = Rules("toy", "to_toy", PLAIN, frozenset({"cpu"}), negative=False, readonly=True)


class Toy:
    """An array of the toy library: a window on bytes, without negative strides."""

    def __init__(self, window):
        self.window = window


def plan_to(x, copyif=False):
    return plan_layout(ArrayInfo.of(x), TO).permit(copyif)


def to_toy(x, copyif=False):
    plan = plan_to(x, copyif)
    if plan.refused:
        raise plan.exception()
    x = x.copy() if plan.copied else x
    return Toy(gi.converters.to_numpy(x))


def from_toy(toy, copyif=False):
    return gi.converters.from_numpy(toy.window, copyif)


def make(flat, layout, device):
    if layout.negative or flat.dtype.name not in PLAIN:
        return None
    return Toy(layout.of(flat))


def explain(x, to, copyif=False):
    return plan_to(x, copyif) if to == "toy" else gi.explain(x.window, to, copyif)


SOUND = Bridge(
    "toy",
    to=to_toy,
    from_=from_toy,
    make=make,
    address=lambda toy: toy.window.__array_interface__["data"][0],
    values=lambda toy: toy.window,
    write=lambda toy, index, value: toy.window.__setitem__(index, value),
    readonly=lambda toy: not toy.window.flags.writeable,
    strides=lambda toy: toy.window.strides,
    dtype=lambda toy: toy.window.dtype.name,
    promises=lambda layout, dtype, device: not layout.negative and dtype in PLAIN,
    explain=explain,
    version="1.0",
)


def at(address, shape, strides, dtype, base=None, readonly=False):
    """A NumPy window on an address; `base` alone is kept alive."""
    if 0 in shape:
        return np.empty(shape, dtype)
    low = sum((n - 1) * s for n, s in zip(shape, strides, strict=True) if s < 0)
    high = sum((n - 1) * s for n, s in zip(shape, strides, strict=True) if s > 0) + dtype.itemsize
    raw = (ctypes.c_char * (high - low)).from_address(address + low)
    raw.base = base
    made = np.ndarray(shape, dtype, raw, -low, strides)
    made.flags.writeable = not readonly
    return made


def same(x, **changes):
    """The window of one of our arrays, as a toy, with something changed."""
    parts = {
        "address": x.ptr, "shape": x.shape, "strides": x.strides, "dtype": x.dtype, "base": x,
        "readonly": x.readonly,
    }  # fmt: skip
    return Toy(at(**{**parts, **changes}))


def gpuinterop_array(toy, base=True, **changes):
    window = toy.window
    parts = {
        "ptr": window.__array_interface__["data"][0], "shape": window.shape,
        "strides": window.strides, "dtype": window.dtype, "readonly": not window.flags.writeable,
    }  # fmt: skip
    parts = {**parts, **changes}
    if not window.size:
        return gi.converters.from_numpy(window)
    made = gi.GpuArray.from_pointer(
        parts["ptr"], parts["shape"], parts["dtype"], parts["strides"], toy if base is True else base,
        device="cpu", readonly=parts["readonly"],
    )  # fmt: skip
    return gi.from_dlpack(made, cls=gi.CudaNdarray) if made.dtype == "float32" else made


# ---- faults of to_toy ---------------------------------------------------------------------------

_leaked = []


def _silent_copy(x, copyif=False):
    return Toy(np.array(gi.converters.to_numpy(x)))


def _free_early(x, copyif=False):
    to_toy(x, copyif)
    return same(x, base=None)


def _leak(x, copyif=False):
    made = to_toy(x, copyif)
    _leaked.append(made)
    return made


def _bare_error(x, copyif=False):
    if plan_to(x, copyif).refused:
        raise ValueError("no")
    return to_toy(x, copyif)


def _half_error(x, copyif=False):
    if plan_to(x, copyif).refused:
        error = gi.ContiguityError(where="to_toy", expected="other strides", got="it", fix="x")
        error.fix = ""
        raise error
    return to_toy(x, copyif)


def _copy_if_asked(x, copyif=False):
    return Toy(np.array(gi.converters.to_numpy(x))) if copyif else to_toy(x)


def _copy_untold(x, copyif=False):
    if plan_to(x, copyif).copied:
        return Toy(np.array(gi.converters.to_numpy(x)))
    return to_toy(x, copyif)


def _refuse_all(x, copyif=False):
    raise gi.ContiguityError(
        where="to_toy", expected="something else", got="this", fix="try another library"
    )


NOWHERE = 4096  # no process has memory there


def _clear_the_source(x, copyif=False):
    made = to_toy(x, copyif)
    if not x.readonly:
        x[...] = 0
    return made


TO_FAULTS = {
    "returns nothing": (lambda x, copyif=False: None, "error"),
    "copies silently": (_silent_copy, "address"),
    "frees too early": (_free_early, "lifetime"),
    "leaks": (_leak, "released"),
    "raises a bare error": (_bare_error, "error"),
    "raises an error without a fix": (_half_error, "error"),
    "copies though it could share": (_copy_if_asked, "copyif"),
    "copies and does not say so": (_copy_untold, "counted"),
    "refuses what it promised": (_refuse_all, "shares"),
    "writes to what it converts": (_clear_the_source, "writes"),
}


# ---- faults of from_toy -------------------------------------------------------------------------


FROM_FAULTS = {
    "returns nothing": (lambda t, c=False: None, "error"),
    "frees too early": (lambda t, c=False: gpuinterop_array(t, base=None), "lifetime"),
    "leaks": (lambda t, c=False: _leaked.append(from_toy(t)) or _leaked[-1], "released"),
    "returns something else": (lambda t, c=False: t.window, "type"),
}


def faulty(direction, function):
    """The sound bridge with one direction replaced."""
    return replace(SOUND, **{"to" if direction == "to" else "from_": function})


def forget():
    """Drop what the leaking converters hold."""
    _leaked.clear()


SILENT = faulty("to", lambda x, copyif=False: None)
