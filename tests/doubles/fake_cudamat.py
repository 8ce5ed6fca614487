"""Fakes with the documented attributes of CUDAMat, npmat and gnumpy, which need Python 2 to run.

Faults of the originals that a converter must survive are reproduced and marked.
"""

import ctypes
import sys
import types
from collections import defaultdict

import numpy as np

from doubles import driver, fake_pycuda


class MatrixStruct(ctypes.Structure):
    """The struct of a matrix in CUDAMat's C library."""

    _fields_ = (
        ("data_host", ctypes.POINTER(ctypes.c_float)),
        ("data_device", ctypes.POINTER(ctypes.c_float)),
        ("on_device", ctypes.c_int),
        ("on_host", ctypes.c_int),
        ("size", ctypes.c_int * 2),
        ("is_trans", ctypes.c_int),
        ("owns_data", ctypes.c_int),
    )


# ---- CUDAMat ------------------------------------------------------------------------------------


def cudamat():
    """A CUDAMat for Python 3, in the primary context."""
    module = types.ModuleType("cudamat")

    class Struct(MatrixStruct):
        """A class of each module's own."""

    def address(mat):
        return ctypes.cast(mat.data_device, ctypes.c_void_p).value or 0

    class TransposedCUDAMatrix:
        __module__ = "cudamat.cudamat"
        __qualname__ = "TransposedCUDAMatrix"

        def __init__(self, mat):
            self.mat = Struct()
            ctypes.memmove(ctypes.byref(self.mat), ctypes.byref(mat), ctypes.sizeof(mat))
            self.mat.is_trans, self.mat.owns_data = 1, 0
            self.p_mat = ctypes.pointer(self.mat)

    class CUDAMatrix:
        __module__ = "cudamat.cudamat"
        __qualname__ = "CUDAMatrix"

        def __init__(self, array, copy_to_device=True):
            if isinstance(array, np.ndarray):
                self.numpy_array = np.array(array, np.float32, order="F", ndmin=2)
                self.mat = Struct()
                self.mat.size[0], self.mat.size[1] = self.numpy_array.shape
                self.size = self.mat.size
                self.mat.on_host, self.mat.owns_data = 1, 1
                if copy_to_device:
                    self.copy_to_device()
            else:
                self.mat = array
            self.p_mat = ctypes.pointer(self.mat)
            self.T = TransposedCUDAMatrix(self.mat)

        def copy_to_device(self):
            ptr = driver.allocate(self.numpy_array.nbytes)
            fake_pycuda.write(ptr, self.numpy_array.ravel(order="F"))
            self.mat.data_device = ctypes.cast(ctypes.c_void_p(ptr), ctypes.POINTER(ctypes.c_float))
            self.mat.on_device = 1

        @property
        def shape(self):
            return (self.mat.size[0], self.mat.size[1])

        def set_trans(self, flag):
            self.mat.is_trans = int(flag)

        def slice(self, first, last):
            part = Struct()
            rows, columns = self.shape
            # Fault of the original: a column vector is offset by whole columns as well.
            start = address(self.mat) + 4 * first * rows
            part.size[0], part.size[1] = (last - first, 1) if columns == 1 else (rows, last - first)
            part.on_device, part.owns_data = self.mat.on_device, 0
            part.data_device = ctypes.cast(ctypes.c_void_p(start), ctypes.POINTER(ctypes.c_float))
            made = CUDAMatrix(part)
            made.sliceof = getattr(self, "sliceof", self)
            return made

        def asarray(self):
            rows, columns = self.shape
            flat = fake_pycuda.read(address(self.mat), rows * columns)
            self.numpy_array = flat.reshape((rows, columns), order="F")
            return self.numpy_array

        def free_device_memory(self):
            if self.mat.owns_data and self.mat.on_device:
                driver.push(driver.primary())  # the runtime API finds its context itself
                driver.free(address(self.mat))
                driver.pop()
                self.mat.on_device = 0

        def __del__(self):
            # The driver may have shut down: gnumpy's cache keeps matrices until the process exits.
            if "mat" in self.__dict__ and not sys.is_finalizing():
                self.free_device_memory()

    module.cudamat, module.CUDAMatrix = Struct, CUDAMatrix
    module.TransposedCUDAMatrix = TransposedCUDAMatrix
    return module


# ---- npmat --------------------------------------------------------------------------------------


def npmat(dtype="float32", copies=False):
    """npmat: the replacement of CUDAMat that gnumpy brings, on host memory.

    With `copies`, its constructor takes no memory over, as that of gnumpy 0.2.
    """
    module = types.ModuleType("npmat")
    module.__DTYPE__ = np.dtype(dtype)

    class CUDAMatrix:
        __module__ = "npmat"
        __qualname__ = "CUDAMatrix"

        def __init__(self, array, ref=True):
            take = np.array if copies else np.asarray
            kept = take(array, module.__DTYPE__, order="F")
            self.numpy_array = kept if kept.ndim == 2 else kept.reshape((kept.size, 1), order="F")
            self.trans = False

        @property
        def mat(self):
            return self.numpy_array

        @property
        def num_elems(self):
            return self.numpy_array.size

        @property
        def shape(self):
            return self.numpy_array.shape

        def reshape(self, shape):
            self.numpy_array = self.numpy_array.reshape(shape, order="F")
            return self

        def set_trans(self, flag):
            if flag:
                self.numpy_array = self.numpy_array.T.copy(order="F")

        def asarray(self):
            return self.numpy_array

        def free_device_memory(self):
            pass

    module.CUDAMatrix = CUDAMatrix
    return module


# ---- gnumpy -------------------------------------------------------------------------------------


def gnumpy(backend):
    """Gnumpy over a CUDAMat or an npmat, with its reuse cache."""
    module = types.ModuleType("gnumpy")
    module._cudamat = backend
    module._cmsForReuse = defaultdict(list)

    def new_matrix(size):
        if module._cmsForReuse[size]:
            return module._cmsForReuse[size].pop()  # contents not cleared
        return backend.CUDAMatrix(np.zeros((max(size, 1), 1), np.float32))

    class garray:
        __module__ = "gnumpy"
        __qualname__ = "garray"

        def __init__(self, data, shape=None, is_alias_of=None):
            if shape is None:
                host = np.asarray(data, np.float32)
                self.shape, self.size = host.shape, host.size
                self._base = backend.CUDAMatrix(
                    host.reshape(-1, 1) if host.size else np.zeros((1, 1))
                )
                self._is_alias_of = None
            else:
                assert isinstance(data, backend.CUDAMatrix)
                self._base, self.shape = data, tuple(shape)
                self.size = int(np.prod(self.shape, dtype=np.int64))
                self._is_alias_of = is_alias_of
            self.ndim = len(self.shape)

        @property
        def ndarray(self):
            return (
                np.asarray(self._base.asarray()).ravel(order="F")[: self.size].reshape(self.shape)
            )

        def __del__(self):
            if getattr(self, "_is_alias_of", self) is None:
                module._cmsForReuse[self.size].append(self._base)
            elif "_is_alias_of" in self.__dict__:
                assert isinstance(self._is_alias_of, garray)

    def empty(shape):
        shape = tuple(shape)
        made = garray(new_matrix(int(np.prod(shape))), shape, None)
        made._is_alias_of = None
        return made

    module.garray, module.empty = garray, empty
    module.free_reuse_cache = module._cmsForReuse.clear
    return module
