"""CUDAMat: column-major float32 matrices on the GPU; on the host those of npmat, gnumpy's replacement for it.

A CUDAMatrix holds ``size = (rows, columns)``, stores columns one after the other, and has a flag `is_trans`
that swaps the meaning without moving data. Two layouts are offered:

* ``layout="logical"``: entry (i, j) of the array is entry (i, j) of the matrix. F-contiguous matrices and
  vectors share; C-contiguous ones share with ``trans=True``, which sets the flag; others are copied.
* ``layout="memory"``: the Theano tutorials' rule, default of their two names. The shape and the memory are
  kept, so a row-major matrix appears in CUDAMat as the column-major reading of the same bytes.
"""

from __future__ import annotations

import ctypes
import sys
import threading
from dataclasses import replace
from typing import Any, NamedTuple

import numpy

from gpuinterop import _core, errors
from gpuinterop.converters import numpy as numpys
from gpuinterop.converters import registry
from gpuinterop.converters.foreign_layout import (
    LEGACY,
    OwnerGroup,
    device_of_address,
    import_memory,
    read_shape,
)
from gpuinterop.converters.foreign_layout import legacy_stream as stream_used_by
from gpuinterop.converters.plan import ArrayInfo, Plan, Rules, plan_layout, refuse
from gpuinterop.converters.suggested_fixes import cast_line
from gpuinterop.host_views import as_numpy_view, refuse_mask
from gpuinterop.layout import core_view

__all__ = ["RULES", "adopt", "describe", "export", "plan_to", "stream_used_by"]

ARRAY = "a cudamat.CUDAMatrix"
STREAM = "CUDAMat's default stream"
IMPORTS = {"cpu": "npmat", "cuda": "cudamat"}
FROM_OPTIONS = {"layout": "logical"}
TO_NOTE = """Entry (i, j) of `x` is entry (i, j) of the matrix. C-contiguous matrices are shared with
``trans=True``, as a matrix whose `is_trans` flag is set; many CUDAMat functions refuse that flag. The matrix
holds `x` as ``_base``. A host array gives an npmat matrix. `module` names the CUDAMat, or for host arrays the
npmat, to use, if it is not the installed one."""
FROM_NOTE = """The result holds `obj` (as ``result.base.owner``), and while it exists
``obj.free_device_memory()`` does nothing, so the memory cannot be freed. ``cudamat.shutdown()`` ends every
allocation of the process on that device; no array can be kept alive across it."""

_LAYOUTS = ("logical", "memory")
RULES = Rules(
    "cudamat", "to_cudamat", frozenset({"float32"}), layout="f", min_ndim=2, max_ndim=2
)  # fmt: skip


def _check_layout(layout: Any, where: str) -> None:
    if not isinstance(layout, str) or layout not in _LAYOUTS:
        raise errors.ArgumentTypeError(
            where=where,
            expected="layout 'logical' or 'memory'",
            got=errors.short_repr(layout),
            fix="see the two in the documentation of gpuinterop.converters.cudamat",
        )


# ---- to CUDAMat ---------------------------------------------------------------------------------


def plan_to(
    info: ArrayInfo,
    copyif: bool = False,
    allow_readonly: bool = False,
    layout: str = "logical",
    trans: bool = False,
    module: Any = None,
) -> Plan:
    """Plan a conversion to CUDAMat or, for a host array, to npmat."""
    where = "to_cudamat"
    _check_layout(layout, where)
    check_module(module, "CUDAMatrix", where, "CUDAMat or npmat")
    if len(info.shape) != 2:
        return refuse(
            "cudamat", where, errors.ConversionTypeError,
            "two dimensions, the only ones that CUDAMat has",
            f"{len(info.shape)} dimensions, shape {info.shape}", "x.reshape(rows, columns)",
        )  # fmt: skip
    if max(info.shape) >= 1 << 31:
        return refuse(
            "cudamat", where, errors.ShapeError, "extents that fit CUDAMat's 32-bit sizes",
            f"shape {info.shape}", "convert the matrix in parts",
        )  # fmt: skip
    on_gpu = info.device == "cuda"  # npmat has no flag for a transposed matrix
    kept = "c" if layout == "memory" else "forc" if trans and on_gpu else "f"
    rules = replace(RULES, layout=kept)
    if module is not None:  # else the one for the array's device
        place = "cuda" if hasattr(module, "cudamat") else "cpu"
        rules = replace(rules, devices=frozenset({place}))
    plan = plan_layout(info, rules, allow_readonly)
    if layout == "logical":
        plan = replace(plan, order="F")
    if plan.code == "strides" and on_gpu and layout == "logical" and info.c_contiguous:
        return replace(plan, fix="pass trans=True to share it as a transposed matrix")
    if plan.refused or on_gpu:
        return plan
    try:
        module = module or registry.load("cudamat", where, "npmat")
    except errors.MissingLibraryError:  # which is the next error
        return plan
    return precision_fault(module, "cudamat", where) or plan


def check_module(module: Any, name: str, where: str, library: str) -> None:
    """Refuse as option `module` a module without the class of the library."""
    if module is not None and not hasattr(module, name):
        raise errors.ArgumentTypeError(
            where=where,
            expected=f"as module {library}, with its {name}",
            got=errors.short_repr(module),
            fix="omit module for the one that is installed",
        )


def export(x: Any, module: Any, layout: str = "logical") -> Any:
    """Return a matrix over the memory of `x`: of CUDAMat, or of npmat for a host array."""
    seen = core_view(x)
    if not hasattr(module, "cudamat"):
        host = as_numpy_view(x)
        if layout == "memory":
            host = host.reshape(-1).reshape(host.shape, order="F")
        return matrix_over(module, host, x, "to_cudamat")
    _core.hand_over(x, LEGACY, "to_cudamat")
    transposed = layout == "logical" and not seen.is_f_contiguous()
    rows, columns = seen.shape[::-1] if transposed else seen.shape
    return wrap(module, seen.ptr, rows, columns, x, is_trans=transposed)


def wrap(module: Any, ptr: int, rows: int, columns: int, owner: Any, is_trans: bool = False) -> Any:
    """Return a CUDAMatrix of `module` over an address, holding `owner`."""
    mat = module.cudamat()
    mat.size[0], mat.size[1] = rows, columns
    mat.on_host, mat.on_device = 0, 1
    mat.is_trans, mat.owns_data = int(is_trans), 0
    mat.data_device = ctypes.cast(ctypes.c_void_p(ptr), ctypes.POINTER(ctypes.c_float))
    made = module.CUDAMatrix(mat)
    made._base = owner
    made.mat_on_host = False  # the tutorials' converter set it; nothing reads it
    if getattr(made, "T", None) is not None:
        # The transposed twin copies the struct and knows nothing of its parent: it needs the owner
        # as well. Made by the constructor, it does not have the flag of a transposed matrix right.
        made.T._base = owner
    return made


# ---- the struct in a CUDAMatrix -----------------------------------------------------------------


class Struct(NamedTuple):
    """The fields of a CUDAMat struct, read once."""

    source: Any
    rows: int
    columns: int
    is_trans: bool
    on_host: bool
    on_device: bool
    ptr: int

    @property
    def size(self) -> int:
        return self.rows * self.columns


def read_struct(mat: Any, where: str) -> Struct:
    """Read the struct of a matrix, and refuse invalid sizes and addresses."""
    rows, columns = read_shape((mat.size[0], mat.size[1]), 4, where)
    return Struct(
        mat, rows, columns, bool(mat.is_trans), bool(mat.on_host), bool(mat.on_device),
        address(mat.data_device, where),
    )  # fmt: skip


def address(pointer: Any, where: str = "from_cudamat") -> int:
    """Return the device address that a struct's pointer holds."""
    try:
        return int(ctypes.cast(pointer, ctypes.c_void_p).value or 0)
    except (ctypes.ArgumentError, TypeError, ValueError):
        raise errors.ExchangeError(
            where=where,
            expected="data_device as a pointer of ctypes",
            got=errors.short_repr(pointer),
            fix="cast the address: ctypes.cast(address, ctypes.POINTER(ctypes.c_float))",
        ) from None


# How many guards a matrix has, by its id: each of them holds it. Not by its value, because a class may
# compare elements or have no hash.
_guards: dict[int, int] = {}
# A collection inside the lock may destroy the last guard of another matrix, in the same thread.
_guards_lock = threading.RLock()


class FreeGuard(OwnerGroup):
    """Holds a CUDAMatrix and keeps it from freeing its memory while an array shares that memory.

    CUDAMat frees on request, whether the memory is in use or not: with `owns_data` off, the request does
    nothing. Without guards the matrix owns its memory again. `struct` is that of `root`, whose memory it is.
    """

    __slots__ = ("root", "struct")

    def __init__(self, matrix: Any, root: Any, struct: Any) -> None:
        super().__init__(matrix)
        self.root, self.struct = None, struct
        with _guards_lock:
            count = _guards.get(id(root), 0)
            if count or struct.owns_data:  # else the memory has another owner already
                struct.owns_data = 0
                _guards[id(root)] = count + 1
                self.root = root

    def __del__(self) -> None:
        root = getattr(self, "root", None)
        if root is None or sys.is_finalizing():
            return
        with _guards_lock:
            count = _guards.pop(id(root), 0) - 1
            if count > 0:
                _guards[id(root)] = count
            else:
                self.struct.owns_data = 1


# ---- from CUDAMat -------------------------------------------------------------------------------


def _root_of(m: Any, mat: Any) -> tuple[Any, Any]:
    """Return the matrix whose memory `m` is a slice of, or itself, and the struct of that matrix."""
    root, passed = m, {id(m)}
    while (above := getattr(root, "sliceof", None)) is not None and id(above) not in passed:
        root = above
        passed.add(id(above))
    return root, mat if root is m else inside(root)[1]


def describe(m: Any, layout: str = "logical") -> ArrayInfo:
    """Describe a matrix of CUDAMat or of npmat; the owner is what `adopt` needs of it."""
    where = "from_cudamat"
    _check_layout(layout, where)
    host, mat = inside(m)
    if type(m).__name__ == "TransposedCUDAMatrix" or (host is None and not hasattr(m, "shape")):
        raise errors.ConversionTypeError(
            where=where,
            expected="a CUDAMatrix, which owns or holds its memory",
            got="the .T of one, which does neither",
            fix="convert the matrix and transpose the result: from_cudamat(m).T",
        )
    if host is not None:
        return _describe_host(m, host, layout, where)
    seen = read_struct(mat, where)
    root, root_mat = _root_of(m, mat)
    whole = seen if root is m else read_struct(root_mat, where)
    _check_struct(seen, whole, where)
    rows, columns = seen.rows, seen.columns
    if layout == "memory":
        shape, strides = (rows, columns), (columns * 4, 4)
    elif seen.is_trans:
        shape, strides = (columns, rows), (rows * 4, 4)
    else:
        shape, strides = (rows, columns), (4, rows * 4)
    ptr = seen.ptr if seen.size else 0
    return ArrayInfo(
        shape, strides, "float32", 4, *device_of_address(ptr), ptr, library="cudamat",
        owner=(root, whole.source),
    )  # fmt: skip


def _describe_host(m: Any, host: Any, layout: str, where: str) -> ArrayInfo:
    # Only the logical layout has the strides of the array itself.
    array = plain_host(host, where, contiguous=layout == "memory")
    info = replace(numpys.describe(array), library="cudamat", owner=OwnerGroup(m, array))
    if layout == "memory":  # the same bytes in row order: C strides over column-major memory
        info = replace(info, strides=(info.shape[1] * info.itemsize, info.itemsize))
    return info


def _check_struct(seen: Struct, whole: Struct, where: str) -> None:
    if not seen.on_device or not whole.on_device:
        freed = "its memory was freed" if not seen.on_host else "it is on the host only"
        raise errors.ExchangeError(
            where=where,
            expected="a matrix whose values are on the GPU",
            got=f"a matrix of size ({seen.rows}, {seen.columns}) that is not: {freed}",
            fix="call m.copy_to_device() first",
        )
    first = (seen.ptr - whole.ptr) // 4
    if seen is not whole and (first < 0 or first + seen.size > whole.size):
        raise errors.BoundsError(
            where=where,
            expected=f"a slice inside its matrix of {whole.size} elements",
            got=f"{seen.size} elements from element {first} on: CUDAMat places slices of a column "
            "vector wrongly",
            fix="slice the array instead: from_cudamat(matrix)[first:last]",
        )


def adopt(m: Any, info: ArrayInfo, plan: Plan) -> Any:
    """Return an array over the memory of a matrix, which is kept from freeing that memory."""
    if isinstance(info.owner, tuple):
        info = replace(info, owner=FreeGuard(m, *info.owner))
    return import_memory(m, info, plan)


# ---- npmat, whose matrices are NumPy arrays on the host -----------------------------------------

_SINGLE = "set GNUMPY_CPU_PRECISION=32 before gnumpy is imported"


def _small(module: Any) -> Any:
    return module.CUDAMatrix(numpy.zeros((1, 1), numpy.float32, order="F"))


def precision_fault(module: Any, library: str, where: str) -> Plan | None:
    """Refuse npmat matrices that are not float32; gnumpy's CPU mode sets their precision."""
    own = _small(module).numpy_array.dtype
    if own == numpy.float32:
        return None
    return refuse(
        library, where, errors.DTypeError, "an npmat of float32, which can share the memory",
        f"npmat made an array of dtype {own}", _SINGLE,
    )  # fmt: skip


def matrix_over(module: Any, host: Any, owner: Any, where: str) -> Any:
    """Return an npmat matrix of `module` over a host matrix, holding `owner`."""
    # Constructors of npmat copy what they are given, so the matrix is made small and its array set.
    made = _small(module)
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


def inside(m: Any) -> tuple[Any, Any]:
    """Return the array in an npmat matrix and None, or None and the struct in a CUDAMatrix.

    Each attribute is read once, because a property may return another object the next time.
    """
    host, struct = getattr(m, "numpy_array", None), getattr(m, "mat", None)
    if _is_array(host) and (struct is None or _is_array(struct)):
        return host, None
    return None, struct


def _is_array(found: Any) -> bool:
    return issubclass(type(found), numpy.ndarray)  # an object may report any class


def plain_host(host: Any, where: str, contiguous: bool) -> numpy.ndarray[Any, Any]:
    """Return the array in an npmat matrix, if it has no mask, native byte order and two dimensions."""
    refuse_mask(host, where)
    seen = numpys.plain(host)
    if seen.ndim != 2:
        raise errors.ShapeError(
            where=where,
            expected="a matrix of two dimensions",
            got=f"a numpy_array of shape {seen.shape}",
            fix="reshape m.numpy_array to (rows, columns)",
        )
    if not seen.dtype.isnative:
        native = cast_line("numpy", "float32", "m.numpy_array")
        raise errors.DTypeError(
            where=where,
            expected="native byte order",
            got=f"dtype {seen.dtype.str}",
            fix=f"convert it once: m.numpy_array = {native}",
        )
    if contiguous and seen.size and not (seen.flags.c_contiguous or seen.flags.f_contiguous):
        raise errors.ExchangeError(
            where=where,
            expected="npmat memory without gaps",
            got=f"strides {seen.strides}",
            fix="pass a copy, which the library makes dense",
        )
    return seen
