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
from typing import Any

import numpy

from gpuinterop import _core, errors
from gpuinterop.arrays.core_view import core_view
from gpuinterop.arrays.numpy_views import as_numpy_view
from gpuinterop.converters import numpy as numpys
from gpuinterop.errors.messages import not_one_of
from gpuinterop.exchange.foreign_memory import LEGACY, OwnerGroup, device_of_address, import_memory
from gpuinterop.exchange.plan import ArrayInfo, Plan, Rules, plan_layout, refuse

ARRAY = "a cudamat.CUDAMatrix"
STREAM = "CUDAMat's default stream"
IMPORTS = {"cpu": "npmat", "cuda": "cudamat"}
FROM_OPTIONS = {"layout": "logical"}
TO_NOTE = """Entry (i, j) of `x` is entry (i, j) of the matrix. C-contiguous matrices are shared with
``trans=True``, as a matrix whose `is_trans` flag is set; many CUDAMat functions refuse that flag. The matrix
holds `x` as ``_base``. A host array gives an npmat matrix."""
FROM_NOTE = """The result holds `obj` (as ``result.base.owner``), and while it exists
``obj.free_device_memory()`` does nothing, so the memory cannot be freed. ``cudamat.shutdown()`` ends every
allocation of the process on that device; no array can be kept alive across it."""

_LAYOUTS = ("logical", "memory")
RULES = Rules(
    "cudamat", "to_cudamat", frozenset({"float32"}), layout="f", min_ndim=2, max_ndim=2
)  # fmt: skip


def _check_layout(layout: Any, where: str) -> None:
    if not isinstance(layout, str) or layout not in _LAYOUTS:
        fix = "see the two in the documentation of gpuinterop.converters.cudamat"
        raise not_one_of(where, "layout", _LAYOUTS, layout, fix)


# ---- to CUDAMat ---------------------------------------------------------------------------------


def plan_to(
    info: ArrayInfo,
    copyif: bool = False,
    allow_readonly: bool = False,
    layout: str = "logical",
    trans: bool = False,
) -> Plan:
    """Plan a conversion to CUDAMat or, for a host array, to npmat."""
    where = "to_cudamat"
    _check_layout(layout, where)
    if len(info.shape) != 2 or max(info.shape) >= 1 << 31:  # its sizes have 32 bits
        return refuse(
            "cudamat", where, errors.ConversionTypeError,
            "two dimensions of less than 2**31, the only ones that CUDAMat has",
            f"{len(info.shape)} dimensions, shape {info.shape}", "x.reshape(rows, columns)",
        )  # fmt: skip
    on_gpu = info.device == "cuda"  # npmat has no flag for a transposed matrix
    kept = "c" if layout == "memory" else "forc" if trans and on_gpu else "f"
    plan = plan_layout(info, replace(RULES, layout=kept), allow_readonly)
    if layout == "logical":
        plan = replace(plan, order="F")
        if plan.code == "strides" and on_gpu and info.c_contiguous:
            return replace(plan, fix="pass trans=True to share it as a transposed matrix")
    return plan


def export(x: Any, module: Any, layout: str = "logical") -> Any:
    """Return a matrix over the memory of `x`: of CUDAMat, or of npmat for a host array."""
    view = core_view(x)
    if not hasattr(module, "cudamat"):
        host = as_numpy_view(x)
        if layout == "memory":
            host = host.reshape(-1).reshape(host.shape, order="F")
        return matrix_over(module, host, x)
    _core.hand_over(x, LEGACY, "to_cudamat")
    transposed = layout == "logical" and not view.is_f_contiguous()
    rows, columns = view.shape[::-1] if transposed else view.shape
    return wrap(module, view.ptr, rows, columns, x, is_trans=transposed)


def wrap(module: Any, ptr: int, rows: int, columns: int, owner: Any, is_trans: bool = False) -> Any:
    """Return a CUDAMatrix of `module` over an address, holding `owner`."""
    mat = module.cudamat()
    mat.size[0], mat.size[1] = rows, columns
    mat.on_host, mat.on_device = 0, 1
    mat.is_trans, mat.owns_data = int(is_trans), 0
    mat.data_device = ctypes.cast(ctypes.c_void_p(ptr), ctypes.POINTER(ctypes.c_float))
    matrix = module.CUDAMatrix(mat)
    matrix._base = owner
    if getattr(matrix, "T", None) is not None:
        # The transposed matrix copies the struct without a reference to its parent, so it needs the owner
        # too. The constructor does not set its flag for a transposed matrix correctly.
        matrix.T._base = owner
    return matrix


def matrix_over(module: Any, host: Any, owner: Any) -> Any:
    """Return an npmat matrix of `module` over a host matrix, holding `owner`."""
    # Constructors of npmat copy their argument, so make a small matrix and set its array.
    matrix = module.CUDAMatrix(numpy.zeros((1, 1), numpy.float32, order="F"))
    matrix.numpy_array = host
    for name, value in (("mat", host), ("num_elems", host.size)):
        if name in vars(matrix):  # kept by the constructor, not computed
            setattr(matrix, name, value)
    matrix._base = owner
    return matrix


# ---- from CUDAMat -------------------------------------------------------------------------------


# The number of guards of each matrix, by its id; each guard holds the matrix. The matrix itself cannot be the key,
# because its class may compare elements or have no hash.
_guards: dict[int, int] = {}
# A collection inside the lock may destroy the last guard of another matrix, in the same thread.
_guards_lock = threading.RLock()


class FreeGuard(OwnerGroup):
    """Holds a CUDAMatrix and keeps it from freeing its memory while an array shares that memory.

    CUDAMat frees on request, even if the memory is in use; with `owns_data` off, the request has no effect.
    Without guards the matrix owns its memory again. `struct` is the struct of `root`, which owns the memory.
    """

    __slots__ = ("root", "struct")

    def __init__(self, matrix: Any, root: Any, struct: Any) -> None:
        super().__init__(matrix)
        self.root, self.struct = None, struct
        with _guards_lock:
            count = _guards.get(id(root), 0)
            if count or struct.owns_data:  # otherwise the memory already has another owner
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


def read_struct(mat: Any, where: str) -> tuple[int, int, int]:
    """Return the rows, the columns and the device address in a struct whose memory is on the GPU."""
    rows, columns = mat.size[0], mat.size[1]
    if not mat.on_device:
        raise errors.ExchangeError(
            where=where,
            expected="a matrix whose values are on the GPU",
            got=f"a matrix of size ({rows}, {columns}) that is on the host only, or was freed",
            fix="call m.copy_to_device() first",
        )
    return rows, columns, int(ctypes.cast(mat.data_device, ctypes.c_void_p).value or 0)


def describe(m: Any, layout: str = "logical") -> ArrayInfo:
    """Describe a matrix of CUDAMat or of npmat; `owner` holds the data that `adopt` needs."""
    where = "from_cudamat"
    _check_layout(layout, where)
    host, mat = array_or_struct(m)
    if host is not None:
        # Only the logical layout has the strides of the array itself.
        info = describe_host(m, host, where, contiguous=layout == "memory")
        if layout == "memory":  # the same bytes in row order: C strides over column-major memory
            info = replace(info, strides=(info.shape[1] * info.itemsize, info.itemsize))
        return info
    if not hasattr(m, "shape"):
        raise errors.ConversionTypeError(
            where=where,
            expected="a CUDAMatrix, which owns or holds its memory",
            got="a transposed matrix, .T, which does neither",
            fix="convert the matrix and transpose the result: from_cudamat(m).T",
        )
    rows, columns, ptr = read_struct(mat, where)
    root = m
    while getattr(root, "sliceof", None) is not None:
        root = root.sliceof
    whole = mat if root is m else array_or_struct(root)[1]
    held_rows, held_columns, start = read_struct(whole, where)
    if not 0 <= (ptr - start) // 4 <= held_rows * held_columns - rows * columns:
        raise errors.BoundsError(
            where=where,
            expected=f"a slice inside its matrix of {held_rows * held_columns} elements",
            got=f"{rows * columns} elements from element {(ptr - start) // 4} on: CUDAMat places "
            "slices of a column vector wrongly",
            fix="slice the array instead: from_cudamat(matrix)[first:last]",
        )
    if layout == "memory":
        shape, strides = (rows, columns), (columns * 4, 4)
    elif mat.is_trans:
        shape, strides = (columns, rows), (rows * 4, 4)
    else:
        shape, strides = (rows, columns), (4, rows * 4)
    ptr = ptr if rows * columns else 0
    return ArrayInfo(
        shape, strides, "float32", 4, *device_of_address(ptr), ptr, library="cudamat",
        owner=(root, whole),
    )  # fmt: skip


def adopt(m: Any, info: ArrayInfo, plan: Plan) -> Any:
    """Return an array over the memory of a matrix, which is kept from freeing that memory."""
    if isinstance(info.owner, tuple):
        info = replace(info, owner=FreeGuard(m, *info.owner))
    return import_memory(m, info, plan)


# ---- npmat, whose matrices are NumPy arrays on the host -----------------------------------------


def array_or_struct(m: Any) -> tuple[Any, Any]:
    """Return the array in an npmat matrix and None, or None and the struct in a CUDAMatrix."""
    host, struct = getattr(m, "numpy_array", None), getattr(m, "mat", None)
    array = numpy.ndarray
    if isinstance(host, array) and (struct is None or isinstance(struct, array)):
        return host, None
    return None, struct


def describe_host(obj: Any, host: Any, where: str, contiguous: bool) -> ArrayInfo:
    """Describe `host`, the array in the npmat matrix of `obj`, which may exchange its array later."""
    array = numpys.as_base_array(host)
    fault = numpys.judge_host(host, array, where)
    if fault is not None:
        raise fault.exception()
    gaps = contiguous and array.size and not (array.flags.c_contiguous or array.flags.f_contiguous)
    if array.ndim != 2 or gaps:
        raise errors.ExchangeError(
            where=where,
            expected="npmat memory of two dimensions without gaps",
            got=f"a numpy_array of shape {array.shape} with strides {array.strides}",
            fix="pass a copy, which the library makes dense",
        )
    return replace(numpys.describe_host(array), library="cudamat", owner=OwnerGroup(obj, array))
