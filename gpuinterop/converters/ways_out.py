"""What would work where a target cannot hold an array, in the words of the library that it came from."""

from __future__ import annotations

from gpuinterop import _core
from gpuinterop.converters.plan import ArrayInfo, Rules
from gpuinterop.converters.remedies import remedy_cast, remedy_copy
from gpuinterop.dtypes import NAMES, SUB_BYTE_INTEGERS

__all__ = ["cast", "move", "remedy_copy"]


def _ours(facts: ArrayInfo) -> str:
    return "x" if facts.library == "gpuinterop" else "gpuinterop.from_any(x, copyif=True)"


def cast(facts: ArrayInfo, dtypes: frozenset[str]) -> str:
    """What to do about a dtype that is none of `dtypes`."""
    kind = facts.dtype.rstrip("0123456789")
    if kind in ("complex", "bcomplex"):  # to real numbers it would lose its imaginary part
        wide = next((name for name in ("complex64", "complex128") if name in dtypes), "")
        if wide:
            return f"convert the values yourself first: {remedy_cast(facts, wide)}"
        part = {"complex128": "float64", "complex32": "float16"}.get(facts.dtype, "float32")
        return (
            "pass the parts as pairs of real numbers, on the host: "
            f"{_ours(facts)}.get().view('{part}')"
        )
    small = f"{kind}8" if facts.dtype in SUB_BYTE_INTEGERS else ""
    target = small if small in dtypes else "float32"
    if kind in ("bool", "int", "uint", "float", "bfloat") or facts.dtype in NAMES:
        return f"convert the values yourself first, for example {remedy_cast(facts, target)}"
    if facts.library == "torch":
        return "pass the bytes: x.view(torch.uint8)"
    return "pass numbers: texts and raw bytes have no dtype here"


def move(facts: ArrayInfo, rules: Rules) -> str:
    """What to do about a device that the target does not reach."""
    call = f"{_ours(facts)}.to_device('{'cuda' if 'cuda' in rules.devices else 'cpu'}')"
    if "cuda" in rules.devices and not _core.cuda_device_count():
        return (
            f"there is no GPU here: take a library with arrays on the host, such as 'numpy'; where "
            f"there is one, {call}"
        )
    return f"move it in words: {call}"
