"""The shape methods of every array; they return views where strides allow it."""

from __future__ import annotations

import copyreg
import operator
from collections.abc import Callable, Iterable, Sequence
from copy import deepcopy
from typing import Any, TypeVar

from gpuinterop import _core
from gpuinterop.errors import (
    ArgumentTypeError,
    CopyForbiddenError,
    ShapeError,
    UnsupportedError,
    messages,
    short_repr,
)
from gpuinterop.errors.arguments import checks_arguments, read_copy, require_order

from .core_view import core_view
from .dtypes import as_supported_dtype

Self = TypeVar("Self", bound="ViewMethods")


def _spread(values: tuple[Any, ...]) -> Any:
    """Return the same values for f(1, 2), f((1, 2)), f([1, 2]) and f(numpy.array([1, 2]))."""
    # Arrays of every shape have __index__, which works if they hold one int.
    if len(values) == 1 and (
        not hasattr(values[0], "__index__") or bool(getattr(values[0], "ndim", 0))
    ):
        return values[0]
    return values


def own_state(x: Any) -> tuple[dict[str, Any] | None, dict[str, Any]] | None:
    """Return the __dict__ and the slots of an object of a subclass, in pickle's form; None if empty."""
    names: list[str] = copyreg._slotnames(type(x))  # type: ignore[attr-defined]
    slots = {name: getattr(x, name) for name in names if hasattr(x, name)}
    values = getattr(x, "__dict__", None) or None
    return (values, slots) if values or slots else None


def _set_state(x: Any, state: tuple[dict[str, Any] | None, dict[str, Any]] | None) -> None:
    values, slots = state or (None, {})
    if values:
        vars(x).update(values)
    for name, value in slots.items():
        setattr(x, name, value)


def _vector(x: Self, order: str, where: str, copy: bool | None) -> Self:
    """Return the elements as a vector; 'K' is C order of the axes in their memory order."""
    if require_order(order, "CFAK", where) == "K":
        in_memory: Self = x._permuted(x._memory_order())
        return in_memory.reshape(-1, copy=copy)
    return x.reshape(-1, order=order, copy=copy)


def _require_length_1(axes: Iterable[int], shape: tuple[int, ...], where: str) -> None:
    for i in axes:
        if shape[i] != 1:
            raise ShapeError(
                where=where,
                expected="axes of length 1, to omit them",
                got=f"axis {i} of shape {shape}",
                fix="keep the axis, or index it first: x[0]",
                axis=i,
            )


def _no_view_of(x: _core.Array) -> CopyForbiddenError:
    seen = core_view(x)
    return CopyForbiddenError(
        where="reshape",
        expected="strides that allow the new shape without a copy",
        got=f"shape {seen.shape} with strides {seen.strides} (bytes)",
        fix="pass copy=None, or x.copy().reshape(...) once",
    )


# Readers of the flags, from the array and its core view.
_FLAGS: dict[str, Callable[[_core.Array, _core.Array], bool]] = {
    "owndata": lambda x, seen: x.base is None,
    "writeable": lambda x, seen: not seen.readonly,
    "aligned": lambda x, seen: (
        seen.ptr % _core.alignment_of(seen.dtype, seen.device.type_code) == 0
    ),
    "c_contiguous": lambda x, seen: seen.is_c_contiguous(),
    "f_contiguous": lambda x, seen: seen.is_f_contiguous(),
    "forc": lambda x, seen: seen.is_c_contiguous() or seen.is_f_contiguous(),
}
_FLAGS["contiguous"], _FLAGS["fortran"] = _FLAGS["c_contiguous"], _FLAGS["f_contiguous"]
_FLAG_LETTERS = {
    "C": "c_contiguous", "F": "f_contiguous", "W": "writeable", "A": "aligned", "O": "owndata",
}  # fmt: skip


class Flags:
    """Properties of an array's memory, by NumPy's names and keys; they follow the array.

    ``writeable = False`` makes the array read-only permanently; copy it to get a writable array.
    """

    __slots__ = ("_array",)
    _array: _core.Array
    _printed = ("aligned", "c_contiguous", "f_contiguous", "owndata", "writeable")

    def __init__(self, array: _core.Array) -> None:
        object.__setattr__(self, "_array", array)

    def __getattr__(self, name: str) -> bool:
        if name not in _FLAGS:
            raise AttributeError(f"flags of an array have no attribute {name!r}")
        return _FLAGS[name](self._array, core_view(self._array))

    def __setattr__(self, name: str, value: bool) -> None:
        if name != "writeable":
            raise AttributeError(f"{name}: only writeable can be set")
        # The core's own attribute, because a subclass may define another of that name.
        _core.Array.readonly.__set__(self._array, not value)  # type: ignore[attr-defined]

    def __getitem__(self, key: str) -> bool:
        return bool(getattr(self, self._name(key)))

    def __setitem__(self, key: str, value: bool) -> None:
        setattr(self, self._name(key), value)

    def _name(self, key: object) -> str:
        name = _FLAG_LETTERS.get(key, key.lower()) if isinstance(key, str) else ""
        if name not in _FLAGS:
            raise KeyError(key)
        return name

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Flags):
            return NotImplemented
        return all(getattr(self, n) == getattr(other, n) for n in self._printed)

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        return "\n".join(f"  {n.upper()} : {getattr(self, n)}" for n in self._printed)


class ViewMethods(_core.Array):
    """Methods that return views of the same memory, where strides allow it."""

    __slots__ = ()

    @property
    def flags(self) -> Flags:
        """``c_contiguous``, ``f_contiguous``, ``writeable``, ``owndata`` and more, as NumPy's."""
        return Flags(self)

    def view(self: Self, dtype: Any = None, *lengths: int) -> Self:
        """Return another array object over the same memory.

        Another dtype raises, because a view does not reinterpret the bytes.

        Examples
        --------
        >>> import gpuinterop
        >>> x = gpuinterop.asarray([[1, 2], [3, 4]], device="cpu")
        >>> x.view().base is x
        True
        """
        if lengths or isinstance(dtype, (tuple, list)):  # as PyTorch's view
            raise ArgumentTypeError(where="view", expected="a dtype, or no argument",
                                    got=short_repr((dtype, *lengths) if lengths else dtype),
                                    fix="change the shape: x.reshape(shape)")  # fmt: skip
        view: Self = super().view()
        if dtype is not None and as_supported_dtype(dtype, "view") != core_view(view).dtype:
            raise UnsupportedError(
                where="view",
                expected=f"dtype {core_view(view).dtype}, because a view changes only shape and strides",
                got=f"dtype {as_supported_dtype(dtype)}",
                fix=f"cast the values, x.astype('{as_supported_dtype(dtype)}'), or view the bytes on the host: "
                "gpuinterop.to(x, 'numpy').view(dtype)",
            )
        return view

    def __copy__(self: Self) -> Self:
        # As in Theano, copy.copy returns a view of the same memory.
        view: Self = self.view()
        _set_state(view, own_state(self))
        return view

    def __deepcopy__(self: Self, memo: dict[int, Any]) -> Self:
        copied = self.copy()
        memo[id(self)] = copied
        _set_state(copied, deepcopy(own_state(self), memo))
        return copied

    @checks_arguments("copy")
    def _reshape_with(self: Self, *shape: Any, order: str = "C", copy: bool | None = None) -> Self:
        """Carry out reshape with options, or with a copy."""
        if shape and isinstance(shape[-1], str):
            raise ArgumentTypeError(where="reshape", expected="a shape of ints", got=short_repr(shape),
                                    fix=f"pass it by name: order={shape[-1]!r}")  # fmt: skip
        wanted = _spread(shape)
        if require_order(order, "CFA", "reshape") == "A":
            seen = core_view(self)
            order = "F" if seen.is_f_contiguous() and not seen.is_c_contiguous() else "C"
        copy = read_copy(copy, "reshape")
        if order == "F":
            wanted = _core.read_ints(wanted, "reshape")
            try:
                return self.transpose().reshape(wanted[::-1], copy=copy).transpose()
            except CopyForbiddenError:
                raise _no_view_of(self) from None
            except ShapeError:
                self._reshaped(wanted)  # raises for the caller's shape, not for the transposed one
                raise
        view: Self | None = None if copy else self._reshaped(wanted)
        if view is None:
            if copy is False:
                raise _no_view_of(self)
            view = self._copied("reshape")._reshaped(wanted)
            assert view is not None  # a C-ordered copy allows every shape
        return view

    def _ravel_with(self: Self, order: str = "C") -> Self:
        """Carry out ravel with an order, or with a copy."""
        return _vector(self, order, "ravel", None)

    def flatten(self: Self, order: str = "C") -> Self:
        """Return a copy of the elements as a vector, in order 'C', 'F', 'A' or 'K'.

        Examples
        --------
        >>> import gpuinterop
        >>> x = gpuinterop.asarray([[1, 2], [3, 4]], device="cpu")
        >>> x.flatten("F").tolist()
        [1.0, 3.0, 2.0, 4.0]
        """
        return _vector(self, order, "flatten", True)

    def _transpose_with(self: Self, *axes: Any) -> Self:
        """Carry out transpose with other arguments than Python's ints."""
        wanted = _spread(axes)
        ndim = core_view(self).ndim
        if not axes or wanted is None or (not ndim and len(wanted) == 0):
            wanted = range(ndim)[::-1]
        view: Self = self._permuted(wanted)
        return view

    def swapaxes(self: Self, axis1: int, axis2: int) -> Self:
        """Return a view with two axes exchanged.

        Examples
        --------
        >>> import gpuinterop
        >>> x = gpuinterop.zeros((2, 1, 3), device="cpu")
        >>> x.swapaxes(0, 2).shape
        (3, 1, 2)
        """
        ndim = core_view(self).ndim
        order = list(range(ndim))
        a, b = _core.read_axis(axis1, ndim, "swapaxes"), _core.read_axis(axis2, ndim, "swapaxes")
        order[a], order[b] = order[b], order[a]
        view: Self = self._permuted(order)
        return view

    def squeeze(self: Self, axis: Any = None) -> Self:
        """Return a view without the axes of length 1 (all of them, or those in `axis`).

        Examples
        --------
        >>> import gpuinterop
        >>> x = gpuinterop.zeros((2, 1, 3), device="cpu")
        >>> x.squeeze().shape
        (2, 3)
        """
        shape = core_view(self).shape
        if axis is None:
            drop = {i for i, n in enumerate(shape) if n == 1}
        else:
            drop = set(_core.read_axes(axis, len(shape), "squeeze"))
            _require_length_1(drop, shape, "squeeze")
        view: Self = self[tuple(0 if i in drop else slice(None) for i in range(len(shape)))]
        return view

    def expand_dims(self: Self, axis: Any) -> Self:
        """Return a view with new axes of length 1 at the given positions.

        Examples
        --------
        >>> import gpuinterop
        >>> x = gpuinterop.zeros((2, 1, 3), device="cpu")
        >>> x.expand_dims(0).shape
        (1, 2, 1, 3)
        """
        given = axis if isinstance(axis, (tuple, list)) else (axis,)
        ndim = core_view(self).ndim + len(given)
        new = _core.read_axes(given, ndim, "expand_dims")
        view: Self = self[tuple(None if i in new else slice(None) for i in range(ndim))]
        return view

    def broadcast_to(self: Self, *shape: Any) -> Self:
        """Return a read-only view repeated to `shape` by strides of 0.

        Examples
        --------
        >>> import gpuinterop
        >>> x = gpuinterop.zeros((2, 1, 3), device="cpu")
        >>> x.broadcast_to(2, 4, 3).strides
        (12, 0, 4)
        """
        view: Self = self._broadcast_to(_spread(shape))
        return view

    def diagonal(self: Self, offset: int = 0, axis1: int = 0, axis2: int = 1) -> Self:
        """Return a view of a diagonal; its axis comes last.

        Examples
        --------
        >>> import gpuinterop
        >>> x = gpuinterop.asarray([[1, 2], [3, 4]], device="cpu")
        >>> x.diagonal().tolist()
        [1.0, 4.0]
        """
        seen = core_view(self)
        ndim, size = seen.ndim, seen.itemsize
        if ndim < 2:
            raise ShapeError(where="diagonal", expected="at least two dimensions",
                             got=f"shape {seen.shape}", fix="reshape to a matrix")  # fmt: skip
        a, b = _core.read_axis(axis1, ndim, "diagonal"), _core.read_axis(axis2, ndim, "diagonal")
        if a == b:
            raise ShapeError(where="diagonal", expected="two different axes",
                             got=f"{axis1} and {axis2}", fix="pass different axes")  # fmt: skip
        try:
            skip = operator.index(offset)
        except TypeError:
            raise messages.not_an_int("diagonal", "offset", offset) from None
        rows, columns = max(-skip, 0), max(skip, 0)
        corner: list[Any] = [slice(None)] * ndim
        corner[a], corner[b] = slice(rows, None), slice(columns, None)
        view = self[tuple(corner)]
        seen = core_view(view)
        length = min(seen.shape[a], seen.shape[b])
        steps = [s // size for s in seen.strides]
        rest = [i for i in range(ndim) if i not in (a, b)]
        shape = [*(seen.shape[i] for i in rest), length]
        strides = [*(steps[i] for i in rest), steps[a] + steps[b]]
        result: Self = view._restrided(shape, strides, 0)
        return result

    def dimshuffle(self: Self, *pattern: Any) -> Self:
        """Return a view with its axes rearranged, as in Theano.

        Each entry is an axis, or 'x' (or any negative number) for a new axis of length 1. An omitted
        axis must have length 1.

        Examples
        --------
        >>> import gpuinterop
        >>> x = gpuinterop.zeros((2, 1, 3), device="cpu")
        >>> x.dimshuffle(2, "x", 0, 1).shape
        (3, 1, 2, 1)
        """
        wanted = _spread(pattern)
        if getattr(wanted, "ndim", 0):  # an array is not a Sequence
            wanted = _core.read_ints(wanted, "dimshuffle", "pattern")
        if isinstance(wanted, str) or not isinstance(wanted, Sequence):
            wanted = (wanted,)
        try:
            entries = [
                -1 if isinstance(i, str) and i == "x" else max(operator.index(i), -1)
                for i in wanted
            ]
        except TypeError:
            raise ShapeError(
                where="dimshuffle",
                expected="axis numbers, and 'x' or a negative number for a new axis",
                got=short_repr(tuple(wanted)),
                fix="write for example dimshuffle(1, 'x', 0)",
            ) from None
        kept = [i for i in entries if i >= 0]
        extents = core_view(self).shape
        ndim = len(extents)
        if any(i >= ndim for i in kept):
            raise messages.axis_out_of_range("dimshuffle", max(kept), ndim)
        if len(set(kept)) != len(kept):
            raise messages.repeated_axis("dimshuffle", short_repr(tuple(wanted)))
        dropped = [i for i in range(ndim) if i not in kept]
        _require_length_1(dropped, extents, "dimshuffle")
        view = self._permuted([*kept, *dropped])
        key = (*(None if i < 0 else slice(None) for i in entries), *(0 for _ in dropped))
        final: Self = view[key]
        return final


for _name in ("reshape", "ravel", "transpose"):  # errors name the public method
    _function: Any = getattr(ViewMethods, f"_{_name}_with")
    for _part in (_function, getattr(_function, "__wrapped__", _function)):
        _part.__name__ = _name
