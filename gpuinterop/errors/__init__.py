"""The error classes: each error has the expected value, the actual value and a fix.

A class derives from every built-in exception that callers may catch, so that ``except ValueError`` of
Theano's programs and ``except BufferError`` of the array API catch the same object.
"""

from __future__ import annotations

from typing import Any

import numpy as np

__all__ = [
    "ArgumentTypeError",
    "ArrayIndexError",
    "AxisError",
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
    "LinAlgError",
    "MissingLibraryError",
    "MissingNameError",
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
    """Base class of all errors, with four parts that are also attributes.

    Parameters
    ----------
    where : the call that raised.
    expected, got : the rule, and the value that breaks it.
    fix : a call or setting that works.
    reason : a short stable code for programs; each class has its own default.
    axis : the axis at fault, if there is one.
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
        text = _compose(where, expected, got, fix)
        if not text.isascii():
            where, expected, got, fix, text = map(printable, (where, expected, got, fix, text))
        self.where, self.expected, self.got, self.fix, self.axis = where, expected, got, fix, axis
        if reason:
            self.reason = reason
        super().__init__(text)

    def changed(self, **parts: Any) -> GpuInteropError:
        """Return the same error with other parts, such as `where`."""
        names = ("where", "expected", "got", "fix", "reason", "axis")
        return type(self)(**{**{name: getattr(self, name) for name in names}, **parts})

    def __reduce__(self) -> tuple[Any, ...]:
        # The default protocol loses keyword-only arguments, and process pools pickle errors.
        return (_rebuild, (type(self), str(self)), self.__dict__.copy())

    def __str__(self) -> str:
        # Otherwise OSError and similar classes print their own attributes.
        return str(self.args[0]) if self.args else ""


def _compose(where: str, expected: str, got: str, fix: str) -> str:
    lines = [f"{where}: expected {expected}" if where else f"expected {expected}"]
    if got:
        lines.append(f"  got: {got}")
    if fix:
        lines.append(f"  fix: {fix}")
    return "\n".join(lines)


def printable(text: str) -> str:
    """Return the text with escapes for lone surrogates, which keywords and paths may have."""
    return text.encode("utf-8", "backslashreplace").decode()


def type_name(value: Any) -> str:
    """Return "an object of type module.Class", without the module of built-in classes."""
    cls = type(value)
    module = "" if cls.__module__ == "builtins" else f"{cls.__module__}."
    return f"an object of type {module}{cls.__qualname__}"


def short_repr(value: Any) -> str:
    """Return a short repr for a message; never fails."""
    if isinstance(value, int) and value.bit_length() > 128:
        # Python refuses to print the longest integers.
        return f"an int of {value.bit_length()} bits"
    try:
        text = repr(value)
    except Exception:
        # The repr is faulty, or contains a long int: report the type instead.
        return type_name(value)
    return text if len(text) <= 120 else text[:117] + "..."


def _rebuild(cls: type[GpuInteropError], message: str) -> GpuInteropError:
    """Return an error without parts, which its pickled state sets; the message may have been edited."""
    error = cls(where="", expected="", got="", fix="")
    error.args = (message,)
    return error


class ContiguityError(GpuInteropError, ValueError, BufferError):
    """The strides forbid sharing; a copy works."""

    reason = "strides"


class CopyForbiddenError(ContiguityError):
    """A copy is needed but forbidden (``copy=False`` or ``no_copies()``)."""

    reason = "copy"


class ShapeError(GpuInteropError, ValueError):
    """Shapes, axes or element counts do not match."""

    reason = "shape"


class AxisError(ShapeError, IndexError):
    """An axis is out of range. NumPy's error of this name is a ValueError and an IndexError too."""


class BoundsError(GpuInteropError, ValueError):
    """A number is out of bounds: strides that leave the memory, an address, a negative exponent of integers."""

    reason = "bounds"


class RangeError(GpuInteropError, OverflowError):
    """A Python number is outside the range of the dtype of the operation."""

    reason = "range"


class ArrayIndexError(GpuInteropError, IndexError):
    """An index is out of range, or there are too many indices."""

    reason = "index"


class ScalarIndexError(ArrayIndexError, ValueError):
    """A 0-d array was indexed. Theano raised ValueError for a slice, NumPy raises IndexError."""


class IndexKindError(GpuInteropError, NotImplementedError, IndexError):
    """A key that is not an index: text, floats, a list of lists of different lengths."""

    reason = "index"


class ConversionTypeError(GpuInteropError, TypeError, ValueError):
    """An object that no converter or protocol accepts."""

    reason = "type"


class DTypeError(GpuInteropError, TypeError, ValueError):
    """A dtype that needs a cast; only the caller casts, explicitly."""

    reason = "dtype"


class ArgumentTypeError(GpuInteropError, TypeError):
    """An argument of the wrong Python type."""

    reason = "type"


class ExportError(GpuInteropError, BufferError, ValueError):
    """A protocol cannot express this array."""

    reason = "protocol"


class ExchangeError(GpuInteropError, ValueError, BufferError):
    """Data of another library is malformed, consumed, or contradicts its description."""

    reason = "protocol"


class ProtocolError(GpuInteropError, TypeError):
    """An object does not follow the exchange protocol that it implements."""

    reason = "protocol"


class UnsupportedError(GpuInteropError, NotImplementedError):
    """An unsupported feature: masked elements, assignment to ``shape``."""

    reason = "protocol"


class ReadOnlyError(GpuInteropError, ValueError, BufferError):
    """Read-only memory would be written."""

    reason = "readonly"


class DeviceMismatchError(GpuInteropError, ValueError, BufferError):
    """Arrays or arguments are on different devices."""

    reason = "device"


class DeviceError(GpuInteropError, ValueError):
    """The device does not exist, or does not support the call."""

    reason = "device"


class StreamError(GpuInteropError, ValueError):
    """An argument that is not a usable stream."""

    reason = "stream"


class CaptureError(GpuInteropError, RuntimeError):
    """A call that is illegal, or would synchronise, while a graph is captured."""

    reason = "capture"


class ContextError(GpuInteropError, RuntimeError):
    """Memory or a stream belongs to a CUDA context other than the primary one."""

    reason = "context"


class CudaError(GpuInteropError, RuntimeError):
    """A CUDA call failed."""

    reason = "cuda"


class OutOfMemoryError(GpuInteropError, MemoryError):
    """The device or the host is out of memory; no array was changed."""

    reason = "memory"


class LinAlgError(GpuInteropError, np.linalg.LinAlgError):
    """A matrix lacks the result, as a singular one has no inverse. A subclass of NumPy's LinAlgError."""

    reason = "matrix"


class CompileError(GpuInteropError, RuntimeError):
    """A kernel did not compile. `log` and `source` hold the compiler's output and input."""

    reason = "compile"
    log: str = ""
    source: str = ""


class LibraryNotFoundError(GpuInteropError, OSError):
    """A shared library (libcuda, NVRTC, cuBLAS, cuSOLVER, cuFFT) is missing; the message lists the paths tried."""

    reason = "library"


class MissingLibraryError(GpuInteropError, ImportError):
    """A Python package that a converter needs is not installed, or cannot be imported."""

    reason = "library"


class MissingNameError(GpuInteropError, AttributeError):
    """A name that the package does not have, or a familiar attribute of other libraries' arrays."""

    reason = "name"
