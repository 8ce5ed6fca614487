"""CUDAMat: column-major float32 matrices on the GPU, and npmat, its stand-in on the host.

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
import sys
import threading
import weakref
from dataclasses import replace
from typing import Any

import numpy

from gpuinterop import _core, errors
from gpuinterop.converters import checks
from gpuinterop.converters.plan import Facts, Plan, Rules, plan_layout, refuse, refused_by
from gpuinterop.geometry import real
from gpuinterop.sources import host_view, refuse_mask

__all__ = [
    "cudamat_to_cudandarray",
    "cudandarray_to_cudamat",
    "describe",
    "from_cudamat",
    "plan_from",
    "plan_to",
    "to_cudamat",
]

_FLOAT32 = frozenset({"float32"})
_LAYOUTS = ("logical", "memory")


def _check_layout(layout: str, where: str) -> None:
    if layout not in _LAYOUTS:
        raise errors.ArgumentTypeError(
            where=where,
            expected="layout 'logical' or 'memory'",
            got=repr(layout),
            fix="see the two in the documentation of gpuinterop.converters.cudamat",
        )


# ---- to CUDAMat ---------------------------------------------------------------------------------


def _rules(where: str, layout: str, trans: bool) -> Rules:
    if layout == "memory":
        kept = "c"
    else:
        kept = "forc" if trans else "f"
    return Rules("cudamat", where, _FLOAT32, layout=kept)


def plan_to(
    x: Any,
    copyif: bool = False,
    allow_readonly: bool = False,
    layout: str = "logical",
    trans: bool = False,
    _where: str = "to_cudamat",
) -> Plan:
    """Plan `to_cudamat`: what explain() shows and the converter carries out."""
    _check_layout(layout, _where)
    facts = checks.facts_of(x)
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
    rules = _rules(_where, layout, trans and on_gpu)
    plan = plan_layout(facts, rules, copyif, allow_readonly)
    if plan.code == "strides" and on_gpu and layout == "logical" and facts.c_contiguous:
        fix = "pass trans=True to share it as a transposed matrix"
        return replace(plan, fix=fix if plan.copied else fix + ", or copyif=True")
    return plan


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
    whose `is_trans` flag is set (many CUDAMat functions refuse that flag). The matrix holds `x` as
    ``_base``. A host array gives an npmat matrix. `module` names the CUDAMat to use, if it is not the
    installed one.

    Raises
    ------
    ContiguityError
        The layout cannot be shared and `copyif` is false.
    ConversionTypeError
        `x` is not one of our arrays, or not two-dimensional.
    """
    checks.require_array(x, _where)
    plan = plan_to(x, copyif, allow_readonly, layout, trans, _where)
    if module is None:
        package = package_for(real(x).device.type)
        module = checks.library_for(plan, "cudamat", package, package)
    elif plan.refused:
        raise plan.exception()
    if plan.copied:
        x = checks.copied(x, _where, "C" if layout == "memory" else "F")
    seen = real(x)
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
    host = host_view(x)
    if layout == "memory":
        host = host.reshape(-1).reshape(host.shape, order="F")
    return npmat_matrix(module, host, x, where)


def npmat_matrix(module: Any, host: Any, owner: Any, where: str) -> Any:
    """An npmat matrix of `module` over a host matrix, holding `owner`."""
    # Constructors of npmat copy what they are given, so the matrix is made small and its array set.
    made = module.CUDAMatrix(numpy.zeros((1, 1), host.dtype, order="F"))
    own = made.numpy_array.dtype
    if own != host.dtype:  # GNUMPY_CPU_PRECISION
        raise errors.DTypeError(
            where=where,
            expected="an npmat of float32, which shares our memory",
            got=f"npmat made an array of dtype {own}",
            fix=_SINGLE,
        )
    made.numpy_array = host
    for name, value in (("mat", host), ("num_elems", host.size)):
        if name in vars(made):  # kept by the constructor, not computed
            setattr(made, name, value)
    seen = made.numpy_array
    if tuple(made.shape) != host.shape or (host.size and not numpy.shares_memory(seen, host)):
        raise errors.ExchangeError(
            where=where,
            expected="an npmat matrix that is what its numpy_array is",
            got=f"shape {tuple(made.shape)} instead of {host.shape}, or memory of its own",
            fix="use the npmat that gnumpy 0.2 brings",
        )
    made._base = owner
    return made


_SINGLE = "set GNUMPY_CPU_PRECISION=32 before gnumpy is imported"


def documents_array(found: Any, where: str, other: str) -> Any:
    """What the documents' converters return: a CudaNdarray, or the reason why there is none."""
    fix = f"set GNUMPY_CPU_PRECISION=32, or take a GpuArray with {other}"
    return checks.float32_only(found, where, fix)


# ---- from CUDAMat -------------------------------------------------------------------------------


def _struct(m: Any) -> Any:
    return getattr(m, "mat", None)


def is_npmat(m: Any) -> bool:
    """Tell whether a matrix is of npmat, on the host."""
    return isinstance(getattr(m, "numpy_array", None), numpy.ndarray) and (
        _struct(m) is None or isinstance(_struct(m), numpy.ndarray)
    )


def address(mat: Any) -> int:
    """Return the device address of a CUDAMat struct."""
    return int(ctypes.cast(mat.data_device, ctypes.c_void_p).value or 0)


def device_of(ptr: int) -> tuple[str, int]:
    """Return where an address of CUDAMat lives."""
    info = _core.pointer_info(ptr) if ptr else None
    return ("cuda", int(info[1])) if info is not None else ("cuda", 0)


def describe(m: Any, layout: str = "logical") -> Facts:
    """Describe the foreign array; nothing is converted."""
    if is_npmat(m):
        from gpuinterop.converters import numpy as host

        found = host.describe(m.numpy_array)
        if layout == "memory":
            # The same bytes in row order: C strides of the same shape over column-major memory.
            rows, columns = found.shape
            strides = (columns * found.itemsize, found.itemsize)
            return Facts(found.shape, strides, found.dtype, found.itemsize, "cpu", 0, found.ptr,
                         found.readonly, "cudamat")  # fmt: skip
        return found
    mat = _struct(m)
    rows, columns = int(mat.size[0]), int(mat.size[1])
    if layout == "memory":
        shape, strides = (rows, columns), (columns * 4, 4)
    elif mat.is_trans:
        shape, strides = (columns, rows), (rows * 4, 4)
    else:
        shape, strides = (rows, columns), (4, rows * 4)
    ptr = address(mat) if rows and columns else 0
    return Facts(shape, strides, "float32", 4, *device_of(ptr), ptr, library="cudamat")


def npmat_fault(host: Any, where: str) -> Plan | None:
    """What of the array inside an npmat matrix no array of ours can show."""
    try:
        refuse_mask(host, where)
    except errors.UnsupportedError as error:
        return refused_by(error, "gpuinterop", where)
    if host.ndim != 2:
        return refuse(
            "gpuinterop", where, errors.ShapeError, "a matrix of two dimensions",
            f"a numpy_array of shape {host.shape}", "reshape m.numpy_array to (rows, columns)",
        )  # fmt: skip
    if not host.dtype.isnative:
        return refuse(
            "gpuinterop", where, errors.DTypeError, "native byte order", f"dtype {host.dtype.str}",
            "convert it once: m.numpy_array = m.numpy_array.astype('float32')",
        )  # fmt: skip
    return None


def gaps(m: Any, where: str) -> Plan | None:
    """A refusal where the elements of an npmat matrix do not lie one beside the other."""
    host = m.numpy_array
    if not host.size or host.flags.c_contiguous or host.flags.f_contiguous:
        return None
    return refuse(
        "gpuinterop", where, errors.ExchangeError, "npmat memory without gaps",
        f"strides {host.strides}", "pass a copy, which the library makes dense",
    )  # fmt: skip


def _oddity(m: Any, where: str, layout: str) -> Plan | None:
    def no(error: type[errors.GpuInteropError], reason: str, got: str, fix: str) -> Plan:
        return refuse("gpuinterop", where, error, reason, got, fix)

    if type(m).__name__ == "TransposedCUDAMatrix" or not (is_npmat(m) or hasattr(m, "shape")):
        return no(
            errors.ConversionTypeError,
            "a CUDAMatrix, which owns or holds its memory",
            "the .T of one, which does neither",
            "convert the matrix and transpose the result: from_cudamat(m).T",
        )
    if is_npmat(m):
        fault = npmat_fault(m.numpy_array, where)
        # Only the other layout has the strides that the array itself has.
        return fault or (gaps(m, where) if layout == "memory" else None)
    mat = _struct(m)
    root = m
    while getattr(root, "sliceof", None) is not None:
        root = root.sliceof
    if not mat.on_device or not _struct(root).on_device:
        freed = "its memory was freed" if not mat.on_host else "it is on the host only"
        return no(
            errors.ExchangeError,
            "a matrix whose values are on the GPU",
            f"a matrix of size ({mat.size[0]}, {mat.size[1]}) that is not: {freed}",
            "call m.copy_to_device() first",
        )
    if root is not m:
        size = int(mat.size[0]) * int(mat.size[1])
        whole = int(_struct(root).size[0]) * int(_struct(root).size[1])
        first = (address(mat) - address(_struct(root))) // 4
        if first < 0 or first + size > whole:
            return no(
                errors.BoundsError,
                f"a slice inside its matrix of {whole} elements",
                f"{size} elements from element {first} on: CUDAMat places slices of a column "
                "vector wrongly",
                "slice here instead: from_cudamat(matrix)[first:last]",
            )
    return None


def plan_from(
    m: Any, copyif: bool = False, layout: str = "logical", _where: str = "from_cudamat"
) -> Plan:
    """Plan `from_cudamat`: what explain() shows and the converter carries out."""
    _check_layout(layout, _where)
    odd = _oddity(m, _where, layout)
    if odd is not None:
        return odd
    facts = describe(m, layout)
    return checks.with_memory(checks.plan_own(facts, _where, copyif), facts)


def from_cudamat(
    m: Any, copyif: bool = False, *, layout: str = "logical", _where: str = "from_cudamat"
) -> Any:
    """Return an array over the memory of the CUDAMatrix `m`; entry (i, j) stays entry (i, j).

    Shares: an F-contiguous view, or a C-contiguous one when `is_trans` is set. The result holds `m`
    (as ``result.base.owner``), and while it lives ``m.free_device_memory()`` does nothing, so the
    memory cannot go away under it. ``cudamat.shutdown()`` ends every allocation of the process on
    that device; nothing can be kept alive across it.
    """
    checks.require_foreign(m, "cudamat", _where, "a cudamat.CUDAMatrix")
    plan = plan_from(m, copyif, layout, _where)
    if plan.refused:
        raise plan.exception()
    owner = checks.Hold(m, m.numpy_array) if is_npmat(m) else _Pin(m)
    return checks.carry_in(plan, describe(m, layout), owner)


_pins: weakref.WeakKeyDictionary[Any, int] = weakref.WeakKeyDictionary()
# A collection inside the lock may end the last look at another matrix, in the same thread.
_pins_lock = threading.RLock()


class _Pin(checks.Hold):
    """Holds a CUDAMatrix and keeps it from freeing its memory while it is looked at.

    CUDAMat frees on request, whoever looks: with `owns_data` off, the request does nothing. When the
    last look ends the matrix owns its memory again.
    """

    __slots__ = ("root",)

    def __init__(self, matrix: Any) -> None:
        super().__init__(matrix)
        root = matrix
        while getattr(root, "sliceof", None) is not None:
            root = root.sliceof
        self.root = root
        with _pins_lock:
            count = _pins.get(root, 0)
            if count or root.mat.owns_data:
                root.mat.owns_data = 0
                _pins[root] = count + 1
            else:
                self.root = None  # somebody else's memory already

    def __del__(self) -> None:
        root = getattr(self, "root", None)
        if root is None or sys.is_finalizing():
            return
        with _pins_lock:
            count = _pins.get(root, 0) - 1
            if count > 0:
                _pins[root] = count
            else:
                _pins.pop(root, None)
                root.mat.owns_data = 1


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
