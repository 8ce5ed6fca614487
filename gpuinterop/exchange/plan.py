"""Plans of conversions: share, copy or raise.

A `Plan` is computed only from a description of the array (`ArrayInfo`) and the target's `Rules`, without
access to memory, a driver or a stream.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace
from typing import Any

from gpuinterop import _core, errors
from gpuinterop.arrays.core_view import c_strides as c_strides
from gpuinterop.arrays.dtypes import name_of
from gpuinterop.devices.foreign_handles import CPU, CUDA

from .registry import Backend, require_type
from .suggested_fixes import copy_line, fix_device, fix_dtype

TYPE_CODES = {"cpu": CPU, "cuda": CUDA}


@dataclass(unsafe_hash=True)  # not frozen, which sets each field by a call; nothing changes it
class ArrayInfo:
    """The description of an array, without access to its memory.

    Strides are in bytes. Contiguity follows NumPy's rule, including axes of length 0 or 1.
    `ptr` is the address of element [0, ..., 0]. `owner` is the object that keeps that memory alive, if it is
    not the array itself.
    """

    shape: tuple[int, ...]
    strides: tuple[int, ...]
    dtype: str
    itemsize: int
    device: str  # "cpu" or "cuda"
    index: int = 0
    ptr: int = 0
    readonly: bool = False
    library: str = "gpuinterop"
    owner: Any = field(default=None, compare=False, repr=False)

    @classmethod
    def of(cls, x: Any) -> ArrayInfo:
        """Describe a gpuinterop array. The core's view has the layout, whatever a subclass overrides."""
        view = _core.view(_core.Array, x)
        dtype = view.dtype
        kind, index = view.__dlpack_device__()
        device = "cpu" if kind == CPU else "cuda"
        return cls(
            view.shape, tuple(view.strides), name_of(dtype), dtype.itemsize, device,
            index if device == "cuda" else 0, view.ptr, bool(view.readonly), owner=x,
        )  # fmt: skip

    @property
    def size(self) -> int:
        return math.prod(self.shape)

    @property
    def nbytes(self) -> int:
        return self.size * self.itemsize

    @property
    def c_contiguous(self) -> bool:
        return 0 in self.shape or first_noncontiguous_axis(self) is None

    @property
    def f_contiguous(self) -> bool:
        return 0 in self.shape or first_noncontiguous_axis(self, "F") is None

    @property
    def compact(self) -> bool:
        """Whether the array is contiguous in some order of the axes."""
        axes = sorted(zip(self.strides, self.shape, strict=True))
        shape, strides = [n for _, n in axes], [s for s, _ in axes]
        return 0 in shape or _core._first_gap(shape, strides, self.itemsize, False) is None

    @property
    def negative_axis(self) -> int | None:
        axes = [axis for axis, step in enumerate(self.strides) if step < 0 and self.shape[axis] > 1]
        return axes[0] if axes and self.size else None

    @property
    def device_name(self) -> str:
        return "cpu" if self.device == "cpu" else f"{self.device}:{self.index}"

    def text(self) -> str:
        return f"{self.dtype} array of shape {self.shape} with strides {self.strides} (bytes) on {self.device_name}"

    def copied(self) -> ArrayInfo:
        """Describe the C-contiguous copy of this array."""
        strides = c_strides(self.shape, self.itemsize)
        return replace(self, strides=strides, ptr=0, readonly=False, owner=None)


@dataclass(frozen=True)
class Rules:
    """The arrays that a library can hold without a copy, and the names of its converter in messages.

    Parameters
    ----------
    library, where : the library's name, and the function that messages name.
    dtypes : names of its dtypes, or None for all of gpuinterop's.
    devices : "cpu", "cuda" or both.
    layout : "any", "c", "f", "forc" (either) or "compact" (contiguous in some order of the axes).
    negative : whether it has negative strides. ``x.__dlpack__()`` raises for strides that the library of the calling
        module cannot share.
    readonly : whether it never writes, or its `export` keeps the read-only flag; the default one does not.
    reads_later : whether it reads memory after its call has returned. Writes by gpuinterop wait until it has
        released what its own modules received from ``x.__dlpack__()``.
    alignment, device_alignment : required of the first byte, on the host and on a GPU; 1: none.
    min_ndim, max_ndim : its limits.
    """

    library: str
    where: str
    dtypes: frozenset[str] | None = None
    devices: frozenset[str] = frozenset({"cpu", "cuda"})
    layout: str = "any"
    negative: bool = True
    readonly: bool = False
    reads_later: bool = False
    alignment: int = 1
    device_alignment: int = 1
    min_ndim: int = 0
    max_ndim: int = 64


@dataclass(repr=False, unsafe_hash=True)
class Plan:
    """The predicted outcome of a conversion: ``.shared``, ``.copied`` or ``.refused``, why, and a fix.

    ``.unknown`` if its converter cannot predict the outcome.
    """

    library: str
    outcome: str  # "shared", "copied", "refused" or "unknown"
    reason: str = ""  # a sentence; "" when shared without a remark
    code: str = ""  # the stable error code: "strides", "dtype", "device", ...
    axis: int | None = None
    bytes: int = 0  # that the copy moves
    fix: str = ""  # a call that works; for a copy, a call that makes it unnecessary
    where: str = ""
    got: str = ""
    error: type[errors.GpuInteropError] = errors.ContiguityError
    crosses: str = "copy"  # the kind of copy, as gpuinterop.arrays.copy_tracking names it
    order: str = "C"  # of the copy

    @property
    def shared(self) -> bool:
        return self.outcome == "shared"

    @property
    def copied(self) -> bool:
        return self.outcome == "copied"

    @property
    def refused(self) -> bool:
        return self.outcome == "refused"

    @property
    def unknown(self) -> bool:
        return self.outcome == "unknown"

    def permit(self, copyif: bool) -> Plan:
        """Return this plan, or its refusal if it copies and `copyif` is false."""
        if copyif or not self.copied:
            return self
        download = "to download it" if self.crosses == "device_to_host" else "for a copy"
        fix = f"pass copyif=True, or {self.fix}" if self.fix else f"pass copyif=True {download}"
        return replace(self, outcome="refused", bytes=0, fix=fix)

    def exception(self, where: str = "", fix: str = "") -> errors.GpuInteropError:
        """Return the error of a refusal, with `where` and `fix` instead of those of the plan."""
        return self.error(
            where=where or self.where,
            expected=self.reason,
            got=self.got,
            fix=fix or self.fix,
            reason=self.code,
            axis=self.axis,
        )

    def __str__(self) -> str:
        if self.shared:
            return self._head() + (f"; {self.reason}" if self.reason else "")
        fix = "to share" if self.copied else "fix"
        rows = {"needs": self.reason, "has": self.got, fix: self.fix}
        width = len(fix) + 2 if self.copied else len("needs: ")
        lines = [f"  {word + ':':{width}}{text}" for word, text in rows.items() if text]
        return "\n".join([self._head(), *lines])

    __repr__ = __str__

    def _head(self) -> str:
        size = f" ({self.bytes} bytes)" if self.copied else ""
        return f"{self.where or self.library}: {self.outcome}{size}"


def share(library: str, where: str) -> Plan:
    """Return a plan to share."""
    return Plan(library, "shared", where=where)


def refuse(
    library: str,
    where: str,
    error: type[errors.GpuInteropError],
    reason: str,
    got: str,
    fix: str,
    *,
    code: str = "",
    axis: int | None = None,
) -> Plan:
    """Return a plan to raise, for a fault that no copy fixes."""
    return Plan(library, "refused", reason, code or error.reason, axis, 0, fix, where, got, error)


def refuse_object(
    obj: Any, where: str, error: type[errors.GpuInteropError], code: str, expected: str, got: str, fix: str
) -> Plan:  # fmt: skip
    """Return a plan to raise for an object; `got` may name attributes of it: "{0.dtype}"."""
    return refuse("gpuinterop", where, error, expected, got.format(obj), fix, code=code)


def copy_needed(
    library: str,
    where: str,
    info: ArrayInfo,
    error: type[errors.GpuInteropError],
    reason: str,
    got: str,
    instead: str = "",
    *,
    code: str = "",
    axis: int | None = None,
    order: str = "C",
) -> Plan:
    """Return a plan to copy. `instead` is an imperative for a call that would share, or "".

    `Plan.permit` turns it into a refusal with the same message if copies are not allowed.
    """
    return Plan(
        library, "copied", reason, code or error.reason, axis, info.nbytes, instead, where, got, error,
        "host" if info.device == "cpu" else "copy", order,
    )  # fmt: skip


def plan_from_error(error: errors.GpuInteropError, library: str, where: str) -> Plan:
    """Return the plan of a conversion that is known to raise `error`."""
    return refuse(
        library, where, type(error), error.expected, error.got, error.fix,
        code=error.reason, axis=error.axis,
    )  # fmt: skip


def first_noncontiguous_axis(info: ArrayInfo, order: str = "C") -> int | None:
    """Return the axis whose stride departs from the contiguous order, for messages."""
    return _core._first_gap(info.shape, info.strides, info.itemsize, order == "C")


def plan_layout(info: ArrayInfo, rules: Rules, allow_readonly: bool = False) -> Plan:
    """Plan the conversion of an array to a library, by the library's rules."""
    where, library = rules.where, rules.library
    if rules.dtypes is not None and info.dtype not in rules.dtypes:
        return refuse(
            library, where, errors.DTypeError,
            f"a dtype that {library} has: {', '.join(sorted(rules.dtypes))}",
            f"dtype {info.dtype}", fix_dtype(info.library, info.dtype, rules.dtypes),
        )  # fmt: skip
    least, most = rules.min_ndim, rules.max_ndim
    if not least <= len(info.shape) <= most:
        return refuse(
            library, where, errors.ShapeError,
            f"{most if least == most else f'{least} to {most}'} dimensions, because {library} has no others",
            f"{len(info.shape)} dimensions, shape {info.shape}",
            f"reshape the array, for example x.reshape({'1, ' * (least - 1)}-1)",
        )  # fmt: skip
    if info.device not in rules.devices:
        wanted = "the GPU" if "cuda" in rules.devices else "the host"
        return refuse(
            library, where, errors.DeviceMismatchError,
            f"memory on {wanted}, because {library} has no arrays on other devices",
            info.text(), fix_device(info.library, rules.devices),
        )  # fmt: skip
    order = "F" if rules.layout == "f" else "C"
    axis = None if rules.negative else info.negative_axis
    if axis is not None:
        return copy_needed(
            library, where, info, errors.ContiguityError,
            f"strides that are not negative, because {library} has none",
            f"stride {info.strides[axis]} bytes on axis {axis} of shape {info.shape}",
            _reuse_copy(info, order), axis=axis, order=order,
        )  # fmt: skip
    words, fitting = LAYOUTS[rules.layout]
    if fitting and not any(getattr(info, fits) for fits in fitting):
        axis = first_noncontiguous_axis(info, order)
        breaks = "" if axis is None else f"; axis {axis} breaks the order"
        return copy_needed(
            library, where, info, errors.ContiguityError,
            f"{words}, the layout that {library} shares",
            f"shape {info.shape} with strides {info.strides} (bytes){breaks}",
            _reuse_copy(info, order), axis=axis, order=order,
        )  # fmt: skip
    if info.readonly and info.size and not rules.readonly and not allow_readonly:
        return copy_needed(
            library, where, info, errors.ReadOnlyError,
            f"writable memory, because {library} cannot mark an array read-only and could write to it",
            f"read-only {info.text()}", "pass allow_readonly=True if nothing writes to the result",
        )  # fmt: skip
    alignment = rules.alignment if info.device == "cpu" else rules.device_alignment
    if alignment > 1 and info.size and info.ptr % alignment:
        return copy_needed(
            library, where, info, errors.ContiguityError,
            f"memory aligned to {alignment} bytes, which {library} needs to share it",
            f"address {info.ptr:#x}, {info.ptr % alignment} bytes past a multiple of {alignment}",
            f"{_reuse_copy(info)}, because new arrays are aligned", code="alignment",
        )  # fmt: skip
    return share(library, where)


def _reuse_copy(info: ArrayInfo, order: str = "C") -> str:
    return f"make {copy_line(info.library, order)} once and reuse it"


def plan_out(
    info: ArrayInfo, entry: Backend, copyif: bool, options: dict[str, Any], where: str = ""
) -> Plan:
    """Plan to make an object of the library over the described memory, as if copies were allowed."""
    plan_to = getattr(entry.module, "plan_to", None)
    if plan_to is not None:
        plan: Any = plan_to(info, copyif, **options)
        if not isinstance(plan, Plan):
            require_type(plan, Plan, "a Plan", "plan_to", entry)
    elif hasattr(entry.module, "RULES"):
        plan = plan_layout(info, entry.module.RULES, options.get("allow_readonly", False))
    else:
        plan = Plan(
            entry.name, "unknown", "a converter that can plan", where=f"to_{entry.name}",
            got=f"{entry.module.__name__}, which has no plan_to",
            fix="try the conversion, or add plan_to(info, copyif) to the converter",
        )  # fmt: skip
    result: Plan = replace(plan, where=where) if where else plan
    return result


# The words for a layout, and the properties of `ArrayInfo` of which one must be true.
LAYOUTS: dict[str, tuple[str, tuple[str, ...]]] = {
    "any": ("every layout", ()),
    "c": ("C-contiguous memory", ("c_contiguous",)),
    "f": ("F-contiguous memory", ("f_contiguous",)),
    "forc": ("C- or F-contiguous memory", ("c_contiguous", "f_contiguous")),
    "compact": ("dense memory, in any order of the axes", ("compact",)),
}


@dataclass
class Incoming:
    """The plan to make a gpuinterop array of an object, as if copies were allowed."""

    obj: Any
    plan: Plan
    entry: Any = None  # the Backend of the library, None for an unknown one
    known_info: ArrayInfo | None = None
    array: Any = None  # an array over the memory, if planning required a trial import
    options: dict[str, Any] = field(default_factory=dict)

    @property
    def info(self) -> ArrayInfo:
        """The description of the object's memory."""
        if self.known_info is None:
            info = ArrayInfo.of(self.array)
            if not _core.is_array(self.obj):
                library = "unknown" if self.entry is None else self.entry.name
                info = replace(info, library=library)
            self.known_info = info
        return self.known_info
