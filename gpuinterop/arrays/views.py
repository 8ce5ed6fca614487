"""The shape methods of every array; they return views where strides allow it."""

from __future__ import annotations

import copyreg
import operator
from collections.abc import Callable, Iterable, Sequence
from copy import deepcopy
from typing import Any, TypeVar

import numpy as np

from gpuinterop import _core
from gpuinterop.errors import (
    ArgumentTypeError,
    CopyForbiddenError,
    ShapeError,
    messages,
    short_repr,
)
from gpuinterop.errors.arguments import checks_arguments, read_copy, require_order

from .core_view import core_view
from .dtypes import as_supported_dtype
from .numpy_views import to_host_array

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
    "fnc": lambda x, seen: seen.is_f_contiguous() and not seen.is_c_contiguous(),
}
_FLAGS["behaved"] = lambda x, seen: not seen.readonly and _FLAGS["aligned"](x, seen)
_FLAGS["carray"] = lambda x, seen: seen.is_c_contiguous() and _FLAGS["behaved"](x, seen)
_FLAGS["contiguous"], _FLAGS["fortran"] = _FLAGS["c_contiguous"], _FLAGS["f_contiguous"]
_FLAG_LETTERS = {
    "C": "c_contiguous", "F": "f_contiguous", "W": "writeable", "A": "aligned", "O": "owndata",
    "B": "behaved", "CA": "carray",
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


# The dtype of the parts of a complex number.
_PARTS = {"complex32": "float16", "complex64": "float32", "complex128": "float64"}


def _reinterpreted_layout(
    x: _core.Array, dtype: np.dtype[Any]
) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Return shape and strides, in elements, of an array whose bytes are read as another dtype, by NumPy's rule."""
    old, new, shape, strides = x.itemsize, dtype.itemsize, x.shape, x._strides
    if old == new:
        return shape, strides
    got = f"dtype {x.dtype} of shape {shape} with strides {x.strides} (bytes)"

    def refusal(expected: str, fix: str) -> ShapeError:
        return ShapeError(where="view", expected=expected, got=got, fix=fix)

    if not shape:
        raise refusal(
            "an axis, whose length changes with the size of the elements",
            "add one: x[None].view(dtype)",
        )
    if x.size > 1 and shape[-1] != 1 and strides[-1] != 1:
        raise refusal("a contiguous last axis", "copy first: x.copy().view(dtype)")
    count = shape[-1] * old
    if count % new or (new < old and old % new):
        raise refusal(
            f"a last axis of a multiple of {new} bytes",
            "pad the last axis, or cast: x.astype(dtype)",
        )
    # Strides of other axes are whole elements of the new dtype, or the memory of some rows would be misaligned.
    steps = [step * old for step in strides[:-1]]
    if x.size and any(step % new for step, n in zip(steps, shape[:-1], strict=True) if n > 1):
        raise refusal(f"rows a multiple of {new} bytes apart", "copy first: x.copy().view(dtype)")
    return (*shape[:-1], count // new), (*(step // new for step in steps), 1)


class Flat:
    """The elements of an array in C order, as NumPy's flatiter: ``x.flat``.

    ``x.flat[key]`` is a new array, or for an int a 0-d array; an assignment writes to the array and
    repeats values that are too few. An iterator yields 0-d arrays, as ``for v in x`` does.
    """

    def __init__(self, base: Any) -> None:
        self._base, self._next = base, 0

    @property
    def base(self) -> Any:
        """The array."""
        return self._base

    @property
    def index(self) -> int:
        """The number of elements that the iterator has yielded."""
        return self._next

    def __len__(self) -> int:
        return int(core_view(self._base).size)

    def __iter__(self) -> Flat:
        return self

    def __next__(self) -> Any:
        if self._next >= len(self):
            raise StopIteration
        self._next += 1
        return self[self._next - 1]

    def __getitem__(self, key: Any) -> Any:
        flat = self._base.reshape(-1)
        found = flat[key]
        # A view of the array's own memory would be written with it.
        return found.copy() if isinstance(found, _core.Array) else found

    def __setitem__(self, key: Any, value: Any) -> None:
        size = len(self)
        if isinstance(key, _core.Array):
            key = to_host_array(key, "flat")
        places = np.arange(size)[key]
        if not places.ndim and np.size(value) != 1:
            raise ShapeError(where="flat", expected="one number for one element", got=short_repr(value),
                             fix="index with a slice: x.flat[i : i + 2] = values")  # fmt: skip
        self._base.put(np.ravel(places), value)

    def copy(self) -> Any:
        """Return the elements as a new vector."""
        return self._base.flatten()

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray[Any, Any]:
        found: np.ndarray[Any, Any] = self._base.ravel().__array__(dtype)
        return found


class ViewMethods(_core.Array):
    """Methods that return views of the same memory, where strides allow it."""

    __slots__ = ()

    @property
    def flags(self) -> Flags:
        """``c_contiguous``, ``f_contiguous``, ``writeable``, ``owndata`` and more, as NumPy's."""
        return Flags(self)

    def view(self: Self, dtype: Any = None, *lengths: int) -> Self:
        """Return another array object over the same memory, with the bytes read as another dtype if one is given.

        A dtype of another size changes the length of the last axis, which must be contiguous. The view of a
        `CudaNdarray` as another dtype than float32 is a `GpuArray`. To convert the values, cast: `astype`.

        Examples
        --------
        >>> import gpuinterop
        >>> x = gpuinterop.asarray([[1, 2], [3, 4]], device="cpu")
        >>> x.view().base is x, x.view("int8").shape
        (True, (2, 8))
        """
        if lengths or isinstance(dtype, (tuple, list)):  # as PyTorch's view
            raise ArgumentTypeError(where="view", expected="a dtype, or no argument",
                                    got=short_repr((dtype, *lengths) if lengths else dtype),
                                    fix="change the shape: x.reshape(shape)")  # fmt: skip
        view: Self = super().view()
        if dtype is None:
            return view
        seen, wanted = core_view(view), as_supported_dtype(dtype, "view")
        if wanted == seen.dtype:
            return view
        shape, strides = _reinterpreted_layout(seen, wanted)
        seen_as: Self = self._reinterpreted(wanted, shape, strides, 0)
        return seen_as

    @property
    def real(self: Self) -> Self:
        """The real parts, a view; of real numbers the array itself. ``x.real = v`` sets them.

        Examples
        --------
        >>> import gpuinterop
        >>> z = gpuinterop.asarray([1 + 2j, 3 + 4j], "complex64", device="cpu")
        >>> z.real = 0
        >>> z.tolist()
        [2j, 4j]
        """
        return self if core_view(self).dtype.name not in _PARTS else self._part(0)

    @real.setter
    def real(self, value: Any) -> None:
        self.real[...] = value

    @property
    def imag(self: Self) -> Self:
        """The imaginary parts, a view; of real numbers read-only zeros. ``z.imag = v`` sets them.

        Examples
        --------
        >>> import gpuinterop
        >>> gpuinterop.asarray([1 + 2j, 3 + 4j], "complex64", device="cpu").imag.tolist()
        [2.0, 4.0]
        """
        seen = core_view(self)
        if seen.dtype.name in _PARTS:
            return self._part(1)
        zeros: Any = _core.full(
            type(self), seen.shape, 0, seen.dtype, seen.device.type_code, seen.device.index, "imag"
        )
        zeros.flags.writeable = False
        return zeros  # type: ignore[no-any-return]

    @imag.setter
    def imag(self, value: Any) -> None:
        dtype = core_view(self).dtype
        if dtype.name not in _PARTS:
            raise ArgumentTypeError(
                where="imag", expected="complex numbers, which have imaginary parts to set", got=f"dtype {dtype}",
                fix="cast first: x.astype('complex64')",
            )  # fmt: skip
        self.imag[...] = value

    def _part(self: Self, number: int) -> Self:
        seen = core_view(self)
        half, strides = seen.itemsize // 2, [2 * step for step in seen._strides]
        part: Self = self._reinterpreted(
            _PARTS[seen.dtype.name], seen.shape, strides, number * half if seen.size else 0
        )
        return part

    @property
    def flat(self) -> Flat:
        """The elements in C order: an iterator that is read and written by index; ``x.flat = values`` sets all.

        Examples
        --------
        >>> import gpuinterop
        >>> x = gpuinterop.zeros((2, 2), device="cpu")
        >>> x.flat[1:] = [5, 6]
        >>> x.tolist(), x.flat[2].item()
        ([[0.0, 5.0], [6.0, 5.0]], 6.0)
        """
        return Flat(self)

    @flat.setter
    def flat(self, values: Any) -> None:
        Flat(self)[...] = values

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

    @_core.by_numpy(np.ndarray.diagonal, "self offset axis1 axis2", views=True)
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
