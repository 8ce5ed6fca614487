"""CUDAMat: column-major float32 matrices on the GPU; on the host those of npmat, its stand-in.

A CUDAMatrix holds ``size = (rows, columns)``, stores columns one after the other, and has a flag
`is_trans` that swaps the meaning without moving data. Two layouts are offered:

* ``layout="logical"``: entry (i, j) here is entry (i, j) there. F-contiguous matrices and vectors
  share; C-contiguous ones share with ``trans=True``, which sets the flag; others are copied.
* ``layout="memory"``: the documents' rule, default of the documents' two names. The shape is kept
  and the memory too, so a row-major matrix appears there as the column-major reading of the same
  bytes. A round trip is exact and elementwise work is right, rows and columns are not.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from dataclasses import replace
from typing import Any, NamedTuple

from gpuinterop import _core, errors
from gpuinterop.converters import checks, npmat, registry
from gpuinterop.converters import numpy as numpys
from gpuinterop.converters.cudamat_struct import Pin, Struct, device_of, read_struct
from gpuinterop.converters.plan import ArrayInfo, Plan, Rules, plan_from_error, plan_layout, refuse
from gpuinterop.host_views import as_numpy_view
from gpuinterop.layout import core_view

__all__ = [
    "cudamat_to_cudandarray",
    "cudandarray_to_cudamat",
    "describe",
    "from_cudamat",
    "plan_from",
    "plan_to",
    "to_cudamat",
    "stream_used_by",
]

_FLOAT32 = frozenset({"float32"})
_LAYOUTS = ("logical", "memory")


def _check_layout(layout: Any, where: str) -> None:
    if not isinstance(layout, str) or layout not in _LAYOUTS:
        raise errors.ArgumentTypeError(
            where=where,
            expected="layout 'logical' or 'memory'",
            got=errors.short_repr(layout),
            fix="see the two in the documentation of gpuinterop.converters.cudamat",
        )


# ---- to CUDAMat ---------------------------------------------------------------------------------


def _rules(where: str, layout: str, trans: bool, module: Any) -> Rules:
    if layout == "memory":
        kept = "c"
    else:
        kept = "forc" if trans else "f"
    rules = Rules("cudamat", where, _FLOAT32, layout=kept)
    if module is None:  # the one for the array's device
        return rules
    place = "cuda" if hasattr(module, "cudamat") else "cpu"
    return replace(rules, devices=frozenset({place}))


def plan_to(
    x: Any,
    copyif: bool = False,
    allow_readonly: bool = False,
    layout: str = "logical",
    trans: bool = False,
    module: Any = None,
    _where: str = "to_cudamat",
) -> Plan:
    """Plan `to_cudamat`: what explain() shows and the converter carries out."""
    _check_layout(layout, _where)
    checks.require_module(module, "CUDAMatrix", _where, "CUDAMat or npmat")
    facts = checks.describe_array(x)
    if len(facts.shape) != 2:
        return refuse(
            "cudamat", _where, errors.ConversionTypeError,
            "two dimensions, the only ones that CUDAMat has",
            f"{len(facts.shape)} dimensions, shape {facts.shape}", "x.reshape(rows, columns)",
        )  # fmt: skip
    if max(facts.shape) >= 1 << 31:
        return refuse(
            "cudamat", _where, errors.ShapeError, "extents that fit CUDAMat's 32-bit sizes",
            f"shape {facts.shape}", "convert the matrix in parts",
        )  # fmt: skip
    on_gpu = facts.device == "cuda"  # npmat has no flag for a transposed matrix
    rules = _rules(_where, layout, trans and on_gpu, module)
    plan = plan_layout(facts, rules, copyif, allow_readonly)
    if plan.code == "strides" and on_gpu and layout == "logical" and facts.c_contiguous:
        fix = "pass trans=True to share it as a transposed matrix"
        return replace(plan, fix=fix if plan.copied else fix + ", or copyif=True")
    if plan.refused or on_gpu:
        return plan
    return _precision_fault(module, _where) or plan


def _precision_fault(module: Any, where: str) -> Plan | None:
    if module is None:
        if not registry.installed("npmat"):  # which is told next
            return None
        try:
            module = registry.load("cudamat", where, "npmat")
        except errors.MissingLibraryError:
            return None
    return npmat.precision_fault(module, "cudamat", where)


def stream_used_by(index: int, array: Any = None) -> int:
    """The stream on which the library uses memory, by its handle."""
    return checks.LEGACY


def package_for(device: str) -> str:
    """The package that has the matrices of a device."""
    return "npmat" if device == "cpu" else "cudamat"


def to_cudamat(
    x: Any,
    copyif: bool = False,
    *,
    allow_readonly: bool = False,
    layout: str = "logical",
    trans: bool = False,
    module: Any = None,
    _where: str = "to_cudamat",
) -> Any:
    """Return a CUDAMatrix over the memory of `x`; entry (i, j) stays entry (i, j).

    Shares F-contiguous matrices and all vectors; C-contiguous ones with ``trans=True``, as a matrix
    whose `is_trans` flag is set (many CUDAMat functions refuse that flag). Copies other layouts, and
    read-only memory, with ``copyif=True`` (``allow_readonly=True`` shares the latter). The dtype is
    float32, which CUDAMat has alone. Its default stream waits for what is queued on `x`. The matrix
    holds `x` as ``_base``. Writes on either side are seen by the other. A host array gives an npmat
    matrix. `module` names the CUDAMat, or for host arrays the npmat, to use, if it is not the
    installed one.

    Raises
    ------
    ContiguityError
        The layout cannot be shared and `copyif` is false.
    ConversionTypeError
        `x` is not one of our arrays, or not two-dimensional.
    """
    checks.require_array(x, _where)
    plan = plan_to(x, copyif, allow_readonly, layout, trans, module, _where)
    if module is None:
        package = package_for(core_view(x).device.type)
        module = checks.library_for(plan, "cudamat", package, package)
    elif plan.refused:
        raise plan.exception()
    if plan.copied:
        x = checks.copied(x, _where, "C" if layout == "memory" else "F")
    seen = core_view(x)
    rows, columns = seen.shape
    transposed = layout == "logical" and not seen.is_f_contiguous()
    if not hasattr(module, "cudamat"):
        return _npmat_over(x, module, layout, _where)
    _core.hand_over(x, checks.LEGACY, _where)
    if transposed:
        rows, columns = columns, rows
    return wrap(module, seen.ptr, rows, columns, x, is_trans=transposed)


def wrap(module: Any, ptr: int, rows: int, columns: int, owner: Any, is_trans: bool = False) -> Any:
    """A CUDAMatrix of `module` over an address, holding `owner`."""
    mat = module.cudamat()
    mat.size[0], mat.size[1] = rows, columns
    mat.on_host, mat.on_device = 0, 1
    mat.is_trans, mat.owns_data = int(is_trans), 0
    mat.data_device = ctypes.cast(ctypes.c_void_p(ptr), ctypes.POINTER(ctypes.c_float))
    made = module.CUDAMatrix(mat)
    made._base = owner
    made.mat_on_host = False  # the documents' converter set it; nothing reads it
    if getattr(made, "T", None) is not None:
        # The transposed twin copies the struct and knows nothing of its parent: it needs the owner
        # as well. Made by the constructor, it does not have the flag of a transposed matrix right.
        made.T._base = owner
    return made


def _npmat_over(x: Any, module: Any, layout: str, where: str) -> Any:
    host = as_numpy_view(x)
    if layout == "memory":
        host = host.reshape(-1).reshape(host.shape, order="F")
    return npmat.matrix_over(module, host, x, where)


def documents_array(found: Any, where: str, other: str) -> Any:
    """What the documents' converters return: a CudaNdarray, or the reason why there is none."""
    fix = f"set GNUMPY_CPU_PRECISION=32, or take a GpuArray with {other}"
    return checks.float32_only(found, where, fix)


# ---- from CUDAMat -------------------------------------------------------------------------------


def describe(m: Any, layout: str = "logical") -> ArrayInfo:
    """Describe the foreign array; nothing is converted."""
    host, mat = npmat.inside(m)
    if host is not None:
        return npmat.describe(numpys.plain(host), layout)
    return _describe_struct(read_struct(mat, "from_cudamat"), layout)


def _describe_struct(seen: Struct, layout: str) -> ArrayInfo:
    rows, columns = seen.rows, seen.columns
    if layout == "memory":
        shape, strides = (rows, columns), (columns * 4, 4)
    elif seen.is_trans:
        shape, strides = (columns, rows), (rows * 4, 4)
    else:
        shape, strides = (rows, columns), (4, rows * 4)
    ptr = seen.ptr if seen.size else 0
    return ArrayInfo(shape, strides, "float32", 4, *device_of(ptr), ptr, library="cudamat")


def _root_of(m: Any, mat: Any) -> tuple[Any, Any]:
    """The matrix whose memory `m` is a slice of, itself if of none, and that one's struct."""
    root, passed = m, {id(m)}
    while True:
        above = getattr(root, "sliceof", None)
        if above is None or id(above) in passed:
            return root, mat if root is m else npmat.inside(root)[1]
        root = above
        passed.add(id(above))


def _oddity(seen: Struct, whole: Struct, where: str) -> Plan | None:
    if not seen.on_device or not whole.on_device:
        freed = "its memory was freed" if not seen.on_host else "it is on the host only"
        return refuse(
            "gpuinterop", where, errors.ExchangeError,
            "a matrix whose values are on the GPU",
            f"a matrix of size ({seen.rows}, {seen.columns}) that is not: {freed}",
            "call m.copy_to_device() first",
        )  # fmt: skip
    first = (seen.ptr - whole.ptr) // 4
    if seen is not whole and (first < 0 or first + seen.size > whole.size):
        return refuse(
            "gpuinterop", where, errors.BoundsError,
            f"a slice inside its matrix of {whole.size} elements",
            f"{seen.size} elements from element {first} on: CUDAMat places slices of a column "
            "vector wrongly",
            "slice here instead: from_cudamat(matrix)[first:last]",
        )  # fmt: skip
    return None


class _Look(NamedTuple):
    """One look at a matrix: what is planned, carried out and held is what was seen then."""

    plan: Plan
    facts: ArrayInfo | None = None
    hold: Callable[[], Any] | None = None


def _look(m: Any, copyif: bool, layout: str, where: str) -> _Look:
    _check_layout(layout, where)
    host, mat = npmat.inside(m)
    if type(m).__name__ == "TransposedCUDAMatrix" or (host is None and not hasattr(m, "shape")):
        return _Look(refuse(
            "gpuinterop", where, errors.ConversionTypeError,
            "a CUDAMatrix, which owns or holds its memory",
            "the .T of one, which does neither",
            "convert the matrix and transpose the result: from_cudamat(m).T",
        ))  # fmt: skip
    if host is not None:
        odd = npmat.fault(host, where)
        array = numpys.plain(host)
        # Only the other layout has the strides that the array itself has.
        if odd is None and layout == "memory":
            odd = npmat.gaps(array, where)
        if odd is not None:
            return _Look(odd)
        facts = npmat.describe(array, layout)
        return _Look(checks.plan_own(facts, where, copyif), facts, lambda: checks.Hold(m, array))
    seen = read_struct(mat, where)
    root, root_mat = _root_of(m, mat)
    whole = seen if root is m else read_struct(root_mat, where)
    odd = _oddity(seen, whole, where)
    if odd is not None:
        return _Look(odd)
    facts = _describe_struct(seen, layout)
    plan = checks.with_memory(checks.plan_own(facts, where, copyif), facts)
    return _Look(plan, facts, lambda: Pin(m, root, whole.source))


def plan_from(
    m: Any, copyif: bool = False, layout: str = "logical", _where: str = "from_cudamat"
) -> Plan:
    """Plan `from_cudamat`: what explain() shows and the converter carries out."""
    try:
        return _look(m, copyif, layout, _where).plan
    except errors.ArgumentTypeError:
        raise
    except errors.GpuInteropError as e:
        return plan_from_error(e, "gpuinterop", _where)


def from_cudamat(
    m: Any, copyif: bool = False, *, layout: str = "logical", _where: str = "from_cudamat"
) -> Any:
    """Return an array over the memory of the CUDAMatrix `m`; entry (i, j) stays entry (i, j).

    Shares: an F-contiguous view, or a C-contiguous one when `is_trans` is set. With ``copyif=True``
    copies an npmat matrix whose elements are off their alignment; nothing else needs it. The dtype is
    float32, that of its array for an npmat matrix. What CUDAMat has queued on the default stream is
    visible here. The result holds `m` (as ``result.base.owner``), and while it lives
    ``m.free_device_memory()`` does nothing, so the memory cannot go away under it;
    ``cudamat.shutdown()`` ends every allocation of the process on that device, and nothing can be
    kept alive across it. Writes on either side are seen by the other.
    """
    checks.require_foreign(m, "cudamat", _where, "a cudamat.CUDAMatrix")
    plan, facts, hold = _look(m, copyif, layout, _where)
    if plan.refused or facts is None or hold is None:
        raise plan.exception()
    return checks.execute_import(plan, facts, hold())


# ---- the documents' names -----------------------------------------------------------------------


def cudandarray_to_cudamat(
    x: Any, copyif: bool = False, *, layout: str = "memory", module: Any = None
) -> Any:
    """The documents' converter: a CUDAMatrix over the memory of a C-contiguous `x`.

    As in the documents the shape and the bytes are kept, so rows and columns change meaning:
    CUDAMat's entry (i, j) is ``memory[i + j * rows]``. ``layout="logical"`` keeps the meaning, as
    `to_cudamat` does. ValueError when `x` is not C-contiguous and `copyif` is false.
    """
    return to_cudamat(x, copyif, layout=layout, module=module, _where="cudandarray_to_cudamat")


def cudamat_to_cudandarray(x: Any, copyif: bool = False, *, layout: str = "memory") -> Any:
    """The documents' converter: a C-contiguous CudaNdarray over the memory of a CUDAMatrix.

    The inverse of `cudandarray_to_cudamat`, with the same reading of rows and columns;
    ``layout="logical"`` keeps the meaning, as `from_cudamat` does.
    """
    where = "cudamat_to_cudandarray"
    found = from_cudamat(x, copyif, layout=layout, _where=where)
    return documents_array(found, where, "from_cudamat")
