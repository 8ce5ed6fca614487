"""What a conversion will do, decided before it is done.

A `Plan` is computed from a description of the array (`ArrayInfo`) and the target's `Rules` alone, without
touching memory, a driver or a stream. `explain()` shows the plan and the converters execute the same
one, so the two cannot disagree.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass, replace
from types import ModuleType

from gpuinterop import errors
from gpuinterop.layout import c_strides
from gpuinterop.option_values import require_bool

__all__ = [
    "ANY_DTYPE",
    "ArrayInfo",
    "Plan",
    "Rules",
    "c_strides",
    "first_noncontiguous_axis",
    "copy_or_refuse",
    "plan_layout",
    "refuse",
    "plan_from_error",
    "share",
]

ANY_DTYPE = None


@dataclass(frozen=True)
class ArrayInfo:
    """An array as seen from outside: no memory is touched to know any of this.

    Strides are in bytes. An array is contiguous where NumPy says so, also with axes of extent 0 or 1.
    `ptr` is the address of element [0, ..., 0].
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
        """Dense in some order of the axes."""
        order = sorted(range(len(self.shape)), key=lambda i: (-self.strides[i], i))
        shape = tuple(self.shape[i] for i in order)
        strides = tuple(self.strides[i] for i in order)
        return replace(self, shape=shape, strides=strides).c_contiguous

    @property
    def negative_axis(self) -> int | None:
        if self.size == 0:
            return None
        for axis, (n, s) in enumerate(zip(self.shape, self.strides, strict=True)):
            if n > 1 and s < 0:
                return axis
        return None

    @property
    def where(self) -> str:
        return "cpu" if self.device == "cpu" else f"{self.device}:{self.index}"

    def text(self) -> str:
        return (
            f"{self.dtype} array of shape {self.shape} with strides {self.strides} (bytes) "
            f"on {self.where}"
        )


@dataclass(frozen=True)
class Rules:
    """What a target can hold without a copy.

    Parameters
    ----------
    library, where : the target's name, and the function that messages name.
    dtypes : names that it has, or None for all of ours.
    devices : "cpu", "cuda" or both.
    layout : "any", "c", "f", "forc" (either) or "compact" (dense in any order of the axes).
    negative : negative strides can be expressed.
    readonly : the target keeps our read-only flag.
    alignment, device_alignment : of the first byte, on the host and on a GPU; 1: does not matter.
    min_ndim, max_ndim : the target's limits.
    """

    library: str
    where: str
    dtypes: frozenset[str] | None = ANY_DTYPE
    devices: frozenset[str] = frozenset({"cpu", "cuda"})
    layout: str = "any"
    negative: bool = True
    readonly: bool = False
    alignment: int = 1
    device_alignment: int = 1
    min_ndim: int = 0
    max_ndim: int = 64


@dataclass(frozen=True, repr=False)
class Plan:
    """What a conversion does: ``.shared``, ``.copied`` or ``.refused``, why, and how to mend it.

    ``.unknown`` when its converter cannot tell.
    """

    library: str
    outcome: str  # "shared", "copied", "refused" or "unknown"
    reason: str = ""  # a sentence; "" when shared without anything to say
    code: str = ""  # the stable word of errors: "strides", "dtype", "device", ...
    axis: int | None = None
    bytes: int = 0  # that the copy moves
    fix: str = ""  # what would work; for a copy, what would make it unnecessary
    where: str = ""
    got: str = ""
    error: type[errors.GpuInteropError] = errors.ContiguityError
    crosses: str = "copy"  # the kind of copy, as gpuinterop.copy_tracking names it

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

    def exception(self) -> errors.GpuInteropError:
        return self.error(
            where=self.where,
            expected=self.reason,
            got=self.got,
            fix=self.fix,
            reason=self.code,
            axis=self.axis,
        )

    def __str__(self) -> str:
        if self.shared:
            return self._head()
        mend = "to share" if self.copied else "fix"
        rows = {"needs": self.reason, "has": self.got, mend: self.fix}
        width = len(mend) + 2 if self.copied else len("needs: ")
        lines = [f"  {word + ':':{width}}{text}" for word, text in rows.items() if text]
        return "\n".join([self._head(), *lines])

    def __repr__(self) -> str:
        parts = [self._head()]
        if not self.shared:
            mend = "to share" if self.copied else "fix"
            parts += [self.got] * bool(self.got) + [f"{mend}: {self.fix}"] * bool(self.fix)
        return f"<{'; '.join(parts)}>"

    def _head(self) -> str:
        head = f"{self.where or self.library}: {self.outcome}"
        return f"{head} ({self.bytes} bytes)" if self.copied else head


def share(library: str, where: str) -> Plan:
    """Plan to share."""
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
    """A refusal that no copy mends."""
    return Plan(library, "refused", reason, code or error.reason, axis, 0, fix, where, got, error)


def plan_from_error(error: errors.GpuInteropError, library: str, where: str) -> Plan:
    """The plan of a conversion that is known to raise `error`."""
    return refuse(
        library, where, type(error), error.expected, error.got, error.fix,
        code=error.reason, axis=error.axis,
    )  # fmt: skip


def first_noncontiguous_axis(facts: ArrayInfo, order: str = "C") -> int | None:
    """The axis whose stride departs from the dense order, for messages."""
    expected = facts.itemsize
    axes: Iterable[int] = range(len(facts.shape))
    for axis in reversed(range(len(facts.shape))) if order == "C" else axes:
        if facts.shape[axis] == 1:
            continue
        if facts.strides[axis] != expected:
            return axis
        expected *= facts.shape[axis]
    return None


def copy_or_refuse(
    rules: Rules,
    facts: ArrayInfo,
    copyif: bool,
    error: type[errors.GpuInteropError],
    reason: str,
    got: str,
    instead: str,
    *,
    code: str = "",
    axis: int | None = None,
    crosses: str = "",
) -> Plan:
    """Copied when `copyif`, otherwise refused with the same words.

    `instead` says what would share, in the imperative; "" when nothing does.
    """
    copyif = require_bool(copyif, "copyif", rules.where)
    if copyif:
        fix = instead
    else:
        fix = f"pass copyif=True, or {instead}" if instead else "pass copyif=True for a copy"
    return Plan(
        rules.library,
        "copied" if copyif else "refused",
        reason,
        code or error.reason,
        axis,
        facts.nbytes if copyif else 0,
        fix,
        rules.where,
        got,
        error,
        crosses or ("host" if facts.device == "cpu" else "copy"),
    )


def plan_layout(facts: ArrayInfo, rules: Rules, copyif: bool, allow_readonly: bool = False) -> Plan:
    """The decision that all libraries have in common."""
    where, library = rules.where, rules.library
    copyif = require_bool(copyif, "copyif", where)
    allow_readonly = require_bool(allow_readonly, "allow_readonly", where)
    if rules.dtypes is not None and facts.dtype not in rules.dtypes:
        known = ", ".join(sorted(rules.dtypes))
        return refuse(
            library,
            where,
            errors.DTypeError,
            f"a dtype that {library} has: {known}",
            f"dtype {facts.dtype}",
            _ways_out().cast(facts, rules.dtypes),
        )
    if not rules.min_ndim <= len(facts.shape) <= rules.max_ndim:
        return refuse(
            library,
            where,
            errors.ShapeError,
            f"{rules.min_ndim} to {rules.max_ndim} dimensions, the limits of {library}",
            f"{len(facts.shape)} dimensions, shape {facts.shape}",
            "reshape the array, for example x.reshape(-1)",
        )
    if facts.device not in rules.devices:
        wanted = "the GPU" if "cuda" in rules.devices else "the host"
        return refuse(
            library,
            where,
            errors.DeviceMismatchError,
            f"memory on {wanted}, the only place where {library} has arrays",
            facts.text(),
            _ways_out().move(facts, rules),
        )
    broken = _layout_fault(facts, rules)
    if broken is not None:
        axis, reason, got = broken
        return copy_or_refuse(
            rules,
            facts,
            copyif,
            errors.ContiguityError,
            reason,
            got,
            f"make {_ways_out().remedy_copy(facts, 'F' if rules.layout == 'f' else 'C')} once and reuse it",
            axis=axis,
        )
    if facts.readonly and facts.size and not rules.readonly and not allow_readonly:
        return copy_or_refuse(
            rules,
            facts,
            copyif,
            errors.ReadOnlyError,
            f"writable memory, because {library} cannot mark an array read-only and could write to it",
            f"read-only {facts.text()}",
            "give allow_readonly=True if nothing writes to it there",
        )
    alignment = rules.alignment if facts.device == "cpu" else rules.device_alignment
    if facts.size and facts.ptr % alignment:
        return copy_or_refuse(
            rules,
            facts,
            copyif,
            errors.ContiguityError,
            f"memory aligned to {alignment} bytes, which {library} needs to share it",
            f"address {facts.ptr:#x}, which is {facts.ptr % alignment} bytes past one",
            f"make {_ways_out().remedy_copy(facts)} once and reuse it: arrays made here are aligned",
            code="alignment",
        )
    return share(library, where)


def _ways_out() -> ModuleType:
    from gpuinterop.converters import ways_out  # it reads the ArrayInfo that are defined here

    return ways_out


def _layout_fault(facts: ArrayInfo, rules: Rules) -> tuple[int | None, str, str] | None:
    layout = rules.layout
    if not rules.negative:
        axis = facts.negative_axis
        if axis is not None:
            return (
                axis,
                f"strides that are not negative, because {rules.library} has none",
                f"stride {facts.strides[axis]} bytes on axis {axis} of shape {facts.shape}",
            )
    if layout == "any":
        return None
    if layout in ("c", "forc", "compact") and facts.c_contiguous:
        return None
    if layout in ("f", "forc") and facts.f_contiguous:
        return None
    if layout == "compact" and facts.compact:
        return None
    words = {
        "c": "C-contiguous memory",
        "f": "F-contiguous memory",
        "forc": "C- or F-contiguous memory",
        "compact": "dense memory, in any order of the axes",
    }
    axis = first_noncontiguous_axis(facts, "F" if layout == "f" else "C")
    got = f"shape {facts.shape} with strides {facts.strides} (bytes)"
    if axis is not None:
        got += f"; axis {axis} breaks the order"
    return axis, f"{words[layout]}, the layout that {rules.library} shares", got
