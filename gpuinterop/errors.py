"""Every exception of the library: what was expected, what came, and what to do about it.

A class derives from each built-in that callers of the old or the new names catch, so that the
documents' ``except ValueError`` and the array API's ``except BufferError`` meet the same object.
"""

from __future__ import annotations

from typing import Any

__all__ = [
    "ArgumentTypeError",
    "ArrayIndexError",
    "BoundsError",
    "CaptureError",
    "CompileError",
    "ContextError",
    "ContiguityError",
    "ConversionTypeError",
    "CopyForbiddenError",
    "CudaError",
    "DTypeError",
    "DeviceError",
    "DeviceMismatchError",
    "ExchangeError",
    "ExportError",
    "GpuInteropError",
    "IndexKindError",
    "LibraryNotFoundError",
    "MissingLibraryError",
    "OutOfMemoryError",
    "ProtocolError",
    "RangeError",
    "ReadOnlyError",
    "ScalarIndexError",
    "ShapeError",
    "StreamError",
    "UnsupportedError",
]


class GpuInteropError(Exception):
    """Base of all errors here, made of four parts, which stay readable as attributes.

    Parameters
    ----------
    where : the function that refused.
    expected, got : the rule, and the value that broke it.
    fix : the call or setting that would work.
    reason : a short stable word for programs; each class has its own default.
    axis : the axis at fault, where there is one.
    """

    reason: str = "error"

    def __init__(
        self,
        *,
        where: str,
        expected: str,
        got: str,
        fix: str,
        reason: str = "",
        axis: int | None = None,
    ) -> None:
        self.where = where
        self.expected = expected
        self.got = got
        self.fix = fix
        self.axis = axis
        if reason:
            self.reason = reason
        super().__init__(_compose(where, expected, got, fix))

    def __reduce__(self) -> tuple[Any, ...]:
        # Keyword-only parts do not survive the default protocol, and process pools pickle errors.
        return (_rebuild, (type(self), str(self)), self.__dict__.copy())

    def __str__(self) -> str:
        # OSError and friends print their own attributes otherwise.
        return str(self.args[0]) if self.args else ""


def _compose(where: str, expected: str, got: str, fix: str) -> str:
    lines = [f"{where}: expected {expected}" if where else f"expected {expected}"]
    if got:
        lines.append(f"  got: {got}")
    if fix:
        lines.append(f"  fix: {fix}")
    return "\n".join(lines)


def short_repr(value: Any) -> str:
    """Return a value for a message: short, and whatever its own repr does."""
    if isinstance(value, int) and value.bit_length() > 128:
        # Python refuses to write out the longest ones.
        return f"an int of {value.bit_length()} bits"
    try:
        text = repr(value)
    except Exception:
        # Its own fault, or a long int inside: what is wrong with the value comes first.
        return f"an object of type {type(value).__module__}.{type(value).__qualname__}"
    return text if len(text) <= 120 else text[:117] + "..."


def _rebuild(cls: type[GpuInteropError], message: str) -> GpuInteropError:
    """The error without its parts, which its state brings; the message may have been edited since."""
    error = cls(where="", expected="", got="", fix="")
    error.args = (message,)
    return error


class ContiguityError(GpuInteropError, ValueError, BufferError):
    """Strides forbid sharing; a copy would work."""

    reason = "strides"


class CopyForbiddenError(ContiguityError):
    """A copy is needed and was forbidden (``copy=False`` or ``no_copies()``)."""

    reason = "copy"


class ShapeError(GpuInteropError, ValueError):
    """Shapes, axes or element counts do not fit together."""

    reason = "shape"


class BoundsError(GpuInteropError, ValueError):
    """A number is out of bounds: strides that leave the memory, an address, a negative power of integers."""

    reason = "bounds"


class RangeError(GpuInteropError, OverflowError):
    """A Python number that the dtype it would be computed in cannot hold."""

    reason = "range"


class ArrayIndexError(GpuInteropError, IndexError):
    """An index is out of range, or there are too many."""

    reason = "index"


class ScalarIndexError(ArrayIndexError, ValueError):
    """A 0-d array was indexed. The documents raised ValueError for a slice, NumPy IndexError."""

    reason = "index"


class IndexKindError(GpuInteropError, NotImplementedError, IndexError):
    """A kind of index that these arrays do not take (masks, index lists)."""

    reason = "index"


class ConversionTypeError(GpuInteropError, TypeError, ValueError):
    """An object that no converter or protocol here can take."""

    reason = "type"


class DTypeError(GpuInteropError, TypeError, ValueError):
    """A dtype that would have to be cast; casts are written by the caller, never silent."""

    reason = "dtype"


class ArgumentTypeError(GpuInteropError, TypeError):
    """An argument of the wrong Python type."""

    reason = "type"


class ExportError(GpuInteropError, BufferError, ValueError):
    """A protocol cannot express this array."""

    reason = "protocol"


class ExchangeError(GpuInteropError, ValueError, BufferError):
    """Foreign data is malformed, used up, or not what it claims to be."""

    reason = "protocol"


class ProtocolError(GpuInteropError, TypeError):
    """A foreign object does not follow the exchange protocol it announces."""

    reason = "protocol"


class UnsupportedError(GpuInteropError, NotImplementedError):
    """Something these arrays cannot hold or do: a protocol's mask, assignment to ``shape``."""

    reason = "protocol"


class ReadOnlyError(GpuInteropError, ValueError, BufferError):
    """Read-only memory was asked for writing."""

    reason = "readonly"


class DeviceMismatchError(GpuInteropError, ValueError, BufferError):
    """Arrays or requests name different devices."""

    reason = "device"


class DeviceError(GpuInteropError, ValueError):
    """No such device, or a device that cannot do this."""

    reason = "device"


class StreamError(GpuInteropError, ValueError):
    """A stream argument without a meaning here."""

    reason = "stream"


class CaptureError(GpuInteropError, RuntimeError):
    """Something that is illegal, or would synchronise, while a graph is captured."""

    reason = "capture"


class ContextError(GpuInteropError, RuntimeError):
    """Memory or a stream belongs to a CUDA context other than the primary one."""

    reason = "context"


class CudaError(GpuInteropError, RuntimeError):
    """A CUDA call failed."""

    reason = "cuda"


class OutOfMemoryError(GpuInteropError, MemoryError):
    """The device or the host has no room; nothing was changed."""

    reason = "memory"


class CompileError(GpuInteropError, RuntimeError):
    """A kernel did not compile. `log` and `source` hold the compiler's words and its input."""

    reason = "compile"
    log: str = ""
    source: str = ""


class LibraryNotFoundError(GpuInteropError, OSError):
    """A shared library (libcuda, NVRTC, cuBLAS) is missing; the message lists where was looked."""

    reason = "library"


class MissingLibraryError(GpuInteropError, ImportError):
    """A Python package that a converter needs is not installed, or cannot be imported."""

    reason = "library"
